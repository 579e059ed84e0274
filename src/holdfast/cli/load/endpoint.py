"""The endpoint under load: connections to it that are kept, and requests that are sent exactly once.

Holdfast's own push (`holdfast.outgoing.client`) quietly sends a request again when a kept connection closes under it.
Here a request without an answer is what one wants to see, so that is left out, and so are its limits.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
from collections.abc import Sequence

from holdfast.errors import Unreachable
from holdfast.outgoing.answers import NoAnswer, Outcome, no_answer
from holdfast.outgoing.connection import Connection
from holdfast.outgoing.targets import Target

# An answer of a push endpoint is short; a page that is none would only cost memory.
MOST_BODY_BYTES = 1 << 20

# Under the 5 seconds after which Node and uvicorn close, so that a request rarely meets a server that is just closing.
IDLE_SECONDS = 4.0

_FIRST_CONNECT_SECONDS = 10.0

# Of this machine: the endpoint was not asked.
_OUR_OWN_ERRORS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL})


class Endpoint:
    """Owns its connections. The one used last is used first, so that no more are open than are needed."""

    def __init__(self, target: Target, address: str, head: bytes) -> None:
        """`head` is what all requests have in common."""
        self._target = target
        self._address = address
        self._head = head
        self._tls = _tls_context() if target.scheme == "https" else None
        self._open: set[Connection] = set()
        self._idle: dict[Connection, None] = {}

    @classmethod
    async def find(cls, target: Target, head: bytes) -> Endpoint:
        """Looks up the name once, and takes the first address that can be connected to. Raises Unreachable: thousands
        of refused connections would say no more than one."""
        why = "the name has no address"
        for address in await _addresses(target):
            try:
                async with asyncio.timeout(_FIRST_CONNECT_SECONDS):
                    _, writer = await asyncio.open_connection(address, target.port)
            except TimeoutError:
                why = "no connection in time"
            except OSError as error:
                why = _words(error)
            else:
                writer.close()
                return cls(target, address, head)
        raise Unreachable(f"nothing answers at {target.authority}: {why}. Is it up? See --url")

    async def post(self, body: bytes, timeout_seconds: float) -> Outcome:
        """The timeout covers everything."""
        deadline = asyncio.get_running_loop().time() + timeout_seconds
        connection = self._take() or await self._connect(deadline, timeout_seconds)
        if isinstance(connection, NoAnswer):
            return connection
        request = b"%bContent-Length: %d\r\n\r\n%b" % (self._head, len(body), body)
        return await _exchange(connection, request, deadline, timeout_seconds)

    async def close(self) -> None:
        for connection in list(self._open):
            connection.stop()
        await asyncio.sleep(0)  # sockets close in the next turn of the loop

    # Connecting.

    def _take(self) -> Connection | None:
        if not self._idle:
            return None
        connection, _ = self._idle.popitem()
        if connection.idle_since > asyncio.get_running_loop().time() - IDLE_SECONDS:
            return connection
        # The others have waited even longer.
        for stale in (connection, *self._idle):
            stale.stop()
        return None

    async def _connect(self, deadline: float, timeout_seconds: float) -> Connection | NoAnswer:
        try:
            async with asyncio.timeout_at(deadline):
                _, connection = await asyncio.get_running_loop().create_connection(
                    self._connection,
                    self._address,
                    self._target.port,
                    ssl=self._tls,
                    server_hostname=self._target.host.rstrip(".") if self._tls else None,
                )
        except TimeoutError:
            return NoAnswer("timeout", f"no connection within {timeout_seconds:g} s")
        except ssl.SSLError as error:
            return no_answer("tls", f"{getattr(error, 'verify_message', '') or error.reason or error}")
        except OSError as error:
            return no_answer("unsent" if error.errno in _OUR_OWN_ERRORS else "refused", _words(error))
        return connection

    def _connection(self) -> Connection:
        target = self._target
        return Connection((target.scheme, target.host, target.port, ""), self)

    # What connections tell their owner.

    def opened(self, connection: Connection) -> None:
        self._open.add(connection)

    def put(self, connection: Connection) -> None:
        connection.idle_since = asyncio.get_running_loop().time()
        self._idle[connection] = None

    def may_drain(self, connection: Connection) -> bool:
        return False  # every answer is read to its end

    def not_kept(self, connection: Connection) -> None:
        pass

    def forget(self, connection: Connection) -> None:
        self._idle.pop(connection, None)

    def gone(self, connection: Connection) -> None:
        self._open.discard(connection)


async def _exchange(connection: Connection, request: bytes, deadline: float, timeout_seconds: float) -> Outcome:
    waiter = connection.ask(request, MOST_BODY_BYTES)
    late = NoAnswer("timeout", f"no answer within {timeout_seconds:g} s")
    timer = asyncio.get_running_loop().call_at(deadline, connection.give_up, waiter, late)
    try:
        return await waiter
    except asyncio.CancelledError:
        connection.give_up(waiter)
        raise
    finally:
        timer.cancel()


async def _addresses(target: Target) -> Sequence[str]:
    try:
        found = await asyncio.get_running_loop().getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise Unreachable(f"--url: cannot resolve {target.host}: {error.strerror or error}") from error
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def _words(error: OSError) -> str:
    """The system's own, without the addresses that loops add."""
    return os.strerror(error.errno) if error.errno else str(error) or "it was closed"


def _tls_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context
