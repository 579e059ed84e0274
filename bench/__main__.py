"""Runs the parts that were asked for, all by default, and writes bench/results/ and what the documentation shows of it.

A part that fails is told at the end and keeps the results of its last run; the others go on. To add a part: a module
with a `run(session)` that gives its comparisons, a line in PARTS, and its two markers in docs/performance.md.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench import (
    broker,
    collector,
    consumer,
    desk,
    desk_replay,
    firestore,
    growth,
    journey,
    limits,
    pages,
    plot,
    pull,
    push,
    report,
    startup,
)
from bench.environment import describe_environment
from bench.figures import Comparison, Part
from bench.generator import Generator, LoadFailed
from bench.missing import Missing
from bench.session import Session

PARTS: dict[str, Callable[[Session], list[Comparison]]] = {
    "broker": broker.run,
    "limits": limits.run,
    "growth": growth.run,
    "push": push.run,
    "startup": startup.run,
    "consumer": consumer.run,
    "firestore": firestore.run,
    "pull": pull.run,
    "collector": collector.run,
    "desk_replay": desk_replay.run,
    "desk": desk.run,
    "journey": journey.run,
}

# What is not drawn as bars.
DRAWN: dict[str, Callable[[Sequence[Comparison]], str]] = {"growth": growth.draw}

HERE = Path(__file__).parent
RESULTS = HERE / "results"


def main() -> int:
    arguments = _arguments()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end)
    started = time.monotonic()
    try:
        with Session(Generator.build(), HERE / ".scratch", arguments.rounds) as session:
            names = arguments.parts or list(PARTS)
            failed = run_parts(names, session, RESULTS)
    except Missing as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    finally:
        pages.write(RESULTS, list(PARTS))
    measured = [part for part in report.read_parts(RESULTS, list(PARTS)) if part.name in names]
    done = [part for part in measured if part.name not in failed]
    print(f"\n{report.summary(done)}\n\n{_verdict(done)}")
    print(f"Took {(time.monotonic() - started) / 60:.1f} minutes. Tables and plots: {os.path.relpath(RESULTS)}")
    for name, reason in failed.items():
        print(f"bench: {name} failed, and its results are still those of an earlier run: {reason}", file=sys.stderr)
    return 1 if failed else 0


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


def _end(number: int, frame: Any) -> None:
    """Servers are ended as their `with` blocks are left. A second signal would cut that short and leave some behind."""
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, signal.SIG_IGN)
    print("bench: ending what was started", file=sys.stderr, flush=True)
    sys.exit(128 + number)


def run_parts(names: Sequence[str], session: Session, results: Path) -> dict[str, str]:
    """Gives why parts failed, by name."""
    failed: dict[str, str] = {}
    for name in names:
        try:
            _run(name, session, results)
        except (Missing, LoadFailed) as error:
            failed[name] = str(error)
        except Exception as error:  # noqa: BLE001 - whatever it is, it costs this part alone
            traceback.print_exc()
            failed[name] = f"{type(error).__name__}: {error}"
        if name in failed:
            print(f"bench: {name} failed: {failed[name]}", file=sys.stderr, flush=True)
    return failed


def _run(name: str, session: Session, results: Path) -> None:
    print(f"== {name}", flush=True)
    environment = describe_environment(session)  # before the load, which the disk feels for a while after
    started = time.monotonic()
    comparisons = PARTS[name](session)
    seconds = time.monotonic() - started
    draw = DRAWN.get(name, plot.bars)
    report.write_part(results, Part(name, environment, seconds, comparisons), draw(comparisons))
    report.write_markdown(results, list(PARTS))
    print(f"   {name} took {seconds:.0f} s", flush=True)


def _verdict(parts: Sequence[Part]) -> str:
    judged = [one for part in parts for one in part.comparisons if one.bar.judges]
    missed = [one.title for one in judged if not one.met]
    return "\n".join(
        [f"{len(judged) - len(missed)} of {len(judged)} bars are met.", *(f"Missed: {one}" for one in missed)]
    )


if __name__ == "__main__":
    sys.exit(main())
