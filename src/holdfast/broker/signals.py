"""Two small tools that let the broker wait for something instead of polling: a signal and timers."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable

from holdfast.clock import Clock


class Signal:
    """Wakes everyone who waits. `version` lets a waiter notice what happened between looking and waiting."""

    def __init__(self) -> None:
        self.version = 0
        self._waiters: set[asyncio.Future[None]] = set()
        self._listeners: tuple[Callable[[], None], ...] = ()

    @property
    def is_awaited(self) -> bool:
        return bool(self._waiters or self._listeners)

    def listen(self, callback: Callable[[], None]) -> None:
        """Called at every signal, until `unlisten`."""
        self._listeners = (*self._listeners, callback)

    def unlisten(self, callback: Callable[[], None]) -> None:
        self._listeners = tuple(listener for listener in self._listeners if listener != callback)

    def fire(self) -> None:
        self.version += 1
        waiters, self._waiters = self._waiters, set()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
        for callback in self._listeners:
            callback()

    async def wait_beyond(self, version: int) -> None:
        if self.version != version:
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)


class Timers:
    """Calls back at given times, with a single sleeping task however many there are."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._sleeper: asyncio.Task[None] | None = None
        self._sleeps_until = 0

    def at(self, when_ns: int, callback: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (when_ns, next(self._order), callback))
        if self._sleeper is None or when_ns < self._sleeps_until:
            self._sleep()

    def stop(self) -> None:
        self._heap.clear()
        if self._sleeper is not None:
            self._sleeper.cancel()

    def _sleep(self) -> None:
        if self._sleeper is not None:
            self._sleeper.cancel()
        self._sleeps_until = self._heap[0][0]
        self._sleeper = asyncio.get_running_loop().create_task(self._wake_at(self._sleeps_until))

    async def _wake_at(self, when_ns: int) -> None:
        await self._clock.sleep_until(when_ns)
        self._sleeper = None
        now = self._clock.now_ns()
        while self._heap and self._heap[0][0] <= now:
            _, _, callback = heapq.heappop(self._heap)
            callback()
        if self._heap and self._sleeper is None:
            self._sleep()
