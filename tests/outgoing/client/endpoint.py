"""An endpoint that does what a test tells it to, byte by byte, so that every bad manner can be tried."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from holdfast.outgoing.client import OutgoingClient, request_head
from holdfast.outgoing.targets import Target, parse_target

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOK"


class Visit:
    """One connection, as the endpoint sees it."""

    def __init__(self, endpoint: Endpoint, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._endpoint = endpoint
        self.reader = reader
        self.writer = writer

    async def request(self) -> bytes:
        """The next request with its body; raises IncompleteReadError when there is none."""
        request = await self.reader.readuntil(b"\r\n\r\n")
        for line in request.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                request += await self.reader.readexactly(int(line.partition(b":")[2]))
        self._endpoint.requests.append(request)
        return request

    async def say(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def left(self) -> None:
        """Until the client has closed the connection."""
        while await self.reader.read(1 << 20):
            pass

    def reset(self) -> None:
        plain = self.writer.get_extra_info("socket")
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


Behave = Callable[[Visit], Awaitable[None]]


class Endpoint:
    def __init__(self, behave: Behave) -> None:
        self._behave = behave
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = False
        self.port = 0
        self.scheme = "http"
        self.requests: list[bytes] = []
        self.connections = 0
        # Connections that the client has closed, or that this endpoint is done with.
        self.ended: asyncio.Queue[Visit] = asyncio.Queue()

    def target(self, host: str = "127.0.0.1", path: str = "/push") -> Target:
        return parse_target("url", f"{self.scheme}://{host}:{self.port}{path}")

    async def visited(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        visit = Visit(self, reader, writer)
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._behave(visit)
        except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            pass
        except asyncio.CancelledError:
            if not self._stopping:
                raise
        finally:
            self._tasks.discard(task)
            self.ended.put_nowait(visit)
            writer.transport.abort()

    async def stop(self) -> None:
        self._stopping = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def endpoint(
    behave: Behave, *, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
) -> AsyncIterator[Endpoint]:
    running = Endpoint(behave)
    server = await asyncio.start_server(running.visited, host, 0, ssl=tls, limit=1 << 20)
    running.port = server.sockets[0].getsockname()[1]
    running.scheme = "http" if tls is None else "https"
    try:
        yield running
    finally:
        server.close()
        await running.stop()
        await server.wait_closed()


def answering(*answers: bytes) -> Behave:
    """These answers on each connection, one a request, the last again and again."""

    async def behave(visit: Visit) -> None:
        left = list(answers)
        while True:
            await visit.request()
            await visit.say(left.pop(0) if len(left) > 1 else left[0])

    return behave


def post(target: Target, body: bytes = b"{}") -> bytes:
    return request_head("POST", target, {}) + b"Content-Length: %d\r\n\r\n" % len(body) + body


async def send(
    client: OutgoingClient, target: Target, *, seconds: float = 10.0, most_body_bytes: int = 0, body: bytes = b"{}"
) -> tuple[str, object]:
    """What came of it, short: ("answer", status) or (kind, reason)."""
    outcome = await client.send(target, post(target, body), seconds, most_body_bytes=most_body_bytes)
    if hasattr(outcome, "status"):
        return "answer", outcome.status
    return outcome.kind, outcome.error
