"""Push delivery: how fast beside Google's emulator, and what one endpoint's trouble costs the others and the server."""

from __future__ import annotations

import json
import time
import urllib.request
from contextlib import ExitStack

from bench import procfs
from bench.figures import Bar, Comparison, Series
from bench.generator import Load, LoadFailed
from bench.peers import Server, google_emulator, holdfast_sqlite
from bench.session import Contestant, Session

WAITING_MESSAGES = 10_000
QUIET_SECONDS = 6.0
# From the last refused message to all of them waiting: their failures are written down in between.
SETTLE_SECONDS = 30.0


def run(session: Session) -> list[Comparison]:
    return [_beside_google(session), *_hanging(session), *_many(session), _waiting(session)]


def _beside_google(session: Session) -> Comparison:
    """To one endpoint that answers at once."""
    with ExitStack() as servers:
        sqlite = servers.enter_context(holdfast_sqlite(session.scratch))
        google = servers.enter_context(google_emulator(session.scratch))
        contestants = [
            Contestant(sqlite, "push", {"messages": 20_000, "callers": 2}),
            # Half as many: it makes a connection for each message, and 20,000 a round would use up the machine's ports.
            Contestant(google, "push", {"messages": 10_000, "callers": 2}),
        ]
        ours, peer = session.compete("push", contestants)
        return Comparison(
            "push_sqlite",
            "publish to push endpoint, 20,000 messages, SQLite",
            "msg/s",
            "higher",
            Bar(ratio=5.0),
            session.series(contestants[0], ours, _per_second),
            session.series(contestants[1], peer, _per_second),
        )


def _hanging(session: Session) -> list[Comparison]:
    """4,000 requests a second, about half of what the server can do: waiting then comes from the endpoint that hangs,
    not from the load. It answers the first tenth of the messages, so its window is wide open when it stops."""
    flags = {"subscriptions": 20, "messages": 600, "batch": 1, "rate": 200}
    with holdfast_sqlite(session.scratch) as server:
        contestants = [
            Contestant(server, "fanout", {**flags, "hanging": 1}, limit_seconds=20, called="Holdfast, one hangs"),
            Contestant(server, "fanout", flags, limit_seconds=20, called="Holdfast, all answer"),
        ]
        one_hangs, all_answer = session.compete("20 endpoints", contestants)
        return [
            Comparison(
                f"push_hanging_{name}_sqlite",
                f"push to 19 endpoints while a 20th hangs, {name}, SQLite",
                "ms",
                "lower",
                Bar(ratio=0.5),
                session.series(contestants[0], one_hangs, figure),
                session.series(contestants[1], all_answer, figure),
            )
            for name, figure in (("p50", _p50), ("p99", _p99))
        ]


def _many(session: Session) -> list[Comparison]:
    """All messages are there at once, so that who is served first is the server's choice. The slowest subscription is
    the last one to have everything; fairness is that of the counts when half of all deliveries have arrived."""
    flags = {"subscriptions": 1_000, "messages": 20, "batch": 20, "callers": 1}
    with holdfast_sqlite(session.scratch) as server:
        contestant = Contestant(server, "fanout", flags)
        [loads] = session.compete("1,000 subscriptions", [contestant])
        return [
            Comparison(
                "push_many_sqlite",
                "push 20 messages to 1,000 subscriptions, SQLite",
                "msg/s",
                "higher",
                Bar(),
                session.series(contestant, loads, _per_second),
                None,
            ),
            Comparison(
                "push_many_slowest_sqlite",
                "push to 1,000 subscriptions, slowest over median",
                "x",
                "lower",
                Bar(at_most=2.0),
                session.series(contestant, loads, _slowest_over_median),
                None,
            ),
            Comparison(
                "push_many_fairness_sqlite",
                "push to 1,000 subscriptions, Jain's fairness at half",
                "",
                "higher",
                Bar(at_least=0.8),
                session.series(contestant, loads, _fairness_at_half),
                None,
            ),
        ]


def _waiting(session: Session) -> Comparison:
    """Beside a server that was never asked for anything, over the same seconds."""
    # 422 says that the endpoint is well, so it is not asked more slowly.
    flags = {"messages": WAITING_MESSAGES, "callers": 2, "status": 422, "backoff": 600}
    with holdfast_sqlite(session.scratch) as waiting, holdfast_sqlite(session.scratch) as idle:
        session.run(Contestant(waiting, "refuse", flags))
        _wait_until_all_wait(waiting)
        for server in (waiting, idle):
            server.wait_until_idle()
        rounds = [_quiet([waiting, idle]) for _ in range(session.rounds)]
    ours, peer = (
        Series.of(name, [load.server_cpu_seconds for load in loads], loads, procfs.cores())
        for name, loads in zip(("Holdfast, 10,000 wait", "Holdfast, idle"), zip(*rounds, strict=True), strict=True)
    )
    print(f"   quiet: {ours.contestant} {ours.median:.2f} s, {peer.contestant} {peer.median:.2f} s", flush=True)
    return Comparison(
        "push_waiting_sqlite",
        f"CPU in {QUIET_SECONDS:.0f} s while 10,000 retries wait, SQLite",
        "s",
        "lower",
        Bar(above_peer=0.05),
        ours,
        peer,
    )


def _wait_until_all_wait(server: Server) -> None:
    give_up = time.monotonic() + SETTLE_SECONDS
    while (waiting := _messages_waiting(server)) != WAITING_MESSAGES:
        if time.monotonic() > give_up:
            raise LoadFailed(f"{server.name}: {waiting} of {WAITING_MESSAGES} refused messages wait for their retry")
        time.sleep(0.2)


def _messages_waiting(server: Server) -> int:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/api/v1/push", timeout=10) as answer:
        return sum(row["waiting"] for row in json.load(answer)["subscriptions"])


def _quiet(servers: list[Server]) -> list[Load]:
    """What each server did while nobody asked it for anything."""
    for server in servers:
        procfs.forget_peak_rss(server.pid)
    before = [procfs.cpu_seconds(server.pid) for server in servers]
    started, own, machine = time.monotonic(), time.process_time(), procfs.machine_cpu_seconds()
    time.sleep(QUIET_SECONDS)
    after = [procfs.cpu_seconds(server.pid) for server in servers]
    return [
        Load(
            messages=0,
            seconds=time.monotonic() - started,
            per_second=0.0,
            complete=True,
            duplicates=0,
            generator_cpu_seconds=time.process_time() - own,
            server_cpu_seconds=then - first,
            server_peak_rss_mb=procfs.peak_rss_mb(server.pid),
            machine_cpu_seconds=procfs.machine_cpu_seconds() - machine,
        )
        for server, first, then in zip(servers, before, after, strict=True)
    ]


def _per_second(load: Load) -> float:
    return load.per_second


def _p50(load: Load) -> float:
    return _measured(load.p50_ms)


def _p99(load: Load) -> float:
    return _measured(load.p99_ms)


def _slowest_over_median(load: Load) -> float:
    return _measured(load.slowest_over_median)


def _fairness_at_half(load: Load) -> float:
    return _measured(load.fairness_at_half)


def _measured(figure: float | None) -> float:
    assert figure is not None
    return figure
