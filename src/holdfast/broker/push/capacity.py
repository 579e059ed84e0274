"""What all push subscriptions share: how many requests, and how many bytes in them, may be under way at once."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

# Large bodies under way, in bytes. An endpoint that does not read leaves them in our memory.
MOST_BYTES = 128_000_000

# A body up to this size is not counted: the number of requests bounds those.
SMALL_BYTES = 64_000

# A request that has taken so long waits for its endpoint, not for us. It no longer counts, or endpoints that hang would
# leave less and less for those that answer.
STUCK_SECONDS = 1.0

# Of those who found no room, so many are told when a request ends.
WOKEN_AT_ONCE = 4


@dataclass(slots=True)
class Load:
    """Of one subscription."""

    requests: int = 0
    bytes: int = 0


@dataclass(slots=True, eq=False)
class Place:
    """Of one request."""

    load: Load
    since: float
    bytes: int = 0


class Capacity:
    """One subscription may have no more under way than is left free for all others, and one request always: however
    many endpoints hang, and however wide their windows were, one that answers is served."""

    def __init__(self, most_requests: int, most_bytes: int = MOST_BYTES) -> None:
        self._free_requests = most_requests
        self._free_bytes = most_bytes
        self._counted: dict[Place, None] = {}  # the oldest first
        self._starved: dict[Callable[[], None], None] = {}  # in the order they came
        self._bytes_wanted: deque[asyncio.Future[None]] = deque()
        self._sweep: asyncio.TimerHandle | None = None

    def room(self, load: Load) -> tuple[int, int]:
        """Requests and bytes that may be added to `load`. What is added is no longer free, so half the difference."""
        requests = (self._free_requests - load.requests + 1) // 2
        size = (self._free_bytes - load.bytes + 1) // 2
        return (requests, size) if load.requests else (max(requests, 1), max(size, 1))

    def take(self, load: Load) -> Place:
        place = Place(load, asyncio.get_running_loop().time())
        load.requests += 1
        self._free_requests -= 1
        self._counted[place] = None
        if self._sweep is None:
            self._sweep_later()
        return place

    async def take_bytes(self, place: Place, size: int, timeout_seconds: float) -> bool:
        """Waits for its turn where a large body finds no room. False when that took too long."""
        if size <= SMALL_BYTES:
            return True
        if self._free_bytes <= 0:
            wanted = asyncio.get_running_loop().create_future()
            self._bytes_wanted.append(wanted)
            done, _ = await asyncio.wait({wanted}, timeout=timeout_seconds)
            if not done:
                wanted.cancel()
                return False
        place.bytes = size
        place.load.bytes += size
        self._free_bytes -= size
        return True

    def give_back(self, place: Place) -> None:
        place.load.requests -= 1
        place.load.bytes -= place.bytes
        self._free_bytes += place.bytes
        self._uncount(place)
        if self._free_bytes > 0:
            self._wake_one_with_bytes()
        self._wake_starved()

    def tell_when_free(self, wake: Callable[[], None]) -> None:
        self._starved[wake] = None

    def stop(self) -> None:
        if self._sweep is not None:
            self._sweep.cancel()

    def _uncount(self, place: Place) -> None:
        if place in self._counted:
            del self._counted[place]
            self._free_requests += 1

    def _sweep_later(self) -> None:
        self._sweep = asyncio.get_running_loop().call_later(STUCK_SECONDS / 2, self._release_stuck)

    def _release_stuck(self) -> None:
        self._sweep = None
        since = asyncio.get_running_loop().time() - STUCK_SECONDS
        for place in list(itertools.takewhile(lambda place: place.since <= since, self._counted)):
            self._uncount(place)
            self._wake_starved()
        if self._counted:
            self._sweep_later()

    def _wake_one_with_bytes(self) -> None:
        while self._bytes_wanted:
            wanted = self._bytes_wanted.popleft()
            if not wanted.done():
                wanted.set_result(None)
                return

    def _wake_starved(self) -> None:
        """A few, in turn; whoever still finds no room waits again. All of them when nothing is counted any more:
        nobody else would wake them then."""
        few = WOKEN_AT_ONCE if self._counted else len(self._starved)
        for wake in list(itertools.islice(self._starved, few)):
            del self._starved[wake]
            wake()
