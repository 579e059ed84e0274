"""How many messages of a job may go now, so that it keeps its rate and never sends in bursts. Pure.

In any one second at most a tenth more than the rate arrive, wherever the second begins and however slow a publish was:
that is counted, not hoped for. Below ten a second it is the rate itself, rounded down. Pauses that were not wanted (a
slow disk) are made up for by 8 % more than the rate.
"""

from __future__ import annotations

from collections import deque

from holdfast.clock import NANOSECONDS

OVER_THE_RATE = 1.1  # of a rate, what no second may pass
CATCHING_UP = 1.08  # of a rate, how fast it goes while it is behind
AT_ONCE = 0.05  # of a second's messages, the most that go without a pause

# The share of a second's messages that go together. Each turn costs some commits, however many go with it.
TOGETHER = 0.02

# Of a rate without bound: how many go together.
UNBOUNDED_BATCH = 100


class Pacer:
    """`per_second` 0 is no bound."""

    def __init__(self, per_second: float, now_ns: int) -> None:
        self._is_bounded = per_second > 0
        self._together = max(1, int(per_second * TOGETHER))
        self._most = max(1, int(per_second * OVER_THE_RATE + 1e-9))
        self._rate = _Bucket(per_second, per_second, now_ns)  # a second that was lost is made up for
        self._smooth = _Bucket(per_second * CATCHING_UP, per_second * AT_ONCE, now_ns)
        self._last_second: deque[tuple[int, int]] = deque()  # when a publish had ended, and how many it were

    def allowed(self, now_ns: int) -> int:
        """0 while less than what goes together is allowed."""
        if not self._is_bounded:
            return UNBOUNDED_BATCH
        while self._last_second and self._last_second[0][0] + NANOSECONDS <= now_ns:
            self._last_second.popleft()
        lately = sum(count for _, count in self._last_second)
        allowed = min(self._rate.level(now_ns), self._smooth.level(now_ns), self._most - lately)
        return int(allowed) if allowed >= self._together else 0

    def next_ns(self, now_ns: int) -> int:
        """When it is worth asking again."""
        if not self._is_bounded or self.allowed(now_ns):
            return now_ns
        times = [self._rate.time_of(self._together), self._smooth.time_of(self._together), now_ns + 1]
        lately = sum(count for _, count in self._last_second)
        for ended_ns, count in self._last_second:
            if self._most - lately >= self._together:
                break
            times.append(ended_ns + NANOSECONDS)
            lately -= count
        return max(times)

    def sent(self, count: int, began_ns: int, ended_ns: int) -> None:
        """So many went out between these times; nobody knows better when."""
        if self._is_bounded:
            self._rate.take(count, began_ns)
            self._smooth.take(count, began_ns)
            self._last_second.append((ended_ns, count))


class _Bucket:
    """Fills by so many a second, up to its size."""

    def __init__(self, per_second: float, size: float, now_ns: int) -> None:
        self._per_second = per_second
        self._size = max(1.0, size)
        self._level = 1.0
        self._at_ns = now_ns

    def level(self, now_ns: int) -> float:
        # A nanosecond is no reason to wait for another turn, so rounding is in favour of now.
        seconds = max(0, now_ns - self._at_ns) / NANOSECONDS
        return min(self._size, self._level + seconds * self._per_second) + 1e-6

    def take(self, count: int, now_ns: int) -> None:
        self._level = self.level(now_ns) - count
        self._at_ns = max(self._at_ns, now_ns)

    def time_of(self, level: float) -> int:
        return self._at_ns + int(max(0.0, level - self._level) / self._per_second * NANOSECONDS)


class RecentRate:
    """What really went out in the last seconds."""

    SECONDS = 5

    def __init__(self) -> None:
        self._sent: deque[tuple[int, int]] = deque()

    def sent(self, count: int, at_ns: int) -> None:
        self._sent.append((at_ns, count))

    def per_second(self, now_ns: int) -> float:
        while self._sent and self._sent[0][0] < now_ns - self.SECONDS * NANOSECONDS:
            self._sent.popleft()
        if not self._sent:
            return 0.0
        seconds = max(1.0, (now_ns - self._sent[0][0]) / NANOSECONDS)
        return sum(count for _, count in self._sent) / seconds
