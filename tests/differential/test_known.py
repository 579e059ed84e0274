"""Each known difference is real, and docs/differences.md tells of it in the same words."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.differential.known import KNOWN, Known
from tests.differential.side_by_side import SideBySide
from tests.test_docs import rows, section

PAGE = Path(__file__).resolve().parents[2] / "docs" / "differences.md"

# What every topic and subscription shows.
USUAL = KNOWN[0]


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: known.name)
def test_its_example_shows_it_and_nothing_else(sides: SideBySide, known: Known) -> None:
    compared = sides.run(known.example)
    assert not compared.unexplained, "\n".join(map(str, compared.unexplained))
    found = [one.known.name for one in compared.differences if one.known and one.known is not USUAL]
    assert set(found) == ({known.name} if known is not USUAL else set())
    assert compared.operations == len(known.example), "a difference before the last operation ended it"


def test_the_page_has_the_same_table() -> None:
    told = rows(section(PAGE, "Google's emulator"))
    assert told == [["What", "Why"], *([known.name, known.why] for known in KNOWN)]
