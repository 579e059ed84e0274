"""A connection of which it is not known yet what it speaks: HTTP/2, or something for another server."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import cast

from holdfast.api.http2.frames import PREFACE

log = logging.getLogger("holdfast.broker")

ProtocolFactory = Callable[[], asyncio.Protocol]

# Clients speak at once. Who says nothing for so long is a scanner, or gone.
FIRST_BYTES_SECONDS = 20.0

# Enough to tell HTTP/2 from any request of HTTP/1; the rest of the preface is checked by who takes it over.
_TELLING = PREFACE[:16]

TLS_HANDSHAKE = b"\x16\x03"

# A client that vanished without a word is noticed after 60 + 4 * 15 seconds.
_KEEP_ALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}


class FirstBytes(asyncio.Protocol):
    def __init__(
        self, http2: ProtocolFactory, fallback: ProtocolFactory | None, decided: Callable[[FirstBytes], None]
    ) -> None:
        """`decided` is told when the connection is someone else's, or gone."""
        self._http2 = http2
        self._fallback = fallback
        self._decided = decided
        self._seen = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._timer = asyncio.get_running_loop().call_later(FIRST_BYTES_SECONDS, self._transport.abort)

    def data_received(self, data: bytes) -> None:
        self._seen += data
        if len(self._seen) < len(_TELLING) and _TELLING.startswith(self._seen):
            return  # the beginning of a preface: more must come
        self._timer.cancel()
        if self._seen.startswith(_TELLING) or (self._fallback is None and not self._seen.startswith(TLS_HANDSHAKE)):
            _notice_dead_peer(self._transport)
            self._hand_to(self._http2())
        elif self._fallback is not None and self._seen[:1].isalpha():  # a method, or what may be called a bad request
            self._hand_to(self._fallback())
        else:
            self._refuse()

    def _hand_to(self, protocol: asyncio.Protocol) -> None:
        self._decided(self)
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        protocol.data_received(self._seen)

    def _refuse(self) -> None:
        """Without a word: whatever it speaks, it would not understand one."""
        if self._seen.startswith(TLS_HANDSHAKE):
            log.warning("a client tried TLS; the broker's port speaks plain HTTP and gRPC")
        self._transport.close()

    def close(self) -> None:
        self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        self._decided(self)


def _notice_dead_peer(transport: asyncio.Transport) -> None:
    connection = transport.get_extra_info("socket")
    if connection is None or connection.family == getattr(socket, "AF_UNIX", None):
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE.items():
        if hasattr(socket, name):  # not every system has them all
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
