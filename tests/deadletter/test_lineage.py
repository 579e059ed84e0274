"""Only what the desk itself has signed is believed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.deadletter.lineage import Lineage, LineageSigner
from holdfast.model.dead_letter_attributes import LONGEST_VALUE

SECRET = bytes(range(32))
SIGNER = LineageSigner("3f2a", SECRET)
LARGEST = 2**63 - 1

numbers = st.integers(min_value=0, max_value=LARGEST // 10)


@given(failure_id=numbers, number=numbers, revision=numbers)
def test_what_was_signed_is_read_back(failure_id: int, number: int, revision: int) -> None:
    lineage = Lineage(failure_id, number, revision)
    assert SIGNER.read(SIGNER.replay_id(lineage)) == lineage


def test_it_is_the_same_over_versions() -> None:
    """A message may be out while the desk is brought up to date."""
    assert SIGNER.replay_id(Lineage(17, 2, 1)) == "3f2a.17.2.1.4-8fzFZlGU08yqbCHEmQQT"


def test_it_fits_into_an_attribute() -> None:
    longest = LineageSigner("f" * 36, SECRET).replay_id(Lineage(LARGEST, LARGEST, LARGEST))
    assert len(longest) < LONGEST_VALUE
    assert LineageSigner("f" * 36, SECRET).read(longest) == Lineage(LARGEST, LARGEST, LARGEST)


@pytest.mark.parametrize("position", range(len(SIGNER.replay_id(Lineage(17, 2, 1)))))
def test_one_changed_letter_is_noticed(position: int) -> None:
    signed = SIGNER.replay_id(Lineage(17, 2, 1))
    changed = signed[:position] + ("1" if signed[position] != "1" else "2") + signed[position + 1 :]
    assert SIGNER.read(changed) is None


def test_that_of_another_desk_is_foreign() -> None:
    lineage = Lineage(1, 1)
    assert SIGNER.read(LineageSigner("other", SECRET).replay_id(lineage)) is None
    assert SIGNER.read(LineageSigner("3f2a", bytes(32)).replay_id(lineage)) is None


@pytest.mark.parametrize(
    "text",
    ["", ".", "....", "3f2a.1.1.0.", "3f2a.01.1.0." + "A" * 22, "3f2a.-1.1.0." + "A" * 22, "3f2a.1.1.0." + "A" * 10**6],
)
def test_what_has_another_form_is_nothing(text: str) -> None:
    assert SIGNER.read(text) is None


@given(st.text(st.characters(exclude_categories=[])))  # lone surrogates and all
def test_any_garbage_is_nothing(text: str) -> None:
    assert SIGNER.read(text) is None
