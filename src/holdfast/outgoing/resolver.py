"""Names to addresses, on threads of its own: a DNS server that hangs holds up only those who ask for its names.

A name that was found once goes on with what was found when looking it up again hangs. Names that were found before,
names that are new and names that were not found last time each have threads of their own: however many of the last
hang, the others do not.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence

from holdfast.outgoing.answers import STOPPING, NoAnswer, no_answer

Resolve = Callable[[str], Sequence[str]]
"""Gives the addresses of a name and may block; raises OSError when there are none."""

# Short enough to follow an endpoint that moves, long enough to spare the DNS server a lookup for each connection.
CACHE_SECONDS = 10.0
# A name that does not resolve may be about to.
FAILED_CACHE_SECONDS = 1.0
MOST_CACHED = 1000

# When looking up a name again takes longer than this, what was found before is used, if it is not too old.
PATIENCE_SECONDS = 1.0
STALE_SECONDS = 3600.0

# Each hanging name holds one for as long as the system's resolver tries, some 10 seconds or more.
KNOWN_THREADS = 32
NEW_THREADS = 128
SUSPECT_THREADS = 32

Found = Sequence[str] | NoAnswer
_NEVER_FOUND = NoAnswer("dns", "it was never looked up")


def system_resolve(name: str) -> Sequence[str]:
    entries = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in entries))


class _Lane:
    """Threads that end with the process, whatever they wait for; those of the standard library's pools would hold it
    up. The first to come are the first to go."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._running = 0
        self._waiting: deque[Callable[[], None]] = deque()

    @property
    def is_full(self) -> bool:
        return bool(self._waiting)

    def submit(self, work: Callable[[], None]) -> None:
        self._waiting.append(work)
        self._start()

    def end(self) -> None:
        """One of them is done."""
        self._running -= 1
        self._start()

    def clear(self) -> None:
        self._waiting.clear()

    def _start(self) -> None:
        while self._waiting and self._running < self._most:
            self._running += 1
            threading.Thread(target=self._waiting.popleft(), name="holdfast-dns", daemon=True).start()


class Resolver:
    def __init__(self, resolve: Resolve = system_resolve) -> None:
        self._resolve = resolve
        self._known, self._new = _Lane(KNOWN_THREADS), _Lane(NEW_THREADS)
        self._suspect = _Lane(SUSPECT_THREADS)
        self._cache: dict[str, tuple[float, Found]] = {}
        self._running: dict[str, asyncio.Future[Found]] = {}
        self._lanes: dict[str, _Lane] = {}  # of those that are running
        self._closed = False

    async def addresses(self, name: str) -> Found:
        loop = asyncio.get_running_loop()
        if self._closed:
            return STOPPING
        valid_until, found = self._cache.get(name, (0.0, _NEVER_FOUND))
        if loop.time() < valid_until:
            return found
        is_known = not isinstance(found, NoAnswer)
        running = self._running.get(name)
        if running is None:
            running = self._running[name] = loop.create_future()
            self._lanes[name] = lane = self._lane_of(name, is_known)
            lane.submit(lambda: self._look_up(loop, name))
        if is_known and loop.time() < valid_until + STALE_SECONDS:
            done, _ = await asyncio.wait({running}, timeout=PATIENCE_SECONDS)
            return running.result() if done else found
        # One who gives up must not take the answer from the others.
        return await asyncio.shield(running)

    def has_begun(self, name: str) -> bool:
        """False while a lookup of the name waits for a thread: then nobody has been asked yet."""
        lane = self._lanes.get(name)
        return lane is None or not lane.is_full

    def _lane_of(self, name: str, is_known: bool) -> _Lane:
        if is_known:
            return self._known
        return self._suspect if name in self._cache else self._new

    def close(self) -> None:
        self._closed = True
        for lane in (self._known, self._new, self._suspect):
            lane.clear()
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
        self._lanes.pop(name).end()
        if running is None:
            return  # closed
        self._cache.pop(name, None)
        if len(self._cache) >= MOST_CACHED:
            del self._cache[next(iter(self._cache))]
        seconds = FAILED_CACHE_SECONDS if isinstance(found, NoAnswer) else CACHE_SECONDS
        self._cache[name] = (loop.time() + seconds, found)
        running.set_result(found)
