"""What comes in becomes a row, or moves one on, exactly once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from holdfast.clock import NANOSECONDS
from holdfast.deadletter.audit import Action
from holdfast.deadletter.dead_letter import Arrival
from holdfast.deadletter.failures import Edit
from holdfast.deadletter.fingerprints import fingerprint
from holdfast.deadletter.lineage import Lineage, LineageSigner
from holdfast.deadletter.selection import Selection
from holdfast.model.failed_message import (
    Content,
    FailedMessage,
    FailureClass,
    FailureStatus,
    Revision,
)
from holdfast.testing.contracts.failures import a_failure
from tests.support.desk_parts import Parts, memory_desk, rows_of

QUEUED = FailureStatus.QUEUED_FOR_RETRY
PERMANENT = FailureStatus.PERMANENT_FAILURE
SUCCESS = FailureStatus.RETRY_SUCCESS
REPLAYED = FailureStatus.REPLAYED

DOWN = "DATABASE_CONNECTION_ERROR"


@pytest.fixture
async def desk() -> AsyncIterator[Parts]:
    async with memory_desk() as parts:
        yield parts


def failing(message_id: str, error: str = "down", reason: str = DOWN) -> FailedMessage:
    return a_failure(message_id, failure_reason=reason, error_details=error)


async def recorded(desk: Parts, failure: FailedMessage | None = None) -> FailedMessage:
    await desk.intake().record([Arrival(failure or failing("m0"))])
    return (await rows_of(desk.store))[-1]


async def sent(desk: Parts, row: FailedMessage, message_id: str) -> tuple[FailedMessage, str]:
    """As a retry: the row, and the REPLAY_ID of what went out."""
    replay_id = desk.sending.replay_id(row)
    assert await desk.store.save([row.mark_sent(desk.clock.now_ns(), message_id)]) == [True]
    return await current(desk, row), replay_id


async def current(desk: Parts, row: FailedMessage) -> FailedMessage:
    found = await desk.store.get(row.id)
    assert found is not None
    return found


def back(replay_id: str, message_id: str, error: str = "still down") -> Arrival:
    """The dead letter of what was sent again."""
    return Arrival(failing(message_id, error), replay_id, message_id)


def retry_in(row: FailedMessage, desk: Parts) -> float | None:
    return None if row.retry_at_ns is None else (row.retry_at_ns - desk.clock.now_ns()) / NANOSECONDS


# What is new.


async def test_a_new_failure_has_its_class_its_group_and_its_first_retry(desk: Parts) -> None:
    row = await recorded(desk)
    assert (row.status, row.failure_class, row.retry_count) == (QUEUED, FailureClass.TRANSIENT, 0)
    assert row.fingerprint == fingerprint(failing("m0"))
    assert retry_in(row, desk) == 5


async def test_poison_waits_for_a_person(desk: Parts) -> None:
    row = await recorded(desk, failing("m0", reason="DECODE_ERROR"))
    assert (row.status, row.failure_class, row.retry_at_ns) == (PERMANENT, FailureClass.POISON, None)


async def test_recording_twice_changes_nothing(desk: Parts) -> None:
    row = await recorded(desk)
    desk.clock.advance(3)
    assert await recorded(desk) == row
    assert len(await rows_of(desk.store)) == 1


async def test_5000_failures_from_4_causes_give_4_groups(desk: Parts) -> None:
    causes = ["order {} has no price", "order {} has no address", "cannot reach 10.0.0.{}", "value '{}' is no number"]
    arrivals = [Arrival(failing(f"m{number}", causes[number % 4].format(number % 250))) for number in range(5000)]
    for start in range(0, 5000, 500):
        await desk.intake().record(arrivals[start : start + 500])
    assert len({row.fingerprint for row in await rows_of(desk.store)}) == 4


async def test_who_waits_for_something_to_retry_is_told(desk: Parts) -> None:
    told: list[str] = []
    intake = desk.intake(lambda: told.append("queued"))
    await intake.record([Arrival(failing("m0", reason="DECODE_ERROR"))])
    assert told == []
    await intake.record([Arrival(failing("m1"))])
    assert told == ["queued"]


# What the desk has sent again.


async def test_a_retry_that_failed_moves_its_row_on(desk: Parts) -> None:
    row, replay_id = await sent(desk, await recorded(desk), "m1")
    await desk.intake().record([back(replay_id, "m1")])
    [row] = await rows_of(desk.store)
    assert (row.status, row.retry_count, row.error_details) == (QUEUED, 1, "still down")
    assert (row.is_out, retry_in(row, desk)) == (False, 10)
    assert row.message_id == "m0"  # the original stays what it was


async def test_the_dead_letter_of_one_retry_counts_once_however_often_it_comes(desk: Parts) -> None:
    _, replay_id = await sent(desk, await recorded(desk), "m1")
    arrival = back(replay_id, "m1")
    await desk.intake().record([arrival, arrival, arrival])
    before = await rows_of(desk.store)
    desk.clock.advance(1)
    await desk.intake().record([arrival])
    await asyncio.gather(*(desk.intake().record([arrival]) for _ in range(10)))
    assert await rows_of(desk.store) == before
    assert [row.retry_count for row in before] == [1]


async def test_two_desks_with_the_same_dead_letter_move_the_row_once(desk: Parts) -> None:
    row, replay_id = await sent(desk, await recorded(desk), "m1")
    await asyncio.gather(*(desk.intake().record([back(replay_id, "m1")]) for _ in range(10)))
    [row] = await rows_of(desk.store)
    assert (row.retry_count, retry_in(row, desk)) == (1, 10)


async def test_after_the_third_retry_it_has_failed_for_good(desk: Parts, caplog: pytest.LogCaptureFixture) -> None:
    row = await recorded(desk)
    delays = []
    for number in range(1, 4):
        delays.append(retry_in(row, desk))
        row, replay_id = await sent(desk, row, f"m{number}")
        await desk.intake().record([back(replay_id, f"m{number}", f"down {number}")])
        row = await current(desk, row)
    assert delays == [5, 10, 20]
    assert (row.status, row.retry_count, row.retry_at_ns, row.error_details) == (PERMANENT, 3, None, "down 3")
    [line] = [record for record in caplog.records if record.levelno == logging.CRITICAL]
    assert line.getMessage() == "a message failed for good"
    assert line.__dict__["fields"] == {
        "failure": row.id,
        "messageId": "m0",
        "subscription": row.subscription,
        "topic": row.source_topic,
        "failure_reason": DOWN,
        "failure_class": "transient",
        "group": row.fingerprint,
        "retries": 3,
    }


async def test_poison_is_no_alert(desk: Parts, caplog: pytest.LogCaptureFixture) -> None:
    await recorded(desk, failing("m0", reason="DECODE_ERROR"))
    assert not [record for record in caplog.records if record.levelno >= logging.CRITICAL]


async def test_a_dead_letter_that_is_faster_than_the_note_that_it_was_sent(desk: Parts) -> None:
    row = await recorded(desk)
    await desk.intake().record([back(desk.sending.replay_id(row), "m1")])
    moved = await current(desk, row)
    assert (moved.status, moved.retry_count, moved.sent_message_id) == (QUEUED, 1, "m1")
    assert retry_in(moved, desk) == 10
    assert await desk.store.save([row.mark_sent(desk.clock.now_ns(), "m1")]) == [False]


async def test_an_edit_that_failed_moves_its_row_on(desk: Parts) -> None:
    row = await recorded(desk)
    edit = Revision(row.id, 1, Content(b"fixed"), "ann")
    assert await desk.store.revise([Edit(row.revise(), edit, Action("ann", "failure.edit", "1"))]) == [True]
    row, replay_id = await sent(desk, await current(desk, row), "m1")
    arrival = Arrival(replace(failing("m1"), data=b"fixed"), replay_id, "m1")
    await desk.intake().record([arrival])
    assert (await current(desk, row)).retry_count == 1
    assert len(await rows_of(desk.store)) == 1


async def test_the_failure_of_a_replay_is_a_new_row(desk: Parts) -> None:
    row = await recorded(desk)
    replay_id = desk.sending.replay_id(row)
    await desk.store.save([row.mark_replayed(desk.clock.now_ns(), 7, "m1")])
    for _ in range(2):
        await desk.intake().record([back(replay_id, "m1")])
    original, again = await rows_of(desk.store)
    assert original.status is REPLAYED
    assert (again.message_id, again.generation, again.origin_id, again.status) == ("m1", 1, row.id, QUEUED)

    replay_id = desk.sending.replay_id(again)
    await desk.store.save([again.mark_replayed(desk.clock.now_ns(), 8, "m2")])
    await desk.intake().record([back(replay_id, "m2")])
    third = (await rows_of(desk.store))[-1]
    assert (third.generation, third.origin_id) == (2, row.id)


async def test_a_replay_may_fail_before_anybody_could_note_it(desk: Parts) -> None:
    row = await recorded(desk, failing("m0", reason="DECODE_ERROR"))
    await desk.intake().record([back(desk.sending.replay_id(row), "m1")])
    original, again = await rows_of(desk.store)
    assert (original.status, again.generation) == (PERMANENT, 1)


async def test_a_retry_that_was_taken_for_a_success_has_its_count_go_on(
    desk: Parts, caplog: pytest.LogCaptureFixture
) -> None:
    """Or a message that always fails, where no broker tells, would be retried for ever."""
    row, lines = await recorded(desk), []
    for number in range(1, 4):
        row, replay_id = await sent(desk, row, f"m{number}")
        await desk.store.save([row.mark_retry_success(desk.clock.now_ns())])
        await desk.intake().record([back(replay_id, f"m{number}")])
        row = (await rows_of(desk.store))[-1]
        lines.append((row.generation, row.retry_count, row.status))
    assert lines == [(1, 1, QUEUED), (2, 2, QUEUED), (3, 3, PERMANENT)]
    assert [record.getMessage() for record in caplog.records].count("a message failed for good") == 1


async def test_the_failure_of_what_was_erased_is_a_new_row(desk: Parts) -> None:
    row = await recorded(desk)
    replay_id = desk.sending.replay_id(row)
    await desk.store.erase(Selection(ids=[row.id]), Action("ann", "failure.erase", "1"))
    await desk.intake().record([back(replay_id, "m1")])
    [again] = await rows_of(desk.store)
    assert (again.generation, again.origin_id) == (1, row.id)


# What only looks as if.


async def test_a_forged_lineage_changes_nothing_of_the_row(desk: Parts) -> None:
    row, _ = await sent(desk, await recorded(desk), "m1")
    forged = LineageSigner(await desk.store.store_id(), bytes(32)).replay_id(Lineage(row.id, 1))
    foreign = LineageSigner("other", await desk.store.secret()).replay_id(Lineage(row.id, 1))
    await desk.intake().record([back(forged, "m1"), back(foreign, "m2"), back("garbage", "m3")])
    first, *others = await rows_of(desk.store)
    assert first == row
    assert [(other.message_id, other.generation) for other in others] == [("m1", 0), ("m2", 0), ("m3", 0)]


@pytest.mark.parametrize(
    "changes",
    [
        {"data": b"other"},
        {"ordering_key": "other"},
        {"subscription": "projects/local/subscriptions/shipping"},
    ],
)
async def test_a_lineage_on_another_message_makes_it_a_descendant(desk: Parts, changes: dict[str, object]) -> None:
    """A consumer that forwards a message with all its attributes makes such ones."""
    row, replay_id = await sent(desk, await recorded(desk), "m1")
    other = replace(failing("m9"), **changes)  # type: ignore[arg-type]
    await desk.intake().record([Arrival(other, replay_id, "m9")])
    first, descendant = await rows_of(desk.store)
    assert first == row
    assert (descendant.message_id, descendant.generation, descendant.origin_id) == ("m9", 1, row.id)


async def test_a_copy_of_what_has_succeeded_since_is_not_lost(desk: Parts) -> None:
    row, first_id = await sent(desk, await recorded(desk), "m1")
    await desk.intake().record([back(first_id, "m1")])
    row, _ = await sent(desk, await current(desk, row), "m2")
    await desk.store.save([row.mark_retry_success(desk.clock.now_ns())])
    await desk.intake().record([back(first_id, "m9")])
    assert [row.message_id for row in await rows_of(desk.store)] == ["m0", "m9"]
