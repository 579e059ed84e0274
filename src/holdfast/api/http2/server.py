"""Puts gRPC services on a port, over a lean HTTP/2 of our own; what is not HTTP/2 may go to another server.

Reading order: first_bytes (what a connection speaks), connection (frames), streams and sending (windows), calls
(gRPC), grpc_wire (its shapes).
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress

from holdfast.api.grpc.methods import Method, StreamMethod
from holdfast.api.http2.calls import Calls
from holdfast.api.http2.connection import LINGER_SECONDS, Connection
from holdfast.api.http2.first_bytes import FirstBytes, ProtocolFactory

# Many clients may connect in the same moment.
BACKLOG = 1024

# Handlers that were told to end have this long to do so.
_ENDING_SECONDS = 5.0


class Http2Server:
    def __init__(self, services: Mapping[str, Mapping[str, Method | StreamMethod]]) -> None:
        self._calls = Calls(services)
        self._undecided: set[FirstBytes] = set()
        self._connections: set[Connection] = set()
        self._none_open = asyncio.Event()
        self._none_open.set()
        self._servers: list[asyncio.Server] = []

    def protocol_factory(self, fallback: ProtocolFactory | None = None) -> Callable[[], asyncio.Protocol]:
        """For `loop.create_server`. `fallback` makes the protocol of one connection that does not speak HTTP/2."""

        def make() -> asyncio.Protocol:
            undecided = FirstBytes(self._connection, fallback, self._undecided.discard)
            self._undecided.add(undecided)
            return undecided

        return make

    async def start(self, listener: socket.socket, fallback: ProtocolFactory | None = None) -> None:
        """May be called for several listeners."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(self.protocol_factory(fallback), sock=listener, backlog=BACKLOG)
        self._servers.append(server)

    def stop_accepting(self) -> None:
        """Tells clients to go elsewhere; calls under way go on."""
        for server in self._servers:
            server.close()
        for undecided in list(self._undecided):
            undecided.close()
        for connection in list(self._connections):
            connection.leave()

    async def stop(self, grace: float) -> None:
        """Calls under way get `grace` seconds to end; then those that are left end with UNAVAILABLE."""
        self.stop_accepting()
        await self._wait_for_connections(grace)
        for connection in list(self._connections):
            connection.cut()
        await self._calls.ended(_ENDING_SECONDS)
        await self._wait_for_connections(LINGER_SECONDS)
        for connection in list(self._connections):
            connection.abort()

    async def _wait_for_connections(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._none_open.wait(), seconds)

    def _connection(self) -> Connection:
        connection = Connection(self._calls.accept, self._closed)
        self._connections.add(connection)
        self._none_open.clear()
        return connection

    def _closed(self, connection: Connection) -> None:
        self._connections.discard(connection)
        if not self._connections:
            self._none_open.set()
