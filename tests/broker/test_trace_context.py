"""The context in a message's bytes, against what protobuf makes of the same bytes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.broker.trace_context import MOST_REMEMBERED, NOT_SAMPLED, Tracing, context_in, with_context
from holdfast.broker.wire import PubsubMessage, stored_bodies
from holdfast.tracing.context import ATTRIBUTE

SAMPLED = f"00-{'ab' * 16}-{'cd' * 8}-01"
UNSAMPLED = f"00-{'ab' * 16}-{'cd' * 8}-00"
BOTH_FLAGS = f"00-{'ab' * 16}-{'cd' * 8}-03"


def message(context: str | None = None, data: bytes = b"data", **attributes: str) -> bytes:
    if context is not None:
        attributes[ATTRIBUTE] = context
    encoded: bytes = PubsubMessage(data=data, attributes=attributes, ordering_key="key").SerializeToString()
    return encoded


@pytest.mark.parametrize(("context", "found"), [(SAMPLED, SAMPLED), (BOTH_FLAGS, BOTH_FLAGS), (UNSAMPLED, NOT_SAMPLED)])
def test_it_is_found_in_what_is_published_and_in_what_is_stored(context: str, found: str) -> None:
    published = message(context, a="1", z="2")
    assert context_in(published) == found
    (stored,) = stored_bodies([published], [b"1234567890123"], 10**18)
    assert context_in(stored) == found


@pytest.mark.parametrize(
    "written",
    [
        "",
        "x",
        SAMPLED + "-more",
        SAMPLED.upper(),
        f"01{SAMPLED[2:]}",
        f"00-{'0' * 32}-{'cd' * 8}-01",
        SAMPLED[:-1] + "é",
    ],
)
def test_what_is_no_context_is_none(written: str) -> None:
    assert context_in(message(written)) == ""


def test_a_payload_that_looks_like_it_is_not_believed() -> None:
    """A message inside a message, say."""
    inner = message(SAMPLED)
    assert context_in(message(data=inner)) == ""
    other = SAMPLED.replace("ab", "12")
    assert context_in(message(other, inner)) == other
    assert context_in(message(other, message(UNSAMPLED))) == other
    for cut in range(1, len(inner)):
        assert context_in(PubsubMessage(data=inner[:cut]).SerializeToString()) in ("", NOT_SAMPLED)
    assert context_in(message(data=inner, a=inner[:1000].decode("latin-1"))) == ""


@given(st.binary(max_size=60), st.dictionaries(st.text(max_size=5), st.text(max_size=60), max_size=4), st.booleans())
def test_it_is_what_protobuf_finds(data: bytes, attributes: dict[str, str], marked: bool) -> None:
    encoded = PubsubMessage(data=data, attributes=attributes).SerializeToString()
    assert context_in(encoded) == ""
    if marked:
        encoded = with_context(encoded, SAMPLED)
        marked = bool(data or attributes)  # what is empty is left as it is
    parsed: Any = PubsubMessage.FromString(encoded)
    assert parsed.data == data
    assert dict(parsed.attributes) == attributes | ({ATTRIBUTE: SAMPLED} if marked else {})
    assert context_in(encoded) == (SAMPLED if marked else "")


def test_a_message_that_is_full_is_left_as_it_is() -> None:
    full: bytes = PubsubMessage(attributes={str(number): "v" for number in range(100)}).SerializeToString()
    assert with_context(full, SAMPLED) == full


def test_not_everything_is_remembered() -> None:
    tracing = Tracing(traces=None, marks=False)  # type: ignore[arg-type]  # nothing is begun here
    for number in range(MOST_REMEMBERED + 10):
        tracing.remember(number, SAMPLED)
    assert tracing.context_of(9, message()) == ""
    assert tracing.context_of(10, message()) == SAMPLED
    # What a message says itself comes first, also that nobody wants to see it.
    assert tracing.context_of(10, message(UNSAMPLED)) == ""


def test_a_message_without_anything_in_it_stays_so() -> None:
    """The broker refuses it, and a mark must not make it one that is taken."""
    empty = PubsubMessage(ordering_key="key").SerializeToString()
    assert with_context(empty, SAMPLED) == empty
    assert context_in(with_context(message(data=b"", a="b"), SAMPLED)) == SAMPLED
