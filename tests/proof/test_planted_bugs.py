"""A run finds what it is there to find: each bug that broken.py can plant shows as a mismatch."""

from __future__ import annotations

import pytest

from tests.proof.broken import BUGS, VARIABLE
from tests.proof.run import prove
from tests.proof.workers import Workers
from tests.support.process import Launcher

APP = "tests.proof.broken:app"
WITHIN_SECONDS = 60.0

# Nothing but a crash at the wrong moment shows these.
NEED_KILLS = {"marked_before_written", "answered_before_committed"}


@pytest.mark.parametrize("bug", BUGS)
async def test_a_planted_bug_is_found(launcher: Launcher, bug: str) -> None:
    workers = Workers(launcher, store="", number=1, app=APP, env={VARIABLE: bug})
    kills = 3 if bug in NEED_KILLS else 0
    report = await prove(workers, seed=1, deliveries=1500, kills=kills, within=WITHIN_SECONDS)
    assert report.mismatches, report


async def test_without_a_bug_it_finds_none(launcher: Launcher) -> None:
    """The same app, so that it is the bug that is found and not the way it is planted."""
    workers = Workers(launcher, store="", number=1, app=APP)
    report = await prove(workers, seed=1, deliveries=1500, kills=0, within=WITHIN_SECONDS)
    assert not report.mismatches, report
