"""Every transport keeps the contract, whatever broker is behind it; below it, what only a network can get wrong."""

from __future__ import annotations

import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from holdfast.api.pubsub_server import PubsubServer
from holdfast.broker.log import MessageLog
from holdfast.broker.service import Broker
from holdfast.clock import SystemClock
from holdfast.consumer.transport import Transport
from holdfast.errors import StorageUnavailable
from holdfast.model.message import Delivery, Message
from holdfast.model.resources import Subscription
from holdfast.settings import BrokerSettings
from holdfast.stores.memory.log import MemoryMessageLog
from holdfast.stores.sqlite.log import SqliteMessageLog
from holdfast.testing.contracts.transport import HearingTransportContract, Names, TransportContract
from holdfast.transports import google
from holdfast.transports.google import GoogleTransport
from holdfast.transports.local import LocalTransport


@asynccontextmanager
async def running_broker(log: MessageLog) -> AsyncIterator[Broker]:
    broker = await Broker.open(log, SystemClock(), BrokerSettings())
    yield broker
    await broker.close()
    await log.close()


class LocalTransportContract(HearingTransportContract):
    """Nothing is in between, so it needs no wait at all to know what is there."""

    async def test_a_receive_without_a_wait_gives_what_is_there(self, transport: Transport, ready: Names) -> None:
        assert list(await transport.receive(ready.subscription.name, 10, 0)) == []
        await transport.publish(ready.topic, Message(b"x"))
        [delivery] = await transport.receive(ready.subscription.name, 10, 0)
        assert delivery.message.data == b"x"


class TestLocalInMemory(LocalTransportContract):
    @pytest.fixture
    async def transport(self) -> AsyncIterator[Transport]:
        async with running_broker(MemoryMessageLog()) as broker:
            yield LocalTransport(broker)


class TestLocalOnDisk(LocalTransportContract):
    @pytest.fixture
    async def transport(self, tmp_path: Path) -> AsyncIterator[Transport]:
        async with running_broker(await SqliteMessageLog.open(tmp_path / "broker.db")) as broker:
            yield LocalTransport(broker)


class TestGoogleToHoldfast(HearingTransportContract):
    @pytest.fixture
    async def transport(self) -> AsyncIterator[Transport]:
        async with AsyncExitStack() as stack:
            server = PubsubServer(await stack.enter_async_context(running_broker(MemoryMessageLog())))
            port = await server.start("127.0.0.1", 0)
            stack.push_async_callback(server.stop)
            transport = GoogleTransport.connect(f"127.0.0.1:{port}")
            stack.push_async_callback(transport.close)
            yield transport


class TestGoogleToGooglesEmulator(TransportContract):
    # It answers a pull that stays empty one second before the client's deadline, and at once when that is nearer.
    answers_early_by_seconds = 1.0

    # It may notice late that a client is gone, and give a message to a call that nobody waits for. That message comes
    # again after the ack deadline.
    ended_receives_hold_messages_seconds = 12.0

    # It looks and creates in two steps, so that several may be told that they created it.
    creates_subscriptions_once = False

    # It knows no more than Pub/Sub's protocol has words for.
    hears_why = False

    # It sends whatever is there, without a look at how much is open.
    limits_streams = False

    # It keeps that for the client of the stream until the deadline has passed, and longer.
    frees_what_ended_streams_held = False

    @pytest.fixture
    async def transport(self, google_emulator: str) -> AsyncIterator[Transport]:
        transport = GoogleTransport.connect(google_emulator)
        yield transport
        await transport.close()


# A broker that cannot be reached. Callers wait for one kind of error, and not for long.


@pytest.fixture
def silent_port() -> Iterator[int]:
    """Takes connections and never says anything. A bare socket: the system accepts, and nobody ever looks."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        yield port


@pytest.mark.parametrize("state", ["silent", "refused"])
@pytest.mark.parametrize("call", ["ensure_topic", "ensure_subscription", "publish", "ack", "nack"])
async def test_a_broker_that_cannot_be_reached_is_unavailable_in_time(
    silent_port: int, refused_port: int, state: str, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(google, "CALL_SECONDS", 0.5)
    transport = GoogleTransport.connect(f"127.0.0.1:{silent_port if state == 'silent' else refused_port}")
    started = time.monotonic()
    with pytest.raises(StorageUnavailable):
        await calls_to(transport)[call]()
    assert time.monotonic() - started < 5
    await transport.close()


async def test_receiving_from_a_broker_that_is_not_there_is_an_error_and_not_empty(refused_port: int) -> None:
    transport = GoogleTransport.connect(f"127.0.0.1:{refused_port}")
    with pytest.raises(StorageUnavailable):
        await transport.receive("projects/local/subscriptions/orders", 1, 5)
    await transport.close()


def calls_to(transport: Transport) -> dict[str, Callable[[], Awaitable[object]]]:
    topic, subscription = "projects/local/topics/orders", "projects/local/subscriptions/orders"
    deliveries = [Delivery(subscription, Message(b"x"), ack_id="1")]
    return {
        "ensure_topic": lambda: transport.ensure_topic(topic),
        "ensure_subscription": lambda: transport.ensure_subscription(Subscription(subscription, topic)),
        "publish": lambda: transport.publish(topic, Message(b"x")),
        "ack": lambda: transport.ack(deliveries),
        "nack": lambda: transport.nack(deliveries),
    }
