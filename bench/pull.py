"""Streaming pull from Holdfast's broker into SQLite, beside a plain subscriber callback of Google's client that makes
the same two writes for each message. Both pull from the same broker, a topic each."""

from __future__ import annotations

import datetime
import json
import sqlite3
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from google.pubsub_v1.types import PublishRequest, PubsubMessage, Subscription, Topic

from bench import procfs
from bench.figures import Bar, Comparison, Series
from bench.generator import Load, LoadFailed
from bench.peers import Server, data_of, holdfast_consumer, holdfast_sqlite, plain_program
from bench.session import Session

PROJECT = "projects/bench"
SERVICES = 1_000
BATCH = 500
PATIENCE_SECONDS = 60.0
LOOK_EVERY_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class _Puller:
    """`done` asks it how many messages it has dealt with since its start; `stored` counts what their dedupe records
    say, in the file itself."""

    server: Server
    broker: Server
    topic: str
    messages: int
    done: Callable[[], int]
    stored: Callable[[], int]


def run(session: Session) -> list[Comparison]:
    with ExitStack() as servers:
        broker = servers.enter_context(holdfast_sqlite(session.scratch))
        ours = servers.enter_context(_ours(session.scratch, broker))
        plain = servers.enter_context(_plain("a plain callback", session.scratch, broker, "delete"))
        wal = servers.enter_context(_plain("a plain callback, WAL", session.scratch, broker, "wal"))
        series = _compete(session, [ours, plain, wal])
        return [
            Comparison(
                "pull_sqlite",
                "streaming pull to SQLite, 1,000 services",
                "msg/s",
                "higher",
                Bar(ratio=10.0),
                series[0],
                series[1],
            ),
            Comparison(
                "pull_sqlite_wal",
                "streaming pull to SQLite, beside a callback with a write-ahead log",
                "msg/s",
                "higher",
                Bar(),
                series[0],
                series[2],
            ),
        ]


def _compete(session: Session, pullers: Sequence[_Puller]) -> list[Series]:
    loads: list[list[Load]] = [[] for _ in pullers]
    for puller in pullers:
        _measure(puller)  # not counted: caches fill
    for number in range(session.rounds):
        # Every other round the other way round, so that nobody always comes after the same one.
        for puller, own in list(zip(pullers, loads, strict=True))[:: 1 if number % 2 == 0 else -1]:
            load = _measure(puller)
            own.append(load)
            print(f"   pull, round {number + 1}: {puller.server.name} {load.per_second:,.0f} msg/s", flush=True)
    return [
        Series.of(puller.server.name, [load.per_second for load in own], own, procfs.cores())
        for puller, own in zip(pullers, loads, strict=True)
    ]


# The contestants.


@contextmanager
def _ours(scratch: Path, broker: Server) -> Iterator[_Puller]:
    topic = _create(broker, "holdfast")
    # With its default topology it would be pushed to as well.
    environment = {"PUBSUB_EMULATOR_HOST": f"127.0.0.1:{broker.port}", "HOLDFAST_TOPOLOGY_CREATE": "never"}
    pull = ("--pull", f"{PROJECT}/subscriptions/{topic}")
    with holdfast_consumer("Holdfast", scratch, *pull, environment=environment, helpers=[broker]) as server:
        database = data_of(scratch, server.port) / "documents.db"
        yield _Puller(
            server,
            broker,
            topic,
            messages=20_000,
            done=lambda: sum(_get(server, "/api/v1/outcomes?messageId=none")["totals"].values()),
            # A record for the message id, and one for the event id.
            stored=lambda: _count(database, "SELECT count(*) FROM marks") // 2,
        )


@contextmanager
def _plain(name: str, scratch: Path, broker: Server, journal: str) -> Iterator[_Puller]:
    topic = _create(broker, f"plain-{journal}")
    environment = {"PUBSUB_EMULATOR_HOST": f"127.0.0.1:{broker.port}"}
    database = scratch / f"{topic}.db"
    options = (f"{PROJECT}/subscriptions/{topic}", str(database), journal)
    with plain_program(name, scratch, "plain_pull.py", *options, environment=environment, helpers=[broker]) as server:
        yield _Puller(
            server,
            broker,
            topic,
            messages=2_000,
            done=lambda: int(_get(server, "/done")["done"]),
            stored=lambda: _count(database, "SELECT count(*) FROM dedupe"),
        )


