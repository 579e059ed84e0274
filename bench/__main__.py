"""Runs the parts that were asked for, all by default, and writes bench/results/.

To add a part: a module with a `run(session)` that gives its comparisons, and a line in PARTS.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bench import broker, consumer, desk, desk_replay, firestore, growth, plot, pull, push, report, startup
from bench.environment import describe_environment
from bench.figures import Comparison, Part
from bench.generator import Generator, LoadFailed
from bench.missing import Missing
from bench.session import Session

PARTS: dict[str, Callable[[Session], list[Comparison]]] = {
    "broker": broker.run,
    "growth": growth.run,
    "push": push.run,
    "startup": startup.run,
    "consumer": consumer.run,
    "firestore": firestore.run,
    "pull": pull.run,
    "desk": desk.run,
    "desk_replay": desk_replay.run,
}

# What is not drawn as bars.
DRAWN: dict[str, Callable[[Sequence[Comparison]], str]] = {"growth": growth.draw}

HERE = Path(__file__).parent
RESULTS = HERE / "results"


def main() -> int:
    arguments = _arguments()
    # Servers are ended as their `with` blocks are left, which SIGTERM alone would not do.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        with Session(Generator.build(), HERE / ".scratch", arguments.rounds) as session:
            for name in arguments.parts or PARTS:
                _run(name, session)
    except (Missing, LoadFailed) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    print(f"\n{report.summary(RESULTS)}\nTable and plots: {os.path.relpath(RESULTS)}")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all without one")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each measure (default: %(default)s)")
    arguments = parser.parse_args()
    for name in arguments.parts:
        if name not in PARTS:
            parser.error(f"there is no part called {name}; there are {', '.join(PARTS)}")
    if arguments.rounds < 1:
        parser.error("--rounds must be at least 1")
    return arguments


def _run(name: str, session: Session) -> None:
    print(f"== {name}", flush=True)
    environment = describe_environment(session)  # before the load, which the disk feels for a while after
    started = time.monotonic()
    comparisons = PARTS[name](session)
    seconds = time.monotonic() - started
    draw = DRAWN.get(name, plot.bars)
    report.write_part(RESULTS, Part(name, environment, seconds, comparisons), draw(comparisons))
    report.write_markdown(RESULTS)


if __name__ == "__main__":
    sys.exit(main())
