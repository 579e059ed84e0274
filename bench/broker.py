"""The broker's speed beside Google's emulator and Go's pstest: publishing, publish to ack, latency."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from bench.figures import Bar, Comparison, Series
from bench.generator import Load
from bench.peers import Server, go_pstest, google_emulator, holdfast_memory, holdfast_sqlite
from bench.session import Contestant, Session


def run(session: Session) -> list[Comparison]:
    with ExitStack() as servers:
        sqlite = servers.enter_context(holdfast_sqlite(session.scratch))
        memory = servers.enter_context(holdfast_memory(session.scratch))
        google = servers.enter_context(google_emulator(session.scratch))
        pstest = servers.enter_context(go_pstest(session.scratch))
        return [
            *_publish_batch(session, sqlite, memory, google, pstest),
            *_publish_single(session, sqlite, google, pstest),
            *_publish_to_ack(session, sqlite, google, pstest),
            *_latency(session, sqlite, google, pstest),
        ]


def _publish_batch(
    session: Session, sqlite: Server, memory: Server, google: Server, pstest: Server
) -> list[Comparison]:
    flags = {"messages": 200_000, "batch": 100, "callers": 8}
    contestants = [Contestant(server, "publish", flags) for server in (sqlite, memory, google, pstest)]
    on_sqlite, in_memory, emulator, fake = _rates(session, "publish, 100 a batch", contestants)
    title = "publish, 100 a batch, SQLite with fsync"
    in_memory_title = "publish, 100 a batch, memory"
    return [
        Comparison("publish_batch_sqlite", title, "msg/s", "higher", Bar(ratio=1.0), on_sqlite, emulator),
        Comparison("publish_batch_memory", in_memory_title, "msg/s", "higher", Bar(ratio=1.5), in_memory, emulator),
        Comparison("publish_batch_sqlite_pstest", title, "msg/s", "higher", Bar(), on_sqlite, fake),
    ]


def _publish_single(session: Session, sqlite: Server, google: Server, pstest: Server) -> list[Comparison]:
    flags = {"messages": 20_000, "batch": 1, "callers": 16}
    contestants = [Contestant(server, "publish", flags, limit_seconds=2) for server in (sqlite, google, pstest)]
    ours, emulator, fake = _rates(session, "single publishes, 16 at once", contestants)
    title = "publish, 1 a call, 16 at once, SQLite"
    return [
        Comparison("publish_single_sqlite", title, "msg/s", "higher", Bar(ratio=0.5), ours, emulator),
        Comparison("publish_single_sqlite_pstest", title, "msg/s", "higher", Bar(), ours, fake),
    ]


def _publish_to_ack(session: Session, sqlite: Server, google: Server, pstest: Server) -> list[Comparison]:
    contestants = [
        Contestant(sqlite, "stream", {"messages": 100_000}),
        # It looks for messages every 50 ms and sends 100 then, so its rate is the same at any count.
        Contestant(google, "stream", {"messages": 4_000}),
        # It sends one message every 10 ms.
        Contestant(pstest, "stream", {"messages": 150}),
    ]
    ours, emulator, fake = _rates(session, "publish to ack on a stream", contestants)
    title = "publish to streaming-pull ack, SQLite"
    return [
        Comparison("publish_to_ack_sqlite", title, "msg/s", "higher", Bar(ratio=20.0), ours, emulator),
        Comparison("publish_to_ack_sqlite_pstest", title, "msg/s", "higher", Bar(), ours, fake),
    ]


def _rates(session: Session, what: str, contestants: Sequence[Contestant]) -> list[Series]:
    loads = session.compete(what, contestants)
    return [session.series(one, own, _per_second) for one, own in zip(contestants, loads, strict=True)]


def _latency(session: Session, sqlite: Server, google: Server, pstest: Server) -> list[Comparison]:
    flags = {"messages": 2_000}
    # The peers take 50 and 10 ms for each: a p99 of theirs is that of some dozens.
    contestants = [Contestant(server, "latency", flags, limit_seconds=3) for server in (sqlite, google, pstest)]
    ours, emulator, fake = session.compete("latency", contestants)
    return [
        Comparison(
            f"latency_{name}_sqlite{suffix}",
            f"publish to received, one at a time, {name}, SQLite",
            "ms",
            "lower",
            judged,
            session.series(contestants[0], ours, figure),
            session.series(contestant, peer, figure),
        )
        for name, bar, figure in (("p50", Bar(at_most=1.0), _p50), ("p99", Bar(at_most=5.0), _p99))
        for suffix, judged, contestant, peer in (
            ("", bar, contestants[1], emulator),
            ("_pstest", Bar(), contestants[2], fake),
        )
    ]


def _per_second(load: Load) -> float:
    return load.per_second


def _p50(load: Load) -> float:
    assert load.p50_ms is not None
    return load.p50_ms


def _p99(load: Load) -> float:
    assert load.p99_ms is not None
    return load.p99_ms
