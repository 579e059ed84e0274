"""A clock that stands still until a test moves it."""

from __future__ import annotations

import asyncio
import heapq
import itertools

from holdfast.clock import NANOSECONDS


class ManualClock:
    def __init__(self, start_ns: int = 1_700_000_000 * NANOSECONDS) -> None:
        self._now = start_ns
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    def now_ns(self) -> int:
        return self._now

    async def sleep_until(self, when_ns: int) -> None:
        if when_ns <= self._now:
            return
        awake = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (when_ns, next(self._order), awake))
        await awake

    def advance(self, seconds: float) -> None:
        """Moves time forward and wakes, in order, everyone whose time has come."""
        self._now += round(seconds * NANOSECONDS)
        while self._sleepers and self._sleepers[0][0] <= self._now:
            _, _, awake = heapq.heappop(self._sleepers)
            if not awake.done():
                awake.set_result(None)
