"""gRPC calls on HTTP/2 streams: finds the method, feeds it requests, sends what it gives, and ends it in time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from typing import Any

from holdfast.api.grpc.methods import Method, StreamMethod
from holdfast.api.grpc.status import Code, Status, status_of
from holdfast.api.http2 import grpc_wire, hpack
from holdfast.api.http2.grpc_wire import OK_TRAILERS, PREFIX_BYTES, RESPONSE_HEAD, CallFault
from holdfast.api.http2.request_head import TRACEPARENT, RequestHead
from holdfast.api.http2.streams import Receiver, Stream

# Requests in memory, of all connections: those that are not complete, and those that handlers work on.
MOST_HELD_BYTES = 512 << 20

# Beyond any sense; event loops are not made for timers that far away.
_LONGEST_TIMER_SECONDS = 30 * 24 * 3600.0

_STOPPING = Status(Code.UNAVAILABLE, "the broker is stopping")
_TOO_LATE = Status(Code.DEADLINE_EXCEEDED, "the deadline passed before there was an answer")
_TOO_MUCH = Status(Code.UNAVAILABLE, "too many bytes of requests are under way; try again")
_GIVEN_UP = Status(Code.CANCELLED, "the call was cancelled by the broker")

_PLAIN_TEXT = b"This is a gRPC server: requests are POSTs of application/grpc.\n"


class Calls:
    """What all connections share: the table of methods, and what is under way."""

    def __init__(self, services: Mapping[str, Mapping[str, Method | StreamMethod]]) -> None:
        self._methods: dict[bytes, tuple[str, Method | StreamMethod]] = {
            f"/{service}/{name}".encode(): (f"{service}/{name}", method)
            for service, methods in services.items()
            for name, method in methods.items()
        }
        self.held_bytes = 0
        # Tasks that were told to end and have not yet.
        self._ending: set[asyncio.Task[None]] = set()

    def accept(self, stream: Stream, head: RequestHead) -> Receiver:
        if not head.is_grpc or head.method != b"POST":
            return PlainRequest(stream, head)
        name, method = self._methods.get(head.path, ("", None))
        call: Call
        if isinstance(method, Method):
            call = UnaryCall(self, stream, head, name, method)
        elif method is not None:
            call = StreamCall(self, stream, head, name, method)
        else:
            call = Call(self, stream, head, "")
            call.fail(Status(Code.UNIMPLEMENTED, "there is no such method"))
            return call
        call.begin(head)
        return call

    def end(self, task: asyncio.Task[None]) -> None:
        if not task.done():
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)
            task.cancel()

    async def ended(self, timeout: float) -> None:
        """Waits for handlers that were told to end."""
        if self._ending:
            await asyncio.wait(self._ending, timeout=timeout)


class PlainRequest:
    """Someone who does not speak gRPC."""

    def __init__(self, stream: Stream, head: RequestHead) -> None:
        self._stream = stream
        self._status = b"405" if head.is_grpc else b"415"
        self._text = b"" if head.method == b"HEAD" else _PLAIN_TEXT

    def data(self, chunk: bytes) -> None:
        self._stream.give_back(len(chunk))

    def ended(self) -> None:
        head = [(b":status", self._status), (b"content-type", b"text/plain"), (b"allow", b"POST")]
        self._stream.start(hpack.encode(head))
        self._stream.send(b"", self._text)
        self._stream.finish(b"")

    def dropped(self) -> None:
        pass

    def stopped(self) -> None:
        pass


class Call:
    """What unary and streaming calls have in common."""

    __slots__ = ("_calls", "_encoding", "_held", "_name", "_over", "_started", "_stream", "_task", "_timer")

    def __init__(self, calls: Calls, stream: Stream, head: RequestHead, name: str) -> None:
        self._calls = calls
        self._stream = stream
        self._name = name
        self._encoding = head.encoding
        self._held = 0
        self._over = False
        # Whether the response's headers are out.
        self._started = False
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, head: RequestHead) -> None:
        try:
            seconds = grpc_wire.timeout_seconds(head.timeout)
            grpc_wire.check_encoding(head.encoding)
        except CallFault as fault:
            self.fail(fault.status)
            return
        if seconds is not None and seconds < _LONGEST_TIMER_SECONDS:
            self._timer = asyncio.get_running_loop().call_later(seconds, self.fail, _TOO_LATE)

    # As a receiver.

    def data(self, chunk: bytes) -> None:
        self._stream.give_back(len(chunk))

    def ended(self) -> None:
        pass

    def dropped(self) -> None:
        self._end()

    def stopped(self) -> None:
        self.fail(_STOPPING)

    # How it ends.

    def fail(self, status: Status) -> None:
        if self._over:
            return
        self._end()
        block = grpc_wire.trailers(status, self._stream.header_list_bytes)
        if self._started:
            self._stream.finish(block)
        else:
            self._stream.refuse(RESPONSE_HEAD + block)

    def _end(self) -> None:
        self._over = True
        self._calls.held_bytes -= self._held
        self._held = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._task is not None:
            self._calls.end(self._task)
            self._task = None

    def _hold(self, count: int) -> bool:
        """False when that is too much, and the call is over."""
        self._held += count
        self._calls.held_bytes += count
        if self._calls.held_bytes > MOST_HELD_BYTES:
            self.fail(_TOO_MUCH)
            return False
        return True


class UnaryCall(Call):
    """One request, one response."""

    __slots__ = ("_chunks", "_method", "_own_headers")

    def __init__(self, calls: Calls, stream: Stream, head: RequestHead, name: str, method: Method) -> None:
        super().__init__(calls, stream, head, name)
        self._method = method
        self._own_headers = (*head.own, (TRACEPARENT, head.traceparent)) if head.traceparent else head.own
        self._chunks: list[bytes] = []

    def data(self, chunk: bytes) -> None:
        """A request may be larger than the window, and is of no use before it is whole."""
        self._stream.give_back(len(chunk))
        if self._over:
            return
        self._chunks.append(chunk)
        if self._hold(len(chunk)) and self._held > PREFIX_BYTES:
            self._check_length()

    def _check_length(self) -> None:
        """As early as it can be known."""
        if len(self._chunks[0]) < PREFIX_BYTES:
            self._chunks = [b"".join(self._chunks)]
        try:
            _, length = grpc_wire.read_prefix(self._chunks[0])
        except CallFault as fault:
            self.fail(fault.status)
        else:
            if self._held > PREFIX_BYTES + length:
                self.fail(Status(Code.INTERNAL, "a unary call takes one message, and there are more"))

    def ended(self) -> None:
        if self._over:
            return
        body = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks = []
        try:
            request = self._request(body)
        except CallFault as fault:
            self.fail(fault.status)
        else:
            if not self._over:
                self._task = asyncio.get_running_loop().create_task(self._run(request))

    def _request(self, body: bytes) -> Any:
        if len(body) < PREFIX_BYTES:
            raise CallFault(Code.INTERNAL, "the request's message is missing")
        compressed, length = grpc_wire.read_prefix(body)
        if len(body) != PREFIX_BYTES + length:
            raise CallFault(Code.INTERNAL, "the request's message is cut short")
        message = grpc_wire.message(compressed, body[PREFIX_BYTES:], self._encoding)
        if compressed and not self._hold(len(message)):  # small on the wire, large in memory: it counts as it is here
            return None
        return message if self._method.raw else parsed(self._method.request, message)

    async def _run(self, request: Any) -> None:
        try:
            response = serialized(await self._method.call(request, self._own_headers))
        except asyncio.CancelledError:
            self._give_up()
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the caller gets a status and the server goes on
            self._task = None
            if not self._over:
                self.fail(status_of(error, self._name))
        else:
            self._task = None
            if not self._over:
                self._end()
                self._stream.answer(RESPONSE_HEAD, grpc_wire.message_prefix(len(response)), response, OK_TRAILERS)

    def _give_up(self) -> None:
        self._task = None
        self.fail(_GIVEN_UP)


class StreamCall(Call):
    """Many requests, many responses, neither waiting for the other."""

    __slots__ = ("_buffer", "_method", "_requests", "_to_give_back")

    def __init__(self, calls: Calls, stream: Stream, head: RequestHead, name: str, method: StreamMethod) -> None:
        super().__init__(calls, stream, head, name)
        self._method = method
        self._buffer = bytearray()
        self._to_give_back = 0
        self._requests = Requests(self._taken)

    def begin(self, head: RequestHead) -> None:
        super().begin(head)
        if not self._over:
            self._task = asyncio.get_running_loop().create_task(self._run())

    # Requests.

    def data(self, chunk: bytes) -> None:
        if self._over:
            self._stream.give_back(len(chunk))
            return
        self._to_give_back += len(chunk)
        self._buffer += chunk
        if not self._hold(len(chunk)):
            return
        try:
            while (request := self._next()) is not None:
                self._requests.put(request)
        except CallFault as fault:
            self.fail(fault.status)
        if not self._requests.waiting:
            self._taken()  # a message that is not complete may be larger than the window

    def _next(self) -> Any:
        """None while a message is not complete."""
        if len(self._buffer) < PREFIX_BYTES:
            return None
        compressed, length = grpc_wire.read_prefix(self._buffer)
        end = PREFIX_BYTES + length
        if len(self._buffer) < end:
            return None
        body = bytes(self._buffer[PREFIX_BYTES:end])
        del self._buffer[:end]
        return parsed(self._method.request, grpc_wire.message(compressed, body, self._encoding))

    def _taken(self) -> None:
        """The handler has all requests that are complete, so the client may send more."""
        if self._over:
            return
        self._stream.give_back(self._to_give_back)
        self._to_give_back = 0
        self._calls.held_bytes -= self._held - len(self._buffer)
        self._held = len(self._buffer)

    def ended(self) -> None:
        if self._buffer:
            self.fail(Status(Code.INTERNAL, "the last message is cut short"))
        else:
            self._requests.end()

    # Responses.

    async def _run(self) -> None:
        try:
            await self._respond()
        except asyncio.CancelledError:
            self._task = None
            self.fail(_GIVEN_UP)
            raise
        except Exception as error:  # noqa: BLE001
            self._task = None
            if not self._over:
                self.fail(status_of(error, self._name))
        else:
            self._task = None
            if not self._over:
                self._start()
                self._end()
                self._stream.finish(OK_TRAILERS)

    async def _respond(self) -> None:
        responses = self._method.handle(self._requests)
        try:
            async for response in responses:
                if self._over:
                    return
                self._start()
                body = serialized(response)
                self._stream.send(grpc_wire.message_prefix(len(body)), body)
                await self._stream.drained()
        finally:
            # Its own clean-up must not wait for the garbage collector.
            if isinstance(responses, AsyncGenerator):
                await responses.aclose()

    def _start(self) -> None:
        if not self._started:
            self._started = True
            self._stream.start(RESPONSE_HEAD)

    def _end(self) -> None:
        super()._end()
        self._requests.end()
        self._buffer.clear()


class Requests(AsyncIterator[Any]):
    """What the client has sent and the handler has not asked for yet. Ends when the client has said all."""

    def __init__(self, taken: Callable[[], None]) -> None:
        """`taken` is called when nothing is left."""
        self.waiting: deque[Any] = deque()
        self._taken = taken
        self._ended = False
        self._waiter: asyncio.Future[None] | None = None

    def put(self, request: Any) -> None:
        self.waiting.append(request)
        self._wake()

    def end(self) -> None:
        self._ended = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def __anext__(self) -> Any:
        while not self.waiting:
            if self._ended:
                raise StopAsyncIteration
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        request = self.waiting.popleft()
        if not self.waiting:
            self._taken()
        return request


def parsed(kind: Any, message: bytes) -> Any:
    try:
        return kind.FromString(message)
    except Exception as error:
        raise CallFault(Code.INTERNAL, "a request cannot be parsed") from error


def serialized(response: Any) -> bytes:
    if isinstance(response, bytes):
        return response
    encoded: bytes = response.SerializeToString()
    return encoded
