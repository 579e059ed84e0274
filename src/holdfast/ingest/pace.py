"""How many events are taken in a second. Says how long to wait; never waits itself."""

from __future__ import annotations

from holdfast.clock import NANOSECONDS, Clock

# Events that come together are taken together, up to what a second may have.
BURST_SECONDS = 1.0


class IngestPace:
    """`per_second` 0 means no bound. A batch is taken whole when there is room for its first event, and the next ones
    wait for it."""

    def __init__(self, per_second: float, clock: Clock) -> None:
        self._clock = clock
        self._cost_ns = NANOSECONDS / per_second if per_second else 0.0
        self._burst_ns = max(BURST_SECONDS * NANOSECONDS, self._cost_ns)
        self._paid_until_ns = 0.0  # what was taken so far is worth the time until then

    def wait_seconds(self, count: int) -> float:
        """0 when they are taken, which counts."""
        now_ns = self._clock.now_ns()
        paid_ns = max(self._paid_until_ns, now_ns - self._burst_ns)
        too_much_ns = paid_ns + self._cost_ns - now_ns
        if self._cost_ns and too_much_ns > 0:
            return too_much_ns / NANOSECONDS
        self._paid_until_ns = paid_ns + count * self._cost_ns
        return 0.0
