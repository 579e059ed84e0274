"""The HTTP server in our own event loop. The only file that knows uvicorn."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Iterator
from typing import cast

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from holdfast.api.http.gathering import GatheringTransport
from holdfast.errors import PortTaken

log = logging.getLogger("holdfast.http")

# Longer than any client keeps an idle connection, so that the client closes first and no request meets a closing one.
KEEP_ALIVE_SECONDS = 75
GRACE_SECONDS = 5
BACKLOG = 1024
# Of a request, without its body. Tokens and traces take some kilobytes.
LARGEST_HEAD_BYTES = 64 * 1024


def listen(host: str, port: int) -> socket.socket:
    """Takes the port now, so that a taken one is known before anything else starts."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named because asyncio turns Nagle's delay off only then.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise PortTaken(
            f"cannot listen on {host}:{port}: {error.strerror}. Stop the other process, or choose another port"
        ) from error
    return listener


def uvicorn_config(app: ASGIApp) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        http=_Protocol,
        ws="none",
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=GRACE_SECONDS,
        server_header=False,
        proxy_headers=False,  # who is in front of us decides nothing here
    )


class _Protocol(HttpToolsProtocol):
    """uvicorn itself would keep a head that never ends, and look through it again with every piece that comes. What it
    writes is gathered."""

    _in_head = False
    _head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(cast("asyncio.Transport", GatheringTransport(transport, self.loop)))

    def data_received(self, data: bytes) -> None:
        was_in_head = self._in_head
        super().data_received(data)
        # A piece in which a head began may have been the end of a body: only those after it count.
        self._head_bytes = self._head_bytes + len(data) if was_in_head and self._in_head else 0
        if self._head_bytes > LARGEST_HEAD_BYTES and not self.transport.is_closing():
            log.warning("a request was refused", extra={"fields": {"error": "its head is too large"}})
            self.send_400_response(f"The head of a request must not be larger than {LARGEST_HEAD_BYTES} bytes.")

    def on_message_begin(self) -> None:
        self._in_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()


class HttpServer:
    def __init__(self, app: ASGIApp, listener: socket.socket) -> None:
        self._listener = listener
        self._server = _Server(uvicorn_config(app))
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._task = asyncio.create_task(self._server.serve([self._listener]))
        started = asyncio.create_task(self._server.ready.wait())
        await asyncio.wait({self._task, started}, return_when=asyncio.FIRST_COMPLETED)
        started.cancel()
        if self._task.done():
            await self._task  # raises what went wrong

    async def stop(self) -> None:
        if self._task is not None:
            self._server.should_exit = True
            await self._task


class _Server(uvicorn.Server):
    """Leaves signals to us, and says when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
