"""Random operations on the broker and on Google's emulator, side by side: every difference is a known one.

The short form of `make differ`: see docs/differences.md. The same seeds each time; DIFFER_SEED begins elsewhere."""

from __future__ import annotations

import os

from tests.differential.generator import generate
from tests.differential.reporting import compare
from tests.differential.side_by_side import SideBySide

SEQUENCES = 30


def test_random_sequences_lead_to_the_same_on_both(sides: SideBySide) -> None:
    report = compare(sides, int(os.environ.get("DIFFER_SEED") or 1), sequences=SEQUENCES)
    assert not report.found, report
    assert report.operations > SEQUENCES * 5, "most sequences end early: the known differences hide what comes after"


def test_a_seed_repeats_its_sequence() -> None:
    assert generate(7) == generate(7) != generate(8)
