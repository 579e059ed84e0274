"""All connections that are open, and those that wait for their next request by where they lead."""

from __future__ import annotations

import asyncio
from collections import Counter, deque

from holdfast.outgoing.connection import Connection, Origin

# Under the 5 seconds after which Node and uvicorn close, so that a request rarely meets a server that is just closing.
IDLE_SECONDS = 4.0
MOST_IDLE = 512

# Connections that are being made to one place at once. A server keeps only so many that it has not accepted yet, and
# drops the rest without a word; who waits meanwhile often gets a connection that another request is done with.
MOST_CONNECTING = 4

# To a place that closes after every answer there is nothing to wait for, so more may be made, a few more each time.
MOST_CONNECTING_UNKEPT = 64
MORE_CONNECTING = 4

# Connections on which the rest of an unwanted answer is read, in all. They are no request's any more, so nothing else
# bounds them.
MOST_DRAINING = 32

# Sockets close within one turn of the loop, those of TLS within a few.
_CLOSE_SECONDS = 1.0


class Pool:
    """The one used last is given first, so that no more are kept alive than are needed."""

    def __init__(self) -> None:
        self._open: set[Connection] = set()
        self._by_origin: dict[Origin, dict[Connection, None]] = {}
        # All of them, the one that waits longest first.
        self._idle: dict[Connection, None] = {}
        self._connecting: Counter[Origin] = Counter()
        self._may_connect: dict[Origin, int] = {}  # where it is not the usual number
        self._draining: set[Connection] = set()
        self._waiting: dict[Origin, deque[asyncio.Future[Connection | None]]] = {}
        self._sweep: asyncio.TimerHandle | None = None
        self._all_gone: asyncio.Event | None = None

    def take(self, origin: Origin) -> Connection | None:
        waiting = self._by_origin.get(origin)
        if not waiting:
            return None
        connection, _ = waiting.popitem()
        del self._idle[connection]
        return connection

    def opened(self, connection: Connection) -> None:
        self._open.add(connection)

    def put(self, connection: Connection) -> None:
        self._draining.discard(connection)
        self._may_connect.pop(connection.origin, None)
        if connection.is_usable and not self._hand_over(connection.origin, connection):
            self._keep(connection)

    def not_kept(self, connection: Connection) -> None:
        before = self._may_connect.get(connection.origin, MOST_CONNECTING)
        self._may_connect[connection.origin] = more = min(before + MORE_CONNECTING, MOST_CONNECTING_UNKEPT)
        if len(self._may_connect) > MOST_IDLE:
            del self._may_connect[next(iter(self._may_connect))]
        while self._connecting[connection.origin] < more and self._hand_over(connection.origin, None):
            self._connecting[connection.origin] += 1

    def may_drain(self, connection: Connection) -> bool:
        if len(self._draining) >= MOST_DRAINING:
            return False
        self._draining.add(connection)
        return True

    def start_connecting(self, origin: Origin) -> bool:
        """False when as many are being made as may be: then `wait`. Else `stop_connecting` must follow."""
        if self._connecting[origin] >= self._may_connect.get(origin, MOST_CONNECTING):
            return False
        self._connecting[origin] += 1
        return True

    def stop_connecting(self, origin: Origin) -> None:
        if not self._hand_over(origin, None):
            self._connecting[origin] -= 1
            if not self._connecting[origin]:
                del self._connecting[origin]

    async def wait(self, origin: Origin, deadline: float) -> Connection | None:
        """A connection that another request is done with; or None, when one may be made, as after start_connecting.
        Raises TimeoutError."""
        waiter: asyncio.Future[Connection | None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(origin, deque()).append(waiter)
        try:
            async with asyncio.timeout_at(deadline):
                return await waiter
        except BaseException:
            self._leave(origin, waiter)
            raise

    def _leave(self, origin: Origin, waiter: asyncio.Future[Connection | None]) -> None:
        """Whoever waited is gone. What it was given in that moment goes to the next."""
        if waiter.done() and not waiter.cancelled():
            given = waiter.result()
            if given is None:
                self.stop_connecting(origin)
            else:
                self.put(given)
        elif waiter in self._waiting.get(origin, ()):
            self._waiting[origin].remove(waiter)
            if not self._waiting[origin]:
                del self._waiting[origin]

    def _hand_over(self, origin: Origin, given: Connection | None) -> bool:
        """To who has waited longest. False when nobody waits."""
        waiting = self._waiting.get(origin)
        while waiting:
            waiter = waiting.popleft()
            if not waiting:
                del self._waiting[origin]
            if not waiter.done():
                waiter.set_result(given)
                return True
        return False

    def _keep(self, connection: Connection) -> None:
        loop = asyncio.get_running_loop()
        connection.idle_since = loop.time()
        self._idle[connection] = None
        self._by_origin.setdefault(connection.origin, {})[connection] = None
        if len(self._idle) > MOST_IDLE:
            next(iter(self._idle)).stop()
        if self._sweep is None:
            self._sweep = loop.call_later(IDLE_SECONDS, self._close_the_oldest)

    def forget(self, connection: Connection) -> None:
        self._draining.discard(connection)
        if connection in self._idle:
            del self._idle[connection]
            del self._by_origin[connection.origin][connection]

    def gone(self, connection: Connection) -> None:
        self._open.discard(connection)
        if self._all_gone is not None and not self._open:
            self._all_gone.set()

    async def close(self) -> None:
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        for connection in list(self._open):
            connection.stop()
        if self._open:
            self._all_gone = asyncio.Event()
            try:
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await self._all_gone.wait()
            except TimeoutError:
                pass

    def _close_the_oldest(self) -> None:
        loop = asyncio.get_running_loop()
        self._sweep = None
        while self._idle:
            oldest = next(iter(self._idle))
            left = oldest.idle_since + IDLE_SECONDS - loop.time()
            if left > 0:
                self._sweep = loop.call_later(left, self._close_the_oldest)
                break
            self.forget(oldest)
            oldest.stop()
        self._by_origin = {origin: waiting for origin, waiting in self._by_origin.items() if waiting}
