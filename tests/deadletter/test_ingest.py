"""Validated ingest over a real broker and a real desk: an event is published, or it is a failure that can be mended."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from holdfast.broker.schemas.definitions import AVRO
from holdfast.broker.service import Broker
from holdfast.consumer import Consumer, Event, Poison, Transient, Upsert
from holdfast.consumer.rehearsal import Rehearsal
from holdfast.deadletter.edits.changes import Merge
from holdfast.deadletter.edits.editing import Editing
from holdfast.deadletter.edits.route_check import RouteCheck
from holdfast.deadletter.edits.schema_check import SchemaCheck
from holdfast.deadletter.groups import GroupFilter
from holdfast.deadletter.ingest_desk import IngestDesk
from holdfast.deadletter.manual_replay import ManualReplay
from holdfast.deadletter.redaction import NOTHING_HIDDEN, Redaction
from holdfast.deadletter.rehearsing import RouteRules
from holdfast.deadletter.replay.jobs import Job, JobState, Options, Target
from holdfast.deadletter.replay.run import Parts as ReplayParts
from holdfast.deadletter.replay.runner import ReplayRunner
from holdfast.deadletter.replay.service import Replays
from holdfast.deadletter.replay.shadow import foresee
from holdfast.deadletter.retry_policy import RetryPolicy
from holdfast.deadletter.selection import Selection
from holdfast.deadletter.sight import Sight
from holdfast.errors import StorageUnavailable
from holdfast.ingest.events import Incoming, Ingest, Refused
from holdfast.ingest.manual import Ingested, Person
from holdfast.ingest.pace import IngestPace
from holdfast.ingest.validation import Validation
from holdfast.model.failed_message import FailedMessage, FailureClass, FailureStatus
from holdfast.model.message import Message
from holdfast.model.names import topic_path
from holdfast.model.resources import SchemaSettings, Subscription, Topic
from holdfast.settings import ConsumerSettings
from holdfast.stores.sqlite.desk import SqliteDeskStore
from holdfast.testing import ManualClock
from holdfast.transports.local import LocalTransport
from holdfast.transports.schemas import LocalSchemas
from holdfast.wiring.lifetimes import background
from tests.support.desk_parts import ORDERS, TOPIC, Parts, memory_broker, memory_desk, rows_of
from tests.support.desk_parts import Consumer as Worker

SCHEMA = "projects/local/schemas/reading"
FIRES = "projects/local/topics/fires"
FIRES_WORKER = "projects/local/subscriptions/fires.worker"
READING: dict[str, Any] = {"type": "record", "name": "Reading", "fields": [{"name": "latitude", "type": "double"}]}

GOOD = b'{"latitude": 39.75}'
TOTAL = b'{"number": 7, "total": 1.10}'
BAD = b'{"latitude": "north"}'
# With a field that the schema does not have yet.
EARLY = b'{"latitude": 1.5, "eventId": "e"}'

SUCCESS, PERMANENT, QUEUED = (
    FailureStatus.RETRY_SUCCESS,
    FailureStatus.PERMANENT_FAILURE,
    FailureStatus.QUEUED_FOR_RETRY,
)

app = Consumer()


@app.on("orders")
def order(event: Event) -> Upsert:
    if "total" not in event.data:
        raise Poison("total: expected a number, not nothing", reason="NO_TOTAL")
    if event.data["total"] == "later":
        raise Transient("the price list is away")
    return Upsert("orders", str(event.data["number"]), {})


class Broken(LocalTransport):
    """Publishing fails in whatever way a test says, or dies right after it."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self.error: BaseException | None = None
        self.dies_after = False

    async def publish(self, topic: str, message: Message) -> str:
        if self.error is not None:
            raise self.error
        message_id = await super().publish(topic, message)
        if self.dies_after:
            raise asyncio.CancelledError  # as a process that is killed: nobody hears of the id
        return message_id


