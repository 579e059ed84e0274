"""gRPC and REST on one port, and whatever else may knock there."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import grpc
import pytest
import uvloop
from google.pubsub_v1.types import pubsub

from holdfast.api.http.server import listen
from holdfast.api.http2 import first_bytes
from holdfast.api.pubsub_server import PubsubServer
from holdfast.broker.service import Broker
from holdfast.clock import SystemClock
from holdfast.errors import PortTaken
from holdfast.settings import BrokerSettings, GeneralSettings, Settings
from holdfast.stores.memory.log import MemoryMessageLog
from holdfast.wiring.processes.broker import running_broker

SECONDS = 10.0  # longest wait for any one thing
FIRST_BYTES_SECONDS = 0.5

TOPIC = "projects/p/topics/orders"
SUBSCRIPTION = "projects/p/subscriptions/orders"

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS_FRAME = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
GET_ROOT = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


# The hook that is to replace this fixture works only from a conftest.py, for all tests beside it.
pytestmark = pytest.mark.filterwarnings("ignore:Overriding the .event_loop_policy.:pytest.PytestDeprecationWarning")


@pytest.fixture(params=[asyncio.DefaultEventLoopPolicy, uvloop.EventLoopPolicy], ids=["asyncio", "uvloop"])
def event_loop_policy(request: pytest.FixtureRequest) -> Any:
    """Their transports differ in what they forgive. We run on uvloop; tests and others may run on asyncio."""
    return request.param()


@dataclass
class Running:
    port: int
    stop: Callable[[], Coroutine[Any, Any, None]]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"


@asynccontextmanager
async def serving() -> AsyncIterator[Running]:
    """As the wiring does it."""
    async with AsyncExitStack() as stack:
        log = MemoryMessageLog()
        stack.push_async_callback(log.close)
        broker = await Broker.open(log, SystemClock(), BrokerSettings())
        stack.push_async_callback(broker.close)
        server = PubsubServer(broker)
        port = await server.start("127.0.0.1", 0)
        stack.push_async_callback(server.stop)
        yield Running(port, server.stop)


@pytest.fixture
async def running(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Running]:
    monkeypatch.setattr(first_bytes, "FIRST_BYTES_SECONDS", FIRST_BYTES_SECONDS)
    async with serving() as running:
        yield running


class Rpc:
    """A gRPC connection of its own."""

    def __init__(self, address: str) -> None:
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]
        self.channel = grpc.aio.insecure_channel(address, options)

    async def call(self, service: str, method: str, request: Any, response: Any) -> Any:
        name = f"/google.pubsub.v1.{service}/{method}"
        call = self.channel.unary_unary(name, type(request).SerializeToString, response.FromString)
        return await call(request, timeout=SECONDS)

    async def create(self) -> None:
        topic, subscription = pubsub.Topic.pb(), pubsub.Subscription.pb()
        await self.call("Publisher", "CreateTopic", topic(name=TOPIC), topic)
        request = subscription(name=SUBSCRIPTION, topic=TOPIC)
        await self.call("Subscriber", "CreateSubscription", request, subscription)

    async def publish(self, data: bytes) -> str:
        request = pubsub.PublishRequest.pb()(topic=TOPIC, messages=[{"data": data}])
        response = await self.call("Publisher", "Publish", request, pubsub.PublishResponse.pb())
        return str(response.message_ids[0])

    async def pull(self) -> list[Any]:
        request = pubsub.PullRequest.pb()(subscription=SUBSCRIPTION, max_messages=100)
        response = await self.call("Subscriber", "Pull", request, pubsub.PullResponse.pb())
        return list(response.received_messages)


@pytest.fixture
async def rpc(running: Running) -> AsyncIterator[Rpc]:
    rpc = Rpc(running.address)
    yield rpc
    await rpc.channel.close()


async def connect(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port)


async def read_all(reader: asyncio.StreamReader) -> bytes:
    return await asyncio.wait_for(reader.read(), SECONDS)


async def closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    await asyncio.gather(writer.wait_closed(), return_exceptions=True)


# Both at once.


async def test_grpc_and_rest_at_the_same_time(running: Running, rpc: Rpc) -> None:
    await rpc.create()

    async def by_rest(session: aiohttp.ClientSession) -> str:
        url = f"http://{running.address}/v1/{TOPIC}:publish"
        async with session.post(url, data=b'{"messages": [{"data": "eA=="}]}') as response:
            return str((await response.json())["messageIds"][0])

    async with aiohttp.ClientSession() as session:
        calls = [call for _ in range(50) for call in (rpc.publish(b"y"), by_rest(session))]
        ids = await asyncio.gather(*calls)
    assert len(set(ids)) == 100
    received = await rpc.pull()
    assert sorted(item.message.message_id for item in received) == sorted(ids)
    assert sorted({item.message.data for item in received}) == [b"x", b"y"]


async def test_large_messages_both_ways(rpc: Rpc) -> None:
    await rpc.create()
    data = os.urandom(9_900_000)
    await rpc.publish(data)
    (received,) = await rpc.pull()
    assert received.message.data == data


async def test_200_connections(running: Running, rpc: Rpc) -> None:
    await rpc.create()
    many = [Rpc(running.address) for _ in range(100)]
    streams = await asyncio.gather(*[connect(running.port) for _ in range(100)])
    for _, writer in streams:
        writer.write(GET_ROOT)
    ids = await asyncio.gather(*[one.publish(b"x") for one in many])
    answers = await asyncio.gather(*[reader.readuntil(b"Ok\n") for reader, _ in streams])
    assert len(set(ids)) == 100
    assert all(answer.startswith(b"HTTP/1.1 200 OK") for answer in answers)
    await asyncio.gather(*[one.channel.close() for one in many], *[closed(writer) for _, writer in streams])


async def test_an_answer_of_the_http_server_is_not_delayed_by_the_peek(running: Running) -> None:
    reader, writer = await connect(running.port)
    for number in range(3):  # one byte after the other, on a connection that is kept
        for byte in GET_ROOT:
            writer.write(bytes([byte]))
            await writer.drain()
        assert b"200 OK" in await asyncio.wait_for(reader.readuntil(b"Ok\n"), SECONDS), number
    await closed(writer)


# What else may come.


async def test_a_preface_in_single_bytes(running: Running) -> None:
    reader, writer = await connect(running.port)
    for byte in PREFACE + SETTINGS_FRAME:
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(0)
    header = await asyncio.wait_for(reader.readexactly(9), SECONDS)
    assert header[3] == 4  # the server's own settings
    await closed(writer)


@pytest.mark.parametrize(
    "sent", [b"\x00\x01\x02garbage", b"\r\n\r\n", b"\x80" * 100_000], ids=["zero", "lines", "long"]
)
async def test_garbage_ends_the_connection(running: Running, rpc: Rpc, sent: bytes) -> None:
    reader, writer = await connect(running.port)
    writer.write(sent)
    assert await read_all(reader) == b""
    await closed(writer)
    await rpc.create()  # and nobody else is disturbed


@pytest.mark.parametrize("sent", [b"HELLO WORLD\r\n\r\n", b"PRI * HTTP/9.9\r\n\r\n", b"pri * HTTP/2.0\r\n\r\n"])
async def test_garbage_that_looks_like_http_is_a_bad_request(running: Running, sent: bytes) -> None:
    reader, writer = await connect(running.port)
    writer.write(sent)
    assert (await read_all(reader)).startswith(b"HTTP/1.1 400 ")
    await closed(writer)


async def test_a_tls_client_is_told_nothing_and_ends(running: Running) -> None:
    context = ssl.create_default_context()
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await asyncio.wait_for(asyncio.open_connection("127.0.0.1", running.port, ssl=context), SECONDS)
    reader, writer = await connect(running.port)
    writer.write(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
    assert await read_all(reader) == b""
    await closed(writer)


@pytest.mark.parametrize("sent", [b"", PREFACE[:5]], ids=["nothing", "half a preface"])
async def test_who_stays_silent_is_let_go(running: Running, sent: bytes) -> None:
    reader, writer = await connect(running.port)
    writer.write(sent)
    assert await read_all(reader) == b""
    await closed(writer)


async def test_who_leaves_before_a_word_leaves_nothing_behind(running: Running, rpc: Rpc) -> None:
    for _ in range(50):
        _, writer = await connect(running.port)
        await closed(writer)
    await rpc.create()


async def test_half_closed_by_the_client(running: Running) -> None:
    reader, writer = await connect(running.port)
    writer.write(PREFACE + SETTINGS_FRAME)
    writer.write_eof()
    answer = await read_all(reader)  # ends: gRPC closes what its client will not use any more
    assert answer[3] == 4
    await closed(writer)


@pytest.mark.parametrize("which", ["port", "grpc_port"])
async def test_a_taken_port_is_told(running: Running, which: str) -> None:
    broker = await Broker.open(MemoryMessageLog(), SystemClock(), BrokerSettings())
    ports = {"port": 0, "grpc_port": 0} | {which: running.port}
    with pytest.raises(PortTaken, match=rf"cannot listen on 127\.0\.0\.1:{running.port}: .* choose another port"):
        await PubsubServer(broker).start("127.0.0.1", **ports)
    await broker.close()


# Stopping.


async def test_stopping_ends_streams_with_unavailable(running: Running, rpc: Rpc) -> None:
    await rpc.create()
    request, response = pubsub.StreamingPullRequest.pb(), pubsub.StreamingPullResponse.pb()
    method = "/google.pubsub.v1.Subscriber/StreamingPull"
    opened = rpc.channel.stream_stream(method, request.SerializeToString, response.FromString)()
    await opened.write(request(subscription=SUBSCRIPTION, stream_ack_deadline_seconds=10))
    await opened.read()
    _, silent = await connect(running.port)
    idle_reader, idle = await connect(running.port)
    idle.write(GET_ROOT)
    await idle_reader.readuntil(b"Ok\n")
    stopping = asyncio.create_task(running.stop())
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await opened.read()
    assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
    assert await read_all(idle_reader) == b""
    await rpc.channel.close()
    await asyncio.wait_for(stopping, SECONDS)
    with pytest.raises(ConnectionRefusedError):
        await connect(running.port)
    await closed(silent)
    await closed(idle)


async def test_the_direct_port_of_the_wiring() -> None:
    with listen("127.0.0.1", 0) as free:
        grpc_port = free.getsockname()[1]
    settings = Settings(general=GeneralSettings(memory=True), broker=BrokerSettings(port=0, grpc_port=grpc_port))
    async with running_broker(settings) as started:
        one, direct = Rpc(f"127.0.0.1:{started.broker_port}"), Rpc(f"127.0.0.1:{grpc_port}")
        await one.create()
        message_id = await direct.publish(b"x")
        assert [item.message.message_id for item in await one.pull()] == [message_id]
        await asyncio.gather(one.channel.close(), direct.channel.close())
