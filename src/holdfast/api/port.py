"""One TCP port for gRPC and REST: the first bytes of a connection tell which of the two it is.

HTTP/2 is relayed to the gRPC server over a Unix socket, because grpcio cannot be given a connection that is open
already. Everything else that looks like HTTP goes to the HTTP server in this process.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import cast

from holdfast.api.http.server import BACKLOG, listen

log = logging.getLogger("holdfast.broker")

HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n"
TLS_HANDSHAKE = b"\x16\x03"

# Clients speak at once. Who says nothing for so long is a scanner, or gone.
FIRST_BYTES_SECONDS = 20.0

# How much may wait for a slow receiver before its sender is paused; less makes large batches stop and go.
BUFFER_BYTES = 1 << 20

# How long the last bytes of an ended connection may take to leave.
LINGER_SECONDS = 5.0

# A client that vanished without a word is noticed after 60 + 4 * 15 seconds.
_KEEP_ALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}

_PREFIX = "holdfast-sockets-"

# A Unix socket's path may have 107 bytes; ours add about 40 to the directory for temporary files.
_LONGEST_PARENT = 60

# A directory that is older and has nobody behind its socket was left by a process that was killed.
LEFTOVER_SECONDS = 60.0

ProtocolFactory = Callable[[], asyncio.Protocol]


@contextmanager
def socket_directory() -> Iterator[Path]:
    """For Unix sockets that only this user may open."""
    parent = tempfile.gettempdir()
    if len(parent.encode()) > _LONGEST_PARENT:
        parent = "/tmp"  # noqa: S108 - the directory made in it has mode 700 and a random name
    _remove_leftovers(Path(parent))
    with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=parent, ignore_cleanup_errors=True) as directory:
        yield Path(directory)


def _remove_leftovers(parent: Path) -> None:
    for path in parent.glob(f"{_PREFIX}*/*"):
        with suppress(OSError):  # not ours, or just being removed by another one
            if time.time() - path.stat().st_mtime > LEFTOVER_SECONDS and _is_dead(path):
                shutil.rmtree(path.parent)


def _is_dead(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(0.1)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return True
    return False


class OnePort:
    def __init__(self, first_bytes_seconds: float = FIRST_BYTES_SECONDS) -> None:
        self.first_bytes_seconds = first_bytes_seconds
        self._server: asyncio.Server | None = None
        self._grpc_path = ""
        self._http: ProtocolFactory = asyncio.Protocol
        self._open: set[asyncio.Transport] = set()
        self._connecting: set[asyncio.Task[None]] = set()
        self._none_open = asyncio.Event()
        self._none_open.set()

    async def start(self, host: str, port: int, grpc_path: str, http: ProtocolFactory) -> int:
        """`http` makes the protocol of one HTTP connection.

        Gives the port, which matters when 0 asked for a free one.
        """
        self._grpc_path, self._http = grpc_path, http
        listener = listen(host, port)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _FirstBytes(self), sock=listener, backlog=BACKLOG)
        bound: int = listener.getsockname()[1]
        return bound

    def stop_accepting(self) -> None:
        """Open connections go on, so that the servers behind can end them in their own way."""
        if self._server is not None:
            self._server.close()

    async def stop(self) -> None:
        """After the servers behind have stopped: lets the last bytes leave, then cuts what is still open."""
        self.stop_accepting()
        for task in list(self._connecting):
            task.cancel()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._none_open.wait(), LINGER_SECONDS)
        for transport in list(self._open):
            transport.abort()

    # For connections.

    def opened(self, transport: asyncio.Transport) -> None:
        self._open.add(transport)
        self._none_open.clear()

    def closed(self, transport: asyncio.Transport) -> None:
        """Also when the HTTP server took it over: it then closes it."""
        self._open.discard(transport)
        if not self._open:
            self._none_open.set()

    def hand_to_http(self, transport: asyncio.Transport, seen: bytes) -> None:
        self.closed(transport)
        protocol = self._http()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        protocol.data_received(seen)

    def hand_to_grpc(self, transport: asyncio.Transport, seen: bytes) -> None:
        transport.pause_reading()
        task = asyncio.create_task(self._relay(transport, seen))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _relay(self, transport: asyncio.Transport, seen: bytes) -> None:
        client = _Client(self, transport)
        transport.set_protocol(client)
        loop = asyncio.get_running_loop()
        try:
            upstream, _ = await loop.create_unix_connection(lambda: _Upstream(transport), self._grpc_path)
        except OSError as error:
            log.warning("the gRPC server does not answer: %s", error)
            transport.abort()
            return
        except asyncio.CancelledError:
            transport.abort()
            raise
        client.connected(upstream, seen)


class _FirstBytes(asyncio.Protocol):
    """A connection of which it is not known yet what it speaks."""

    def __init__(self, port: OnePort) -> None:
        self._port = port
        self._seen = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._port.opened(self._transport)
        _set_options(self._transport)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._port.first_bytes_seconds, self._transport.abort)

    def data_received(self, data: bytes) -> None:
        self._seen += data
        if len(self._seen) < len(HTTP2_PREFACE) and HTTP2_PREFACE.startswith(self._seen):
            return  # the beginning of a preface: more must come
        self._timer.cancel()
        if self._seen.startswith(HTTP2_PREFACE):
            self._port.hand_to_grpc(self._transport, self._seen)
        elif self._seen[:1].isalpha():  # a method, or something that the HTTP server will call a bad request
            self._port.hand_to_http(self._transport, self._seen)
        else:
            self._refuse()

    def _refuse(self) -> None:
        """Without a word: whatever it speaks, it would not understand one."""
        if self._seen.startswith(TLS_HANDSHAKE):
            log.warning("a client tried TLS; the broker's port speaks plain HTTP and gRPC")
        self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        self._port.closed(self._transport)


class _Client(asyncio.Protocol):
    """The client's end of a relayed connection: what comes in goes to the gRPC server."""

    def __init__(self, port: OnePort, transport: asyncio.Transport) -> None:
        self._port = port
        self._transport = transport
        self._upstream: asyncio.Transport | None = None
        transport.set_write_buffer_limits(BUFFER_BYTES)

    def connected(self, upstream: asyncio.Transport, seen: bytes) -> None:
        """`seen` is what came in before."""
        if self._transport.is_closing():
            upstream.abort()
            return
        self._upstream = upstream
        upstream.set_write_buffer_limits(BUFFER_BYTES)
        upstream.write(seen)
        self.data_received = upstream.write  # type: ignore[method-assign]
        # The transport looks up its protocol's methods once, when it is set.
        self._transport.set_protocol(self)
        self._transport.resume_reading()

    def eof_received(self) -> bool:
        """The client has said all; answers may still be on their way to it."""
        if self._upstream is None:
            return False
        if not self._upstream.is_closing():
            self._upstream.write_eof()
        return True

    def pause_writing(self) -> None:
        _pause(self._upstream)

    def resume_writing(self) -> None:
        _resume(self._upstream)

    def connection_lost(self, exc: Exception | None) -> None:
        self._port.closed(self._transport)
        if self._upstream is not None:
            self._upstream.abort()


class _Upstream(asyncio.Protocol):
    """The gRPC server's end: what comes in goes to the client. When it ends, the connection ends."""

    def __init__(self, client: asyncio.Transport) -> None:
        self._client = client
        self.data_received = client.write  # type: ignore[method-assign]

    def pause_writing(self) -> None:
        _pause(self._client)

    def resume_writing(self) -> None:
        _resume(self._client)

    def connection_lost(self, exc: Exception | None) -> None:
        """The last bytes still leave, but a client that does not read them cannot hold the connection open."""
        self._client.close()
        if self._client.get_write_buffer_size():
            asyncio.get_running_loop().call_later(LINGER_SECONDS, self._client.abort)


def _pause(transport: asyncio.Transport | None) -> None:
    if transport is not None and not transport.is_closing() and transport.is_reading():
        transport.pause_reading()


def _resume(transport: asyncio.Transport | None) -> None:
    if transport is not None and not transport.is_closing() and not transport.is_reading():
        transport.resume_reading()


def _set_options(transport: asyncio.Transport) -> None:
    connection = transport.get_extra_info("socket")
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # uvloop does it by itself, asyncio only sometimes
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE.items():
        if hasattr(socket, name):  # not every system has them all
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
