"""How failures did: from counters by hour, and from single rows only where an hour is not whole."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from holdfast.deadletter.statistics import ReasonStatistics, Statistics
from holdfast.model.failed_message import FailureStatus
from holdfast.stores.desk.groups import HOUR_NS, hour_of
from holdfast.stores.desk.statements import Ask, Operation, portable

_BY_STATUS = portable("SELECT status, sum(count) FROM failure_counts GROUP BY status")

_BY_REASON = portable("""
    SELECT failure_reason, sum(count) FROM failure_counts
    GROUP BY failure_reason HAVING sum(count) > 0 ORDER BY failure_reason
""")

# Whole hours from the counters, and the rest of the first hour from its rows.
_COUNTS_SINCE = portable("""
    SELECT failure_reason, status, sum(count), sum(retries), sum(retried)
    FROM (
        SELECT failure_reason, status, count, retries, retried FROM failure_counts WHERE hour >= :next_hour
        UNION ALL
        SELECT failure_reason, status, count(*), sum(retry_count), sum(CASE WHEN retry_count > 0 THEN 1 ELSE 0 END)
        FROM failed_messages WHERE created_at >= ts(:since) AND created_at < ts(:next_hour)
        GROUP BY failure_reason, status
    ) AS counted
    GROUP BY failure_reason, status HAVING sum(count) > 0
""")

# The one or two in the middle of all recoveries, in nanoseconds.
_MIDDLE_RECOVERY = portable("""
    SELECT ns(retry_success_at) - ns(created_at) AS recovery FROM failed_messages
    WHERE created_at >= ts(:since) AND status IN ('retry_success', 'replayed') AND retry_success_at IS NOT NULL
    ORDER BY recovery LIMIT 2 - :recoveries % 2 OFFSET (:recoveries - 1) / 2
""")

_RECOVERIES = portable("""
    SELECT count(*) FROM failed_messages
    WHERE created_at >= ts(:since) AND status IN ('retry_success', 'replayed') AND retry_success_at IS NOT NULL
""")

_LONGEST_QUEUE = portable("SELECT coalesce(max(longest), 0) FROM retry_queue_peaks WHERE hour >= :hour")

_RECOVERED = (FailureStatus.RETRY_SUCCESS, FailureStatus.REPLAYED)


@dataclass(frozen=True, slots=True)
class _Count:
    reason: str
    status: FailureStatus
    count: int
    retries: int
    retried: int  # how many of them were retried at all


def count_by_status() -> Operation[Mapping[FailureStatus, int]]:
    rows = yield Ask(_BY_STATUS)
    return dict.fromkeys(FailureStatus, 0) | {FailureStatus(status): int(count) for status, count in rows}


def count_by_reason() -> Operation[Mapping[str, int]]:
    rows = yield Ask(_BY_REASON)
    return {reason: int(count) for reason, count in rows}


def statistics(since_ns: int) -> Operation[Statistics]:
    next_hour = since_ns if since_ns % HOUR_NS == 0 else hour_of(since_ns) + HOUR_NS
    rows = yield Ask(_COUNTS_SINCE, {"since": since_ns, "next_hour": next_hour})
    counts = [_Count(row[0], FailureStatus(row[1]), *map(int, row[2:])) for row in rows]
    median = yield from _median_recovery_seconds(since_ns)
    [(longest,)] = yield Ask(_LONGEST_QUEUE, {"hour": hour_of(since_ns)})
    succeeded = [count for count in counts if count.status is FailureStatus.RETRY_SUCCESS]
    return Statistics(
        by_status=_by_status(counts),
        by_reason=_by_reason(counts),
        retried=sum(count.retried for count in counts if count.status is not FailureStatus.QUEUED_FOR_RETRY),
        retry_succeeded=sum(count.retried for count in succeeded),
        retries_before_success=sum(count.retries for count in succeeded),
        median_recovery_seconds=median,
        largest_queue=int(longest),
    )


def _median_recovery_seconds(since_ns: int) -> Operation[float | None]:
    [(recoveries,)] = yield Ask(_RECOVERIES, {"since": since_ns})
    if not recoveries:
        return None
    middle = yield Ask(_MIDDLE_RECOVERY, {"since": since_ns, "recoveries": recoveries})
    return float(sum(recovery for (recovery,) in middle)) / len(middle) / 1e9


def _by_status(counts: Sequence[_Count]) -> Mapping[FailureStatus, int]:
    totals = dict.fromkeys(FailureStatus, 0)
    for count in counts:
        totals[count.status] += count.count
    return totals


def _by_reason(counts: Sequence[_Count]) -> Sequence[ReasonStatistics]:
    """The most frequent first."""
    of_reason: dict[str, list[_Count]] = defaultdict(list)
    for count in counts:
        of_reason[count.reason].append(count)
    statistics = [
        ReasonStatistics(
            reason=reason,
            count=sum(count.count for count in its),
            recovered=sum(count.count for count in its if count.status in _RECOVERED),
            retries=sum(count.retries for count in its),
        )
        for reason, its in of_reason.items()
    ]
    return sorted(statistics, key=lambda one: (-one.count, one.reason))
