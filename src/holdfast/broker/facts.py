"""What is kept of a message's past: a fact for each delivery that failed, and marks of how far all others had come.

Nothing is written for a delivery that succeeds. Of those the marks tell: once a second, how far a topic or subscription
that moved had come. So a failure is known exactly, and an ack to the second. Knows no log; what to commit is told here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from holdfast.broker.leases import Failure, Lease
from holdfast.broker.wire import decode
from holdfast.clock import NANOSECONDS, Clock
from holdfast.model.message import Message

# A message that is nacked in a circle must not fill the disk. Beyond so many attempts, only those are kept whose number
# is a power of two; the failed row knows the last one.
ATTEMPTS_KEPT = 100

# An error is a line for people; the dead letter has more of it.
LONGEST_TEXT = 300

# Marks by the second are kept for an hour, and those by the minute for as long as facts are.
SECONDS_KEPT = 3600

_DAY_NS = 86_400 * NANOSECONDS

# Replaces what an error quotes of a message and is not to be shown.
Hide = Callable[[Message, str], str]


class What(StrEnum):
    FAILED = "failed"  # and comes again
    DEAD_LETTERED = "dead_lettered"  # `other` is the copy
    DROPPED = "dropped"
    SENT_AGAIN = "sent_again"  # `other` is the new message, which says so of itself


class Fact(NamedTuple):
    """`message` and `other` are message numbers. `subscription_key` may be that of a topic, where the message was sent
    again to all of it."""

    message: int
    at_ns: int
    what: What
    subscription_key: int
    attempt: int = 0
    status: str = ""
    reason: str = ""
    error: str = ""
    other: int = 0


@dataclass(frozen=True, slots=True)
class Mark:
    """At this time every message of the topic below `below` was published, or settled by the subscription, whosever
    key it is. `is_first` is where it began: what lies below was never owed to that subscription."""

    key: int
    at_ns: int
    below: int
    is_first: bool = False


@dataclass(frozen=True, slots=True)
class Marked:
    """What marks tell of one sequence. `by_ns` is the first that had passed it, `after_ns` the last that had not."""

    after_ns: int | None
    by_ns: int | None
    before_first: bool


# Where a mark is kept: a later one with the same slot replaces it, and that bounds them.
FIRST_SLOT = -SECONDS_KEPT - 1


def slots_of(mark: Mark) -> Sequence[int]:
    """Below zero by the second, in a ring; above it by the minute."""
    if mark.is_first:
        return (FIRST_SLOT,)
    second = mark.at_ns // NANOSECONDS
    return -1 - second % SECONDS_KEPT, second // 60


def oldest_minute(forget_before_ns: int) -> int:
    return forget_before_ns // NANOSECONDS // 60


def is_kept(attempt: int) -> bool:
    return attempt <= ATTEMPTS_KEPT or attempt & (attempt - 1) == 0


class FactWriter:
    """Puts into words what happened to a delivery."""

    def __init__(self, clock: Clock, days: float, hide: Hide | None = None) -> None:
        self._clock = clock
        self._keep_ns = round(days * _DAY_NS)
        self._hide = hide

    @property
    def is_on(self) -> bool:
        return self._keep_ns > 0

    @property
    def forget_before_ns(self) -> int:
        return self._clock.now_ns() - self._keep_ns

    def ended(self, number: int, subscription_key: int, lease: Lease, failure: Failure, what: What) -> list[Fact]:
        """A delivery of message `number` failed. Perhaps it is not kept."""
        if not self.is_on or (what is What.FAILED and not is_kept(lease.attempt)):
            return []
        error = failure.error
        if error and self._hide is not None:
            error = self._hide(decode(lease.body), error)
        told = (failure.status, failure.reason[:LONGEST_TEXT], error[:LONGEST_TEXT])
        return [Fact(number, self._clock.now_ns(), what, subscription_key, lease.attempt, *told)]

    def sent_again(self, original: int, key: int, number: int) -> list[Fact]:
        return [Fact(original, self._clock.now_ns(), What.SENT_AGAIN, key, other=number)] if self.is_on else []

    def first_mark(self, key: int, below: int) -> list[Mark]:
        """Of a new topic or subscription."""
        return [Mark(key, self._clock.now_ns(), below, is_first=True)] if self.is_on else []
