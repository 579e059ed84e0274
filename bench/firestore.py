"""The consumer's push endpoint into Firestore, beside a program that makes a transaction for each message. Both use the
same emulator, with a project each."""

from __future__ import annotations

from contextlib import ExitStack

from bench.figures import Bar, Comparison
from bench.generator import Load
from bench.peers import firestore_emulator, holdfast_consumer, plain_program
from bench.session import Contestant, Session

FLAGS = {"connections": 100, "services": 1_000}


def run(session: Session) -> list[Comparison]:
    with ExitStack() as servers:
        emulator = servers.enter_context(firestore_emulator(session.scratch))
        environment = {"FIRESTORE_EMULATOR_HOST": f"127.0.0.1:{emulator.port}", "CONSUMER_QUEUE_SIZE": "1024"}
        ours = servers.enter_context(
            holdfast_consumer(
                "Holdfast, Firestore",
                session.scratch,
                "--store",
                "firestore://bench-holdfast",
                environment=environment,
                helpers=[emulator],
            )
        )
        peer = servers.enter_context(
            plain_program(
                "a transaction a message, 8 workers",
                session.scratch,
                "plain_firestore.py",
                "bench-plain",
                environment=environment,
                helpers=[emulator],
            )
        )
        contestants = [
            Contestant(ours, "consume", {**FLAGS, "messages": 10_000}),
            Contestant(peer, "consume", {**FLAGS, "messages": 2_000}),
        ]
        loads = session.compete("POST /pubsub/push, Firestore", contestants)
        return [
            Comparison(
                "consume_push_firestore",
                "POST /pubsub/push, 1,000 services, 100 connections, Firestore's emulator",
                "msg/s",
                "higher",
                Bar(ratio=5.0),
                session.series(contestants[0], loads[0], _per_second),
                session.series(contestants[1], loads[1], _per_second),
            )
        ]


def _per_second(load: Load) -> float:
    return load.per_second
