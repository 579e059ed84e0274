"""Pauses a subscription whose deliveries fail in a storm: its subscriber is down, and more attempts help nobody.

closed ──too many fail──▶ open: nothing is delivered ──pause over──▶ one probe ──it is acked──▶ closed
                            ▲                                            │
                            └───────────────it fails: twice the pause────┘

Only failures that say nothing about the message count: a nack, a deadline that passed, no answer, 5xx, 429; and of each
message only one in a minute, or a single one that comes again and again would stop all others. While it is open,
messages keep their place instead of becoming dead letters. State is in memory: after a restart it is closed.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass, field

from holdfast.backoff import backoff_seconds
from holdfast.broker.leases import Failure, Lease
from holdfast.clock import NANOSECONDS, Clock
from holdfast.errors import BadInput
from holdfast.model.resources import Subscription
from holdfast.settings import BrokerSettings
from holdfast.telemetry import JUDGE_SOON

log = logging.getLogger("holdfast.broker")

# How far back deliveries count. An outage shows within seconds; longer, and an old one would count against a new start.
WINDOW_SECONDS = 60

# So many attempts beyond its policy a message has while it is open. Were there none, some messages that alone fail, and
# only look like an outage, would be tried for ever and never seen.
MORE_ATTEMPTS = 5

# A subscription's label turns it off for this one.
LABEL = "holdfast-breaker"
OFF = "off"


def check_label(config: Subscription) -> None:
    if config.labels.get(LABEL, OFF) not in ("on", OFF):
        raise BadInput(f"labels[{LABEL!r}]", "must be on or off")


@dataclass(frozen=True, slots=True)
class Pause:
    """`why` is for people. From `until_ns` on one message at a time is tried."""

    why: str
    since_ns: int
    until_ns: int


@dataclass(slots=True)
class _Second:
    number: int
    succeeded: int = 0
    failed: list[int] = field(default_factory=list)  # messages


class Breaker:
    def __init__(self, config: Subscription, settings: BrokerSettings, clock: Clock) -> None:
        self.pause: Pause | None = None  # None while it is closed
        self.probe: Lease | None = None  # the one delivery that is under way while it is open
        self._settings = settings
        self._clock = clock
        self._seconds: deque[_Second] = deque()  # the last minute, without those in which nothing ended
        self._succeeded = 0
        self._failed: set[int] = set()  # messages
        self._failures_in_a_row = 0
        self._closed_ns = 0
        self.configure(config)

    def configure(self, config: Subscription) -> None:
        settings = self._settings
        self._name = config.name
        self._is_on = bool(settings.breaker_share) and not settings.strict and config.labels.get(LABEL) != OFF
        if not self._is_on:
            self.pause = None

    def room(self, wanted: int) -> int:
        """How many of `wanted` messages may be delivered now."""
        if self.pause is None:
            return wanted
        may_probe = self.probe is None and self._clock.now_ns() >= self.pause.until_ns
        return min(wanted, 1) if may_probe else 0

    @property
    def more_attempts(self) -> int:
        return MORE_ATTEMPTS if self.pause else 0

    # How deliveries end.

    def began(self, lease: Lease) -> None:
        if self.pause is not None:
            self.probe = lease

    def let_go(self, lease: Lease) -> None:
        """It ended, in whatever way."""
        if lease is self.probe:
            self.probe = None

    def succeeded(self, count: int, *, was_probe: bool = False) -> bool:
        """Also with messages that failed for their own sake: then the subscriber is well. True when this closes it."""
        self._this_second().succeeded += count
        self._succeeded += count
        if self.pause is None or not was_probe:
            return False
        log.info("delivery goes on", extra={"fields": {"subscription": self._name, "pausedBecause": self.pause.why}})
        self.pause = None
        self._closed_ns = self._clock.now_ns()
        self._forget()
        return True

    def failed(self, sequence: int, failure: Failure, *, was_probe: bool = False) -> bool:
        """True when delivery pauses from now on, or goes on to do so for longer."""
        second = self._this_second()
        if sequence not in self._failed:
            second.failed.append(sequence)
            self._failed.add(sequence)
        if not self._is_on:
            return False
        if self.pause is None:
            return self._is_storm() and self._open(failure)
        return was_probe and self._open(failure)

    def _is_storm(self) -> bool:
        settings = self._settings
        ended, failed = self._ended, len(self._failed)
        return ended >= settings.breaker_minimum and failed >= settings.breaker_share * ended

    @property
    def _ended(self) -> int:
        return self._succeeded + len(self._failed)

    def _open(self, failure: Failure) -> bool:
        now_ns = self._clock.now_ns()
        if self.pause is None and now_ns - self._closed_ns > WINDOW_SECONDS * NANOSECONDS:
            self._failures_in_a_row = 0  # else it is the same trouble as before, and pauses go on to grow
        self._failures_in_a_row += 1
        settings = self._settings
        seconds = backoff_seconds(
            settings.breaker_seconds, settings.breaker_longest_seconds, self._failures_in_a_row, lambda: 0.0
        )
        since_ns = self.pause.since_ns if self.pause else now_ns
        self.pause = Pause(self._why(failure), since_ns, now_ns + round(seconds * NANOSECONDS))
        fields = {"subscription": self._name, "pausedBecause": self.pause.why, "seconds": seconds}
        log.warning("delivery pauses", extra={"fields": fields, JUDGE_SOON: True})
        return True

    def _why(self, failure: Failure) -> str:
        last = ": ".join(part for part in (failure.reason or failure.status, failure.error) if part)
        counts = f"{len(self._failed)} of {self._ended} messages"
        return f"{counts} of the last {WINDOW_SECONDS} s failed, the last with {last}"

    def _this_second(self) -> _Second:
        """What is older than the window is forgotten then."""
        number = self._clock.now_ns() // NANOSECONDS
        if not self._seconds or self._seconds[-1].number != number:
            self._seconds.append(_Second(number))
            while self._seconds[0].number <= number - WINDOW_SECONDS:
                gone = self._seconds.popleft()
                self._succeeded -= gone.succeeded
                self._failed.difference_update(gone.failed)
        return self._seconds[-1]

    def _forget(self) -> None:
        """What failed before counts no more."""
        self._seconds.clear()
        self._succeeded = 0
        self._failed.clear()
