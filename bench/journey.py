"""The journey of one message, asked of a whole `holdfast up` over HTTP, in which a million messages have been: half of
them are trimmed, one in fifty was dead-lettered after three attempts, and a week of marks tells of the rest."""

from __future__ import annotations

import asyncio
import http.client
import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles

from bench import procfs
from bench.figures import Bar, Comparison, Series
from bench.generator import Load, LoadFailed
from bench.peers import Server, free_port, holdfast_up
from bench.session import Session
from holdfast.broker.facts import Fact, Mark, What
from holdfast.broker.log import AddFacts, Append, MessageLog, PutMarks, PutSubscription, PutTopic, Settle, StoredMessage
from holdfast.broker.topics import message_number
from holdfast.broker.wire import encode, stored_bodies
from holdfast.consumer.app import MARKS
from holdfast.consumer.changes import Upsert
from holdfast.consumer.documents import Mark as DedupeMark
from holdfast.consumer.documents import Write
from holdfast.model.document import EventOrder
from holdfast.model.failed_message import FailedMessage
from holdfast.model.message import Message
from holdfast.model.resources import Subscription, Topic
from holdfast.stores.sqlite.desk import SqliteDeskStore
from holdfast.stores.sqlite.documents import SqliteDocumentStore
from holdfast.stores.sqlite.log import SqliteMessageLog

MESSAGES = 1_000_000
TRIMMED = MESSAGES // 2
FAILED_EVERY = 50
ATTEMPTS = 3
AT_ONCE = 1000

ASKED = 300  # times in a round, for a p95
BAR_MS = 50

SECOND_NS = 1_000_000_000
WEEK_NS = 7 * 24 * 3600 * SECOND_NS

TOPIC = "projects/local/topics/orders"
WORKER = "projects/local/subscriptions/orders-worker"
DEAD_LETTERS = "projects/local/topics/orders-failed"


