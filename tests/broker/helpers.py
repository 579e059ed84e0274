"""Short words for what broker tests do all the time."""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast.broker.leases import Lease, NoHolder
from holdfast.broker.service import Broker
from holdfast.broker.subscriptions import SubscriptionQueue
from holdfast.broker.wire import decode
from holdfast.model.message import Message
from holdfast.model.resources import Subscription, Topic

TOPIC = "projects/local/topics/orders"
DEAD_LETTERS = "projects/local/topics/orders.dlq"
SUBSCRIPTION = "projects/local/subscriptions/orders-worker"
DEAD_LETTER_READER = "projects/local/subscriptions/dead-letter-reader"

PLENTY = 1 << 30


async def make_subscription(broker: Broker, **config: Any) -> SubscriptionQueue:
    await broker.create_topic(Topic(TOPIC))
    await broker.create_subscription(Subscription(SUBSCRIPTION, TOPIC, **config))
    return broker.queue(SUBSCRIPTION)


async def make_dead_letter_topic(broker: Broker) -> SubscriptionQueue:
    await broker.create_topic(Topic(DEAD_LETTERS))
    await broker.create_subscription(Subscription(DEAD_LETTER_READER, DEAD_LETTERS))
    return broker.queue(DEAD_LETTER_READER)


async def publish(broker: Broker, *texts: str, topic: str = TOPIC) -> list[str]:
    return [await broker.publish_message(topic, Message(text.encode())) for text in texts]


async def take(queue: SubscriptionQueue, most: int = 1000, deadline_seconds: float | None = None) -> list[Lease]:
    return await queue.take(most, PLENTY, NoHolder(), deadline_seconds)


async def take_one(queue: SubscriptionQueue) -> Lease:
    """Waits for it, for as long as a test may last."""
    (lease,) = await queue.take_or_wait(1, PLENTY, NoHolder())
    return lease


def text(lease: Lease) -> str:
    return decode(lease.body).data.decode()


def texts(leases: list[Lease]) -> list[str]:
    return [text(lease) for lease in leases]


async def settle_down() -> None:
    """Lets everything that is ready to run do so. Nothing here waits for time or for a disk."""
    for _ in range(50):
        await asyncio.sleep(0)
