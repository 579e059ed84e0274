"""What the machine itself can do with the same bytes: what nothing that runs here can be faster than.

Each is the work of the hot path with everything else left out: a disk that is told to keep something, SQLite that
appends the broker's own blocks, a socket that carries a batch, protobuf that reads one.
"""

from __future__ import annotations

import os
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from bench import procfs
from bench.environment import fsync_ms
from bench.figures import Bar, Better, Comparison, Series
from bench.generator import Load
from bench.peers import START_SECONDS
from bench.session import Session
from holdfast.broker.log import StoredMessage
from holdfast.broker.wire import PublishRequest, PubsubMessage, stored_bodies
from holdfast.stores.sqlite.blocks import encode_block
from holdfast.stores.sqlite.log import INSERT_BLOCK, SCHEMA

BATCH = 100
# As many callers as the measure of batches has: what they send is what waits while one commit is under way.
GROUP = 8

FSYNCS = 500
COMMITS = 200
LONE_COMMITS = 500
ECHOES = 5_000
PARSED = 1_000


def run(session: Session) -> list[Comparison]:
    request = _request()
    return [
        _comparison(session, "fsync", "write 4 KB and fsync", "ms", "lower", _fsync_ms),
        _comparison(
            session, "append_grouped", f"SQLite alone, {GROUP} batches of 100 a commit", *RATE, _append_grouped
        ),
        _comparison(session, "commit_lone", "SQLite alone, a commit of one message", "ms", "lower", _commit_lone),
        _comparison(
            session, "loopback", "a batch of 100 over loopback and a byte back", *RATE, lambda _: _echo(request) * BATCH
        ),
        _comparison(session, "loopback_lone", "a byte over loopback and back", "1/s", "higher", lambda _: _echo(b"x")),
        _comparison(session, "parse", "protobuf reads a batch of 100", *RATE, lambda _: _parse(request)),
    ]


RATE: tuple[str, Better] = ("msg/s", "higher")


def _comparison(
    session: Session, name: str, title: str, unit: str, better: Better, measure: Callable[[Path], float]
) -> Comparison:
    measure(session.scratch)  # not counted: caches fill
    values, loads = [], []
    for _ in range(session.rounds):
        started, own, machine = time.monotonic(), time.process_time(), procfs.machine_cpu_seconds()
        values.append(measure(session.scratch))
        loads.append(
            Load(
                messages=0,
                seconds=time.monotonic() - started,
                per_second=0.0,
                complete=True,
                duplicates=0,
                generator_cpu_seconds=0.0,
                server_cpu_seconds=time.process_time() - own,
                server_peak_rss_mb=procfs.peak_rss_mb(os.getpid()),
                machine_cpu_seconds=procfs.machine_cpu_seconds() - machine,
            )
        )
    print(f"   {title}: {', '.join(f'{value:,.2f}' for value in values)} {unit}", flush=True)
    series = Series.of("this machine", values, loads, procfs.cores())
    return Comparison(f"limit_{name}", title, unit, better, Bar(), series, None)


def _fsync_ms(scratch: Path) -> float:
    return fsync_ms(scratch, FSYNCS)


# SQLite.


def _append_grouped(scratch: Path) -> float:
    return _appended(scratch, COMMITS, GROUP, BATCH)


def _commit_lone(scratch: Path) -> float:
    return 1000 / _appended(scratch, LONE_COMMITS, 1, 1)


def _appended(scratch: Path, commits: int, blocks: int, messages: int) -> float:
    """The broker's table, its statement, its settings and its blocks, which are encoded before the clock starts."""
    path = scratch / "limit.db"
    rows = [_row(number * messages, messages) for number in range(commits * blocks)]
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA page_size = {SCHEMA.page_bytes}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.executescript(SCHEMA.migrations[0])
        started = time.perf_counter()
        for first in range(0, len(rows), blocks):
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(INSERT_BLOCK, rows[first : first + blocks])
            connection.execute("COMMIT")
        seconds = time.perf_counter() - started
    path.unlink()
    return commits * blocks * messages / seconds


def _row(first: int, count: int) -> tuple[int, int, int, int, bytes]:
    ids = [str(1 << 60 | first + number).encode() for number in range(count)]
    bodies = stored_bodies([_MESSAGE] * count, ids, time.time_ns())
    messages = [StoredMessage(first + number, time.time_ns(), body) for number, body in enumerate(bodies)]
    return first, first + count - 1, count, time.time_ns(), encode_block(messages)


# What the generator sends: 256 bytes and two attributes.
_MESSAGE: bytes = PubsubMessage(
    data=b"x" * 256, attributes={"type": "order.created", "source": "bench/load"}
).SerializeToString()


def _request() -> bytes:
    messages = [PubsubMessage.FromString(_MESSAGE)] * BATCH
    encoded: bytes = PublishRequest(topic="projects/bench/topics/limits", messages=messages).SerializeToString()
    return encoded


def _parse(request: bytes) -> float:
    started = time.perf_counter()
    for _ in range(PARSED):
        PublishRequest.FromString(request)
    return PARSED * BATCH / (time.perf_counter() - started)


# Loopback.


def _echo(request: bytes) -> float:
    """Round trips a second, one at a time, to a process that reads so many bytes and answers with one."""
    with _answering(len(request)) as client:
        started = time.perf_counter()
        for _ in range(ECHOES):
            client.sendall(request)
            client.recv(1)
        return ECHOES / (time.perf_counter() - started)


@contextmanager
def _answering(size: int) -> Iterator[socket.socket]:
    script = Path(__file__).parent / "plain_echo.py"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        process = subprocess.Popen([sys.executable, str(script), str(port), str(size)])
        try:
            listener.settimeout(START_SECONDS)
            connection, _ = listener.accept()
            with connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                yield connection
        finally:
            process.kill()
            process.wait()
