"""The long runs of `make proof`:

python -m tests.proof [--deliveries N] [--seed N] [sqlite] [postgresql] [firestore] [replay]
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from tests.proof.replay import prove_replay
from tests.proof.run import Report, prove
from tests.proof.workers import Workers
from tests.support.firestore_emulator import new_emulator
from tests.support.postgres import running_postgres
from tests.support.process import Launcher


@dataclass(frozen=True, slots=True)
class Size:
    deliveries: int
    kills: int
    workers: int
    within: float  # seconds


SIZES = {
    "sqlite": Size(200_000, kills=25, workers=1, within=900),
    "postgresql": Size(200_000, kills=40, workers=3, within=1800),
    "firestore": Size(10_000, kills=10, workers=3, within=900),
}

REPLAY = "replay"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.proof", description="Documents against a sequential oracle; a replay that is killed."
    )
    parser.add_argument("runs", nargs="*", metavar="RUN", help=f"any of {', '.join(SIZES)}, {REPLAY}; all without one")
    parser.add_argument("--deliveries", type=int, help="instead of the size of each store")
    parser.add_argument("--seed", type=int, help="instead of a new one")
    asked = parser.parse_args()
    if unknown := set(asked.runs) - {*SIZES, REPLAY}:
        parser.error(f"there is no run {', '.join(sorted(unknown))}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # and everything that was started ends too
    seed = random.SystemRandom().randrange(10**6) if asked.seed is None else asked.seed
    failed = []
    stores = [name for name in asked.runs or SIZES if name != REPLAY]
    for store in stores:
        print(f"{store}, seed {seed} …", flush=True)
        report = run(store, seed, asked.deliveries or SIZES[store].deliveries)
        print(report, end="\n\n", flush=True)
        if report.mismatches:
            failed.append(store)
    is_replay_good = _replay() if REPLAY in (asked.runs or [REPLAY]) else True
    if failed:
        sys.exit(f"wrong documents on {', '.join(failed)}; the same again: --seed {seed} {' '.join(failed)}")
    if not is_replay_good:
        sys.exit("the replay did not keep what it promises")


def _replay() -> bool:
    print("replay of 10,000 failures at 50/s …", flush=True)
    with tempfile.TemporaryDirectory(prefix="holdfast-proof-") as directory, Launcher(Path(directory)) as launcher:
        replayed = prove_replay(launcher, failures=10_000, per_second=50, kills=2, within=400)
    print(replayed, end="\n\n", flush=True)
    return not replayed.problems


def run(store: str, seed: int, deliveries: int) -> Report:
    size = SIZES[store]

    async def proof(launcher: Launcher, url: str, env: dict[str, str]) -> Report:
        return await prove(Workers(launcher, url, size.workers, env=env), seed, deliveries, size.kills, size.within)

    with (
        tempfile.TemporaryDirectory(prefix="holdfast-proof-") as directory,
        Launcher(Path(directory)) as launcher,
        _store(store, Path(directory)) as (url, env),
    ):
        return asyncio.run(proof(launcher, url, env))


@contextmanager
def _store(name: str, directory: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """The URL that workers are given, and what else they must know."""
    match name:
        case "postgresql":
            with running_postgres() as server, server.database() as url:
                yield url, {}
        case "firestore":
            emulator = new_emulator(directory)
            emulator.start()
            try:
                yield f"firestore://proof-{uuid4().hex[:12]}", {"FIRESTORE_EMULATOR_HOST": emulator.address}
            finally:
                emulator.stop()
        case _:
            yield "", {}


if __name__ == "__main__":
    main()
