"""A broker over memory that pushes, with the real clock and the real HTTP client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from holdfast.broker.log import MessageLog
from holdfast.broker.push.delivery import PushDelivery
from holdfast.broker.push.status import PushStatus
from holdfast.broker.push.tokens import PushTokens
from holdfast.broker.service import Broker
from holdfast.clock import SystemClock
from holdfast.model.resources import PushConfig, RetryPolicy, Subscription, Topic
from holdfast.outgoing.addresses import LOOPBACK, AddressGuard
from holdfast.outgoing.client import OutgoingClient
from holdfast.outgoing.resolver import Resolve, system_resolve
from holdfast.settings import BrokerSettings, PushSettings
from holdfast.stores.memory.log import MemoryMessageLog
from tests.broker.helpers import SUBSCRIPTION, TOPIC

AT_ONCE = RetryPolicy(0.01, 0.02)
ISSUER = "http://broker.example.com"
SECONDS = 20.0


@dataclass
class Pushing:
    broker: Broker
    push: PushDelivery

    def status(self, subscription: str = SUBSCRIPTION) -> PushStatus:
        (found,) = [status for status in self.push.status() if status.subscription == subscription]
        return found

    async def until(self, wanted: Any, subscription: str = SUBSCRIPTION) -> PushStatus:
        """Waits until `wanted`, a condition on the subscription's status, is true."""
        async with asyncio.timeout(SECONDS):
            while not wanted(self.status(subscription)):
                await asyncio.sleep(0.005)
        return self.status(subscription)


@asynccontextmanager
async def pushing(
    settings: PushSettings,
    *,
    strict: bool = False,
    broker_settings: BrokerSettings | None = None,
    log: MessageLog | None = None,
    guard: AddressGuard | None = None,
    resolve: Resolve = system_resolve,
) -> AsyncIterator[Pushing]:
    clock = SystemClock()
    guard = guard or AddressGuard(LOOPBACK)
    broker_settings = broker_settings or BrokerSettings(strict=strict)
    broker = await Broker.open(log or MemoryMessageLog(), clock, broker_settings, guard)
    client = OutgoingClient(guard, resolve=resolve)
    tokens = PushTokens(broker.signing_keys, ISSUER, clock)
    push = PushDelivery(broker, client, tokens, ISSUER, settings, clock, strict=strict)
    push.start()
    try:
        yield Pushing(broker, push)
    finally:
        await push.stop()
        await client.close()
        await broker.close()


async def push_to(broker: Broker, url: str, *, push: PushConfig | None = None, **config: Any) -> None:
    """Makes the topic and the push subscription. `push` is for more than a URL."""
    await broker.create_topic(Topic(TOPIC))
    await broker.create_subscription(Subscription(SUBSCRIPTION, TOPIC, push=push or PushConfig(url), **config))


async def acked(broker: Broker, count: int) -> None:
    """Waits until the subscription has settled its first `count` messages."""
    queue = broker.queue(SUBSCRIPTION)
    async with asyncio.timeout(SECONDS):
        while queue.settled.floor <= count:
            await asyncio.sleep(0.005)
