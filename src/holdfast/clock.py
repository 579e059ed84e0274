"""Time, injected: production uses SystemClock, tests a clock they move by hand (holdfast.testing.ManualClock)."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

NANOSECONDS = 1_000_000_000


class Clock(Protocol):
    def now_ns(self) -> int:
        """Nanoseconds since 1970, UTC."""
        ...

    async def sleep_until(self, when_ns: int) -> None:
        """Returns once now_ns() has reached when_ns; at once when it has already."""
        ...


class SystemClock:
    """The time of day, except that it never goes back and does not believe in a leap at once. Deadlines, backoffs and
    leases are kept in it: after a clock was set an hour ahead by mistake, and right again, they would be an hour away.

    A leap forward counts once it has lasted for DOUBT_NS; until then the time goes on as it was. When the time of day
    is behind, this one goes at half its speed until they meet.
    """

    # A wall clock may be set back or forward while we sleep, so long sleeps are cut into pieces.
    LONGEST_SLEEP_SECONDS = 30.0

    LEAP_NS = NANOSECONDS
    DOUBT_NS = 30 * NANOSECONDS

    def __init__(self) -> None:
        self._last = _steady_ns(), time.time_ns()  # by the steady clock; and what was told then
        self._leap: tuple[int, int] | None = None  # one that is not believed yet: since when, and how far

    def now_ns(self) -> int:
        wall, steady = time.time_ns(), _steady_ns()
        then, told = self._last
        elapsed = max(steady - then, 0)
        ahead = wall - told - elapsed
        if ahead > self.LEAP_NS and not self._believes(ahead, steady):
            now = told + elapsed
        else:
            now = wall if ahead >= 0 else max(wall, told + (elapsed + 1) // 2)
            self._leap = None
        self._last = steady, now
        return now

    def _believes(self, ahead: int, steady: int) -> bool:
        if self._leap is None or abs(ahead - self._leap[1]) > self.LEAP_NS:  # another one than before
            self._leap = steady, ahead
        return steady - self._leap[0] >= self.DOUBT_NS

    async def sleep_until(self, when_ns: int) -> None:
        while (left := when_ns - self.now_ns()) > 0:  # noqa: ASYNC110 - time itself is what it waits for
            await asyncio.sleep(min(left / NANOSECONDS, self.LONGEST_SLEEP_SECONDS))


# Nobody sets it. Linux has one that also counts while the machine sleeps.
_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def _steady_ns() -> int:
    return time.clock_gettime_ns(_STEADY)
