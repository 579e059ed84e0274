"""PORT and nouns: how failures did over a time, as source of `holdfast failures stats`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from holdfast.model.failed_message import FailureStatus


@dataclass(frozen=True, slots=True)
class ReasonStatistics:
    """`recovered` are those that ended as retry_success or replayed. `retries` is the sum of their retry counts."""

    reason: str
    count: int
    recovered: int
    retries: int


@dataclass(frozen=True, slots=True)
class Statistics:
    """Of failures recorded since a time. `median_recovery_seconds` is from recording to recovery; None when nothing
    recovered. Detection is from the failed delivery to its record, where the first is known: half were recorded within
    `median_detection_seconds`, 95 of 100 within `p95_detection_seconds`. `retried` and `retry_succeeded` are of
    automatic retries that ended."""

    by_status: Mapping[FailureStatus, int]
    by_reason: Sequence[ReasonStatistics]
    retried: int
    retry_succeeded: int
    retries_before_success: int
    median_recovery_seconds: float | None
    median_detection_seconds: float | None
    p95_detection_seconds: float | None
    largest_queue: int


@dataclass(frozen=True, slots=True)
class Totals:
    """What metrics tell. Of reasons and subscriptions only so many have a number of their own; the others are counted
    together as "other". The first four only ever rise, whatever is erased; the next three are of now. `retried` and the
    two behind it are of the failures since a time, as in Statistics."""

    recorded_by_reason: Mapping[str, int]
    recorded: Mapping[str, int]  # by subscription, as are `settled` and `open`
    settled: Mapping[str, int]
    permanent: int
    by_status: Mapping[FailureStatus, int]
    open: Mapping[str, int]  # in nobody's hands
    groups: Mapping[str, int]  # by state
    replays: Mapping[str, int]  # by state
    retried: int
    retry_succeeded: int
    retries_before_success: int


# Whoever publishes to a dead-letter topic may write any reason: an answer must not grow with what they think of.
MOST_REASONS = 100
OTHER_REASONS = "(other reasons)"


def bounded_reasons(reasons: Sequence[ReasonStatistics]) -> Sequence[ReasonStatistics]:
    """The first ones, and all others as one."""
    kept, others = reasons[:MOST_REASONS], reasons[MOST_REASONS:]
    if not others:
        return kept
    together = ReasonStatistics(
        OTHER_REASONS,
        count=sum(one.count for one in others),
        recovered=sum(one.recovered for one in others),
        retries=sum(one.retries for one in others),
    )
    return [*kept, together]


def bounded_counts(
    counts: Mapping[str, Mapping[FailureStatus, int]],
) -> Mapping[str, Mapping[FailureStatus, int]]:
    """Those of the most frequent reasons, and all others as one."""
    frequent_first = sorted(counts, key=lambda reason: (-sum(counts[reason].values()), reason))
    kept = {reason: counts[reason] for reason in frequent_first[:MOST_REASONS]}
    others = [counts[reason] for reason in frequent_first[MOST_REASONS:]]
    if not others:
        return kept
    return kept | {OTHER_REASONS: {status: sum(one.get(status, 0) for one in others) for status in FailureStatus}}


class StatisticsStore(Protocol):
    async def count_by_status(self) -> Mapping[FailureStatus, int]:
        """Of all that is stored, every status named; from counters, whatever their number."""
        ...

    async def count_by_reason(self) -> Mapping[str, Mapping[FailureStatus, int]]:
        """The same for each reason; statuses that it does not have may be left out."""
        ...

    async def statistics(self, since_ns: int) -> Statistics: ...

    async def totals(self, since_ns: int) -> Totals:
        """`since_ns` to the hour, for what has a time. As quick with a million failures as with ten."""
        ...

    async def lost(self, since_ns: int) -> int:
        """How many were erased since then, to the hour, although no retry had succeeded and nobody had replayed them:
        by a person, by retention, or by people's own SQL."""
        ...
