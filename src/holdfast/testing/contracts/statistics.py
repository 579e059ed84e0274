"""What every store counts. Subclass StatisticsContract with a `store` fixture."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from holdfast.deadletter.groups import GroupFilter, GroupState
from holdfast.deadletter.selection import Selection
from holdfast.deadletter.statistics import ReasonStatistics
from holdfast.deadletter.store import DeskStore
from holdfast.model.failed_message import FailureStatus
from holdfast.testing.contracts.changes import an_action, recorded
from holdfast.testing.contracts.failures import BILLING, ORDERS, a_failure, all_rows

QUEUED, PERMANENT, REPLAYED, SUCCESS = (
    FailureStatus.QUEUED_FOR_RETRY,
    FailureStatus.PERMANENT_FAILURE,
    FailureStatus.REPLAYED,
    FailureStatus.RETRY_SUCCESS,
)

SECOND = 1_000_000_000
HOUR = 3600 * SECOND


async def check_totals(store: DeskStore) -> None:
    """Against all rows."""
    rows, groups = await all_rows(store), (await store.list_groups(GroupFilter(), 100)).groups
    closed = {group.fingerprint for group in groups if group.state in (GroupState.ACKNOWLEDGED, GroupState.RESOLVED)}
    in_nobodys_hands = Counter(
        row.subscription
        for row in rows
        if row.status is QUEUED or (row.status is PERMANENT and row.fingerprint not in closed)
    )
    totals = await store.totals(0)
    assert totals.by_status == dict.fromkeys(FailureStatus, 0) | Counter(row.status for row in rows)
    assert {name: count for name, count in totals.open.items() if count} == in_nobodys_hands
    states = Counter(group.state.value for group in groups)
    assert {state: count for state, count in totals.groups.items() if count} == states


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

    async def test_totals_follow_whatever_happens(self, store: DeskStore) -> None:
        chance = random.Random(11)
        recorded_by = Counter[str]()
        permanent = settled = 0
        for number in range(100):
            subscription, status = chance.choice([ORDERS, BILLING]), chance.choice([QUEUED, PERMANENT])
            changes = {"failure_reason": chance.choice("AB"), "fingerprint": f"{subscription} {number % 3}"}
            await recorded(store, str(number), subscription=subscription, status=status, **changes)
            recorded_by[subscription] += 1
            permanent += status is PERMANENT
            if number % 4 == 0:
                row = chance.choice(await all_rows(store))
                if row.status is PERMANENT:
                    settled += (await store.save([row.mark_replayed(9 * HOUR)])) == [True]
            if number % 5 == 0:
                group = await store.get_group(f"{chance.choice([ORDERS, BILLING])} {number % 3}")
                if group is not None:
                    state = chance.choice([GroupState.ACKNOWLEDGED, GroupState.RESOLVED, GroupState.OPEN])
                    assert await store.save_group(replace(group, state=state), an_action())
            if number % 25 == 24:
                ids = [row.id for row in (await all_rows(store))[::7]]
                await store.erase(Selection(ids=ids), an_action())
            await check_totals(store)
        totals = await store.totals(0)
        assert (totals.recorded, totals.permanent) == (recorded_by, permanent)
        assert sum(totals.recorded_by_reason.values()) == 100
        assert sum(totals.settled.values()) == settled > 0
        assert sum(totals.groups.values()) == 6

    async def test_totals_of_many_rows_in_one_call(self, store: DeskStore) -> None:
        statuses = [QUEUED, PERMANENT, SUCCESS, REPLAYED]
        await store.record([a_failure(str(n), fingerprint=f"f{n % 5}", status=statuses[n % 4]) for n in range(40)])
        await check_totals(store)
        rows = await all_rows(store)
        await store.save([row.mark_replayed(HOUR) for row in rows if row.status is PERMANENT])
        await check_totals(store)
        totals = await store.totals(0)
        assert (totals.recorded, totals.settled, totals.permanent) == ({ORDERS: 40}, {ORDERS: 10}, 10)

    async def test_reasons_and_subscriptions_of_totals_are_bounded_and_keep_their_names(self, store: DeskStore) -> None:
        first = [a_failure(f"a{n}", failure_reason=f"z{n:04}", subscription=f"s{n:05}") for n in range(90)]
        await store.record(first)
        more = [a_failure(f"b{n}", failure_reason=f"a{n:04}", subscription=f"s{n:05}") for n in range(1100)]
        await store.record(more)
        await store.record([a_failure("c", failure_reason="z0003", subscription="s00003")])
        totals = await store.totals(0)
        assert len(totals.recorded_by_reason) == 101
        assert (totals.recorded_by_reason["z0003"], totals.recorded_by_reason["other"]) == (2, 1090)
        assert (len(totals.recorded), totals.recorded["s00003"], totals.recorded["other"]) == (1001, 3, 100)
        assert (len(totals.open), totals.open["other"]) == (1001, 100)
        rows = [row for row in await all_rows(store) if row.subscription == "s01099"]
        await store.save([row.mark_replayed(HOUR) for row in rows])
        totals = await store.totals(0)
        assert (totals.open["other"], totals.settled) == (99, {"s01099": 1})

    async def test_totals_of_an_empty_store(self, store: DeskStore) -> None:
        totals = await store.totals(0)
        assert totals.by_status == dict.fromkeys(FailureStatus, 0)
        assert (totals.recorded, totals.open, totals.permanent, totals.retried) == ({}, {}, 0, 0)
        assert totals.groups == dict.fromkeys(["open", "acknowledged", "resolved", "reopened"], 0)
        assert set(totals.replays.values()) == {0}

    async def test_totals_know_how_retries_ended(self, store: DeskStore) -> None:
        await store.record(
            [
                a_failure("1", status=SUCCESS, retry_count=3, retry_success_at_ns=HOUR, created_at_ns=HOUR),
                a_failure("2", status=PERMANENT, retry_count=1, created_at_ns=HOUR),
                a_failure("3", status=QUEUED, retry_count=1, created_at_ns=HOUR),
                a_failure("old", status=SUCCESS, retry_count=9, retry_success_at_ns=HOUR, created_at_ns=0),
            ]
        )
        totals = await store.totals(HOUR + SECOND)
        assert (totals.retried, totals.retry_succeeded, totals.retries_before_success) == (2, 1, 3)

    async def test_a_group_that_returns_is_open_again(self, store: DeskStore) -> None:
        await recorded(store, "1", fingerprint="f")
        assert (await store.totals(0)).open == {ORDERS: 1}
        group = await store.get_group("f")
        assert group is not None
        assert await store.save_group(replace(group, state=GroupState.RESOLVED), an_action())
        assert (await store.totals(0)).open == {ORDERS: 0}
        await recorded(store, "2", fingerprint="f")
        totals = await store.totals(0)
        assert (totals.open, totals.groups["reopened"]) == ({ORDERS: 2}, 1)

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
