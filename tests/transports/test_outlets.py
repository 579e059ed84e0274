"""Every outlet keeps the contract, whatever broker is behind it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from holdfast.api.http import deliveries
from holdfast.api.pubsub_server import PubsubServer
from holdfast.broker.log import MessageLog
from holdfast.broker.service import Broker
from holdfast.clock import SystemClock
from holdfast.errors import BadInput
from holdfast.model.fate import Fate
from holdfast.model.message import Message
from holdfast.model.names import replay_subscription
from holdfast.model.resources import Subscription, Topic
from holdfast.settings import BrokerSettings
from holdfast.stores.memory.log import MemoryMessageLog
from holdfast.stores.sqlite.log import SqliteMessageLog
from holdfast.testing.contracts.outlet import OnceOutletContract, OutletContract, OutletTransport
from holdfast.testing.contracts.transport import Names
from holdfast.transports.google import GoogleTransport
from holdfast.transports.local import LocalTransport

TOPIC = "projects/local/topics/orders"
SUBSCRIPTION = "projects/local/subscriptions/orders"


@asynccontextmanager
async def running_broker(log: MessageLog, *, strict: bool = False) -> AsyncIterator[Broker]:
    broker = await Broker.open(log, SystemClock(), BrokerSettings(strict=strict))
    yield broker
    await broker.close()
    await log.close()


@asynccontextmanager
async def over_the_wire(broker: Broker) -> AsyncIterator[GoogleTransport]:
    server = PubsubServer(broker, extra_routes=deliveries.routes(broker))
    transport = GoogleTransport.connect(f"127.0.0.1:{await server.start('127.0.0.1', 0)}")
    try:
        yield transport
    finally:
        await transport.close()
        await server.stop()


class TestLocalInMemory(OnceOutletContract):
    @pytest.fixture
    async def outlet(self) -> AsyncIterator[OutletTransport]:
        async with running_broker(MemoryMessageLog()) as broker:
            yield LocalTransport(broker)


class TestLocalOnDisk(OnceOutletContract):
    @pytest.fixture
    async def outlet(self, tmp_path: Path) -> AsyncIterator[OutletTransport]:
        async with running_broker(await SqliteMessageLog.open(tmp_path / "broker.db")) as broker:
            yield LocalTransport(broker)


class TestGoogleToHoldfast(OnceOutletContract):
    @pytest.fixture
    async def outlet(self) -> AsyncIterator[OutletTransport]:
        async with AsyncExitStack() as stack:
            broker = await stack.enter_async_context(running_broker(MemoryMessageLog()))
            yield await stack.enter_async_context(over_the_wire(broker))


class TestGoogleToStrictHoldfast(OutletContract):
    """It refuses the address as Cloud Pub/Sub does."""

    addresses_subscriptions = False
    tells_fates = False

    @pytest.fixture
    async def outlet(self) -> AsyncIterator[OutletTransport]:
        async with AsyncExitStack() as stack:
            broker = await stack.enter_async_context(running_broker(MemoryMessageLog(), strict=True))
            yield await stack.enter_async_context(over_the_wire(broker))


class TestGoogleToGooglesEmulator(OutletContract):
    addresses_subscriptions = False
    tells_fates = False

    @pytest.fixture
    async def outlet(self, google_emulator: str) -> AsyncIterator[OutletTransport]:
        transport = GoogleTransport.connect(google_emulator)
        yield transport
        await transport.close()


async def test_the_way_around_copies_what_matters_of_the_subscription() -> None:
    names = Names("projects/local")
    async with running_broker(MemoryMessageLog(), strict=True) as broker, over_the_wire(broker) as transport:
        await broker.create_topic(Topic(names.topic))
        config = OutletContract().subscription(names)
        assert config.dead_letter is not None
        await broker.create_topic(Topic(config.dead_letter.topic))
        await broker.create_subscription(config)
        for _ in range(2):
            await transport.publish_to(config.name, [Message(b"x")])
        copy = broker.get_subscription(replay_subscription(config.name))
        assert (copy.ordered, copy.retry, copy.dead_letter) == (True, config.retry, config.dead_letter)
        assert copy.topic == "projects/local/topics/orders.replay"
        await broker.delete_subscription(copy.name)
        await broker.delete_topic(copy.topic)
        await transport.publish_to(config.name, [Message(b"y")])
        assert len(await transport.receive(copy.name, 10, 5)) == 1


async def test_a_bad_message_makes_no_way_around() -> None:
    async with running_broker(MemoryMessageLog()) as broker, over_the_wire(broker) as transport:
        await broker.create_topic(Topic(TOPIC))
        await broker.create_subscription(Subscription(SUBSCRIPTION, TOPIC))
        with pytest.raises(BadInput, match="messages"):
            await transport.publish_to(SUBSCRIPTION, [Message(b"")])
        assert [topic.name for topic in broker.list_topics("projects/local")] == [TOPIC]
        assert await transport.publish_to(SUBSCRIPTION, [Message(b"x")])


async def test_many_fates_are_asked_for_in_requests_that_are_taken() -> None:
    async with running_broker(MemoryMessageLog()) as broker, over_the_wire(broker) as transport:
        await broker.create_topic(Topic(TOPIC))
        await broker.create_subscription(Subscription(SUBSCRIPTION, TOPIC))
        ids: list[str] = []
        for _ in range(3):
            ids += await transport.publish_to(SUBSCRIPTION, [Message(b"x")] * 1000)
        assert await transport.fates(SUBSCRIPTION, ids) == dict.fromkeys(ids, Fate.PENDING)
