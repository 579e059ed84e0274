"""What every store counts. Subclass StatisticsContract with a `store` fixture."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from holdfast.deadletter.selection import Selection
from holdfast.deadletter.statistics import ReasonStatistics
from holdfast.deadletter.store import DeskStore
from holdfast.model.failed_message import FailureStatus
from holdfast.testing.contracts.changes import an_action, recorded
from holdfast.testing.contracts.failures import a_failure, all_rows

QUEUED, PERMANENT, REPLAYED, SUCCESS = (
    FailureStatus.QUEUED_FOR_RETRY,
    FailureStatus.PERMANENT_FAILURE,
    FailureStatus.REPLAYED,
    FailureStatus.RETRY_SUCCESS,
)

SECOND = 1_000_000_000
HOUR = 3600 * SECOND


class StatisticsContract:
    async def test_an_empty_store(self, store: DeskStore) -> None:
        assert await store.count_by_status() == dict.fromkeys(FailureStatus, 0)
        assert await store.count_by_reason() == {}
        statistics = await store.statistics(0)
        assert (statistics.by_reason, statistics.retried, statistics.largest_queue) == ([], 0, 0)
        assert statistics.median_recovery_seconds is None
        assert statistics.p95_detection_seconds is None
        assert await store.lost(0) == 0

    async def test_counters_follow_whatever_happens(self, store: DeskStore) -> None:
        chance = random.Random(7)
        for number in range(120):
            await recorded(
                store,
                str(number),
                failure_reason=chance.choice("AB"),
                status=chance.choice([QUEUED, PERMANENT]),
                created_at_ns=chance.randrange(5) * HOUR,
                retry_count=chance.randrange(3),
            )
        for row in (await all_rows(store))[::2]:
            await store.save([chance.choice([row.mark_replayed(9 * HOUR), row.schedule_retry(9 * HOUR, "no")])])
        await store.erase(Selection(ids=[row.id for row in (await all_rows(store))[::5]]), an_action())

        rows = await all_rows(store)
        by_status = Counter(row.status for row in rows)
        assert await store.count_by_status() == dict.fromkeys(FailureStatus, 0) | by_status
        by_reason = {
            reason: dict(Counter(row.status for row in rows if row.failure_reason == reason)) for reason in "AB"
        }
        assert await store.count_by_reason() == by_reason
        for since in (0, HOUR, HOUR + SECOND, 4 * HOUR, 5 * HOUR):
            wanted = [row for row in rows if row.created_at_ns >= since]
            statistics = await store.statistics(since)
            assert statistics.by_status == dict.fromkeys(FailureStatus, 0) | Counter(row.status for row in wanted)
            assert sum(one.retries for one in statistics.by_reason) == sum(row.retry_count for row in wanted)

    async def test_retries_that_ended(self, store: DeskStore) -> None:
        await store.record(
            [
                a_failure("1", status=SUCCESS, retry_count=1, retry_success_at_ns=SECOND),
                a_failure("2", status=SUCCESS, retry_count=3, retry_success_at_ns=SECOND),
                a_failure("3", status=SUCCESS, retry_success_at_ns=SECOND),  # there was nothing to retry
                a_failure("4", status=PERMANENT, retry_count=3),
                a_failure("5", status=QUEUED, retry_count=1),
                a_failure("6", status=PERMANENT, failure_reason="B"),
            ]
        )
        statistics = await store.statistics(0)
        assert (statistics.retried, statistics.retry_succeeded, statistics.retries_before_success) == (3, 2, 4)
        assert statistics.by_reason == [
            ReasonStatistics("SCHEMA_VALIDATION_ERROR", count=5, recovered=3, retries=8),
            ReasonStatistics("B", count=1, recovered=0, retries=0),
        ]

    @pytest.mark.parametrize(("seconds", "median"), [([5], 5.0), ([9, 1, 5], 5.0), ([1, 2, 3, 100], 2.0)])
    async def test_median_time_to_recovery(self, store: DeskStore, seconds: list[int], median: float) -> None:
        for number, length in enumerate(seconds):
            status = REPLAYED if number % 2 else SUCCESS
            at_ns = HOUR + length * SECOND
            await recorded(store, str(number), status=status, created_at_ns=HOUR, retry_success_at_ns=at_ns)
        await recorded(store, "waits", created_at_ns=HOUR)
        await recorded(store, "before", status=REPLAYED, created_at_ns=0, retry_success_at_ns=HOUR)
        assert (await store.statistics(HOUR)).median_recovery_seconds == median

    async def test_time_to_detection(self, store: DeskStore) -> None:
        await store.record(
            [
                a_failure(str(n), created_at_ns=HOUR, failed_at_ns=HOUR - n * SECOND if n else 0)
                for n in range(101)  # of the first one it is not known
            ]
        )
        statistics = await store.statistics(0)
        assert (statistics.median_detection_seconds, statistics.p95_detection_seconds) == (50.0, 95.0)

    async def test_the_longest_queue(self, store: DeskStore) -> None:
        for number in range(3):
            await recorded(store, str(number), status=QUEUED, created_at_ns=HOUR)
        rows = await all_rows(store)
        await store.save([row.mark_retry_success(2 * HOUR) for row in rows])
        await recorded(store, "later", status=QUEUED, created_at_ns=3 * HOUR)
        assert (await store.statistics(0)).largest_queue == 3
        assert (await store.statistics(2 * HOUR)).largest_queue == 1

    async def test_lost_is_what_was_erased_before_anything_came_of_it(self, store: DeskStore) -> None:
        for status in FailureStatus:
            await recorded(store, status, status=status)
        await store.erase(Selection(), an_action())
        assert await store.lost(0) == 2
        assert await store.lost(2**62) == 0
