"""How fast an endpoint may be asked: a window that follows how it does, and a rate that its owner set.

As in Cloud Pub/Sub the window starts small, grows with every success and shrinks with failures. An endpoint that fails
even one request at a time is given pauses. All of it belongs to one subscription: the others notice nothing.
"""

from __future__ import annotations

from holdfast.backoff import backoff_seconds
from holdfast.clock import NANOSECONDS

FIRST_WINDOW = 4
FIRST_PAUSE_SECONDS = 0.1

# A rate is kept over this time: requests that were not made may be made up for, but not more than so many.
BURST_SECONDS = 0.1


class Window:
    def __init__(self, most: int, longest_pause_seconds: float) -> None:
        self.size = min(FIRST_WINDOW, most)
        # A request remembers the round it was sent in. When many fail together, that is one failure, not many.
        self.round = 0
        self.in_flight = 0
        self.paused_until_ns = 0
        self._most = most
        self._longest_pause_seconds = longest_pause_seconds
        self._failures_in_a_row = 0

    def limit(self, most: int) -> None:
        self._most = most
        self.size = min(self.size, most)

    def succeeded(self) -> None:
        """One more for each success: the window doubles with every round trip."""
        self._failures_in_a_row = 0
        self.paused_until_ns = 0
        if self.size < self._most:
            self.size += 1

    def failed(self, sent_in_round: int, now_ns: int) -> None:
        if sent_in_round != self.round:
            return
        self.round += 1
        if self.size > 1:
            self.size //= 2
            return
        self._failures_in_a_row += 1
        pause = backoff_seconds(FIRST_PAUSE_SECONDS, self._longest_pause_seconds, self._failures_in_a_row)
        self.paused_until_ns = now_ns + round(pause * NANOSECONDS)


class Rate:
    """At most `per_second` requests a second; 0 means any number."""

    def __init__(self, per_second: float, now_ns: int) -> None:
        self.per_second = per_second
        self._most = max(1.0, per_second * BURST_SECONDS)
        self._left = self._most
        self._counted_ns = now_ns

    def room(self, now_ns: int, wanted: int) -> int:
        """How many of `wanted` requests may go now."""
        if not self.per_second:
            return wanted
        gained = max(now_ns - self._counted_ns, 0) / NANOSECONDS * self.per_second
        self._left = min(self._left + gained, self._most)
        self._counted_ns = now_ns
        return min(wanted, int(self._left))

    def took(self, requests: int) -> None:
        self._left -= requests

    def next_ns(self) -> int:
        """When the next request may go, counted from the last call of `room`."""
        if not self.per_second or self._left >= 1:
            return self._counted_ns
        return self._counted_ns + round((1 - self._left) / self.per_second * NANOSECONDS) + 1
