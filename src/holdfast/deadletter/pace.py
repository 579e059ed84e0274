"""A bound on how many things happen in a second. Says how many may now; never waits itself."""

from __future__ import annotations

import math
from collections import deque

from holdfast.clock import NANOSECONDS

# The bound holds over each tenth of a second, and so over any second: they do not all come at its beginning.
WINDOW_SECONDS = 0.1


class Pace:
    def __init__(self, per_second: float) -> None:
        self._most = max(1, math.floor(per_second * WINDOW_SECONDS))
        self._window_ns = math.ceil(self._most / per_second * NANOSECONDS)
        self._taken: deque[tuple[int, int]] = deque()  # when, and how many
        self._in_window = 0

    def room(self, now_ns: int) -> int:
        while self._taken and self._taken[0][0] <= now_ns - self._window_ns:
            self._in_window -= self._taken.popleft()[1]
        return max(0, self._most - self._in_window)

    def took(self, now_ns: int, count: int) -> None:
        self._taken.append((now_ns, count))
        self._in_window += count

    def next_ns(self) -> int:
        """When there is room again, once there was none."""
        return self._taken[0][0] + self._window_ns if self._taken else 0
