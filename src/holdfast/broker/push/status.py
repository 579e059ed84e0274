"""What is known of one subscription's push: counted as it happens, read by the API, the command line and metrics."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from holdfast.broker.breaker import Pause

# Upper bounds of the latency histogram, in seconds. A last bucket holds what took longer.
LATENCY_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class PushCounts:
    """Since this process started."""

    def __init__(self) -> None:
        self.attempts: Counter[str] = Counter()  # by result
        self.latency_buckets = [0] * (len(LATENCY_BOUNDS) + 1)
        self.latency_seconds = 0.0
        self.dropped = 0
        self.last_status = ""
        self.last_error = ""  # stays when later attempts succeed
        self.last_attempt_ns: int | None = None

    def count(self, result: str, status: str, error: str, seconds: float, now_ns: int) -> None:
        self.attempts[result] += 1
        self.latency_buckets[bisect_left(LATENCY_BOUNDS, seconds)] += 1
        self.latency_seconds += seconds
        self.last_status = status
        self.last_attempt_ns = now_ns
        if error:
            self.last_error = error


@dataclass(frozen=True, slots=True)
class PushStatus:
    """`state` is one word: idle, sending, paused, unconfirmed, misconfigured or stopped."""

    subscription: str
    endpoint: str
    state: str
    window: int
    in_flight: int
    due: int  # messages that could be sent now
    oldest_due_ns: int | None
    waiting: int  # failed messages whose time has not come
    next_due_ns: int | None
    last_status: str
    last_error: str
    last_attempt_ns: int | None
    dropped: int
    attempts: Mapping[str, int]
    latency_buckets: Sequence[int]
    latency_seconds: float
    pause: Pause | None = None  # of delivery as a whole, because it failed in a storm
