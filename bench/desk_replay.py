"""Replays of 100,000 failures at a set rate: whether the rate is kept, and no second has more than a tenth above it."""

from __future__ import annotations

import asyncio
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import grpc
from google.pubsub_v1.types import AcknowledgeRequest, PullRequest, PullResponse, Subscription, Topic

from bench import procfs
from bench.asking import ask, call
from bench.figures import Bar, Comparison, Series
from bench.generator import Load, LoadFailed
from bench.peers import Server, free_port, holdfast_up
from bench.session import Session
from holdfast.model.failed_message import FailedMessage
from holdfast.stores.sqlite.desk import SqliteDeskStore

PROJECT = "projects/bench"
TOPIC = f"{PROJECT}/topics/orders"
SUBSCRIPTION = f"{PROJECT}/subscriptions/orders.worker"

FAILURES = 100_000
PER_SECOND = 3_000
RECORDED_AT_ONCE = 2_000

OPTIONS = {"perSecond": PER_SECOND, "concurrency": 5_000, "canary": 0}

# Of how long it should take.
PATIENCE = 3.0
LOOK_EVERY_SECONDS = 0.1


def run(session: Session) -> list[Comparison]:
    loads, most = [], []
    recorded = session.scratch / "recorded.db"
    asyncio.run(_record(recorded))
    for number in range(session.rounds):
        load, fullest = _round(session, recorded, number)
        print(
            f"   replay, round {number + 1}: {load.per_second:,.0f} msg/s, at most {fullest:,} in a second", flush=True
        )
        loads.append(load)
        most.append(float(fullest))
    off = [100 * abs(load.per_second / PER_SECOND - 1) for load in loads]
    cores = procfs.cores()
    title = f"replay of {FAILURES:,} failures at {PER_SECOND:,}/s"
    return [
        Comparison(
            "desk_replay_rate",
            f"{title}, off its rate",
            "%",
            "lower",
            Bar(at_most=5.0),
            Series.of("Holdfast", off, loads, cores),
            None,
        ),
        Comparison(
            "desk_replay_most",
            f"{title}, most in any second",
            "messages",
            "lower",
            Bar(at_most=1.1 * PER_SECOND),
            Series.of("Holdfast", most, loads, cores),
            None,
        ),
    ]


def _round(session: Session, recorded: Path, number: int) -> tuple[Load, int]:
    """On a fresh broker and a copy of the desk."""
    data = session.scratch / f"replay-{number}"
    data.mkdir()
    shutil.copy(recorded, data / "failures.db")
    broker_port = free_port()
    with (
        holdfast_up("Holdfast", session.scratch, data, broker_port) as server,
        grpc.insecure_channel(f"127.0.0.1:{broker_port}") as channel,
    ):
        call(channel, "Publisher/CreateTopic", Topic(name=TOPIC), Topic)
        call(channel, "Subscriber/CreateSubscription", Subscription(name=SUBSCRIPTION, topic=TOPIC), Subscription)
        with _pulling(channel) as times:
            return _measure(server, times), most_within_a_second(times)


async def _record(path: Path) -> None:
    store = await SqliteDeskStore.open(path)
    for start in range(0, FAILURES, RECORDED_AT_ONCE):
        await store.record([_failure(number) for number in range(start, start + RECORDED_AT_ONCE)])
    await store.close()


def _failure(number: int) -> FailedMessage:
    return FailedMessage(
        message_id=f"original-{number}",
        subscription=SUBSCRIPTION,
        source_topic=TOPIC,
        failure_reason="SCHEMA_VALIDATION_ERROR",
        error_details="total: is missing",
        data=b'{"number": %d, "lines": "%s"}' % (number, b"x" * 200),
        publish_time_ns=1_700_000_000_000_000_000 + number,
        created_at_ns=time.time_ns(),
        fingerprint="f00d",
    )


def _measure(server: Server, times: list[float]) -> Load:
    """From the first to the last message, by the broker's own publish times."""
    procfs.forget_peak_rss(server.pid)
    used, own, machine = procfs.cpu_seconds(server.pid), time.process_time(), procfs.machine_cpu_seconds()
    job = ask(server, "/api/v1/replays", {"selection": {"subscription": SUBSCRIPTION}, "options": OPTIONS})["id"]
    ask(server, f"/api/v1/replays/{job}:start", {})
    give_up = time.monotonic() + PATIENCE * FAILURES / PER_SECOND
    while (replay := ask(server, f"/api/v1/replays/{job}"))["state"] != "done":
        if time.monotonic() > give_up:
            raise LoadFailed(f"the replay is {replay['state']}: {replay['counts']}")
        time.sleep(LOOK_EVERY_SECONDS)
    if len(times) < FAILURES:
        raise LoadFailed(f"{FAILURES - len(times)} of {FAILURES} failures did not arrive: {replay['counts']}")
    seconds = max(times) - min(times)
    return Load(
        messages=FAILURES,
        seconds=seconds,
        per_second=FAILURES / seconds,
        complete=len(times) == FAILURES,
        duplicates=len(times) - FAILURES,
        generator_cpu_seconds=time.process_time() - own,
        server_cpu_seconds=procfs.cpu_seconds(server.pid) - used,
        server_peak_rss_mb=procfs.peak_rss_mb(server.pid),
        machine_cpu_seconds=procfs.machine_cpu_seconds() - machine,
    )


def most_within_a_second(times: Sequence[float]) -> int:
    ordered, first, most = sorted(times), 0, 0
    for last, when in enumerate(ordered):
        while when - ordered[first] >= 1.0:
            first += 1
        most = max(most, last - first + 1)
    return most


# The subscriber.


@contextmanager
def _pulling(channel: grpc.Channel) -> Iterator[list[float]]:
    """The publish times of what came, in seconds."""
    times: list[float] = []
    stop = threading.Event()
    thread = threading.Thread(target=_pull, args=(channel, times, stop))
    thread.start()
    try:
        yield times
    finally:
        stop.set()
        thread.join()


def _pull(channel: grpc.Channel, times: list[float], stop: threading.Event) -> None:
    while not stop.is_set():
        response = call(
            channel, "Subscriber/Pull", PullRequest(subscription=SUBSCRIPTION, max_messages=1000), PullResponse
        )
        received = PullResponse.pb(response).received_messages
        if received:
            times += [one.message.publish_time.ToNanoseconds() / 1e9 for one in received]
            ids = [one.ack_id for one in received]
            call(channel, "Subscriber/Acknowledge", AcknowledgeRequest(subscription=SUBSCRIPTION, ack_ids=ids))
