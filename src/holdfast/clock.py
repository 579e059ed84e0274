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
    # A wall clock may be set back or forward while we sleep, so long sleeps are cut into pieces.
    LONGEST_SLEEP_SECONDS = 30.0

    def now_ns(self) -> int:
        return time.time_ns()

    async def sleep_until(self, when_ns: int) -> None:
        while (left := when_ns - time.time_ns()) > 0:  # noqa: ASYNC110 - time itself is what it waits for
            await asyncio.sleep(min(left / NANOSECONDS, self.LONGEST_SLEEP_SECONDS))
