"""Where the time of a hot path goes: `make profile`, or `make profile ONLY=publish` for one of them.

A server is loaded twice. The first time its threads are asked how much processor time they used, which is exact. The
second time py-spy looks 500 times a second at who holds the interpreter lock: those are the shares of Python. What the
other threads used without the lock is SQLite itself, the kernel included. Both together are microseconds a message.

Writes bench/results/profiles/, a table and a flame graph for each, which docs/performance.md shows.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench import procfs
from bench.environment import describe_environment
from bench.flame import flame
from bench.generator import Generator, LoadFailed
from bench.missing import Missing
from bench.peers import Server, holdfast_consumer, holdfast_sqlite
from bench.report import environment_text, table
from bench.session import Session

FOLDER = "profiles"
LOOKS_PER_SECOND = 500
SECONDS = 8.0

Stacks = dict[tuple[str, ...], int]


@dataclass(frozen=True, slots=True)
class HotPath:
    """A hot path: a server, and what the generator asks of it."""

    title: str
    command: str
    messages: int  # of the first, unmeasured load
    start: Callable[[Path], AbstractContextManager[Server]] = holdfast_sqlite
    flags: dict[str, int] = field(default_factory=dict)


def _consumer(scratch: Path) -> Server:
    return holdfast_consumer("Holdfast, SQLite", scratch, environment={"CONSUMER_QUEUE_SIZE": "1024"})


PATHS = {
    "publish": HotPath("publish, 100 a batch", "publish", 200_000, flags={"batch": 100, "callers": 8}),
    "single": HotPath("publish, 1 a call, 16 at once", "publish", 10_000, flags={"batch": 1, "callers": 16}),
    "stream": HotPath("publish to ack on a stream", "stream", 100_000),
    "push": HotPath("publish to push endpoint", "push", 20_000, flags={"callers": 2}),
    "consume": HotPath("push to the consumer", "consume", 10_000, _consumer, {"connections": 100, "services": 1_000}),
}

# Whose a stack is: the innermost frame that one of these is part of says it. The more special stands first.
PLACES = (
    ("holdfast/api/http2/sending.py", "HTTP/2: writing to sockets, the system call included", "#9ecae1"),
    ("holdfast/api/http2/", "HTTP/2: frames, headers, calls", "#c6dbef"),
    ("holdfast/api/grpc/", "gRPC methods", "#deebf7"),
    ("holdfast/broker/wire", "protobuf: requests cut up, messages and answers put together", "#a1d99b"),
    ("holdfast/broker/limits.py", "checks of what is published", "#c7e9c0"),
    ("holdfast/broker/push/", "push: turns, windows, envelopes", "#fdd0a2"),
    ("holdfast/outgoing/", "push: HTTP requests and their answers", "#fdae6b"),
    ("holdfast/broker/", "broker: ids, cache, backlog, leases, acks", "#74c476"),
    ("holdfast/stores/sqlite/", "store: queue, blocks, statements", "#dadaeb"),
    ("holdfast/stores/", "store: queue, blocks, statements", "#dadaeb"),
    ("holdfast/consumer/", "consumer: decode, route, handle, settle", "#fcbba1"),
    ("holdfast/api/", "HTTP endpoint", "#d9d9d9"),
    ("/uvicorn/", "HTTP server", "#bdbdbd"),
    ("/starlette/", "HTTP server", "#bdbdbd"),
    ("holdfast/", "event loop: sockets read, callbacks called", "#f0f0f0"),
)
REST = ("everything else", "#f0f0f0")
OUTSIDE = "SQLite itself: pages, checksums, write-ahead log, fsync"


@dataclass(frozen=True, slots=True)
class Row:
    where: str
    microseconds: float


@dataclass(frozen=True, slots=True)
class Profile:
    name: str
    title: str
    environment: dict[str, str]
    per_second: float
    loop_us: float  # of processor time a message, in the thread of the event loop
    threads_us: float  # and in all others
    samples: int
    rows: list[Row]

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> Profile:
        return cls(**{**raw, "rows": [Row(**row) for row in raw["rows"]]})


def main(names: Sequence[str]) -> int:
    if unknown := [name for name in names if name not in PATHS]:
        print(f"profile: there is no path called {unknown[0]}; there are {', '.join(PATHS)}", file=sys.stderr)
        return 2
    here = Path(__file__).parent
    try:
        with Session(Generator.build(), here / ".scratch", 1) as session:
            for name in names or PATHS:
                write(here / "results", *profile(session, name, PATHS[name]))
    except (Missing, LoadFailed) as error:
        print(f"profile: {error}", file=sys.stderr)
        return 1
    return 0


def profile(session: Session, name: str, path: HotPath) -> tuple[Profile, str]:
    environment = describe_environment(session)
    with path.start(session.scratch) as server:
        rate = _load(session, server, path, path.messages).per_second
        before = procfs.thread_cpu_seconds(server.pid)
        load = _load(session, server, path, int(rate * SECONDS))
        used = procfs.thread_cpu_seconds(server.pid)
        loop = used.pop(server.pid) - before.pop(server.pid)
        others = sum(used.values()) - sum(before.values())
        stacks, seen = _watched(session, server, path, int(load.per_second * SECONDS))
    loop_us, threads_us = (1e6 * seconds / load.messages for seconds in (loop, others))
    rows = _rows(stacks, loop_us, threads_us, seen)
    found = Profile(name, path.title, environment, load.per_second, loop_us, threads_us, sum(stacks.values()), rows)
    print(f"== {path.title}: {load.per_second:,.0f} msg/s\n{markdown(found)}", flush=True)
    shown = {tuple(frame for frame in stack if _place(frame) != REST): count for stack, count in stacks.items()}
    return found, flame(shown, lambda frame: _place(frame)[1])


def _load(session: Session, server: Server, path: HotPath, messages: int) -> Any:
    load = session.generator.run(
        path.command, server.port, server.pid, limit_seconds=60, messages=max(messages, 1_000), **path.flags
    )
    server.wait_until_idle()
    return load


def _watched(session: Session, server: Server, path: HotPath, messages: int) -> tuple[Stacks, int]:
    """The stacks that were seen, and how many messages there were meanwhile."""
    program = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or shutil.which("py-spy")
    if program is None:
        raise Missing("py-spy is not installed in this Python's environment: run `make install-dev`")
    raw = session.scratch / "stacks.txt"
    command = [program, "record", "--pid", str(server.pid), "--format", "raw", "--gil", "--function"]
    command += ["--full-filenames", "--rate", str(LOOKS_PER_SECOND), "--duration", "3600", "--output", str(raw)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as spy:
        load = _load(session, server, path, messages)
        spy.send_signal(2)  # it writes what it has
        _, said = spy.communicate(timeout=60)
    if not raw.exists():
        last = (said.strip().splitlines() or ["it said nothing"])[-1]
        raise Missing(f"py-spy could not look into the server, which needs root or the right to ptrace: {last}")
    return _read(raw), load.messages


def _read(raw: Path) -> Stacks:
    found: Counter[tuple[str, ...]] = Counter()
    for line in raw.read_text().splitlines():
        stack, _, count = line.rpartition(" ")
        found[tuple(stack.split(";"))] += int(count)
    return dict(found)


def _rows(stacks: Stacks, loop_us: float, threads_us: float, messages: int) -> list[Row]:
    """A thread that is not the event loop's begins in threading.py."""
    loop: Counter[str] = Counter()
    threads: Counter[str] = Counter()
    found: dict[str, float] = defaultdict(float)
    for stack, count in stacks.items():
        (threads if "/threading.py:" in stack[0] else loop)[_whose(stack)] += count
    for where, count in loop.items():
        found[where] += loop_us * count / sum(loop.values())
    in_python = 1e6 * sum(threads.values()) / LOOKS_PER_SECOND / messages
    shrink = min(1.0, threads_us / in_python) if in_python else 0.0
    for where, count in threads.items():
        found[where] += shrink * in_python * count / sum(threads.values())
    found[OUTSIDE] = threads_us - shrink * in_python
    return [
        Row(where, microseconds)
        for where, microseconds in sorted(found.items(), key=lambda one: -one[1])
        if microseconds >= 0.005
    ]


