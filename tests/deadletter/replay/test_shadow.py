"""Shadow replays: what a candidate would make of failures, and that nothing changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from holdfast.consumer import Consumer, Event, Poison, Upsert
from holdfast.consumer.rehearsal import Rehearsal
from holdfast.deadletter.redaction import Redaction
from holdfast.deadletter.replay.jobs import ItemState, JobState, Options, Target
from holdfast.deadletter.replay.shadow import Shadow
from holdfast.deadletter.selection import Selection
from holdfast.errors import FailedPrecondition, Transient
from holdfast.model.failed_message import FailureStatus
from holdfast.settings import Settings
from tests.deadletter.replay.conftest import FAST, WORKER, World, failure, reached

SHADOW = replace(FAST, target=Target.SHADOW)

app = Consumer()
called: list[object] = []


@app.on("orders")
def order(event: Event) -> Sequence[Upsert]:
    number = event.data["number"]
    if number == 3:
        raise Poison(f"total: {event.data['total']!r} is not a number")
    if number == 4:
        raise Transient("the bank is closed")
    return [Upsert("orders", str(number), {}), Upsert("totals", "all", {})]


@app.on("mails", side_effects=True)
def mail(event: Event) -> Sequence[Upsert]:
    called.append(event)
    return []


def shadow(world: World, *rules: str) -> Shadow:
    return Shadow(world.store, world.clock, Rehearsal(app, Settings().consumer), Redaction(rules))


async def test_it_tells_what_would_pass_and_what_would_still_fail(world: World) -> None:
    ids = await world.record(
        failure(1, attributes={"topic": "orders"}),
        failure(2, attributes={"topic": "orders"}, data=b"no JSON"),
        failure(3, attributes={"topic": "orders"}, data=b'{"number": 3, "total": "x-17"}'),
        failure(4, attributes={"topic": "orders"}, data=b'{"number": 3, "total": "y-18"}'),
        failure(5, attributes={"topic": "orders"}, data=b'{"number": 4}'),
        failure(6, attributes={"topic": "mails"}, data=b"{}"),
        failure(7, attributes={"topic": "orders"}, generation=99),
    )
    await world.edit(ids[1], b'{"number": 2, "topic": "orders"}')
    async with world.desk(shadow=shadow(world)) as desk:
        job = await world.started(desk, SHADOW)
        await reached(desk, job, JobState.DONE)
        report = await desk.shadow_report(job)
    assert (report.would_pass, report.would_fail) == (3, 3)
    assert report.unknown == {"mail has side effects, so it is not called": 1}
    assert not called
    groups = sorted(report.groups.values(), key=lambda group: -group.count)
    assert [(group.count, group.failure_ids) for group in groups] == [(2, [ids[2], ids[3]]), (1, [ids[4]])]
    assert groups[0].example == "SCHEMA_VALIDATION_ERROR: total: 'x-17' is not a number"
    assert groups[1].example == "TRANSIENT_ERROR: the bank is closed"
    assert report.documents == {"orders": 3, "totals": 3}
    assert set(report.samples) == {"orders/1", "orders/2", "orders/7", "totals/all"}


async def test_the_rows_stay_as_they_are_and_nothing_is_sent(world: World) -> None:
    (failure_id,) = await world.record(failure(1, attributes={"topic": "orders"}))
    before = await world.row(failure_id)
    async with world.desk(shadow=shadow(world)) as desk:
        await reached(desk, await world.started(desk, SHADOW), JobState.DONE)
    assert await world.row(failure_id) == before
    assert before.status is FailureStatus.PERMANENT_FAILURE
    assert await world.has_nothing(WORKER)


async def test_what_was_sent_before_is_tried_too_as_the_plan_says(world: World) -> None:
    (sent, _) = await world.record(
        failure(1, attributes={"topic": "orders"}), failure(2, attributes={"topic": "orders"})
    )
    before = await world.row(sent)
    await world.store.save([before.mark_replayed(world.clock.now_ns())])
    async with world.desk(shadow=shadow(world)) as desk:
        assert (await desk.plan(Selection(), SHADOW)).to_send == 2
        job = await world.started(desk, SHADOW)
        await reached(desk, job, JobState.DONE)
        assert (await desk.shadow_report(job)).would_pass == 2
    assert (await world.row(sent)).status is FailureStatus.REPLAYED


async def test_what_is_redacted_is_not_told(world: World) -> None:
    await world.record(failure(3, attributes={"topic": "orders"}, data=b'{"number": 3, "total": "secret-17"}'))
    async with world.desk(shadow=shadow(world, "payload:total")) as desk:
        job = await world.started(desk, SHADOW)
        await reached(desk, job, JobState.DONE)
    (item,) = await world.items(job)
    assert item.state is ItemState.FAILED
    assert "secret-17" not in item.note


async def test_without_a_consumer_there_is_no_shadow(world: World) -> None:
    async with world.desk() as desk:
        with pytest.raises(FailedPrecondition, match="needs a consumer"):
            await desk.create(Selection(), Options(target=Target.SHADOW), "anna")
        job = (await desk.create(Selection(), FAST, "anna")).job.id
        with pytest.raises(FailedPrecondition, match="only a shadow replay"):
            await desk.shadow_report(job)
