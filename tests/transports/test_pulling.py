"""The consumer pulls over the network, from Holdfast's own broker and from Google's emulator."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from holdfast.api.pubsub_server import PubsubServer
from holdfast.broker.service import Broker
from holdfast.clock import SystemClock
from holdfast.consumer import Consumer, Count, Event, Transient, Upsert
from holdfast.consumer.pipeline import Pipeline
from holdfast.consumer.pull import pulling
from holdfast.model.message import Message
from holdfast.model.resources import Subscription
from holdfast.settings import BrokerSettings, ConsumerSettings
from holdfast.stores.memory.documents import MemoryDocumentStore
from holdfast.stores.memory.log import MemoryMessageLog
from holdfast.transports.google import GoogleTransport
from tests.support.failures import Captured

PATIENCE_SECONDS = 60


@pytest.fixture(params=["holdfast", "emulator"])
async def transport(request: pytest.FixtureRequest) -> AsyncIterator[GoogleTransport]:
    async with AsyncExitStack() as stack:
        if request.param == "holdfast":
            address = await stack.enter_async_context(served_broker())
        else:
            address = request.getfixturevalue("google_emulator")
        transport = GoogleTransport.connect(address)
        stack.push_async_callback(transport.close)
        yield transport


@asynccontextmanager
async def served_broker() -> AsyncIterator[str]:
    broker = await Broker.open(MemoryMessageLog(), SystemClock(), BrokerSettings())
    server = PubsubServer(broker)
    port = await server.start("127.0.0.1", 0)
    yield f"127.0.0.1:{port}"
    await server.stop()
    await broker.close()


class Shop:
    """A subscription, and a handler that fails some messages the first time."""

    def __init__(self, transport: GoogleTransport, **subscription: Any) -> None:
        project = f"projects/test-{uuid.uuid4().hex}"
        self.topic = f"{project}/topics/orders"
        self.subscription = Subscription(f"{project}/subscriptions/worker", self.topic, **subscription)
        self.transport = transport
        self.store = MemoryDocumentStore()
        self.fails_once: set[str] = set()
        self.order: list[str] = []
        self.open: set[str] = set()
        self.all_handled = asyncio.Event()

    def handle(self, event: Event) -> list[Upsert | Count]:
        name = event.data["id"]
        self.order.append(name)
        if name in self.fails_once:
            self.fails_once.discard(name)
            raise Transient("later", retry_after=0.5)
        self.open.discard(name)
        if not self.open:
            self.all_handled.set()
        return [Upsert("orders", name, {}), Count("totals", "all", {"applied": 1})]

    async def publish(self, *names: str, key: str = "") -> None:
        self.open |= set(names)
        for name in names:
            await self.transport.publish(self.topic, Message(json.dumps({"id": name}).encode(), ordering_key=key))

    async def pull(self) -> None:
        """Until all of them were handled; the end of `pulling` finishes and acks the last."""
        app = Consumer()
        app.on("orders")(self.handle)
        clock, settings = SystemClock(), ConsumerSettings(queue_size=8, max_workers=2)
        pipeline = Pipeline(app, self.store, Captured(), clock, settings)
        async with (
            asyncio.timeout(PATIENCE_SECONDS),
            pulling(self.transport, pipeline, clock, settings, [self.subscription.name]),
        ):
            await self.all_handled.wait()
        await pipeline.close()


@asynccontextmanager
async def made(shop: Shop) -> AsyncIterator[Shop]:
    await shop.transport.ensure_topic(shop.topic)
    await shop.transport.ensure_subscription(shop.subscription)
    yield shop


@pytest.mark.parametrize("exactly_once", [False, True])
async def test_everything_is_applied_once_and_acked(transport: GoogleTransport, exactly_once: bool) -> None:
    async with made(Shop(transport, exactly_once=exactly_once)) as shop:
        names = {f"order-{number}" for number in range(200)}
        shop.fails_once = {"order-3", "order-7"}
        await shop.publish(*sorted(names))
        await shop.pull()
        totals = await shop.store.get("totals", "all")
        assert totals is not None
        assert totals.fields == {"applied": len(names)}
        assert list(await transport.receive(shop.subscription.name, 10, 1.5)) == []


async def test_order_is_kept_across_a_failure(transport: GoogleTransport) -> None:
    async with made(Shop(transport, ordered=True)) as shop:
        names = [f"order-{number}" for number in range(10)]
        shop.fails_once = {"order-4"}
        await shop.publish(*names, key="customer")
        await shop.pull()
        assert shop.order == [*names[:5], *names[4:]]
