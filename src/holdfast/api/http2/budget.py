"""How often a peer may do what costs us much more than it."""

from __future__ import annotations

import time


class Budget:
    """`burst` at once, and `per_second` on and on. Time is looked at only when the burst is used up."""

    def __init__(self, burst: int, per_second: int) -> None:
        self._burst = burst
        self._per_second = per_second
        self._left = burst
        self._since = time.monotonic()

    def spend(self) -> bool:
        """False when there is nothing left."""
        self._left -= 1
        if self._left >= 0:
            return True
        now = time.monotonic()
        earned = int((now - self._since) * self._per_second)
        self._left = min(self._burst, earned) - 1
        self._since = now
        return self._left >= 0
