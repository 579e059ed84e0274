"""The broker's speed beside Google's emulator: publishing, publish to ack, latency."""

from __future__ import annotations

from contextlib import ExitStack

from bench.figures import Bar, Comparison
from bench.generator import Load
from bench.peers import Server, google_emulator, holdfast_memory, holdfast_sqlite
from bench.session import Contestant, Session


def run(session: Session) -> list[Comparison]:
    with ExitStack() as servers:
        sqlite = servers.enter_context(holdfast_sqlite(session.scratch))
        memory = servers.enter_context(holdfast_memory(session.scratch))
        google = servers.enter_context(google_emulator(session.scratch))
        return [
            *_publish_batch(session, sqlite, memory, google),
            _publish_single(session, sqlite, google),
            _publish_to_ack(session, sqlite, google),
            *_latency(session, sqlite, google),
        ]


def _publish_batch(session: Session, sqlite: Server, memory: Server, google: Server) -> list[Comparison]:
    flags = {"messages": 200_000, "batch": 100, "callers": 8}
    contestants = [Contestant(server, "publish", flags) for server in (sqlite, memory, google)]
    loads = session.compete("publish, 100 a batch", contestants)
    on_sqlite, in_memory, peer = (
        session.series(contestant, own, _per_second) for contestant, own in zip(contestants, loads, strict=True)
    )
    return [
        Comparison(
            "publish_batch_sqlite",
            "publish, 100 a batch, SQLite with fsync",
            "msg/s",
            "higher",
            Bar(ratio=1.0),
            on_sqlite,
            peer,
        ),
        Comparison(
            "publish_batch_memory",
            "publish, 100 a batch, memory",
            "msg/s",
            "higher",
            Bar(ratio=1.5),
            in_memory,
            peer,
        ),
    ]


def _publish_single(session: Session, sqlite: Server, google: Server) -> Comparison:
    flags = {"messages": 40_000, "batch": 1, "callers": 16}
    contestants = [Contestant(server, "publish", flags, limit_seconds=4) for server in (sqlite, google)]
    ours, peer = session.compete("single publishes, 16 at once", contestants)
    return Comparison(
        "publish_single_sqlite",
        "publish, 1 a call, 16 at once, SQLite",
        "msg/s",
        "higher",
        Bar(ratio=0.5),
        session.series(contestants[0], ours, _per_second),
        session.series(contestants[1], peer, _per_second),
    )


def _publish_to_ack(session: Session, sqlite: Server, google: Server) -> Comparison:
    contestants = [
        Contestant(sqlite, "stream", {"messages": 100_000}),
        # It looks for messages every 50 ms and sends 100 then, so its rate is the same at any count.
        Contestant(google, "stream", {"messages": 6_000}),
    ]
    ours, peer = session.compete("publish to ack on a stream", contestants)
    return Comparison(
        "publish_to_ack_sqlite",
        "publish to streaming-pull ack, SQLite",
        "msg/s",
        "higher",
        Bar(ratio=20.0),
        session.series(contestants[0], ours, _per_second),
        session.series(contestants[1], peer, _per_second),
    )


def _latency(session: Session, sqlite: Server, google: Server) -> list[Comparison]:
    flags = {"messages": 2_000}
    contestants = [Contestant(server, "latency", flags, limit_seconds=4) for server in (sqlite, google)]
    ours, peer = session.compete("latency", contestants)
    return [
        Comparison(
            f"latency_{name}_sqlite",
            f"publish to received, one at a time, {name}, SQLite",
            "ms",
            "lower",
            bar,
            session.series(contestants[0], ours, figure),
            session.series(contestants[1], peer, figure),
        )
        for name, bar, figure in (("p50", Bar(at_most=1.0), _p50), ("p99", Bar(at_most=5.0), _p99))
    ]


def _per_second(load: Load) -> float:
    return load.per_second


def _p50(load: Load) -> float:
    assert load.p50_ms is not None
    return load.p50_ms


def _p99(load: Load) -> float:
    assert load.p99_ms is not None
    return load.p99_ms