def _get(server: Server, path: str) -> Any:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=10) as answer:
        return json.load(answer)


def _count(database: Path, sql: str) -> int:
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        return int(connection.execute(sql).fetchone()[0])


# A round.


def _measure(puller: _Puller) -> Load:
    """From the first publish to the last message dealt with."""
    requests = list(_requests(puller.topic, puller.messages))
    done_before, stored_before = puller.done(), puller.stored()
    procfs.forget_peak_rss(puller.server.pid)
    server = procfs.cpu_seconds(puller.server.pid) + puller.server.helpers_cpu_seconds
    started, own, machine = time.monotonic(), time.process_time(), procfs.machine_cpu_seconds()
    _call(puller.broker, "Publisher/Publish", requests)
    _wait_for(puller, done_before + puller.messages, started + PATIENCE_SECONDS)
    seconds = time.monotonic() - started
    load = Load(
        messages=puller.messages,
        seconds=seconds,
        per_second=puller.messages / seconds,
        complete=True,
        duplicates=puller.done() - done_before - puller.messages,
        generator_cpu_seconds=time.process_time() - own,
        server_cpu_seconds=procfs.cpu_seconds(puller.server.pid) + puller.server.helpers_cpu_seconds - server,
        server_peak_rss_mb=procfs.peak_rss_mb(puller.server.pid),
        machine_cpu_seconds=procfs.machine_cpu_seconds() - machine,
    )
    stored = puller.stored() - stored_before
    if stored != puller.messages:
        raise LoadFailed(f"{puller.server.name}: {stored} of {puller.messages} messages are in its database")
    puller.server.wait_until_idle()
    return load


def _wait_for(puller: _Puller, wanted: int, give_up: float) -> None:
    while (done := puller.done()) < wanted:
        if time.monotonic() > give_up:
            raise LoadFailed(f"{puller.server.name}: {wanted - done} messages were not dealt with in time")
        time.sleep(LOOK_EVERY_SECONDS)


# The broker, whose answers tell nothing that is needed here.


def _create(broker: Server, topic: str) -> str:
    topic_path, path = f"{PROJECT}/topics/{topic}", f"{PROJECT}/subscriptions/{topic}"
    _call(broker, "Publisher/CreateTopic", [Topic.serialize(Topic(name=topic_path))])
    subscription = Subscription(name=path, topic=topic_path, ack_deadline_seconds=60)
    _call(broker, "Subscriber/CreateSubscription", [Subscription.serialize(subscription)])
    return topic


def _call(broker: Server, method: str, requests: Sequence[bytes]) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{broker.port}") as channel:
        call = channel.unary_unary(
            f"/google.pubsub.v1.{method}",
            request_serializer=lambda request: request,
            response_deserializer=lambda response: response,
        )
        for request in requests:
            call(request, timeout=PATIENCE_SECONDS)


def _requests(topic: str, messages: int) -> Iterator[bytes]:
    """Encoded before the clock starts. Event times grow, and no other round has the ids."""
    first_id = time.time_ns() // 1_000
    for first in range(0, messages, BATCH):
        request = PublishRequest(topic=f"{PROJECT}/topics/{topic}")
        request.messages = [_message(number, first_id) for number in range(first, min(first + BATCH, messages))]
        yield PublishRequest.serialize(request)


def _message(number: int, first_id: int) -> PubsubMessage:
    now = datetime.datetime.now(datetime.UTC).isoformat()
    event = {
        "schemaVersion": "1",
        "eventType": "service.heartbeat",
        "eventId": str(first_id + number),
        "service": f"service-{number % SERVICES:04d}",
        "status": "ok",
        "version": "1.4.2",
        "region": "europe-west1",
        "producedAt": now,
        "lastHeartbeatAt": now,
    }
    return PubsubMessage(data=json.dumps(event).encode(), attributes={"topic": "system.events"})
