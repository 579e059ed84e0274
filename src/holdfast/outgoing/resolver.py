"""Names to addresses, on threads of its own: a DNS server that hangs holds up only those who ask for its names."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from holdfast.outgoing.answers import STOPPING, NoAnswer, no_answer

Resolve = Callable[[str], Sequence[str]]
"""Gives the addresses of a name and may block; raises OSError when there are none."""

# Short enough to follow an endpoint that moves, long enough to spare the DNS server a lookup for each connection.
CACHE_SECONDS = 10.0
# A name that does not resolve may be about to.
FAILED_CACHE_SECONDS = 1.0
MOST_CACHED = 1000

# Each hanging name holds one for as long as the system's resolver tries, some 10 seconds.
THREADS = 32

Found = Sequence[str] | NoAnswer


def system_resolve(name: str) -> Sequence[str]:
    entries = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in entries))


class Resolver:
    def __init__(self, resolve: Resolve = system_resolve) -> None:
        self._resolve = resolve
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="holdfast-dns")
        self._cache: dict[str, tuple[float, Found]] = {}
        self._running: dict[str, asyncio.Future[Found]] = {}
        self._closed = False

    async def addresses(self, name: str) -> Found:
        loop = asyncio.get_running_loop()
        if self._closed:
            return STOPPING
        valid_until, found = self._cache.get(name, (0.0, ()))
        if loop.time() < valid_until:
            return found
        running = self._running.get(name)
        if running is None:
            running = self._running[name] = loop.create_future()
            self._threads.submit(self._look_up, loop, name)
        # One who gives up must not take the answer from the others.
        return await asyncio.shield(running)

    def close(self) -> None:
        self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        running, self._running = self._running, {}
        for future in running.values():
            future.set_result(STOPPING)

    def _look_up(self, loop: asyncio.AbstractEventLoop, name: str) -> None:
        """In a thread."""
        found: Found
        try:
            found = self._resolve(name) or no_answer("dns", f"{name} has no address")
        except (OSError, ValueError) as error:  # ValueError: not a name at all
            found = no_answer("dns", f"cannot resolve {name}: {getattr(error, 'strerror', None) or error}")
        try:
            loop.call_soon_threadsafe(self._keep, loop, name, found)
        except RuntimeError:
            pass  # the loop has ended meanwhile, and who asked with it

    def _keep(self, loop: asyncio.AbstractEventLoop, name: str, found: Found) -> None:
        running = self._running.pop(name, None)
        if running is None:
            return  # closed
        self._cache.pop(name, None)
        if len(self._cache) >= MOST_CACHED:
            del self._cache[next(iter(self._cache))]
        seconds = FAILED_CACHE_SECONDS if isinstance(found, NoAnswer) else CACHE_SECONDS
        self._cache[name] = (loop.time() + seconds, found)
        running.set_result(found)
