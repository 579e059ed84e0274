"""Jobs that send: to whom, what, once, and what becomes of the rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from holdfast.deadletter.replay.endings import EXPIRED
from holdfast.deadletter.replay.jobs import ItemState, JobState, Options, Target
from holdfast.deadletter.selection import Selection
from holdfast.errors import FailedPrecondition, StorageUnavailable
from holdfast.model import replay_attributes
from holdfast.model.failed_message import FailureStatus
from holdfast.model.fate import Fate
from holdfast.model.message import Message
from holdfast.transports.local import LocalTransport
from tests.deadletter.replay.conftest import (
    FAST,
    OTHER_TOPIC,
    OTHERS,
    REPAIRED,
    WORKER,
    World,
    failure,
    reached,
)


async def test_it_goes_to_the_failing_subscription_alone_and_the_rows_are_replayed(world: World) -> None:
    ids = await world.record(*(failure(number) for number in range(25)))
    async with world.desk() as desk:
        job = await world.started(desk)
        arrived = await world.ack(WORKER, 25)
        done = await reached(desk, job, JobState.DONE)
    assert [delivery.message.data for delivery in arrived] == [b'{"number": %d}' % number for number in range(25)]
    assert done.counts[ItemState.SUCCEEDED] == 25
    for name in OTHERS:
        assert await world.has_nothing(name)
    for failure_id, delivery in zip(ids, arrived, strict=True):
        row = await world.row(failure_id)
        assert (row.status, row.replay_id, row.sent_message_id) == (
            FailureStatus.REPLAYED,
            job,
            delivery.message.message_id,
        )
        assert delivery.message.attributes[replay_attributes.ORIGINAL_MESSAGE_ID] == row.message_id


@pytest.mark.parametrize(
    ("options", "reader"),
    [
        (Options(target=Target.SOURCE_TOPIC, per_second=0, canary=0), OTHERS[0]),
        (Options(target=Target.TOPIC, topic=OTHER_TOPIC, per_second=0, canary=0), REPAIRED),
    ],
)
async def test_it_goes_to_a_topic_where_that_is_asked_for(world: World, options: Options, reader: str) -> None:
    await world.record(*(failure(number, ordering_key="key") for number in range(5)))
    async with world.desk() as desk:
        job = await world.started(desk, options)
        done = await reached(desk, job, JobState.DONE)
    arrived = await world.ack(reader, 5)
    assert [delivery.message.data for delivery in arrived] == [b'{"number": %d}' % number for number in range(5)]
    assert done.counts[ItemState.SUCCEEDED] == 5


async def test_the_newest_edit_is_what_is_sent(world: World) -> None:
    (failure_id,) = await world.record(failure(1))
    await world.edit(failure_id, b'{"total": 3}')
    async with world.desk() as desk:
        await world.started(desk)
        (arrived,) = await world.ack(WORKER, 1)
    assert arrived.message.data == b'{"total": 3}'


async def test_an_edit_that_comes_just_before_it_is_sent_is_not_missed(world: World) -> None:
    """The job has read the row already; whoever reads once and sends would send the old content."""
    ids = await world.record(failure(1), failure(2))

    class EditsFirst(LocalTransport):
        async def publish_to(self, subscription: str, messages: Sequence[Message]) -> Sequence[str]:
            if messages[0].data == b'{"number": 1}':
                await world.edit(ids[1], b'{"number": "two"}')
                with pytest.raises(FailedPrecondition, match="is out"):
                    await world.edit(ids[0], b"too late")
            return await super().publish_to(subscription, messages)

    slow = Options(per_second=20, concurrency=0, canary=0)
    async with world.desk(EditsFirst(world.broker)) as desk:
        await world.started(desk, slow)
        arrived = await world.ack(WORKER, 2)
    assert [delivery.message.data for delivery in arrived] == [b'{"number": 1}', b'{"number": "two"}']


async def test_what_expired_before_anybody_had_it_has_failed(world: World) -> None:
    class Expires(LocalTransport):
        async def fates(self, subscription: str, message_ids: Sequence[str]) -> Mapping[str, Fate]:
            return dict.fromkeys(message_ids, Fate.EXPIRED)

    await world.record(failure(1))
    async with world.desk(Expires(world.broker)) as desk:
        job = await world.started(desk)
        await reached(desk, job, JobState.DONE)
    (item,) = await world.items(job)
    assert (item.state, item.note) == (ItemState.FAILED, EXPIRED)


async def test_what_cannot_be_sent_is_skipped_with_the_reason(world: World) -> None:
    ids = await world.record(
        failure(1),
        failure(2, generation=5),
        failure(3, subscription=f"{WORKER}-gone"),
        failure(4),
        failure(5, attributes={f"name-{n}": "x" for n in range(100)}),
    )
    async with world.desk() as desk:
        made = await desk.create(Selection(), FAST, "anna")
        row = await world.row(ids[3])
        await world.store.save([row.mark_replayed(1)])
        await desk.start(made.job.id, "anna")
        await world.ack(WORKER, 1)
        await reached(desk, made.job.id, JobState.DONE)
    items = await world.items(made.job.id)
    assert [item.state for item in items] == [
        ItemState.SUCCEEDED,
        ItemState.SKIPPED,
        ItemState.SKIPPED,
        ItemState.SKIPPED,
        ItemState.FAILED,
    ]
    assert "desk.max_generation" in items[1].note
    assert "orders.worker-gone" in items[2].note
    assert items[3].note == "it was replayed already"
    assert "attributes" in items[4].note
    for failure_id in (ids[1], ids[2], ids[4]):
        row = await world.row(failure_id)
        assert (row.status, row.is_out) == (FailureStatus.PERMANENT_FAILURE, False)


async def test_two_jobs_over_the_same_messages_send_each_once(world: World) -> None:
    await world.record(*(failure(number) for number in range(200)))
    async with world.desk() as desk:
        jobs = [(await desk.create(Selection(), FAST, "anna")).job.id for _ in range(2)]
        for job in jobs:
            await desk.start(job, "anna")
        await world.ack(WORKER, 200)
        ended = [await reached(desk, job, JobState.DONE) for job in jobs]
    assert await world.has_nothing(WORKER)
    assert sum(progress.counts[ItemState.SUCCEEDED] for progress in ended) == 200
    assert sum(progress.counts[ItemState.SKIPPED] for progress in ended) == 200


async def test_a_failed_head_stops_the_later_ones_of_its_key(world: World) -> None:
    await world.record(
        failure(1, ordering_key="a", attributes={f"name-{n}": "x" for n in range(100)}),
        failure(2, ordering_key="b"),
        failure(3, ordering_key="a"),
        failure(4, ordering_key="a"),
        failure(5, ordering_key="b"),
    )
    async with world.desk() as desk:
        job = await world.started(desk)
        arrived = await world.ack(WORKER, 2)
        await reached(desk, job, JobState.DONE)
    assert [delivery.message.data for delivery in arrived] == [b'{"number": 2}', b'{"number": 5}']
    states = [item.state for item in await world.items(job)]
    assert states == [
        ItemState.FAILED,
        ItemState.SUCCEEDED,
        ItemState.SKIPPED,
        ItemState.SKIPPED,
        ItemState.SUCCEEDED,
    ]


async def test_a_broker_that_is_away_is_waited_for_and_nothing_is_sent_twice(world: World) -> None:
    """The answer gets lost once: the messages are out, and nobody was told."""

    class LosesAnAnswer(LocalTransport):
        lost = False

        async def publish_to(self, subscription: str, messages: Sequence[Message]) -> Sequence[str]:
            ids = await super().publish_to(subscription, messages)
            if not self.lost:
                self.lost = True
                raise StorageUnavailable("no answer")
            return ids

    await world.record(*(failure(number) for number in range(10)))
    async with world.desk(LosesAnAnswer(world.broker)) as desk:
        job = await world.started(desk)
        await world.ack(WORKER, 10)
        done = await reached(desk, job, JobState.DONE)
    assert await world.has_nothing(WORKER)
    assert done.counts[ItemState.SUCCEEDED] == 10


async def test_what_fails_again_is_told(world: World) -> None:
    await world.record(failure(1))
    async with world.desk() as desk:
        job = await world.started(desk)
        for _ in range(5):
            await world.outlet.nack(await world.pull(WORKER, 1))
        done = await reached(desk, job, JobState.DONE)
    assert done.counts[ItemState.FAILED] == 1
    assert (await world.items(job))[0].note == "it was dead-lettered again"