@dataclass(frozen=True, slots=True)
class Keys:
    topic: int
    worker: int
    dead_letters: int

    def message(self, sequence: int) -> int:
        return message_number(self.topic, sequence)

    def copy(self, sequence: int) -> int:
        return message_number(self.dead_letters, sequence // FAILED_EVERY)


@dataclass(frozen=True, slots=True)
class Question:
    """`events` is the least that a right answer has."""

    name: str
    title: str
    events: int
    sequence: Callable[[random.Random], int]


QUESTIONS = (
    Question("stored", "acked, still stored", 3, lambda chance: TRIMMED + _no_failure(chance, MESSAGES - TRIMMED)),
    Question("trimmed", "acked and trimmed", 3, lambda chance: _no_failure(chance, TRIMMED)),
    Question(
        "dead_lettered",
        "dead-lettered, in the desk",
        ATTEMPTS + 4,
        lambda chance: FAILED_EVERY * chance.randrange(1, MESSAGES // FAILED_EVERY),
    ),
)


def _no_failure(chance: random.Random, below: int) -> int:
    return FAILED_EVERY * chance.randrange(below // FAILED_EVERY) + 1 + chance.randrange(FAILED_EVERY - 1)


def run(session: Session) -> list[Comparison]:
    data = session.scratch / "journeys"
    data.mkdir()
    started = time.monotonic()
    keys = asyncio.run(_filled(data))
    print(f"   filled in {time.monotonic() - started:.0f} s", flush=True)
    with holdfast_up("Holdfast", session.scratch, data, free_port()) as server:
        return [_asked(session, server, keys, question) for question in QUESTIONS]


# What is there before.


async def _filled(data: Path) -> Keys:
    began_ns = time.time_ns() - WEEK_NS + 3600 * SECOND_NS
    log = await SqliteMessageLog.open(data / "broker.db")
    try:
        first = (await log.load()).next_key
        keys = Keys(first, first + 1, first + 2)
        await _fill_log(log, keys, began_ns)
    finally:
        await log.close()
    await _fill_documents(data, keys, began_ns)
    await _fill_desk(data, keys, began_ns)
    return keys


def _published_ns(began_ns: int, sequence: int) -> int:
    return began_ns + (WEEK_NS - 7200 * SECOND_NS) // MESSAGES * sequence


async def _fill_log(log: MessageLog, keys: Keys, began_ns: int) -> None:
    worker = Subscription(WORKER, TOPIC, retain_acked=True)
    await log.commit([PutTopic(keys.topic, Topic(TOPIC)), PutSubscription(keys.worker, keys.topic, worker, 1)])
    await log.commit([PutTopic(keys.dead_letters, Topic(DEAD_LETTERS))])
    body = encode(Message(b"x" * 100))
    for start in range(1, MESSAGES + 1, AT_ONCE):
        sequences = range(start, start + AT_ONCE)
        at_ns = _published_ns(began_ns, start)
        ids = [b"%d" % keys.message(sequence) for sequence in sequences]
        bodies = stored_bodies([body] * AT_ONCE, ids, at_ns)
        stored = [StoredMessage(sequence, at_ns, one) for sequence, one in zip(sequences, bodies, strict=True)]
        failed = [sequence for sequence in sequences if sequence % FAILED_EVERY == 0]
        copies = [number // FAILED_EVERY for number in failed]
        copied = [StoredMessage(number, at_ns, bodies[0]) for number in copies]
        facts = [fact for sequence in failed for fact in _facts(keys, sequence, at_ns)]
        await log.commit([Append(keys.topic, stored), Append(keys.dead_letters, copied), AddFacts(facts)])
    await log.commit([Settle(keys.worker, MESSAGES + 1)])
    while await log.trim(keys.topic, TRIMMED + 1, 100_000):
        continue
    for minute in range(WEEK_NS // SECOND_NS // 60):
        at_ns = began_ns + minute * 60 * SECOND_NS
        below = min(MESSAGES * 60 * SECOND_NS * minute // (WEEK_NS - 7200 * SECOND_NS), MESSAGES) + 1
        await log.commit([PutMarks([Mark(key, at_ns, below) for key in (keys.topic, keys.worker)], 0)])


def _facts(keys: Keys, sequence: int, at_ns: int) -> list[Fact]:
    return [
        Fact(
            keys.message(sequence),
            at_ns + attempt * SECOND_NS,
            What.FAILED if attempt < ATTEMPTS else What.DEAD_LETTERED,
            keys.worker,
            attempt,
            "503",
            "DATABASE_CONNECTION_ERROR",
            "the database closed the connection in the middle of a transaction",
            keys.copy(sequence) if attempt == ATTEMPTS else 0,
        )
        for attempt in range(1, ATTEMPTS + 1)
    ]


async def _fill_documents(data: Path, keys: Keys, began_ns: int) -> None:
    store = await SqliteDocumentStore.open(data / "documents.db")
    try:
        for start in range(1, MESSAGES + 1, AT_ONCE):
            sequences = [sequence for sequence in range(start, start + AT_ONCE) if sequence % FAILED_EVERY]
            await store.apply([_write(keys, sequence, began_ns) for sequence in sequences])
    finally:
        await store.close()


def _write(keys: Keys, sequence: int, began_ns: int) -> Write:
    message_id, now_ns = str(keys.message(sequence)), _published_ns(began_ns, sequence)
    changes = (Upsert("orders", str(sequence % 1000), {"total": sequence}),)
    order = EventOrder(now_ns, 0, now_ns, message_id)
    return Write(changes, order, (DedupeMark(MARKS, message_id),), now_ns + 30 * WEEK_NS, now_ns)


async def _fill_desk(data: Path, keys: Keys, began_ns: int) -> None:
    store = await SqliteDeskStore.open(data / "failures.db")
    failed = range(FAILED_EVERY, MESSAGES + 1, FAILED_EVERY)
    try:
        for start in range(0, len(failed), AT_ONCE):
            await store.record([_failure(keys, sequence, began_ns) for sequence in failed[start : start + AT_ONCE]])
    finally:
        await store.close()


def _failure(keys: Keys, sequence: int, began_ns: int) -> FailedMessage:
    return FailedMessage(
        message_id=str(keys.message(sequence)),
        subscription=WORKER,
        source_topic=TOPIC,
        failure_reason="DATABASE_CONNECTION_ERROR",
        error_details="the database closed the connection in the middle of a transaction",
        data=b"x" * 100,
        publish_time_ns=_published_ns(began_ns, sequence),
        created_at_ns=_published_ns(began_ns, sequence) + 4 * SECOND_NS,
        fingerprint="0" * 16,
    )


# Asking.


def _asked(session: Session, server: Server, keys: Keys, question: Question) -> Comparison:
    chance = random.Random(17)
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    values, loads = [], []
    for number in range(-1, session.rounds):  # one round is not counted: caches fill
        before, cpu, machine = time.monotonic(), procfs.cpu_seconds(server.pid), procfs.machine_cpu_seconds()
        ids = [str(keys.message(question.sequence(chance))) for _ in range(ASKED)]
        took = [_milliseconds(connection, message_id, question.events) for message_id in ids]
        if number < 0:
            continue
        seconds = time.monotonic() - before
        values.append(quantiles(took, n=20)[-1])
        loads.append(
            _load(seconds, server, procfs.cpu_seconds(server.pid) - cpu, procfs.machine_cpu_seconds() - machine)
        )
    connection.close()
    title = f"journey of one of a million, {question.title}, p95 over HTTP"
    print(f"   {title}: {', '.join(f'{value:.2f}' for value in values)} ms", flush=True)
    series = Series.of("Holdfast", values, loads, procfs.cores())
    return Comparison(f"journey_{question.name}", title, "ms", "lower", Bar(at_most=BAR_MS), series, None)


def _milliseconds(connection: http.client.HTTPConnection, message_id: str, events: int) -> float:
    started = time.perf_counter()
    connection.request("GET", f"/api/v1/messages/{message_id}/journey")
    answer = connection.getresponse().read()
    took = (time.perf_counter() - started) * 1000
    found: Sequence[object] = json.loads(answer).get("events", ())
    if len(found) < events:
        raise LoadFailed(f"the journey of {message_id} has {len(found)} events, and should have {events}")
    return took


def _load(seconds: float, server: Server, cpu_seconds: float, machine_seconds: float) -> Load:
    return Load(
        messages=ASKED,
        seconds=seconds,
        per_second=ASKED / seconds,
        complete=True,
        duplicates=0,
        generator_cpu_seconds=0.0,
        server_cpu_seconds=cpu_seconds,
        server_peak_rss_mb=procfs.peak_rss_mb(server.pid),
        machine_cpu_seconds=machine_seconds,
    )
