"""What is erased by itself, when, and what never is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from holdfast.deadletter import retention
from holdfast.deadletter.audit import Action, AuditFilter, verify
from holdfast.deadletter.failures import Retention
from holdfast.deadletter.retention import CleanUp, Keep
from holdfast.deadletter.selection import Selection
from holdfast.errors import BadInput, StorageUnavailable
from holdfast.model.failed_message import FailureStatus
from holdfast.testing.contracts.failures import a_failure
from tests.support.desk_parts import Parts, memory_desk, rows_of, until

DAY = 24 * 3600.0
KEEP = Keep(30, 30, 2557)

QUEUED = FailureStatus.QUEUED_FOR_RETRY
PERMANENT = FailureStatus.PERMANENT_FAILURE
SUCCESS = FailureStatus.RETRY_SUCCESS
REPLAYED = FailureStatus.REPLAYED


@pytest.fixture
async def desk() -> AsyncIterator[Parts]:
    async with memory_desk() as parts:
        yield parts


def clean_up(desk: Parts, keep: Keep = KEEP) -> CleanUp:
    return CleanUp(desk.store, desk.clock, keep)


async def record(desk: Parts, **statuses: FailureStatus) -> None:
    now_ns = desk.clock.now_ns()
    rows = [a_failure(name, status=status, created_at_ns=now_ns) for name, status in statuses.items()]
    await desk.store.record(rows)


async def record_one_of_each(desk: Parts) -> None:
    await record(desk, queued=QUEUED, permanent=PERMANENT, success=SUCCESS, replayed=REPLAYED)


async def left(desk: Parts) -> list[str]:
    return [row.message_id for row in await rows_of(desk.store)]


async def actions(desk: Parts) -> list[Action]:
    return [entry.action for entry in (await desk.store.list_entries(AuditFilter(), 100)).entries]


async def test_each_kind_goes_after_its_time_and_not_before(desk: Parts) -> None:
    await record_one_of_each(desk)
    desk.clock.advance(30 * DAY - 1)
    assert await clean_up(desk).clean_up() == 0
    desk.clock.advance(2)
    assert await clean_up(desk).clean_up() == 2
    assert await left(desk) == ["queued", "permanent"]
    desk.clock.advance((2557 - 30) * DAY - 2)
    assert await clean_up(desk).clean_up() == 0
    desk.clock.advance(2)
    assert await clean_up(desk).clean_up() == 1
    assert await left(desk) == ["queued"]


async def test_its_time_begins_when_it_got_its_status(desk: Parts) -> None:
    await record(desk, late=PERMANENT)
    desk.clock.advance(29 * DAY)
    [row] = await rows_of(desk.store)
    await desk.store.save([row.mark_replayed(desk.clock.now_ns())])
    desk.clock.advance(2 * DAY)
    assert await clean_up(desk).clean_up() == 0
    desk.clock.advance(29 * DAY)
    assert await clean_up(desk).clean_up() == 1


async def test_each_kind_has_its_own_setting_and_0_keeps_it_for_ever(desk: Parts) -> None:
    await record_one_of_each(desk)
    desk.clock.advance(100 * 365 * DAY)
    assert await clean_up(desk, Keep(0, 0, 0)).clean_up() == 0
    assert await clean_up(desk, Keep(0, 1, 0)).clean_up() == 1
    assert await left(desk) == ["queued", "permanent", "success"]


async def test_legal_hold_stops_it(desk: Parts) -> None:
    await record_one_of_each(desk)
    held = Selection(statuses=[SUCCESS])
    await desk.store.hold(held, True, Action("ann", "failure.hold", "failures"))
    desk.clock.advance(10_000 * DAY)
    assert await clean_up(desk).clean_up() == 2
    assert await clean_up(desk).clean_up_now(0, "cli:ann") == 0
    assert await left(desk) == ["queued", "success"]
    await desk.store.hold(held, False, Action("ann", "failure.hold", "failures"))
    desk.clock.advance(31 * DAY)
    assert await clean_up(desk).clean_up() == 1


async def test_now_means_what_ended_and_never_what_failed_for_good(desk: Parts) -> None:
    await record_one_of_each(desk)
    desk.clock.advance(8 * DAY)
    assert await clean_up(desk).clean_up_now(9, "cli:ann") == 0
    assert await clean_up(desk).clean_up_now(7, "cli:ann") == 2
    assert await left(desk) == ["queued", "permanent"]


@pytest.mark.parametrize("days", [-1, 36_501, float("nan"), float("inf")])
async def test_days_that_make_no_sense_are_refused(desk: Parts, days: float) -> None:
    with pytest.raises(BadInput, match="days: must be from 0 to 36500"):
        await clean_up(desk).clean_up_now(days, "cli:ann")


async def test_a_run_that_erased_something_is_in_the_audit_trail(desk: Parts) -> None:
    await record_one_of_each(desk)
    await clean_up(desk).clean_up()
    assert await actions(desk) == []
    desk.clock.advance(31 * DAY)
    await clean_up(desk).clean_up()
    [action] = await actions(desk)
    assert (action.actor, action.name, action.details["count"]) == ("holdfast:retention", "failure.clean_up", 2)
    assert set(action.details["before"]) == {"retry_success", "replayed", "permanent_failure"}
    assert (await verify(desk.store.read_entries())).problem == ""


async def test_a_large_one_goes_in_steps(desk: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "STEP", 10)
    await desk.store.record([a_failure(f"m{number}", status=SUCCESS) for number in range(35)])
    desk.clock.advance(31 * DAY)
    assert await clean_up(desk).clean_up() == 35
    assert [action.details["count"] for action in await actions(desk)] == [5, 10, 10, 10]


async def test_it_runs_every_hour(desk: Parts) -> None:
    await record(desk, first=SUCCESS)
    desk.clock.advance(31 * DAY)
    running = asyncio.create_task(clean_up(desk).run())
    await settled(desk, [])
    await record(desk, second=SUCCESS)
    for _ in range(31 * 24 + 1):
        desk.clock.advance(3600)
        await asyncio.sleep(0)
    await settled(desk, [])
    running.cancel()


async def settled(desk: Parts, wanted: list[str]) -> None:
    async with asyncio.timeout(20):
        while await left(desk) != wanted:
            desk.clock.advance(60)
            await asyncio.sleep(0.002)


async def test_trouble_of_the_store_ends_nothing(desk: Parts, caplog: pytest.LogCaptureFixture) -> None:
    store = Troubled()
    running = asyncio.create_task(CleanUp(store, desk.clock, KEEP).run())  # type: ignore[arg-type]
    for calls in (1, 2, 3):
        await until(lambda calls=calls: store.calls >= calls)  # type: ignore[misc]
        await asyncio.sleep(0.005)
        desk.clock.advance(3600)
    running.cancel()
    assert caplog.text.count("cannot clean up old failures now") == 2


class Troubled:
    """The part of a failure store that is asked; it has two bad moments."""

    def __init__(self) -> None:
        self.calls = 0
        self._troubles: list[Exception] = [StorageUnavailable("locked"), ValueError("a bug")]

    async def clean_up(self, bounds: Retention, action: Action, limit: int) -> int:
        self.calls += 1
        if self._troubles:
            raise self._troubles.pop()
        return 0
