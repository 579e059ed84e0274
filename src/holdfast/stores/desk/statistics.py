"""How failures did: from counters by hour, and from single rows only where an hour is not whole."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from holdfast.deadletter.groups import GroupState
from holdfast.deadletter.replay.jobs import JobState
from holdfast.deadletter.statistics import ReasonStatistics, Statistics, Totals
from holdfast.model.failed_message import FailureStatus
from holdfast.stores.desk.groups import HOUR_NS, hour_of
from holdfast.stores.desk.statements import Ask, Operation, Sql, portable

_BY_STATUS = portable("SELECT status, sum(count) FROM failure_counts GROUP BY status")

_BY_REASON = portable("""
    SELECT failure_reason, status, sum(count) FROM failure_counts
    GROUP BY failure_reason, status HAVING sum(count) > 0 ORDER BY failure_reason
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

# From recording to recovery: how many there are, and one of them in order.
_RECOVERED_SINCE = """
    FROM failed_messages
    WHERE created_at >= ts(:since) AND status IN ('retry_success', 'replayed') AND retry_success_at IS NOT NULL
"""
_RECOVERIES = portable("SELECT count(*)" + _RECOVERED_SINCE)
_RECOVERY = portable(
    "SELECT ns(retry_success_at) - ns(created_at) AS length" + _RECOVERED_SINCE + "ORDER BY length LIMIT 1 OFFSET :rank"
)

# From the failed delivery to its record.
_DETECTED_SINCE = "FROM failed_messages WHERE created_at >= ts(:since) AND failed_at IS NOT NULL "
_DETECTIONS = portable("SELECT count(*) " + _DETECTED_SINCE)
_DETECTION = portable(
    "SELECT ns(created_at) - ns(failed_at) AS length " + _DETECTED_SINCE + "ORDER BY length LIMIT 1 OFFSET :rank"
)

_LOST = portable("SELECT coalesce(sum(count), 0) FROM failure_losses WHERE hour >= :hour")

_LONGEST_QUEUE = portable("SELECT coalesce(max(longest), 0) FROM retry_queue_peaks WHERE hour >= :hour")

_TOTALS = portable("SELECT what, name, count FROM failure_totals")

_RETRIES_SINCE = portable("""
    SELECT status, sum(retries), sum(retried) FROM failure_counts WHERE hour >= :hour GROUP BY status
""")

_JOBS = portable("SELECT state, count(*) FROM replay_jobs GROUP BY state")

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


def count_by_reason() -> Operation[Mapping[str, Mapping[FailureStatus, int]]]:
    rows = yield Ask(_BY_REASON)
    counts: dict[str, dict[FailureStatus, int]] = {}
    for reason, status, count in rows:
        counts.setdefault(reason, {})[FailureStatus(status)] = int(count)
    return counts


def lost(since_ns: int) -> Operation[int]:
    [(count,)] = yield Ask(_LOST, {"hour": hour_of(since_ns)})
    return int(count)


def statistics(since_ns: int) -> Operation[Statistics]:
    next_hour = since_ns if since_ns % HOUR_NS == 0 else hour_of(since_ns) + HOUR_NS
    rows = yield Ask(_COUNTS_SINCE, {"since": since_ns, "next_hour": next_hour})
    counts = [_Count(row[0], FailureStatus(row[1]), *map(int, row[2:])) for row in rows]
    recoveries = yield from _quantiles(_RECOVERIES, _RECOVERY, since_ns, 0.5)
    detections = yield from _quantiles(_DETECTIONS, _DETECTION, since_ns, 0.5, 0.95)
    [(longest,)] = yield Ask(_LONGEST_QUEUE, {"hour": hour_of(since_ns)})
    succeeded = [count for count in counts if count.status is FailureStatus.RETRY_SUCCESS]
    return Statistics(
        by_status=_by_status(counts),
        by_reason=_by_reason(counts),
        retried=sum(count.retried for count in counts if count.status is not FailureStatus.QUEUED_FOR_RETRY),
        retry_succeeded=sum(count.retried for count in succeeded),
        retries_before_success=sum(count.retries for count in succeeded),
        median_recovery_seconds=recoveries[0],
        median_detection_seconds=detections[0],
        p95_detection_seconds=detections[1],
        largest_queue=int(longest),
    )


def totals(since_ns: int) -> Operation[Totals]:
    rows = yield Ask(_TOTALS)
    of: dict[str, dict[str, int]] = defaultdict(dict)
    for what, name, count in rows:
        of[what][name] = max(int(count), 0)
    rows = yield Ask(_RETRIES_SINCE, {"hour": hour_of(since_ns)})
    retries = {status: (int(before), int(retried)) for status, before, retried in rows}
    retries_before_success, succeeded = retries.get(FailureStatus.RETRY_SUCCESS, (0, 0))
    jobs = yield Ask(_JOBS)
    return Totals(
        recorded_by_reason=of["reason"],
        recorded=of["recorded"],
        settled=of["settled"],
        permanent=of["permanent"].get("", 0),
        by_status={status: of["status"].get(status, 0) for status in FailureStatus},
        open=of["open"],
        groups={state.value: of["group"].get(state, 0) for state in GroupState},
        replays={state.value: 0 for state in JobState} | {state: int(count) for state, count in jobs},
        retried=sum(retried for status, (_, retried) in retries.items() if status != FailureStatus.QUEUED_FOR_RETRY),
        retry_succeeded=succeeded,
        retries_before_success=retries_before_success,
    )


def _quantiles(how_many: Sql, one: Sql, since_ns: int, *shares: float) -> Operation[Sequence[float | None]]:
    """In seconds: the least value that is not below this share of all."""
    [(number,)] = yield Ask(how_many, {"since": since_ns})
    if not number:
        return [None] * len(shares)
    found: list[float | None] = []
    for share in shares:
        [(length,)] = yield Ask(one, {"since": since_ns, "rank": math.ceil(share * number) - 1})
        found.append(length / 1e9)
    return found


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
