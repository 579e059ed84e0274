"""Push delivery as metrics. The number of series is bounded, however many subscriptions there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from holdfast.broker.push.status import LATENCY_BOUNDS, PushStatus
from holdfast.clock import NANOSECONDS
from holdfast.metrics import push
from holdfast.metrics.bounded import OTHER, bounded
from holdfast.metrics.metric import Family, Histogram, Sample


def push_metrics(found: Sequence[PushStatus], now_ns: int) -> list[Family]:
    rows = [row for _, row in bounded({row.subscription: row for row in found}, _together)]
    return [
        Family(push.ATTEMPTS, [sample for row in rows for sample in _attempts(row)]),
        Family(push.LATENCY, [Sample((row.subscription,), _latency(row)) for row in rows]),
        Family(push.IN_FLIGHT, [Sample((row.subscription,), row.in_flight) for row in rows]),
        Family(push.WINDOW, [Sample((row.subscription,), row.window) for row in rows]),
        Family(push.DUE, [Sample((row.subscription,), row.due) for row in rows]),
        Family(push.OLDEST_DUE, [sample for row in rows for sample in _oldest_due(row, now_ns)]),
        Family(push.WAITING, [Sample((row.subscription,), row.waiting) for row in rows]),
        Family(push.DROPPED, [Sample((row.subscription,), row.dropped) for row in rows]),
    ]


def _attempts(row: PushStatus) -> list[Sample]:
    return [Sample((row.subscription, result), count) for result, count in sorted(row.attempts.items())]


def _latency(row: PushStatus) -> Histogram:
    return Histogram(LATENCY_BOUNDS, row.latency_buckets, row.latency_seconds)


def _oldest_due(row: PushStatus, now_ns: int) -> list[Sample]:
    """None where messages are due and it is not known since when: a 0 would say that all is well."""
    if row.oldest_due_ns is not None:
        return [Sample((row.subscription,), max(now_ns - row.oldest_due_ns, 0) / NANOSECONDS)]
    return [] if row.due else [Sample((row.subscription,), 0)]


def _together(rows: Sequence[PushStatus]) -> PushStatus:
    attempts: Counter[str] = Counter()
    for row in rows:
        attempts.update(row.attempts)
    return PushStatus(
        subscription=OTHER,
        endpoint="",
        state="",
        window=sum(row.window for row in rows),
        in_flight=sum(row.in_flight for row in rows),
        due=sum(row.due for row in rows),
        oldest_due_ns=min((row.oldest_due_ns for row in rows if row.oldest_due_ns is not None), default=None),
        waiting=sum(row.waiting for row in rows),
        next_due_ns=None,
        last_status="",
        last_error="",
        last_attempt_ns=None,
        dropped=sum(row.dropped for row in rows),
        attempts=attempts,
        latency_buckets=[sum(counts) for counts in zip(*(row.latency_buckets for row in rows), strict=True)],
        latency_seconds=sum(row.latency_seconds for row in rows),
    )