@dataclass
class World:
    clock: ManualClock
    broker: Broker
    desk: Parts
    outlet: Broken
    consumer: Worker
    fires: Worker

    @property
    def rehearsal(self) -> Rehearsal:
        return Rehearsal(app, ConsumerSettings(), clock=self.clock)

    @property
    def ingest(self) -> Ingest:
        assert self.desk.validation
        refusals = IngestDesk(self.desk.intake(), self.desk.store, self.clock)
        return Ingest(self.outlet, self.desk.validation, refusals, "local")

    async def take(self, data: bytes, topic: str = "fires", **more: Any) -> Ingested | Refused:
        return await self.ingest.take(topic_path("local", topic), Incoming(data, **more))

    async def refused(self, data: bytes, topic: str = "fires", **more: Any) -> tuple[Refused, FailedMessage]:
        told = await self.take(data, topic, **more)
        assert isinstance(told, Refused)
        row = await self.desk.store.get(told.failure_id)
        assert row
        return told, row

    async def row(self, failure_id: int) -> FailedMessage:
        row = await self.desk.store.get(failure_id)
        assert row
        return row

    async def takes_event_ids(self) -> None:
        """The schema of fires is one deployment further."""
        event_id = {"name": "eventId", "type": "string", "default": ""}
        later = {**READING, "fields": [*READING["fields"], event_id]}
        await self.broker.schemas.commit(SCHEMA, AVRO, json.dumps(later))

    async def replay(self, failure: FailedMessage, options: Options) -> Job:
        parts = ReplayParts(self.desk.store, self.outlet, self.desk.sending, self.clock, "test", 5, 900.0)
        runner = ReplayRunner(parts)
        replays = Replays(parts, runner, options)
        selection = Selection(ids=[failure.id])
        plan = await replays.plan(selection, options)
        assert dict(plan.destinations) == {options.topic or failure.source_topic: 1}
        async with background(runner.run()):
            made = await replays.create(selection, options, "me")
            await replays.start(made.job.id, "me")
            async with asyncio.timeout(30):
                while (job := (await replays.get(made.job.id)).job).state is not JobState.DONE:
                    self.clock.advance(0.5)
                    await asyncio.sleep(0.005)
        return job


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with memory_desk() as desk, memory_broker(desk.clock) as broker:
        await broker.schemas.create(SCHEMA, AVRO, json.dumps(READING))
        await broker.create_topic(Topic(FIRES, schema=SchemaSettings(SCHEMA)))
        await broker.create_subscription(Subscription(FIRES_WORKER, FIRES))
        rules = RouteRules(Rehearsal(app, ConsumerSettings(), clock=desk.clock), desk.clock)
        desk.validation = Validation(LocalSchemas(broker), rules)
        world = World(desk.clock, broker, desk, Broken(broker), Worker(broker), Worker(broker, FIRES_WORKER))
        yield world


# Taking.


async def test_what_is_valid_is_published(world: World) -> None:
    told = await world.take(TOTAL, "orders", attributes={"source": "firms"}, ordering_key="k")
    assert isinstance(told, Ingested)
    (message,) = await world.consumer.ack()
    assert (message.data, message.attributes, message.ordering_key) == (TOTAL, {"source": "firms"}, "k")
    assert (message.message_id, told.topic) == (told.message_id, TOPIC)
    assert isinstance(await world.take(GOOD), Ingested)
    assert await rows_of(world.desk.store) == []


async def test_what_does_not_fit_the_schema_is_a_failure_with_the_place(world: World) -> None:
    told, row = await world.refused(BAD)
    assert (told.problem.reason, told.path, told.actual) == ("SCHEMA_VALIDATION_ERROR", "/json/latitude", '"north"')
    assert (row.subscription, row.source_topic, row.data, row.failure_class) == ("", FIRES, BAD, FailureClass.POISON)
    assert (row.status, row.retry_count, told.status) == (QUEUED, 0, QUEUED)
    assert not told.is_postponed
    assert row.retry_at_ns == world.clock.now_ns() + 5_000_000_000
    assert await world.fires.ack() == []


async def test_what_the_handler_would_dead_letter_is_refused(world: World) -> None:
    told, row = await world.refused(b'{"number": 7}', "orders")
    assert (told.problem.reason, told.path, told.expected) == ("NO_TOTAL", "/json/total", "a number")
    assert (row.status, row.failure_class) == (PERMANENT, FailureClass.POISON)
    assert await world.consumer.ack() == []


async def test_what_may_be_gone_a_second_later_is_no_reason(world: World) -> None:
    assert isinstance(await world.take(b'{"number": 7, "total": "later"}', "orders"), Ingested)


