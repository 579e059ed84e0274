"""A replay of many failures by a real `holdfast up` that is killed on the way, and what arrived where."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from google.api_core.exceptions import GoogleAPICallError, RetryError

from holdfast.model.failed_message import FailedMessage
from holdfast.model.replay_attributes import ORIGINAL_MESSAGE_ID
from holdfast.stores.sqlite.desk import SqliteDeskStore
from tests.support import http
from tests.support.process import Launcher, Running
from tests.support.pubsub import CALL_SECONDS, Pubsub
from tests.support.waiting import eventually

TOPIC = "orders"
FAILING = "orders.worker"
OTHERS = ("orders.audit", "orders.mail")

RECORDED_AT_ONCE = 1000


@dataclass(frozen=True, slots=True)
class Replayed:
    """`published` are the broker's times of each message that arrived, in seconds. `lost_acks` is how many came again
    because a killed broker had not answered their ack."""

    failures: int
    per_second: float
    kills: int
    seconds: float
    published: Sequence[float]
    messages_of: Counter[str]
    arrived_elsewhere: int
    lost_acks: int
    came_again: int
    counts: dict[str, int]

    @property
    def most_in_a_second(self) -> int:
        return most_within(self.published, 1.0)

    @property
    def problems(self) -> list[str]:
        found = []
        if len(self.messages_of) != self.failures:
            found.append(f"{self.failures - len(self.messages_of)} never arrived")
        if twice := sum(count > 1 for count in self.messages_of.values()):
            found.append(f"{twice} were sent more than once")
        if self.arrived_elsewhere:
            found.append(f"{self.arrived_elsewhere} arrived at other subscriptions")
        if self.most_in_a_second > self.per_second * 1.1:
            found.append(f"{self.most_in_a_second} within one second")
        if self.came_again > self.lost_acks:
            found.append(f"{self.came_again} came again, and only {self.lost_acks} acks got lost")
        if self.counts["succeeded"] != self.failures:
            found.append(f"the job counts {self.counts}")
        return found

    def __str__(self) -> str:
        return "\n".join(
            (
                f"  failures               {self.failures:,}",
                f"  rate                   {self.per_second:g}/s",
                f"  kills                  {self.kills}",
                f"  seconds                {self.seconds:.0f}",
                f"  most in any second     {self.most_in_a_second}",
                f"  came again, ack lost   {self.came_again}",
                f"  arrived elsewhere      {self.arrived_elsewhere}",
                f"  problems               {'; '.join(self.problems) or 'none'}",
            )
        )


def most_within(times: Sequence[float], seconds: float) -> int:
    ordered, first, most = sorted(times), 0, 0
    for last, when in enumerate(ordered):
        while when - ordered[first] >= seconds:
            first += 1
        most = max(most, last - first + 1)
    return most


def prove_replay(launcher: Launcher, failures: int, per_second: float, kills: int, within: float) -> Replayed:
    up = launcher.up()
    ports = ("--port", up.url.rpartition(":")[2], "--broker-port", up.broker.rpartition(":")[2])
    with Pubsub(up.broker) as pubsub:
        pubsub.create_topic(TOPIC)
        for name in (FAILING, *OTHERS):
            pubsub.subscribe(name, TOPIC, ack_deadline_seconds=60)
    up.stop()
    asyncio.run(_record(launcher, failures))
    up = launcher.start("up", *ports).wait_until_up()
    with Pubsub(up.broker) as pubsub, _reading(pubsub) as arrivals:
        job = http.post(f"{up.url}/api/v1/replays", _request(per_second)).body["id"]
        http.post(f"{up.url}/api/v1/replays/{job}:start", {})
        began = time.monotonic()
        for kill in range(1, kills + 1):
            _wait_for(arrivals, failures * kill // (kills + 1), within)
            up.kill()
            up = launcher.start("up", *ports).wait_until_up()
        eventually(lambda: _replay(up, job)["state"] == "done", within)
        seconds = time.monotonic() - began
        counts = _replay(up, job)["counts"]
        elsewhere = sum(len(pubsub.pull(name)) for name in OTHERS)
    up.stop()
    return Replayed(
        failures=failures,
        per_second=per_second,
        kills=kills,
        seconds=seconds,
        published=[*arrivals.published.values()],
        messages_of=Counter(arrivals.original.values()),
        arrived_elsewhere=elsewhere,
        lost_acks=arrivals.lost_acks,
        came_again=arrivals.came_again,
        counts=counts,
    )


def _wait_for(arrivals: Arrivals, count: int, within: float) -> None:
    eventually(lambda: len(arrivals.published) >= count, within)


def _request(per_second: float) -> dict[str, Any]:
    options = {"perSecond": per_second, "concurrency": 1000, "canary": 5}
    return {"selection": {"subscription": FAILING}, "options": options}


def _replay(up: Running, job: int) -> dict[str, Any]:
    found: dict[str, Any] = http.get(f"{up.url}/api/v1/replays/{job}").body
    return found


async def _record(launcher: Launcher, count: int) -> None:
    """As if they had been dead-lettered: that is what this is not about."""
    store = await SqliteDeskStore.open(launcher.data / "failures.db")
    try:
        for start in range(0, count, RECORDED_AT_ONCE):
            await store.record([_failure(number) for number in range(start, min(start + RECORDED_AT_ONCE, count))])
    finally:
        await store.close()


def _failure(number: int) -> FailedMessage:
    return FailedMessage(
        message_id=f"original-{number}",
        subscription=f"projects/local/subscriptions/{FAILING}",
        source_topic=f"projects/local/topics/{TOPIC}",
        failure_reason="SCHEMA_VALIDATION_ERROR",
        error_details=f"total: is missing in order {number}",
        data=b'{"number": %d, "lines": "%s"}' % (number, b"x" * 200),
        publish_time_ns=1_700_000_000_000_000_000 + number,
        created_at_ns=time.time_ns(),
        fingerprint=f"cause-{number % 4}",
    )


# The subscriber.


@dataclass
class Arrivals:
    """By message id: when the broker took it, and of which failure it is."""

    published: dict[str, float] = field(default_factory=dict)
    original: dict[str, str] = field(default_factory=dict)
    unconfirmed: set[str] = field(default_factory=set)  # whose ack was not answered
    came_again: int = 0

    @property
    def lost_acks(self) -> int:
        return len(self.unconfirmed)


@contextmanager
def _reading(pubsub: Pubsub) -> Iterator[Arrivals]:
    arrivals, stop = Arrivals(), threading.Event()
    thread = threading.Thread(target=_read, args=(pubsub, arrivals, stop))
    thread.start()
    try:
        yield arrivals
    finally:
        stop.set()
        thread.join()


def _read(pubsub: Pubsub, arrivals: Arrivals, stop: threading.Event) -> None:
    path = pubsub.subscription(FAILING)
    while not stop.is_set():
        try:
            response = pubsub.subscriber.pull(subscription=path, max_messages=200, timeout=CALL_SECONDS, retry=None)
        except (GoogleAPICallError, RetryError):
            stop.wait(0.1)  # it was killed and is not back yet
            continue
        received = list(response.received_messages)
        if not received:
            continue
        for one in received:
            _note(arrivals, one.message)
        try:
            ack_ids = [one.ack_id for one in received]
            pubsub.subscriber.acknowledge(subscription=path, ack_ids=ack_ids, timeout=CALL_SECONDS, retry=None)
        except (GoogleAPICallError, RetryError):
            arrivals.unconfirmed |= {one.message.message_id for one in received}


def _note(arrivals: Arrivals, message: Any) -> None:
    arrivals.came_again += message.message_id in arrivals.published
    when: datetime = message.publish_time
    arrivals.original[message.message_id] = message.attributes[ORIGINAL_MESSAGE_ID]
    arrivals.published[message.message_id] = when.timestamp()