def _whose(stack: Sequence[str]) -> str:
    return next((_place(frame)[0] for frame in reversed(stack) if _place(frame) != REST), REST[0])


def _place(frame: str) -> tuple[str, str]:
    return next(((words, colour) for part, words, colour in PLACES if part in frame), REST)


# What is kept of it.


def write(results: Path, found: Profile, picture: str) -> None:
    folder = results / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{found.name}.json").write_text(json.dumps(asdict(found), indent=2, ensure_ascii=False) + "\n")
    (folder / f"{found.name}.svg").write_text(picture)


def read(results: Path, name: str) -> Profile | None:
    path = results / FOLDER / f"{name}.json"
    return Profile.from_json(json.loads(path.read_text())) if path.exists() else None


def markdown(found: Profile) -> str:
    whole = found.loop_us + found.threads_us
    rows = [[row.where, f"{row.microseconds:.2f}", f"{row.microseconds / whole:.0%}"] for row in found.rows]
    return table(["", "µs a message", "share"], [*rows, ["all of it", f"{whole:.2f}", ""]])


def measured(found: Profile) -> str:
    return (
        f"{found.per_second:,.0f} messages a second. Of the processor time of each, {found.loop_us:.2f} µs were in the "
        f"thread of the event loop and {found.threads_us:.2f} in others. {found.samples:,} looks. "
        f"{environment_text(found.environment)}"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