@pytest.mark.parametrize(
    ("data", "topic", "reason"),
    [
        (b"{", "fires", "DECODE_ERROR"),
        (b"\xff", "fires", "DECODE_ERROR"),
        (b'{"a": 1, "a": 2}', "fires", "DECODE_ERROR"),
        (b'"' + b"x" * 10_000_000 + b'"', "fires", "MESSAGE_TOO_LARGE"),
        (GOOD, "nowhere", "UNROUTABLE"),
    ],
)
async def test_whatever_is_wrong_has_a_reason(world: World, data: bytes, topic: str, reason: str) -> None:
    told, row = await world.refused(data, topic)
    assert (told.problem.reason, row.failure_reason, row.data, row.status) == (reason, reason, data, PERMANENT)


async def test_attributes_that_no_broker_takes_are_a_failure_too(world: World) -> None:
    told, row = await world.refused(GOOD, attributes={"googclient": "x"})
    assert (told.problem.reason, row.attributes) == ("SCHEMA_VALIDATION_ERROR", {"googclient": "x"})


# Once.


@pytest.mark.parametrize("more", [{"key": "mine"}, {}])
async def test_the_same_event_is_published_once(world: World, more: dict[str, str]) -> None:
    data = b'{"latitude": 1.5}' if more else b'{"latitude": 1.5, "eventId": "e"}'
    if not more:
        await world.takes_event_ids()
    first = await world.take(data, **more)
    assert await world.take(data, **more) == first
    assert len(await world.fires.ack()) == 1
    another = await world.take(data.replace(b"1.5", b"2.5"), **more)
    assert isinstance(another, Ingested)
    assert another != first


async def test_without_a_key_nobody_knows_whether_it_is_the_same(world: World) -> None:
    assert await world.take(GOOD) != await world.take(GOOD)
    assert (await world.refused(BAD))[1].id != (await world.refused(BAD))[1].id


async def test_the_same_refusal_is_recorded_once(world: World) -> None:
    _, first = await world.refused(BAD, key="mine")
    assert (await world.refused(BAD, key="mine"))[1] == first
    assert first.message_id == "mine"
    assert (await world.refused(BAD, "nowhere", key="mine"))[1].id != first.id
    assert (await world.refused(b'{"latitude": "south"}', key="mine"))[1].id != first.id


async def test_killed_between_the_publish_and_the_answer_it_is_published_once(world: World) -> None:
    world.outlet.dies_after = True
    with pytest.raises(asyncio.CancelledError):
        await world.take(GOOD, key="mine")
    world.outlet.dies_after = False
    again = await world.take(GOOD, key="mine")
    assert isinstance(again, Ingested)
    assert [message.message_id for message in await world.fires.ack()] == [again.message_id]
    assert await rows_of(world.desk.store) == []


# A broker or a desk that is not there.


async def test_a_broker_that_is_away_leaves_it_to_the_desk(world: World) -> None:
    world.outlet.error = StorageUnavailable("no broker answers")
    told, row = await world.refused(GOOD, key="mine", attributes={"a": "b"})
    assert (told.problem.reason, told.is_postponed) == ("BROKER_UNAVAILABLE", True)
    assert (row.status, row.failure_class) == (QUEUED, FailureClass.TRANSIENT)
    scheduler = world.desk.scheduler(world.outlet)
    for _ in range(10):  # trying in vain costs no retry
        world.clock.advance(90)
        await scheduler.turn()
    assert ((await world.row(row.id)).retry_count, (await world.row(row.id)).status) == (0, QUEUED)
    world.outlet.error = None
    # Its sender tries again before the desk does: that is the same event.
    sent = await world.take(GOOD, key="mine", attributes={"a": "b"})
    assert isinstance(sent, Ingested)
    world.clock.advance(90)
    await scheduler.turn()
    done = await world.row(row.id)
    assert (done.status, done.sent_message_id, done.retry_count) == (SUCCESS, sent.message_id, 1)
    assert [message.message_id for message in await world.fires.ack()] == [sent.message_id]


class FullDisk(SqliteDeskStore):
    is_full = False

    async def record(self, failures: Any) -> Any:
        if self.is_full:
            raise StorageUnavailable("no space left")
        return await super().record(failures)


