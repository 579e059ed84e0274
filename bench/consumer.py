"""The consumer's push endpoint: system events of many services over many connections, into SQLite."""

from __future__ import annotations

from bench.figures import Bar, Comparison
from bench.generator import Load
from bench.peers import holdfast_consumer
from bench.session import Contestant, Session

SERVICES = 1_000
CONNECTIONS = 100
# Of messages that wait for a worker: all connections may be busy, and none is turned away.
ENVIRONMENT = {"CONSUMER_QUEUE_SIZE": "1024"}


def run(session: Session) -> list[Comparison]:
    """No peer has the like: the bar is a rate, with the load generator on the same machine."""
    flags = {"messages": 40_000, "connections": CONNECTIONS, "services": SERVICES}
    with holdfast_consumer("Holdfast, SQLite", session.scratch, environment=ENVIRONMENT) as server:
        contestant = Contestant(server, "consume", flags)
        [loads] = session.compete("POST /pubsub/push", [contestant])
        return [
            Comparison(
                "consume_push_sqlite",
                "POST /pubsub/push, 1,000 services, 100 connections, SQLite",
                "msg/s",
                "higher",
                Bar(at_least=8_000),
                session.series(contestant, loads, _per_second),
                None,
            ),
            Comparison(
                "consume_push_p99_sqlite",
                "POST /pubsub/push, request to answer, p99, SQLite",
                "ms",
                "lower",
                Bar(at_most=50.0),
                session.series(contestant, loads, _p99),
                None,
            ),
        ]


def _per_second(load: Load) -> float:
    return load.per_second


def _p99(load: Load) -> float:
    assert load.p99_ms is not None
    return load.p99_ms
