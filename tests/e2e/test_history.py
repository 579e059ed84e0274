"""kill -9 at any moment, again and again; then a checker reads the history: lost, delivered after a confirmed ack, out
of order, unexpected, or attempts gone back."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.api_core import exceptions
from google.pubsub_v1 import PublisherClient, SubscriberClient
from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcTransport
from google.pubsub_v1.types import PubsubMessage

from tests.support.process import Launcher

TOPIC = "projects/local/topics/history"
DEAD = "projects/local/topics/history.dead"
ONCE = "projects/local/subscriptions/once"
ORDERED = "projects/local/subscriptions/ordered"
SUBSCRIPTIONS = (ONCE, ORDERED)

ROUNDS = 6
SECONDS = 5.0

# Any of these leaves open whether the broker did it: the process may have died before or after.
UNKNOWN = (
    exceptions.ServiceUnavailable,
    exceptions.DeadlineExceeded,
    exceptions.Unknown,
    exceptions.InternalServerError,
)


@dataclass
class History:
    published: list[str] = field(default_factory=list)  # the publisher has its id
    attempted: set[str] = field(default_factory=set)
    delivered: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    confirmed: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))  # ack answered with OK
    maybe: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))  # the ack was never answered
    attempts: dict[tuple[str, str], list[int]] = field(default_factory=lambda: defaultdict(list))
    wrong: list[str] = field(default_factory=list)

    def deliver(self, subscription: str, name: str, attempt: int) -> None:
        if name not in self.attempted:
            self.wrong.append(f"unexpected: {name}")
        if subscription == ONCE and name in self.confirmed[subscription]:
            self.wrong.append(f"delivered after its ack was confirmed: {name}")
        earlier = self.attempts[subscription, name]
        if earlier and attempt < earlier[-1]:
            self.wrong.append(f"attempt went back from {earlier[-1]} to {attempt}: {name}")
        earlier.append(attempt)
        self.delivered[subscription].append(name)

    def problems(self) -> list[str]:
        found = list(self.wrong)
        for subscription in SUBSCRIPTIONS:
            lost = set(self.published) - set(self.confirmed[subscription]) - self.maybe[subscription]
            found += [f"lost for {subscription}: {name}" for name in sorted(lost)]
        for key, names in itertools.groupby(sorted(self.confirmed[ORDERED], key=_key), _key):
            in_order = [_number(name) for name in self.confirmed[ORDERED] if _key(name) == key]
            if in_order != sorted(set(in_order)):
                found.append(f"key {key} out of order: {in_order} ({len(list(names))})")
        return found


def _key(name: str) -> str:
    return name[0]


def _number(name: str) -> int:
    return int(name.split("-")[1])


class Client:
    """Calls once; what went wrong is an outcome like any other."""

    def __init__(self, address: str) -> None:
        channel = grpc.insecure_channel(address, [("grpc.initial_reconnect_backoff_ms", 50)])
        self._publisher = PublisherClient(transport=PublisherGrpcTransport(channel=channel))
        self._subscriber = SubscriberClient(transport=SubscriberGrpcTransport(channel=channel))
        self._channel = channel

    def close(self) -> None:
        self._channel.close()

    def create(self) -> None:
        for topic in (TOPIC, DEAD):
            self._publisher.create_topic(name=topic, timeout=SECONDS)
        # Attempts are told only where there is a dead-letter policy; 100 are never reached here.
        policy = {"dead_letter_topic": DEAD, "max_delivery_attempts": 100}
        for name in SUBSCRIPTIONS:
            config = {"name": name, "topic": TOPIC, "dead_letter_policy": policy, "ack_deadline_seconds": 10}
            flags = {"enable_exactly_once_delivery": name == ONCE, "enable_message_ordering": name == ORDERED}
            self._subscriber.create_subscription(request={**config, **flags}, timeout=SECONDS)

    def publish(self, history: History, names: list[str]) -> None:
        messages = [PubsubMessage(data=name.encode(), ordering_key=_key(name)) for name in names]
        history.attempted.update(names)
        self._publisher.publish(topic=TOPIC, messages=messages, retry=None, timeout=SECONDS)
        history.published += names

    def pull(self, history: History, subscription: str) -> list[Any]:
        request = {"subscription": subscription, "max_messages": 20, "return_immediately": True}
        response = self._subscriber.pull(request=request, retry=None, timeout=SECONDS)
        received = list(response.received_messages)
        for item in received:
            history.deliver(subscription, item.message.data.decode(), item.delivery_attempt)
        return received

    def ack(self, history: History, subscription: str, received: list[Any]) -> None:
        ack_ids = [item.ack_id for item in received]
        names = [item.message.data.decode() for item in received]
        try:
            self._subscriber.acknowledge(subscription=subscription, ack_ids=ack_ids, retry=None, timeout=SECONDS)
        except UNKNOWN:
            history.maybe[subscription].update(names)
            raise
        history.confirmed[subscription] += names

    def nack(self, subscription: str, received: list[Any]) -> None:
        ack_ids = [item.ack_id for item in received]
        self._subscriber.modify_ack_deadline(
            subscription=subscription, ack_ids=ack_ids, ack_deadline_seconds=0, retry=None, timeout=SECONDS
        )


@contextmanager
def connected(address: str) -> Iterator[Client]:
    client = Client(address)
    yield client
    client.close()


def work_until_dead(client: Client, history: History, chance: random.Random, counter: Iterator[int]) -> None:
    """Random work until the broker does not answer any more."""
    while True:
        subscription = chance.choice(SUBSCRIPTIONS)
        try:
            if chance.random() < 0.4:
                key = chance.choice("abc")
                client.publish(history, [f"{key}-{next(counter)}" for _ in range(chance.randint(1, 10))])
            elif received := client.pull(history, subscription):
                act_on(client, history, subscription, received, chance)
        except UNKNOWN:
            return


def act_on(client: Client, history: History, subscription: str, received: list[Any], chance: random.Random) -> None:
    if chance.random() < 0.8:
        try:
            client.ack(history, subscription, received)
        except exceptions.InvalidArgument:
            pass  # exactly-once: the lease was lost; it will come again
    else:
        client.nack(subscription, received)


def drain(client: Client, history: History) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end and history.problems():
        for subscription in SUBSCRIPTIONS:
            if received := client.pull(history, subscription):
                client.ack(history, subscription, received)


# Deprecated, but the way to pull without waiting: a test that waits for empty pulls would do little else.
@pytest.mark.filterwarnings("ignore:The return_immediately flag is deprecated")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_that_was_confirmed_is_undone_by_kill_9(tmp_path: Path, seed: int) -> None:
    chance, counter, history = random.Random(seed), itertools.count(), History()
    with Launcher(tmp_path) as launcher:
        broker = launcher.part("broker")
        with connected(broker.broker) as client:
            client.create()
        for _ in range(ROUNDS):
            killer = threading.Timer(chance.uniform(0.2, 1.5), broker.process.kill)
            killer.start()
            with connected(broker.broker) as client:
                work_until_dead(client, history, chance, counter)
            killer.join()
            broker.process.wait()
            broker = launcher.part("broker")
        with connected(broker.broker) as client:
            drain(client, history)
    assert len(history.published) > 50
    assert history.problems() == []