async def test_where_the_desk_cannot_record_nothing_is_claimed(world: World) -> None:
    store = await FullDisk.in_memory(world.clock)
    world.desk = replace(await Parts.over(store, world.clock), validation=world.desk.validation)
    store.is_full = True
    with pytest.raises(StorageUnavailable, match=r"keep the event: .*SCHEMA_VALIDATION_ERROR.*no space left"):
        await world.take(BAD, key="mine")
    assert isinstance(await world.take(GOOD), Ingested)  # which needs no desk
    store.is_full = False
    await world.refused(BAD, key="mine")
    assert len(await rows_of(store)) == 1
    await store.close()


async def test_killed_between_the_publish_and_the_mark_a_retry_publishes_once(world: World) -> None:
    world.outlet.error = StorageUnavailable("no broker answers")
    _, row = await world.refused(GOOD)
    world.outlet.error, world.outlet.dies_after = None, True
    world.clock.advance(6)
    with pytest.raises(asyncio.CancelledError):
        await world.desk.scheduler(world.outlet).turn()
    assert (await world.row(row.id)).status is QUEUED
    world.outlet.dies_after = False
    world.clock.advance(61)
    await world.desk.scheduler(world.outlet).turn()
    assert (await world.row(row.id)).status is SUCCESS
    assert len(await world.fires.ack()) == 1


# At the desk.


async def test_it_is_tried_three_times_as_the_guide_says_and_then_waits_for_a_person(world: World) -> None:
    _, row = await world.refused(BAD)
    scheduler = world.desk.scheduler(world.outlet)
    for retries, delay in ((1, 5), (2, 10), (3, 20)):
        world.clock.advance(delay - 1)
        await scheduler.turn()
        assert (await world.row(row.id)).retry_count == retries - 1
        world.clock.advance(1)
        await scheduler.turn()
        assert (await world.row(row.id)).retry_count == retries
    assert (await world.row(row.id)).status is PERMANENT
    assert await world.fires.ack() == []


async def test_a_schema_that_comes_late_mends_it(world: World) -> None:
    _, row = await world.refused(EARLY)
    await world.takes_event_ids()
    world.clock.advance(5)
    await world.desk.scheduler(world.outlet).turn()
    (message,) = await world.fires.ack()
    done = await world.row(row.id)
    assert (done.status, done.sent_message_id, message.data) == (SUCCESS, message.message_id, EARLY)
    assert message.attributes["holdfast-original-publish-time"].startswith("2023-11-14T22:13:20")


async def test_what_a_handler_refuses_is_not_slipped_past_it_by_a_retry(world: World) -> None:
    world.desk.policy = RetryPolicy.of_tables([{"reason": "NO_TOTAL", "delays": [5]}], 0.0)
    _, row = await world.refused(b'{"number": 7}', "orders")
    world.clock.advance(5)
    await world.desk.scheduler(world.outlet).turn()
    assert (await world.row(row.id)).status is PERMANENT
    assert await world.consumer.ack() == []


async def test_the_policy_is_edited_for_ingest_as_well(world: World) -> None:
    world.desk.policy = RetryPolicy.of_tables([{"reason": "SCHEMA_VALIDATION_ERROR", "delays": []}], 0.0)
    assert (await world.refused(BAD))[1].status is PERMANENT


async def test_a_hold_that_comes_while_it_is_sent_is_kept(world: World) -> None:
    _, row = await world.refused(EARLY)
    await world.takes_event_ids()
    real = world.outlet.publish

    async def held_meanwhile(topic: str, message: Message) -> str:
        message_id = await real(topic, message)
        await world.desk.store.save([(await world.row(row.id)).hold(True)])
        return message_id

    world.outlet.publish = held_meanwhile  # type: ignore[method-assign]
    world.clock.advance(5)
    await world.desk.scheduler(world.outlet).turn()
    done = await world.row(row.id)
    assert (done.status, done.legal_hold) == (SUCCESS, True)


async def edited(world: World, row: FailedMessage) -> FailedMessage:
    editing = Editing(world.desk.store, world.clock, [SchemaCheck(LocalSchemas(world.broker))])
    change = Merge({"json": {"latitude": 39.75}})
    _, (before,) = await editing.validate(row.id, NOTHING_HIDDEN)
    assert [complaint.path for complaint in before.complaints] == ["/json/latitude"]
    _, (after,) = await editing.validate(row.id, NOTHING_HIDDEN, change)
    assert (after.complaints, after.skipped) == ([], "")
    return (await editing.edit(row.id, change, NOTHING_HIDDEN, actor="me")).failure


