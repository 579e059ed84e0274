"""Documents equal to a sequential oracle, on every store that outlives its process, though workers are killed.

The short form of `make proof`: see docs/proof.md."""

from __future__ import annotations

import os
import random
from uuid import uuid4

from tests.proof.run import Report, prove
from tests.proof.workers import Workers
from tests.support.firestore_emulator import FirestoreEmulator, firestore_emulator
from tests.support.postgres import database_url, postgres
from tests.support.process import Launcher

__all__ = ["database_url", "firestore_emulator", "postgres"]

WITHIN_SECONDS = 100.0


def seed() -> int:
    """Another one each time; PROOF_SEED repeats the one that a failure names."""
    return int(os.environ.get("PROOF_SEED") or random.SystemRandom().randrange(10**6))


def check(report: Report, kills: int) -> None:
    assert not report.mismatches, f"repeat it with PROOF_SEED={report.seed}\n{report}"
    assert report.kills == kills
    assert report.outcomes.keys() == {"applied", "duplicate", "stale_ignored", "poison"}
    assert report.statuses.keys() <= {0, 200, 422, 429, 500, 503}
    assert report.statuses[0] > 0, "no kill met a request"


async def test_sqlite(launcher: Launcher) -> None:
    workers = Workers(launcher, store="", number=1)
    check(await prove(workers, seed(), deliveries=20_000, kills=3, within=WITHIN_SECONDS), kills=3)


async def test_postgresql(launcher: Launcher, database_url: str) -> None:
    workers = Workers(launcher, database_url, number=3)
    check(await prove(workers, seed(), deliveries=10_000, kills=4, within=WITHIN_SECONDS), kills=4)


async def test_firestore(launcher: Launcher, firestore_emulator: FirestoreEmulator) -> None:
    env = {"FIRESTORE_EMULATOR_HOST": firestore_emulator.address}
    workers = Workers(launcher, f"firestore://proof-{uuid4().hex[:12]}", number=2, env=env)
    check(await prove(workers, seed(), deliveries=1500, kills=3, within=WITHIN_SECONDS), kills=3)
