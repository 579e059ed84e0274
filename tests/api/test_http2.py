"""The lean HTTP/2 server: frame by frame with a client that misbehaves, and as a whole with official clients."""

from __future__ import annotations

import asyncio
import base64
import gzip
import queue
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc
import hpack as hpack_package
import pytest
from google.cloud import pubsub_v1
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcTransport
from google.pubsub_v1.types import PublishRequest, PubsubMessage
from google.rpc import error_details_pb2, status_pb2
from hypothesis import given
from hypothesis import strategies as st

from holdfast import errors
from holdfast.api.grpc.methods import LARGEST_REQUEST_BYTES, Method, StreamMethod
from holdfast.api.grpc.status import Code as Status
from holdfast.api.http.server import listen
from holdfast.api.http2 import budget, connection, frames, hpack
from holdfast.api.http2.calls import Calls
from holdfast.api.http2.frames import Code
from holdfast.api.http2.sending import TOGETHER_BYTES, Sender
from holdfast.api.http2.server import Http2Server
from holdfast.api.http2.streams import WINDOW_BYTES
from tests.support.http2_peer import Frame, Peer, data, grow, message
from tests.support.served_broker import SECONDS, SUBSCRIPTION, TOPIC, Clients, Stream

MIB = 1 << 20


class Service:
    """Methods that show what the server does to a handler."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.sent = 0

    def methods(self) -> dict[str, Method | StreamMethod]:
        return {
            "Echo": Method(_Bytes, self.echo, raw=True),
            "Parsed": Method(_Bytes, self.echo),
            "Large": Method(_Bytes, self.large, raw=True),
            "Fail": Method(_Bytes, self.fail, raw=True),
            "Wait": Method(_Bytes, self.wait, raw=True),
            "EchoAll": StreamMethod(_Bytes, self.echo_all),
            "Flood": StreamMethod(_Bytes, self.flood),
            "Deaf": StreamMethod(_Bytes, self.deaf),
        }

    async def echo(self, request: bytes) -> bytes:
        return request

    async def large(self, request: bytes) -> bytes:
        return b"x" * int(request)

    async def fail(self, request: bytes) -> bytes:
        match request:
            case b"stale":
                raise errors.StaleAckIds(["a-1"])
            case b"many stale":
                raise errors.StaleAckIds([f"a-{number}" for number in range(1000)])
            case b"bad":
                raise errors.BadInput("na%me", "größer\nals")
            case _:
                raise RuntimeError("secret")

    async def wait(self, request: bytes) -> bytes:
        self.started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return b""

    async def echo_all(self, requests: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        try:
            async for request in requests:
                yield request
        except asyncio.CancelledError:
            self.cancelled.set()
            raise

    async def flood(self, requests: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Sends without end."""
        try:
            while True:
                self.sent += 1
                yield b"x" * 1000
        finally:
            self.cancelled.set()

    async def deaf(self, requests: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Takes nothing in before it may."""
        await self.started.wait()
        async for request in requests:
            yield str(len(request)).encode()


class _Bytes:
    """In the place of a protobuf class."""

    @staticmethod
    def FromString(encoded: bytes) -> bytes:
        if encoded == b"unreadable":
            raise ValueError("secret")
        return encoded


@asynccontextmanager
async def serving(
    service: Service, settings: dict[int, int] | None = None
) -> AsyncIterator[tuple[Http2Server, Peer, int]]:
    server = Http2Server({"test.Service": service.methods()})
    listener = listen("127.0.0.1", 0)
    port = listener.getsockname()[1]
    await server.start(listener)
    peer = await Peer.connect(port, settings)
    try:
        yield server, peer, port
    finally:
        await peer.close()
        await server.stop(0)


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
async def peer(service: Service) -> AsyncIterator[Peer]:
    async with serving(service) as (_, connected, _):
        yield connected


def _without_bytes(value: object) -> str | None:
    """Names of tests must be short, and the same in every process."""
    return "bytes" if isinstance(value, bytes) else None


async def happens(event: asyncio.Event) -> None:
    async with asyncio.timeout(SECONDS):
        await event.wait()


# Calls.


async def test_a_unary_call(peer: Peer) -> None:
    await peer.call(1, "Echo", b"hello")
    response = await peer.response(1)
    assert response.headers == {":status": "200", "content-type": "application/grpc"}
    assert response.messages == [b"hello"]
    assert response.trailers == {"grpc-status": "0"}


async def test_a_response_leaves_in_one_piece(peer: Peer) -> None:
    """Headers, data and trailers: a client that reads once has them all."""
    await peer.call(1, "Echo", b"hello")
    async with asyncio.timeout(SECONDS):
        received = await peer._reader.read(65_536)
    assert received.endswith(b"\x0bgrpc-status\x010")


async def test_a_request_comes_in_any_pieces(peer: Peer) -> None:
    whole = peer.opening(1, "Echo") + b"".join(data(1, message(b"hello"), last=True))
    for byte in whole:
        await peer.send(bytes([byte]))
    assert (await peer.response(1)).messages == [b"hello"]
    await peer.send(peer.opening(3, "Echo"), *data(3, message(b"hello")[:2]), *data(3, message(b"hello")[2:]))
    await peer.send(*data(3, b"", last=True))
    assert (await peer.response(3)).messages == [b"hello"]


async def test_padding_priority_and_continuation_are_understood(peer: Peer) -> None:
    block = peer.head("Echo")
    flags = frames.PADDED | frames.HAS_PRIORITY
    await peer.send(
        frames.frame(frames.PRIORITY, 0, 5, bytes(4) + b"\x10"),
        frames.frame(frames.HEADERS, flags, 1, b"\x03" + bytes(4) + b"\x10" + block[:4] + bytes(3)),
        frames.frame(frames.CONTINUATION, 0, 1, block[4:6]),
        frames.frame(frames.CONTINUATION, frames.END_HEADERS, 1, block[6:]),
        frames.frame(frames.DATA, frames.PADDED | frames.END_STREAM, 1, b"\x05" + message(b"hello") + bytes(5)),
    )
    assert (await peer.response(1)).messages == [b"hello"]


async def test_trailers_of_a_client_end_its_request(peer: Peer) -> None:
    await peer.send(peer.opening(1, "Echo"), *data(1, message(b"hello")))
    trailers = peer.encoder.encode([("x-sum", "1")])
    await peer.send(frames.frame(frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, 1, trailers))
    assert (await peer.response(1)).messages == [b"hello"]


async def test_a_stream_answers_before_the_client_has_said_all_and_ends_when_it_has(peer: Peer) -> None:
    await peer.send(peer.opening(1, "EchoAll"), *data(1, message(b"one")))
    assert peer.decode((await peer.next(frames.HEADERS)).payload)[":status"] == "200"
    assert (await peer.next(frames.DATA)).payload == message(b"one")
    await peer.send(*data(1, message(b"two") + message(b"three")[:3]))
    assert (await peer.next(frames.DATA)).payload == message(b"two")
    await peer.send(*data(1, message(b"three")[3:], last=True))
    assert (await peer.next(frames.DATA)).payload == message(b"three")
    end = await peer.next(frames.HEADERS)
    assert end.flags & frames.END_STREAM
    assert peer.decode(end.payload) == {"grpc-status": "0"}
    assert await peer.quiet() == []


async def test_a_stream_without_any_message_still_has_headers_and_trailers(peer: Peer) -> None:
    await peer.send(peer.opening(1, "EchoAll", frames.END_STREAM))
    response = await peer.response(1)
    assert (response.headers[":status"], response.messages, response.status) == ("200", [], Status.OK)


@pytest.mark.parametrize(
    ("method", "body", "status", "text"),
    [
        ("Nothing", message(b""), Status.UNIMPLEMENTED, "no such method"),
        ("Echo", b"", Status.INTERNAL, "missing"),
        ("Echo", message(b"hello")[:-1], Status.INTERNAL, "cut short"),
        ("Echo", message(b"one") + message(b"two"), Status.INTERNAL, "more"),
        ("Echo", message(b"x", compressed=True), Status.INTERNAL, "compressed"),
        ("Echo", message(b"x" * (LARGEST_REQUEST_BYTES + 1)), Status.RESOURCE_EXHAUSTED, "larger than max"),
        ("Parsed", message(b"unreadable"), Status.INTERNAL, "cannot be parsed"),
        ("EchoAll", message(b"unreadable"), Status.INTERNAL, "cannot be parsed"),
        ("EchoAll", message(b"x" * (LARGEST_REQUEST_BYTES + 1)), Status.RESOURCE_EXHAUSTED, "larger than max"),
        ("EchoAll", message(b"hello")[:-1], Status.INTERNAL, "cut short"),
        ("Fail", message(b""), Status.INTERNAL, "the broker's log"),
    ],
    ids=_without_bytes,
)
async def test_a_call_that_cannot_be_done_gets_a_status_and_the_connection_goes_on(
    peer: Peer, method: str, body: bytes, status: Status, text: str
) -> None:
    sending = asyncio.create_task(peer.send(peer.opening(1, method), *data(1, body, last=True)))
    response = await peer.response(1)
    await sending
    assert response.status == status
    assert text in response.trailers["grpc-message"]
    assert "secret" not in response.trailers["grpc-message"]
    await peer.call(3, "Echo", b"still alive")
    assert (await peer.response(3)).messages == [b"still alive"]


async def test_who_is_still_sending_after_the_answer_is_told_to_stop(peer: Peer) -> None:
    await peer.send(peer.opening(1, "Nothing"))
    assert (await peer.response(1)).status == Status.UNIMPLEMENTED
    reset = await peer.next(frames.RST_STREAM)
    assert (reset.stream_id, reset.number) == (1, Code.NO_ERROR)
    await peer.send(*data(1, message(b"was on its way"), last=True))
    assert await peer.quiet() == []


async def test_errors_carry_their_details(peer: Peer) -> None:
    await peer.call(1, "Fail", b"stale")
    response = await peer.response(1)
    assert response.status == Status.INVALID_ARGUMENT
    status: Any = status_pb2.Status()
    status.ParseFromString(_decoded(response.trailers["grpc-status-details-bin"]))
    info: Any = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    assert info.metadata == {"a-1": "PERMANENT_FAILURE_INVALID_ACK_ID"}


def _decoded(value: str) -> bytes:
    return base64.b64decode(value + "=" * (-len(value) % 4))


async def test_a_text_that_no_header_can_hold_is_escaped(peer: Peer) -> None:
    await peer.call(1, "Fail", b"bad")
    assert (await peer.response(1)).trailers["grpc-message"] == "na%25me: gr%C3%B6%C3%9Fer%0Aals"


async def test_details_are_left_out_where_the_client_would_not_take_them(service: Service) -> None:
    async with serving(service, {frames.MAX_HEADER_LIST_SIZE: 8192}) as (_, peer, _):
        await peer.call(1, "Fail", b"many stale")
        response = await peer.response(1)
        assert response.status == Status.INVALID_ARGUMENT
        assert "grpc-status-details-bin" not in response.trailers


async def test_long_trailers_are_continued(peer: Peer) -> None:
    await peer.call(1, "Fail", b"many stale")
    first = await peer.next(frames.HEADERS)
    second = await peer.next(frames.CONTINUATION)
    assert not first.flags & frames.END_HEADERS
    assert len(first.payload) == frames.DEFAULT_FRAME_BYTES
    while not second.flags & frames.END_HEADERS:
        first = Frame(first.kind, first.flags, 1, first.payload + second.payload)
        second = await peer.next(frames.CONTINUATION)
    decoder = hpack_package.Decoder(max_header_list_size=MIB)
    headers: Any = decoder.decode(first.payload + second.payload)
    assert dict(headers)["grpc-status"] == "3"


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"content_type": "application/json"}, "415"),
        ({"content_type": "application/grpc-web"}, "415"),
        ({":method": "GET"}, "405"),
    ],
)
async def test_who_does_not_speak_grpc_is_told_so(peer: Peer, more: dict[str, str], code: str) -> None:
    await peer.send(peer.opening(1, "Echo", **more), *data(1, b"{}", last=True))
    assert peer.decode((await peer.next(frames.HEADERS)).payload)[":status"] == code
    assert b"gRPC" in (await peer.next(frames.DATA)).payload
    assert (await peer.next(frames.DATA)).flags & frames.END_STREAM


@pytest.mark.parametrize("kind", ["application/grpc+proto", "application/grpc; charset=utf-8"])
async def test_any_kind_of_grpc_is_taken(peer: Peer, kind: str) -> None:
    await peer.call(1, "Echo", b"hello", content_type=kind)
    assert (await peer.response(1)).messages == [b"hello"]


# Deadlines and cancellation.


@pytest.mark.parametrize("timeout", ["50m", "50000u", "50000000n", "0S"])
async def test_a_deadline_ends_the_handler(peer: Peer, service: Service, timeout: str) -> None:
    await peer.call(1, "Wait", grpc_timeout=timeout)
    assert (await peer.response(1)).status == Status.DEADLINE_EXCEEDED
    if service.started.is_set():
        await happens(service.cancelled)


async def test_a_deadline_ends_a_stream(peer: Peer, service: Service) -> None:
    await peer.send(peer.opening(1, "EchoAll", grpc_timeout="50m"), *data(1, message(b"one")))
    response = await peer.response(1)
    assert (response.messages, response.status) == ([b"one"], Status.DEADLINE_EXCEEDED)
    await happens(service.cancelled)


@pytest.mark.parametrize("timeout", ["1", "S", "-1S", "123456789S", "1x"])
async def test_a_deadline_that_cannot_be_read_is_an_error(peer: Peer, timeout: str) -> None:
    await peer.call(1, "Echo", b"x", grpc_timeout=timeout)
    assert (await peer.response(1)).status == Status.INTERNAL


@pytest.mark.parametrize("timeout", ["10S", "1H", "1M", "99999999H"])
async def test_a_deadline_that_is_met_changes_nothing(peer: Peer, timeout: str) -> None:
    await peer.call(1, "Echo", b"x", grpc_timeout=timeout)
    assert (await peer.response(1)).messages == [b"x"]


@pytest.mark.parametrize("method", ["Wait", "EchoAll"])
async def test_a_reset_cancels_the_handler_and_nothing_more_is_said(peer: Peer, service: Service, method: str) -> None:
    await peer.send(peer.opening(1, method), *data(1, message(b"x"), last=method == "Wait"))
    if method == "Wait":
        await happens(service.started)
    else:
        await peer.next(frames.DATA)
    await peer.send(frames.reset(1, Code.CANCEL))
    await happens(service.cancelled)
    assert await peer.quiet() == []


async def test_a_lost_connection_cancels_the_handler(peer: Peer, service: Service) -> None:
    await peer.call(1, "Wait")
    await happens(service.started)
    await peer.close()
    await happens(service.cancelled)


# Compression.


@pytest.mark.parametrize(("encoding", "compress"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
async def test_compressed_requests_are_taken(peer: Peer, encoding: str, compress: Any) -> None:
    packed = message(compress(b"hello" * 1000), compressed=True)
    await peer.send(peer.opening(1, "Echo", grpc_encoding=encoding), *data(1, packed, last=True))
    assert (await peer.response(1)).messages == [b"hello" * 1000]
    await peer.send(peer.opening(3, "EchoAll", grpc_encoding=encoding), *data(3, packed + message(b"plain"), last=True))
    assert (await peer.response(3)).messages == [b"hello" * 1000, b"plain"]


@pytest.mark.parametrize("method", ["Echo", "EchoAll"])
async def test_a_gzip_bomb_is_refused_before_it_is_unpacked(peer: Peer, method: str) -> None:
    packer = zlib.compressobj(1, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    bomb = b"".join(packer.compress(bytes(MIB)) for _ in range(200)) + packer.flush()
    tracemalloc.start()
    try:
        await peer.send(peer.opening(1, method, grpc_encoding="gzip"))
        await peer.send(*data(1, message(bomb, compressed=True), last=True))
        assert (await peer.response(1)).status == Status.RESOURCE_EXHAUSTED
        assert tracemalloc.get_traced_memory()[1] < 100 * MIB
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("packed", [b"nonsense", gzip.compress(b"hello" * 1000)[:-12]], ids=_without_bytes)
async def test_what_cannot_be_unpacked_is_an_error(peer: Peer, packed: bytes) -> None:
    body = message(packed, compressed=True)
    await peer.send(peer.opening(1, "Echo", grpc_encoding="gzip"), *data(1, body, last=True))
    assert (await peer.response(1)).status == Status.INTERNAL


async def test_an_unknown_compression_is_refused_with_those_we_know(peer: Peer) -> None:
    await peer.call(1, "Echo", b"x", grpc_encoding="br")
    response = await peer.response(1)
    assert response.status == Status.UNIMPLEMENTED
    assert response.trailers["grpc-accept-encoding"] == "identity,deflate,gzip"


# Windows: ours.


async def test_a_request_may_be_larger_than_every_window(peer: Peer) -> None:
    """20 MB: windows are given back while it comes in."""
    body = message(b"x" * 20_000_000)
    await peer.send(peer.opening(1, "Echo"))
    connection_window, stream_window = connection.CONNECTION_WINDOW_BYTES, WINDOW_BYTES
    position = 0
    while position < len(body):
        if min(connection_window, stream_window) < frames.DEFAULT_FRAME_BYTES:
            update = await peer.next(frames.WINDOW_UPDATE)
            connection_window += update.number if not update.stream_id else 0
            stream_window += update.number if update.stream_id else 0
            continue
        chunk = body[position : position + frames.DEFAULT_FRAME_BYTES]
        position += len(chunk)
        await peer.send(*data(1, chunk, last=position == len(body)))
        connection_window -= len(chunk)
        stream_window -= len(chunk)
    (echoed,) = (await peer.response(1)).messages
    assert len(echoed) == 20_000_000


async def test_a_handler_that_does_not_read_stops_its_client_but_not_others(peer: Peer, service: Service) -> None:
    one = message(b"x" * 1000)
    count = WINDOW_BYTES // len(one)
    await peer.send(peer.opening(1, "Deaf"), *data(1, one * count))
    assert [frame for frame in await peer.quiet() if frame.stream_id == 1] == []  # no window was given back
    await peer.call(3, "Echo", b"hello")
    assert (await peer.response(3)).messages == [b"hello"]
    service.started.set()
    update = await peer.next(frames.WINDOW_UPDATE)
    assert update.stream_id == 1
    await peer.send(*data(1, one, last=True))
    assert (await peer.response(1)).messages[-1] == b"1000"


async def test_more_than_the_streams_window_ends_the_stream(peer: Peer) -> None:
    await peer.send(peer.opening(1, "Deaf"), *data(1, message(b"x") * (WINDOW_BYTES // 6 + 1)))
    reset = await peer.next(frames.RST_STREAM)
    assert (reset.stream_id, reset.number) == (1, Code.FLOW_CONTROL_ERROR)
    await peer.call(3, "Echo", b"hello")
    assert (await peer.response(3)).messages == [b"hello"]


async def test_too_much_in_memory_is_refused_in_a_way_that_clients_try_again(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.api.http2.calls.MOST_HELD_BYTES", 100_000)
    half = message(b"x" * 80_000)
    await peer.send(peer.opening(1, "Echo"), *data(1, half[:-1]))
    await peer.send(peer.opening(3, "Echo"), *data(3, half[:-1]))
    assert (await peer.response(3)).status == Status.UNAVAILABLE
    await peer.send(*data(1, half[-1:], last=True))
    assert (await peer.response(1)).messages == [b"x" * 80_000]
    await peer.call(5, "Echo", b"x" * 80_000)
    assert (await peer.response(5)).status == Status.OK


# Windows: the client's.


async def test_a_response_waits_for_the_streams_window(service: Service) -> None:
    async with serving(service, {frames.INITIAL_WINDOW_SIZE: 3}) as (_, peer, _):
        await peer.call(1, "Echo", b"hello")
        sent = await peer.quiet()
        assert [frame.kind for frame in sent] == [frames.HEADERS, frames.DATA]
        assert len(sent[1].payload) == 3
        await peer.send(*grow(1, 1))
        assert len((await peer.next(frames.DATA)).payload) == 1
        await peer.send(frames.settings({frames.INITIAL_WINDOW_SIZE: 1}))  # that is two less than nothing for stream 1
        await peer.send(*grow(2, 1))
        assert [frame.kind for frame in await peer.quiet()] == [frames.SETTINGS]
        await peer.send(frames.settings({frames.INITIAL_WINDOW_SIZE: 100}))
        assert (await peer.next(frames.DATA)).payload == b"\x05hello"[0:]
        assert peer.decode((await peer.next(frames.HEADERS)).payload) == {"grpc-status": "0"}


async def test_streams_share_the_connections_window_in_turns(service: Service) -> None:
    async with serving(service, {frames.INITIAL_WINDOW_SIZE: MIB}) as (_, peer, _):
        for stream_id in (1, 3):
            await peer.call(stream_id, "Large", b"100000")
        first = await peer.quiet()
        assert sum(len(frame.payload) for frame in first if frame.kind == frames.DATA) == frames.DEFAULT_WINDOW
        await peer.send(*grow(4 * frames.DEFAULT_FRAME_BYTES, 0))
        turns = [frame.stream_id for frame in await peer.quiet() if frame.kind == frames.DATA]
        assert set(turns) == {1, 3}
        # A response without data needs no window.
        await peer.call(5, "Nothing")
        assert (await peer.response(5)).status == Status.UNIMPLEMENTED
        await peer.send(*grow(MIB, 0))
        ends = [frame.stream_id for frame in await peer.quiet() if frame.flags & frames.END_STREAM]
        assert sorted(ends) == [1, 3]


async def test_a_stream_produces_no_more_than_its_client_takes(peer: Peer, service: Service) -> None:
    await peer.send(peer.opening(1, "Flood"))
    await peer.quiet()
    in_window = frames.DEFAULT_WINDOW // 1005 + 1
    assert service.sent == in_window
    await peer.send(*grow(10 * 1005, 0, 1))
    await peer.quiet()
    assert in_window < service.sent <= in_window + 11
    await peer.send(frames.reset(1, Code.CANCEL))
    await happens(service.cancelled)


async def test_a_client_that_does_not_read_stops_its_streams(service: Service) -> None:
    """Its windows are wide open; the socket is full."""
    async with serving(service, {frames.INITIAL_WINDOW_SIZE: frames.LARGEST_WINDOW}) as (_, peer, port):
        await peer.send(*grow(1 << 30, 0), peer.opening(1, "Flood"))
        other = await Peer.connect(port)
        counts: list[int] = []
        while len(counts) < 3 or counts[-1] != counts[-3]:
            await asyncio.sleep(0.05)
            counts.append(service.sent)
        assert service.sent < 50_000  # 50 MB; the socket's own buffers hold some
        await other.call(1, "Echo", b"hello")
        assert (await other.response(1)).messages == [b"hello"]
        await other.close()


async def test_what_is_asked_for_and_never_taken_is_limited(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.api.http2.sending.MOST_UNSENT_BYTES", 1_000_000)
    async with serving(service, {frames.INITIAL_WINDOW_SIZE: 0}) as (_, peer, _):
        for stream_id in range(1, 30, 2):
            await peer.call(stream_id, "Large", b"100000")
        await peer.ends_with(Code.ENHANCE_YOUR_CALM)


async def test_pings_whose_answers_nobody_reads_end_the_connection(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.api.http2.sending.BUFFER_BYTES", 1000)
    monkeypatch.setattr("holdfast.api.http2.sending.MOST_BUFFERED_BYTES", 100_000)
    monkeypatch.setattr(connection, "EMPTY_FRAMES", (1 << 40, 1 << 40))
    async with serving(service) as (_, peer, _):
        pings = frames.frame(frames.PING, 0, 0, bytes(8)) * 10_000
        with pytest.raises(ConnectionError):
            await _send_for_ever(peer, pings)


async def _send_for_ever(peer: Peer, part: bytes) -> None:
    async with asyncio.timeout(60):
        while True:
            await peer.send(part)


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (frames.window_update(0, frames.LARGEST_WINDOW), Code.FLOW_CONTROL_ERROR),
        (frames.window_update(0, 0), Code.PROTOCOL_ERROR),
        (frames.settings({frames.INITIAL_WINDOW_SIZE: 1 << 31}), Code.FLOW_CONTROL_ERROR),
        (frames.settings({frames.MAX_FRAME_SIZE: 1}), Code.PROTOCOL_ERROR),
        (frames.settings({frames.ENABLE_PUSH: 2}), Code.PROTOCOL_ERROR),
        (frames.frame(frames.SETTINGS, 0, 0, b"12345"), Code.FRAME_SIZE_ERROR),
        (frames.frame(frames.SETTINGS, 0, 1), Code.PROTOCOL_ERROR),
        (frames.frame(frames.PING, 0, 0, b"1234"), Code.FRAME_SIZE_ERROR),
        (frames.frame(frames.DATA, 0, 0, b"x"), Code.PROTOCOL_ERROR),
        (frames.frame(frames.DATA, 0, 9, b"x"), Code.PROTOCOL_ERROR),
        (frames.frame(frames.DATA, frames.PADDED, 1, b"\x05x"), Code.PROTOCOL_ERROR),
        (frames.frame(frames.HEADERS, frames.END_HEADERS, 2, b"\x82"), Code.PROTOCOL_ERROR),
        (frames.frame(frames.HEADERS, frames.END_HEADERS, 1, b"\xff\xff\xff\xff\xff\xff\xff"), Code.COMPRESSION_ERROR),
        (frames.frame(frames.CONTINUATION, frames.END_HEADERS, 1, b""), Code.PROTOCOL_ERROR),
        (frames.frame(frames.HEADERS, 0, 1, b"") + frames.frame(frames.PING, 0, 0, bytes(8)), Code.PROTOCOL_ERROR),
        (frames.frame(frames.PUSH_PROMISE, 0, 1, b""), Code.PROTOCOL_ERROR),
        (frames.frame(99, 0, 0, bytes(20_000)), Code.FRAME_SIZE_ERROR),
        (frames.reset(9, Code.CANCEL), Code.PROTOCOL_ERROR),
        (frames.window_update(9, 1), Code.PROTOCOL_ERROR),
    ],
    ids=_without_bytes,
)
async def test_a_broken_rule_ends_the_connection_with_its_code(peer: Peer, wrong: bytes, code: Code) -> None:
    await peer.send(wrong)
    await peer.ends_with(code)


async def test_a_window_that_grows_too_large_ends_only_its_stream(peer: Peer, service: Service) -> None:
    await peer.call(1, "Wait")
    await happens(service.started)
    await peer.send(*grow(frames.LARGEST_WINDOW, 1))
    reset = await peer.next(frames.RST_STREAM)
    assert (reset.stream_id, reset.number) == (1, Code.FLOW_CONTROL_ERROR)
    await happens(service.cancelled)
    await peer.call(3, "Echo", b"hello")
    assert (await peer.response(3)).messages == [b"hello"]


async def test_an_open_stream_whose_window_is_set_too_large_ends_the_connection(peer: Peer) -> None:
    await peer.call(1, "Wait")
    await peer.send(*grow(frames.LARGEST_WINDOW - frames.DEFAULT_WINDOW, 1))
    await peer.send(frames.settings({frames.INITIAL_WINDOW_SIZE: frames.DEFAULT_WINDOW + 1}))
    await peer.ends_with(Code.FLOW_CONTROL_ERROR)


async def test_unknown_frames_are_ignored(peer: Peer) -> None:
    await peer.send(frames.frame(99, 0xFF, 77, b"what is this"))
    await peer.call(1, "Echo", b"hello")
    assert (await peer.response(1)).messages == [b"hello"]


async def test_a_smaller_header_table_is_confirmed(service: Service) -> None:
    """The first block after it says so; a strict decoder refuses it otherwise."""
    async with serving(service, {frames.HEADER_TABLE_SIZE: 0}) as (_, peer, _):
        for stream_id in (1, 3):
            await peer.call(stream_id, "Echo", b"hello")
            block = (await peer.next(frames.HEADERS)).payload
            assert (block[0] == 0x20) is (stream_id == 1)
            await peer.next(frames.HEADERS)


# Floods.


async def test_a_flood_of_continuations_ends_the_connection(peer: Peer) -> None:
    await peer.send(frames.frame(frames.HEADERS, 0, 1, peer.head("Echo")))
    await peer.send(frames.frame(frames.CONTINUATION, 0, 1) * connection.MOST_BLOCK_FRAMES)
    await peer.ends_with(Code.ENHANCE_YOUR_CALM)


async def test_a_header_block_without_end_is_cut(peer: Peer) -> None:
    await peer.send(frames.frame(frames.HEADERS, 0, 1, peer.head("Echo")))
    part = frames.frame(frames.CONTINUATION, 0, 1, bytes(frames.DEFAULT_FRAME_BYTES))
    await peer.send(part * (connection.LARGEST_BLOCK_BYTES // frames.DEFAULT_FRAME_BYTES + 1))
    await peer.ends_with(Code.ENHANCE_YOUR_CALM)


async def test_a_small_block_that_stands_for_a_huge_list_is_not_unpacked(peer: Peer) -> None:
    large = peer.encoder.encode([("x-large", "x" * 3000)], huffman=False)
    await peer.send(frames.frame(frames.HEADERS, 0, 1, peer.head("Echo") + large))
    await peer.send(frames.frame(frames.CONTINUATION, frames.END_HEADERS, 1, b"\xbe" * 10_000))
    await peer.ends_with(Code.ENHANCE_YOUR_CALM)


async def test_rapid_resets_end_the_connection(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """A burst, and then faster than such a connection may go on for ever."""
    monkeypatch.setattr(connection, "RESETS", (100, 0))
    async with serving(service) as (_, peer, _):
        for stream_id in range(1, 203, 2):
            await peer.call(stream_id, "Wait")
            await peer.send(frames.reset(stream_id, Code.CANCEL))
        await peer.ends_with(Code.ENHANCE_YOUR_CALM)
        if service.started.is_set():  # a reset may also come before the handler's first step
            await happens(service.cancelled)


async def test_resets_that_we_are_made_to_send_count_too(peer: Peer) -> None:
    burst, _ = connection.RESETS
    await peer.call(1, "Wait")
    wrong = b"".join(frames.frame(frames.PRIORITY, 0, 1, b"123") for _ in range(2 * burst))
    await peer.send(wrong)
    await peer.ends_with(Code.ENHANCE_YOUR_CALM)


@pytest.mark.parametrize(
    "one",
    [
        frames.frame(frames.PING, 0, 0, bytes(8)),
        frames.settings({}),
        frames.frame(frames.DATA, 0, 1),
        frames.frame(frames.PRIORITY, 0, 1, bytes(5)),
        frames.frame(99, 0, 0),
    ],
    ids=_without_bytes,
)
async def test_a_flood_of_frames_without_content_ends_the_connection(service: Service, one: bytes) -> None:
    async with serving(service) as (_, peer, _):
        peer_reads = asyncio.create_task(peer.ends_with(Code.ENHANCE_YOUR_CALM))
        await peer.send(peer.opening(1, "EchoAll"))
        try:
            for _ in range(100):
                await peer.send(one * 2_000)
        except ConnectionError:
            pass
        try:
            await peer_reads
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # closing with our bytes unread may cost us its last words


async def test_more_streams_than_allowed_are_refused_one_by_one(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MOST_STREAMS", 2)
    for stream_id in (1, 3, 5):
        await peer.call(stream_id, "Wait")
    reset = await peer.next(frames.RST_STREAM)
    assert (reset.stream_id, reset.number) == (5, Code.REFUSED_STREAM)
    await peer.send(frames.reset(1, Code.CANCEL))
    await peer.call(7, "Echo", b"hello")
    assert (await peer.response(7)).messages == [b"hello"]


def test_a_budget_comes_back_with_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    spent = budget.Budget(3, 2)
    assert [spent.spend() for _ in range(4)] == [True, True, True, False]
    now += 1.0
    assert [spent.spend() for _ in range(3)] == [True, True, False]
    now += 1000.0
    assert [spent.spend() for _ in range(4)] == [True, True, True, False]


# Who connects.


async def test_what_is_not_http2_is_refused_where_nobody_else_takes_it(service: Service) -> None:
    async with serving(service) as (_, _, port):
        for wrong in (b"GET / HTTP/1.1\r\n\r\n", frames.PREFACE[:-3] + b"no\n" + bytes(9)):
            stranger = Peer(*await asyncio.open_connection("127.0.0.1", port))
            await stranger.send(wrong)
            await stranger.ends_with(Code.PROTOCOL_ERROR)
            await stranger.close()


async def test_the_first_frame_must_be_settings(service: Service) -> None:
    async with serving(service) as (_, _, port):
        stranger = Peer(*await asyncio.open_connection("127.0.0.1", port))
        await stranger.send(frames.PREFACE, frames.frame(frames.PING, 0, 0, bytes(8)))
        await stranger.ends_with(Code.PROTOCOL_ERROR)
        await stranger.close()


async def test_tls_is_refused_without_a_word(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(service) as (_, _, port):
        stranger = Peer(*await asyncio.open_connection("127.0.0.1", port))
        await stranger.send(b"\x16\x03\x01\x02\x00\x01")
        assert await stranger._reader.read() == b""
        assert "TLS" in caplog.text
        await stranger.close()


class _Hello(asyncio.Protocol):
    """In the place of a server for HTTP/1."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(b"hello " + data)
        self._transport.close()


async def test_one_port_for_both(service: Service) -> None:
    server = Http2Server({"test.Service": service.methods()})
    listener = listen("127.0.0.1", 0)
    port = listener.getsockname()[1]
    await server.start(listener, _Hello)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for piece in (b"P", b"OST / HTTP/1.1"):  # begins as HTTP/2 does
        writer.write(piece)
        await asyncio.sleep(0.01)
    assert await reader.read() == b"hello POST / HTTP/1.1"
    writer.close()
    peer = await Peer.connect(port)
    await peer.call(1, "Echo", b"x")
    assert (await peer.response(1)).messages == [b"x"]
    await peer.close()
    await server.stop(0)


async def test_who_says_nothing_is_not_waited_for(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.api.http2.first_bytes.FIRST_BYTES_SECONDS", 0.05)
    async with serving(service) as (_, _, port):
        stranger = Peer(*await asyncio.open_connection("127.0.0.1", port))
        await stranger.send(frames.PREFACE[:5])
        await stranger.ends()
        await stranger.close()


# Stopping.


async def test_stopping_says_goaway_and_lets_calls_end(service: Service) -> None:
    async with serving(service) as (server, peer, port):
        await peer.send(peer.opening(1, "EchoAll"), *data(1, message(b"one")))
        await peer.next(frames.DATA)
        stopping = asyncio.create_task(server.stop(SECONDS))
        goaway = await peer.next(frames.GOAWAY)
        assert (goaway.payload[:4], goaway.number) == (b"\0\0\0\x01", Code.NO_ERROR)
        # What the client began before it heard of it is not looked at; it knows, and tries elsewhere.
        await peer.call(3, "Echo", b"too late")
        await peer.send(*data(1, message(b"two"), last=True))
        assert (await peer.next(frames.DATA)).payload == message(b"two")
        end = await peer.next(frames.HEADERS)
        assert (end.stream_id, peer.decode(end.payload)) == (1, {"grpc-status": "0"})
        await peer.ends()
        await stopping
        with pytest.raises(ConnectionError):
            await asyncio.open_connection("127.0.0.1", port)


async def test_calls_that_do_not_end_in_time_are_unavailable(service: Service) -> None:
    async with serving(service) as (server, peer, _):
        await peer.call(1, "Wait")
        await happens(service.started)
        stopping = asyncio.create_task(server.stop(0.05))
        assert (await peer.response(1)).status == Status.UNAVAILABLE
        await peer.ends()
        await stopping
        assert service.cancelled.is_set()


async def test_stopping_ends_idle_and_silent_connections_at_once(service: Service) -> None:
    async with serving(service) as (server, peer, port):
        silent = Peer(*await asyncio.open_connection("127.0.0.1", port))
        await peer.quiet()
        async with asyncio.timeout(1):
            await server.stop(SECONDS)
        await peer.ends_with(Code.NO_ERROR)
        await silent.ends()
        await silent.close()


# Header blocks, against the hpack package.

_names = st.sampled_from([":path", "content-type", "grpc-timeout", "x-one", "te"])
_values = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=300)
_lists = st.lists(st.lists(st.tuples(_names, _values), max_size=8), max_size=30)


@given(_lists, st.booleans(), st.lists(st.sampled_from([0, 50, 300, 4096]), max_size=3))
def test_decoding_gives_what_was_encoded(
    lists: Sequence[Sequence[tuple[str, str]]], huffman: bool, sizes: list[int]
) -> None:
    encoder, decoder = hpack_package.Encoder(), hpack.HeaderDecoder()
    for number, headers in enumerate(lists):
        if number % 5 == 4 and sizes:
            encoder.header_table_size = sizes.pop()
        block = encoder.encode(list(headers), huffman=huffman)
        assert decoder.decode(block) == [(name.encode(), value.encode()) for name, value in headers]


@given(st.lists(st.binary(max_size=40), max_size=10))
def test_any_bytes_mean_the_same_to_us_and_to_the_package(blocks: list[bytes]) -> None:
    ours, theirs = hpack.HeaderDecoder(), hpack_package.Decoder()
    for block in blocks:
        try:
            expected = [(bytes(name), bytes(value)) for name, value in theirs.decode(block, raw=True)]
        except Exception:  # noqa: BLE001 - the package has many ways to fail
            with pytest.raises((hpack.BadBlock, hpack.ListTooLarge)):
                ours.decode(block)
            return
        assert ours.decode(block) == expected


@given(st.lists(st.tuples(_names, _values), max_size=8))
def test_encoding_is_understood(headers: list[tuple[str, str]]) -> None:
    block = hpack.encode([(name.encode(), value.encode()) for name, value in headers])
    decoded: Any = hpack_package.Decoder().decode(block)
    assert decoded == headers


# Any frames at all.

_blocks = st.sampled_from(
    [
        hpack.encode([(b":method", b"POST"), (b":scheme", b"http"), (b":path", path), (b"content-type", kind)])
        for path in (b"/test.Service/Echo", b"/test.Service/EchoAll", b"/test.Service/Flood", b"/x")
        for kind in (b"application/grpc", b"text/plain")
    ]
)
_numbers = st.sampled_from([0, 1, 5, 1000, 1 << 20, frames.LARGEST_WINDOW, 1 << 31]).map(frames.number.pack)
_settings = st.tuples(st.integers(0, 7), st.sampled_from([0, 1, 20_000, frames.LARGEST_WINDOW, 1 << 31]))
_payloads = st.one_of(
    _blocks,
    _numbers,
    st.binary(max_size=20),
    st.binary(max_size=20).map(message),
    _settings.map(lambda pair: frames.setting.pack(*pair)),
)
_frames = st.builds(
    frames.frame,
    st.integers(0, 10),
    st.sampled_from([0, 1, 4, 5, 8, 0x25]),
    st.sampled_from([0, 1, 1, 3, 5, 2]),
    _payloads,
)


class _Sink:
    """A transport that only counts."""

    def __init__(self) -> None:
        self.ended = False

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False

    def write(self, data: bytes) -> None:
        assert not self.ended

    def write_eof(self) -> None:
        assert not self.ended
        self.ended = True

    def abort(self) -> None:
        pass


@given(st.lists(_frames, max_size=30), st.lists(st.integers(1, 40), max_size=5))
def test_no_frames_break_the_server(sent: list[bytes], cuts: list[int]) -> None:
    """Whatever comes, in whatever pieces: every call ends, nothing is left behind, nothing raises."""

    async def exchange() -> None:
        calls = Calls({"test.Service": Service().methods()})
        transport: Any = _Sink()
        connected = connection.Connection(calls.accept, lambda _: None)
        connected.connection_made(transport)
        data = frames.PREFACE + frames.settings({}) + b"".join(sent)
        for cut in cuts:
            connected.data_received(data[:cut])
            data = data[cut:]
            await asyncio.sleep(0)
        connected.data_received(data)
        for _ in range(3):
            await asyncio.sleep(0)
        connected.connection_lost(None)
        await calls.ended(SECONDS)
        assert calls.held_bytes == 0
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(exchange())


class _Recorder(_Sink):
    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []

    def write(self, data: bytes) -> None:
        assert not self.ended
        self.writes.append(data)

    def close(self) -> None:
        self.ended = True

    def is_closing(self) -> bool:
        return self.ended


async def test_what_is_written_in_one_turn_leaves_in_one_piece() -> None:
    transport: Any = _Recorder()
    sender = Sender(transport, lambda _: None)
    for piece in (b"a", b"b", b"c"):
        sender.write(piece)
    assert transport.writes == []
    await asyncio.sleep(0)
    assert transport.writes == [b"abc"]
    sender.write(b"d")
    await asyncio.sleep(0)
    assert transport.writes == [b"abc", b"d"]


async def test_much_leaves_at_once_and_in_its_order() -> None:
    transport: Any = _Recorder()
    sender = Sender(transport, lambda _: None)
    large = bytes(TOGETHER_BYTES)
    for piece in (b"a", large, b"b"):
        sender.write(piece)
    assert transport.writes == [b"a" + large]
    await asyncio.sleep(0)
    assert transport.writes == [b"a" + large, b"b"]


async def test_the_last_word_is_handed_over_before_the_end() -> None:
    """A connection that fails says why and closes in the same turn."""
    transport: Any = _Recorder()
    connected = connection.Connection(Calls({}).accept, lambda _: None)
    connected.connection_made(transport)
    connected.data_received(b"GET / HTTP/1.1\r\n\r\n")
    assert transport.ended
    assert b"this is not HTTP/2" in b"".join(transport.writes)
    connected.connection_lost(None)


async def test_a_connection_with_nothing_under_way_says_goodbye_and_closes() -> None:
    transport: Any = _Recorder()
    connected = connection.Connection(Calls({}).accept, lambda _: None)
    connected.connection_made(transport)
    connected.leave()
    assert transport.ended
    assert b"".join(transport.writes).endswith(frames.goaway(0, Code.NO_ERROR))
    connected.connection_lost(None)


# Official clients.


def test_ten_megabytes_both_ways(clients: Clients) -> None:
    clients.make()
    large = bytes(range(256)) * 39_000
    clients.publish(large)
    (pulled,) = clients.pull(1)
    assert pulled.message.data == large
    clients.subscriber.modify_ack_deadline(
        subscription=SUBSCRIPTION, ack_ids=[pulled.ack_id], ack_deadline_seconds=0, timeout=SECONDS
    )
    received: queue.Queue[bytes] = queue.Queue()

    def on_message(arrived: Any) -> None:
        received.put(arrived.data)
        arrived.ack()

    # Told where an emulator is, the official client would not take more than 4 MB.
    channel = grpc.insecure_channel(clients.address, [("grpc.max_receive_message_length", -1)])
    with pubsub_v1.SubscriberClient(transport=SubscriberGrpcTransport(channel=channel)) as subscriber:
        streaming = subscriber.subscribe(SUBSCRIPTION, on_message)
        assert received.get(timeout=SECONDS) == large
        streaming.cancel()
        streaming.result(timeout=SECONDS)


def test_a_compressed_publish(clients: Clients) -> None:
    clients.make()
    channel = grpc.insecure_channel(clients.address, compression=grpc.Compression.Gzip)
    request = PublishRequest(topic=TOPIC, messages=[PubsubMessage(data=b"hello" * 1000)])
    publish: Any = channel.unary_unary("/google.pubsub.v1.Publisher/Publish", PublishRequest.serialize)
    publish(request, timeout=SECONDS)
    channel.close()
    assert [item.message.data for item in clients.pull()] == [b"hello" * 1000]


def test_many_streams_and_calls_on_one_connection(clients: Clients) -> None:
    clients.make()
    streams = [Stream(clients, max_outstanding_messages=10) for _ in range(20)]
    for stream in streams:
        stream.receive()
    for number in range(200):
        clients.publish(str(number).encode())
    for stream in streams:
        stream.half_close()
    responses = [response for stream in streams for response in stream._responses]
    found = {item.message.data for response in responses for item in response.received_messages}
    assert found == {str(number).encode() for number in range(200)}
