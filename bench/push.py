"""Push delivery beside Google's emulator, to an endpoint that answers at once."""

from __future__ import annotations

from contextlib import ExitStack

from bench.figures import Bar, Comparison
from bench.peers import google_emulator, holdfast_sqlite
from bench.session import Contestant, Session


def run(session: Session) -> list[Comparison]:
    with ExitStack() as servers:
        sqlite = servers.enter_context(holdfast_sqlite(session.scratch))
        google = servers.enter_context(google_emulator(session.scratch))
        contestants = [
            Contestant(sqlite, "push", {"messages": 20_000, "callers": 2}),
            # Half as many: it makes a connection for each message, and 20,000 a round would use up the machine's ports.
            Contestant(google, "push", {"messages": 10_000, "callers": 2}),
        ]
        ours, peer = session.compete("push", contestants)
        return [
            Comparison(
                "push_sqlite",
                "publish to push endpoint, 20,000 messages, SQLite",
                "msg/s",
                "higher",
                Bar(ratio=5.0),
                session.series(contestants[0], ours, lambda load: load.per_second),
                session.series(contestants[1], peer, lambda load: load.per_second),
            )
        ]