async def test_it_is_edited_checked_and_replayed_to_its_topic(world: World) -> None:
    _, row = await world.refused(BAD, ordering_key="k")
    row = await edited(world, row)
    await world.replay(row, Options(canary=1))
    (message,) = await world.fires.ack()
    assert (json.loads(message.data), message.ordering_key) == ({"latitude": 39.75}, "k")
    assert "holdfast-in-place-of" not in message.attributes
    done = await world.row(row.id)
    assert (done.status, done.sent_message_id) == (FailureStatus.REPLAYED, message.message_id)


async def test_its_lineage_goes_on_where_it_fails_then(world: World) -> None:
    _, row = await world.refused(b'{"number": 7}', "orders")
    editing = Editing(world.desk.store, world.clock)
    await editing.edit(row.id, Merge({"json": {"number": 8}}), NOTHING_HIDDEN, actor="me")
    await world.replay(await world.row(row.id), Options(canary=0))
    (delivery,) = await world.consumer.receive()
    await world.outlet.reject([delivery], "NO_TOTAL", "still no total")
    collector = world.desk.collector(world.outlet)
    running = asyncio.create_task(collector.run())
    async with asyncio.timeout(20):
        while len(found := await rows_of(world.desk.store)) < 2:
            await asyncio.sleep(0.01)
    collector.stop()
    await running
    assert (found[1].subscription, found[1].generation, found[1].origin_id) == (ORDERS, 1, row.id)


@pytest.mark.parametrize("target", [Target.SOURCE_TOPIC, Target.TOPIC])
async def test_other_targets_are_as_for_all_failures(world: World, target: Target) -> None:
    _, row = await world.refused(b'{"number": 7}', "orders")
    await world.replay(row, Options(target, FIRES if target is Target.TOPIC else "", canary=0))
    came = [message.data for message in await world.consumer.ack()]
    assert came == ([] if target is Target.TOPIC else [b'{"number": 7}'])  # fires has a schema, and refuses it


async def test_by_hand_it_goes_to_its_topic(world: World) -> None:
    _, row = await world.refused(BAD)
    store, sight = world.desk.store, Sight(Redaction(), "", world.desk.store, world.clock)
    manual = ManualReplay(
        store, world.clock, Editing(store, world.clock), world.desk.sending, world.outlet, sight, most_generations=5
    )
    message_id = await manual.replay(row.id, FIRES, GOOD, Person("me"))
    (message,) = await world.fires.ack()
    assert (message.message_id, message.data) == (message_id, GOOD)
    assert (await world.row(row.id)).status is FailureStatus.REPLAYED


async def test_a_shadow_and_the_route_check_know_its_topic(world: World) -> None:
    _, row = await world.refused(b'{"number": 7}', "orders")
    foreseen = await foresee(world.rehearsal, row, row.content, NOTHING_HIDDEN)
    assert foreseen.problem == "NO_TOTAL: total: expected a number, not nothing"
    good = replace(row.content, data=b'{"number": 7, "total": 1}')
    assert list((await foresee(world.rehearsal, row, good, NOTHING_HIDDEN)).documents) == ["orders/7"]
    finding = await RouteCheck(world.rehearsal).check(row, row.content)
    assert [complaint.path for complaint in finding.complaints] == ["/json/total"]


async def test_topics_have_groups_of_their_own(world: World) -> None:
    await world.refused(b"{")
    await world.refused(b"{", "orders")
    await world.refused(b"{")
    groups = (await world.desk.store.list_groups(GroupFilter(), 10)).groups
    assert sorted(group.count for group in groups) == [1, 2]


# Its rate.


async def test_the_pace_lets_a_second_through_at_once_and_then_says_how_long(world: World) -> None:
    pace = IngestPace(10, world.clock)
    assert [pace.wait_seconds(1) for _ in range(10)] == [0.0] * 10
    assert pace.wait_seconds(1) == pytest.approx(0.1)
    world.clock.advance(0.11)
    assert pace.wait_seconds(5) == 0.0
    assert pace.wait_seconds(1) == pytest.approx(0.49)
    assert IngestPace(0, world.clock).wait_seconds(10**9) == 0.0
