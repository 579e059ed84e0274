"""The long run of `make differ`:

python -m tests.differential [--seed N] [--minutes M | --sequences N] [--keep-going] [--replay FILE]
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.differential.operations import Operation, from_json
from tests.differential.reporting import compare
from tests.differential.side import Side
from tests.differential.side_by_side import SideBySide
from tests.support.google_emulator import find_jar, java_command, running_emulator
from tests.support.served_broker import Server


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.differential",
        description="Random operations on Holdfast's broker and on Google's emulator, side by side.",
    )
    parser.add_argument("--seed", type=int, help="of the first sequence, instead of a new one; the next has the next")
    parser.add_argument("--minutes", type=float, default=5.0, help="how long to go on (5)")
    parser.add_argument("--sequences", type=int, help="how many, instead of minutes")
    parser.add_argument("--keep-going", action="store_true", help="after a difference, look for others")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="this sequence, in JSON, instead of random ones")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # and everything that was started ends too
    with both_sides() as sides:
        if asked.replay:
            sys.exit(_replay(sides, from_json(asked.replay.read_text(encoding="utf-8"))))
        seed = random.SystemRandom().randrange(10**6) if asked.seed is None else asked.seed
        print(f"from seed {seed} on …", flush=True)
        report = compare(
            sides,
            seed,
            seconds=float("inf") if asked.sequences else asked.minutes * 60,
            sequences=asked.sequences,
            keep_going=asked.keep_going,
            tell=lambda text: print(text, flush=True),
        )
    report.told.clear()  # heard already
    print(report)
    sys.exit(1 if report.found else 0)


@contextmanager
def both_sides() -> Iterator[SideBySide]:
    jar, java = find_jar(), shutil.which("java")
    if not (jar and java):
        sys.exit("Google's Pub/Sub emulator and java are needed")
    with tempfile.TemporaryDirectory(prefix="holdfast-differ-") as directory:
        server = Server(Path(directory) / "broker.db")
        try:
            with running_emulator(java_command(java, jar), Path(directory)) as emulator:
                ours, theirs = Side(server.address), Side(emulator)
                yield SideBySide(ours, theirs)
                ours.close()
                theirs.close()
        finally:
            server.stop()


def _replay(sides: SideBySide, sequence: Sequence[Operation]) -> int:
    compared = sides.run(sequence)
    for difference in compared.differences:
        print(f"{difference}\n  known: {difference.known.name if difference.known else 'no'}")
    return 1 if compared.unexplained else 0


if __name__ == "__main__":
    main()
