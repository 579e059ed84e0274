"""Dead letters on their way to the desk: from the publish to their rows in SQLite on disk, in one `holdfast up`."""

from __future__ import annotations

import time
from collections.abc import Iterator

import grpc
from google.pubsub_v1.types import PublishRequest, PubsubMessage, Topic

from bench import procfs
from bench.asking import ask, call
from bench.figures import Bar, Comparison, Series
from bench.generator import Load, LoadFailed
from bench.peers import Server, data_of, free_port, holdfast_up
from bench.session import Session
from holdfast.model import dead_letter_attributes as names

PROJECT = "projects/local"
TOPIC = f"{PROJECT}/topics/orders.worker.dlq"  # by its name the desk knows what it is

MESSAGES = 20_000
BATCH = 500
CAUSES = 20

PATIENCE_SECONDS = 60.0
LOOK_EVERY_SECONDS = 0.05


def run(session: Session) -> list[Comparison]:
    broker_port = free_port()
    data = data_of(session.scratch, broker_port)
    with (
        holdfast_up("Holdfast", session.scratch, data, broker_port) as server,
        grpc.insecure_channel(f"127.0.0.1:{broker_port}") as channel,
    ):
        call(channel, "Publisher/CreateTopic", Topic(name=TOPIC))
        _wait_for_reader(channel)
        loads = [_round(server, channel, number) for number in range(-1, session.rounds)][1:]
    print(f"   collector: {', '.join(f'{load.per_second:,.0f}' for load in loads)} failures/s", flush=True)
    return [
        Comparison(
            "collector_sqlite",
            f"{MESSAGES:,} dead letters, from publish to rows on disk, SQLite",
            "failures/s",
            "higher",
            Bar(at_least=5_000),
            Series.of("Holdfast", [load.per_second for load in loads], loads, procfs.cores()),
            None,
        )
    ]


def _round(server: Server, channel: grpc.Channel, number: int) -> Load:
    """From the first publish to the last row. The first round, -1, is not counted: caches fill."""
    requests = list(_requests(number))
    before = _rows(server)
    procfs.forget_peak_rss(server.pid)
    used, own, machine = procfs.cpu_seconds(server.pid), time.process_time(), procfs.machine_cpu_seconds()
    started = time.monotonic()
    for request in requests:
        call(channel, "Publisher/Publish", request)
    while (rows := _rows(server) - before) < MESSAGES:
        if time.monotonic() > started + PATIENCE_SECONDS:
            raise LoadFailed(f"{MESSAGES - rows} of {MESSAGES} dead letters have no row")
        time.sleep(LOOK_EVERY_SECONDS)
    seconds = time.monotonic() - started
    load = Load(
        messages=MESSAGES,
        seconds=seconds,
        per_second=MESSAGES / seconds,
        complete=True,
        duplicates=rows - MESSAGES,
        generator_cpu_seconds=time.process_time() - own,
        server_cpu_seconds=procfs.cpu_seconds(server.pid) - used,
        server_peak_rss_mb=procfs.peak_rss_mb(server.pid),
        machine_cpu_seconds=procfs.machine_cpu_seconds() - machine,
    )
    server.wait_until_idle()
    return load


def _rows(server: Server) -> int:
    counts = ask(server, "/api/v1/failures/counts")["byStatus"]
    return sum(counts.values())


def _wait_for_reader(channel: grpc.Channel) -> None:
    """The desk makes itself a subscription of a topic that is named like this."""
    give_up = time.monotonic() + PATIENCE_SECONDS
    request = Topic(name=TOPIC)
    while b"orders.worker.dlq.desk" not in call(channel, "Publisher/ListTopicSubscriptions", Topic.serialize(request)):
        if time.monotonic() > give_up:
            raise LoadFailed("the desk does not read its dead-letter topic")
        time.sleep(LOOK_EVERY_SECONDS)


def _requests(round_number: int) -> Iterator[bytes]:
    """As the broker writes dead letters, encoded before the clock starts."""
    for first in range(0, MESSAGES, BATCH):
        messages = [_dead_letter(round_number, number) for number in range(first, first + BATCH)]
        yield PublishRequest.serialize(PublishRequest(topic=TOPIC, messages=messages))


def _dead_letter(round_number: int, number: int) -> PubsubMessage:
    cause = "".join(chr(ord("a") + int(digit)) for digit in f"{number % CAUSES:02}")  # a number would be one cause
    return PubsubMessage(
        data=b'{"number": %d, "lines": "%s"}' % (number, b"x" * 200),
        attributes={
            "tenant": f"t{number % 100}",
            names.SOURCE_SUBSCRIPTION: "orders.worker",
            names.SOURCE_SUBSCRIPTION_PROJECT: "local",
            names.SOURCE_DELIVERY_COUNT: "5",
            names.SOURCE_PUBLISH_TIME: "2026-01-01T00:00:00Z",
            names.SOURCE_MESSAGE_ID: f"{round_number}-{number}",
            names.SOURCE_TOPIC: f"{PROJECT}/topics/orders",
            names.FAILURE_REASON: "SCHEMA_VALIDATION_ERROR",
            names.FAILURE_CLASS: "poison",
            names.ERROR: f"the field {cause} is missing",
            names.LAST_STATUS: "422",
        },
    )
