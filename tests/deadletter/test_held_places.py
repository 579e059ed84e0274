"""Ordering keys that the broker holds go on when the desk's failure ends otherwise than in its place."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from holdfast.broker.service import Broker
from holdfast.deadletter.audit import Action
from holdfast.deadletter.collector import Collector
from holdfast.deadletter.edits.changes import Parts as EditedParts
from holdfast.deadletter.edits.editing import Editing
from holdfast.deadletter.failures import Retention
from holdfast.deadletter.held_places import HeldPlaces
from holdfast.deadletter.redaction import NOTHING_HIDDEN
from holdfast.deadletter.replay.jobs import JobState, Options, Target
from holdfast.deadletter.replay.run import Parts as ReplayParts
from holdfast.deadletter.replay.runner import ReplayRunner
from holdfast.deadletter.replay.service import Replays
from holdfast.deadletter.retry_policy import RetryPolicy
from holdfast.deadletter.selection import Selection
from holdfast.errors import StorageUnavailable
from holdfast.model.failed_message import FailedMessage, FailureStatus
from holdfast.model.fate import Release
from holdfast.model.message import Message
from holdfast.model.resources import DeadLetterPolicy, Subscription, Topic
from holdfast.settings import BrokerSettings
from holdfast.stores.memory.log import MemoryMessageLog
from holdfast.stores.sqlite.desk import SqliteDeskStore
from holdfast.testing import ManualClock
from holdfast.transports.local import LocalTransport
from holdfast.wiring.lifetimes import background
from tests.support.desk_parts import DEAD_LETTERS, DESK, ORDERS, TOPIC, Consumer, Parts, rows_of, running
from tests.support.waiting import comes_about

HOLD = {"holdfast-ordered-dead-letters": "hold"}
OTHER_TOPIC = "projects/local/topics/elsewhere"


@dataclass
class World:
    """A broker that holds keys, and a desk in a file that can be opened again as after a kill."""

    path: Path
    clock: ManualClock
    broker: Broker
    desk: Parts
    consumer: Consumer

    @property
    def outlet(self) -> LocalTransport:
        return LocalTransport(self.broker)

    @property
    def places(self) -> HeldPlaces:
        return HeldPlaces(self.desk.store, self.outlet, self.clock)

    async def killed(self) -> None:
        """All that is left of a desk is its file."""
        await self.desk.store.close()
        store = await SqliteDeskStore.open(self.path, self.clock)
        self.desk = await Parts.over(store, self.clock)

    async def publish(self, *names: str) -> list[str]:
        """ "a1" is message 1 of key a."""
        return [
            await self.broker.publish_message(TOPIC, Message(name.encode(), ordering_key=name[0])) for name in names
        ]

    async def fail_first(self, reason: str = "SCHEMA_VALIDATION_ERROR") -> FailedMessage:
        """The first that comes is dead-lettered at once, and its failure recorded. The latest one at the desk."""
        (delivery,) = await self.consumer.receive()
        known = len(await rows_of(self.desk.store))
        await self.outlet.reject([delivery], reason, "wrong")
        collector: Collector = self.desk.collector(self.outlet)
        async with running(collector):
            await comes_about(lambda: self._has_more_than(known))
        return (await rows_of(self.desk.store))[-1]

    async def _has_more_than(self, known: int) -> bool:
        return len(await rows_of(self.desk.store)) > known

    async def held(self) -> list[str]:
        return [one.ordering_key for one in await self.broker.held()]

    async def rest(self) -> list[str]:
        found: list[str] = []
        while messages := await self.consumer.ack():
            found += [message.data.decode() for message in messages]
        return found

    async def replay(self, failure: FailedMessage, options: Options) -> None:
        parts = ReplayParts(self.desk.store, self.outlet, self.desk.sending, self.clock, "test", 5, 900.0)
        runner = ReplayRunner(parts)
        replays = Replays(parts, runner, options)
        async with background(runner.run()):
            made = await replays.create(Selection(ids=[failure.id]), options, "me")
            await replays.start(made.job.id, "me")
            async with asyncio.timeout(30):
                while (await replays.get(made.job.id)).job.state is not JobState.DONE:
                    self.clock.advance(0.5)
                    for _ in range(20):
                        await asyncio.sleep(0.001)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    clock = ManualClock()
    broker = await Broker.open(MemoryMessageLog(), clock, BrokerSettings(breaker_share=0))
    for topic in (TOPIC, DEAD_LETTERS, OTHER_TOPIC):
        await broker.create_topic(Topic(topic))
    policy = DeadLetterPolicy(DEAD_LETTERS, 5)
    await broker.create_subscription(Subscription(ORDERS, TOPIC, dead_letter=policy, ordered=True, labels=HOLD))
    await broker.create_subscription(Subscription(DESK, DEAD_LETTERS))
    path = tmp_path / "failures.db"
    desk = await Parts.over(await SqliteDeskStore.open(path, clock), clock)
    world = World(path, clock, broker, desk, Consumer(broker))
    yield world
    await world.desk.store.close()
    await broker.close()


# Each of these is an end that does not bring the message back into its place.


def an_action() -> Action:
    return Action("me", "test", "failures", {}, 1)


async def erased(world: World, failure: FailedMessage) -> None:
    assert await world.desk.store.erase(Selection(ids=[failure.id]), an_action()) == 1


async def cleaned_up(world: World, failure: FailedMessage) -> None:
    assert await world.desk.store.clean_up(Retention(None, None, 2**62), an_action(), 10) == 1


async def replayed_to_a_topic(world: World, failure: FailedMessage) -> None:
    await world.replay(failure, Options(Target.TOPIC, OTHER_TOPIC))


async def replayed_under_another_key(world: World, failure: FailedMessage) -> None:
    editing = Editing(world.desk.store, world.clock)
    await editing.edit(failure.id, EditedParts({"orderingKey": "z"}), NOTHING_HIDDEN, actor="me")
    await world.replay(failure, Options(concurrency=0, canary=0))


async def marked_by_hand(world: World, failure: FailedMessage) -> None:
    """As source 002's guide does with SQL; the store's own tests do it with SQL too."""
    assert list(await world.desk.store.save([failure.mark_replayed(5)])) == [True]


ENDS = [erased, cleaned_up, replayed_to_a_topic, marked_by_hand]


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("end", ENDS)
async def test_its_key_goes_on_in_its_order(
    world: World, end: Callable[[World, FailedMessage], Awaitable[None]], is_killed: bool
) -> None:
    await world.publish("a1", "a2", "a3")
    failure = await world.fail_first()
    await world.places.free()
    assert (await world.held(), await world.rest()) == (["a"], [])
    await end(world, failure)
    if is_killed:
        await world.killed()
    await world.places.free()
    assert await world.held() == []
    assert await world.rest() == ["a2", "a3"]
    assert await world.desk.store.freed_places(10) == []


@pytest.mark.parametrize("is_killed", [False, True])
async def test_a_duplicate_is_over_as_it_comes(world: World, is_killed: bool) -> None:
    await world.publish("a1", "a2")
    failure = await world.fail_first("DUPLICATE_MESSAGE")
    assert (failure.status, await world.held()) == (FailureStatus.RETRY_SUCCESS, ["a"])
    if is_killed:
        await world.killed()
    await world.places.free()
    assert await world.rest() == ["a2"]


async def test_to_the_source_topic_the_others_come_before_it(world: World) -> None:
    await world.publish("a1", "a2")
    failure = await world.fail_first()
    await world.replay(failure, Options(Target.SOURCE_TOPIC))
    await world.killed()
    await world.places.free()
    assert await world.rest() == ["a2", "a1"]


async def test_under_another_key_it_leaves_its_place(world: World) -> None:
    await world.publish("a1", "a2", "a3")
    failure = await world.fail_first()
    replaying = asyncio.create_task(replayed_under_another_key(world, failure))
    delivered = await comes_about(world.consumer.receive)
    await world.outlet.ack(delivered)
    await replaying
    assert [(one.message.data, one.message.ordering_key) for one in delivered] == [(b"a1", "z")]
    assert await world.held() == ["a"]
    await world.killed()
    await world.places.free()
    assert await world.rest() == ["a2", "a3"]


# What may come back keeps its place.


async def test_an_edit_alone_releases_nothing(world: World) -> None:
    await world.publish("a1", "a2")
    failure = await world.fail_first()
    await Editing(world.desk.store, world.clock).edit(
        failure.id, EditedParts({"orderingKey": "z"}), NOTHING_HIDDEN, actor="me"
    )
    await world.places.free()
    assert (await world.held(), await world.rest()) == (["a"], [])


async def test_what_is_replayed_into_its_place_and_fails_again_is_held_there(world: World) -> None:
    await world.publish("a1", "a2")
    failure = await world.fail_first()
    replaying = asyncio.create_task(world.replay(failure, Options(concurrency=0, canary=0)))
    again = await comes_about(world.consumer.receive)
    await world.outlet.reject(again, "SCHEMA_VALIDATION_ERROR", "still wrong")
    await replaying
    first = await world.desk.store.get(failure.id)
    assert first
    assert first.status is FailureStatus.REPLAYED
    # Its own place is noted, and taken by the replay; the new one must stay, though its dead letter is not here yet.
    await world.places.free()
    assert (await world.held(), await world.rest()) == (["a"], [])
    async with running(world.desk.collector(world.outlet)):
        await comes_about(lambda: world._has_more_than(1))
    second = (await rows_of(world.desk.store))[-1]
    assert (second.generation, second.message_id) == (1, first.sent_message_id)
    await world.places.free()
    assert await world.held() == ["a"]
    await erased(world, second)
    await world.places.free()
    assert await world.rest() == ["a2"]


async def test_a_retry_that_failed_is_held_at_the_retry(world: World) -> None:
    world.desk.policy = RetryPolicy.of_tables([{"reason": "SCHEMA_VALIDATION_ERROR", "delays": [5]}], 0.0)
    await world.publish("a1", "a2")
    failure = await world.fail_first()
    scheduler = world.desk.scheduler(world.outlet)
    world.clock.advance(6)
    await scheduler.turn()
    again = await comes_about(world.consumer.receive)
    assert [one.message.data for one in again] == [b"a1"]
    await world.places.free()
    await world.outlet.reject(again, "SCHEMA_VALIDATION_ERROR", "still wrong")
    async with running(world.desk.collector(world.outlet)):
        await comes_about(lambda: is_given_up(world, failure.id))
    await world.places.free()
    assert (await world.held(), await world.rest()) == (["a"], [])
    await erased(world, failure)
    await world.places.free()
    assert await world.rest() == ["a2"]


async def is_given_up(world: World, failure_id: int) -> bool:
    row = await world.desk.store.get(failure_id)
    return row is not None and row.status is FailureStatus.PERMANENT_FAILURE


async def test_what_is_not_held_yet_is_asked_after_again(world: World) -> None:
    """A broker that dies between the dead letter and the hold delivers the message once more."""
    await world.publish("a1", "a2")
    (delivery,) = await world.consumer.receive()
    assert await world.outlet.release(ORDERS, delivery.message.message_id) is Release.NOT_YET
    message = delivery.message
    await world.desk.store.record(
        [
            FailedMessage(
                message.message_id,
                ORDERS,
                TOPIC,
                "DUPLICATE_MESSAGE",
                "",
                message.data,
                ordering_key="a",
                status=FailureStatus.RETRY_SUCCESS,
            )
        ]
    )
    await world.places.free()
    assert len(await world.desk.store.freed_places(10)) == 1
    await world.outlet.reject([delivery], "DUPLICATE_MESSAGE", "")
    await comes_about(world.held)
    await world.places.free()
    assert await world.rest() == ["a2"]
    assert await world.desk.store.freed_places(10) == []


class Away(LocalTransport):
    """A broker that cannot be reached."""

    async def release(self, subscription: str, message_id: str) -> Release:
        raise StorageUnavailable("no broker answers")


async def test_a_broker_that_is_not_there_is_asked_later(world: World) -> None:
    await world.publish("a1", "a2")
    failure = await world.fail_first()
    await erased(world, failure)
    with pytest.raises(StorageUnavailable):
        await HeldPlaces(world.desk.store, Away(world.broker), world.clock).free()
    assert await world.held() == ["a"]
    async with background(world.places.run()):
        await comes_about(lambda: is_free(world))
    assert await world.rest() == ["a2"]


async def is_free(world: World) -> bool:
    return not await world.held()


async def test_a_forged_dead_letter_frees_no_place(world: World) -> None:
    """Anybody may write another message's id into an attribute, and call it a duplicate."""
    await world.publish("a1", "a2")
    failure = await world.fail_first()
    forged = replace(failure, data=b"forged", failure_reason="DUPLICATE_MESSAGE", id=0)
    await world.desk.intake().record_new([forged])
    assert [row.status for row in await rows_of(world.desk.store)][1] is FailureStatus.RETRY_SUCCESS
    await world.places.free()
    assert (await world.held(), await world.rest()) == (["a"], [])


async def test_what_nobody_knows_is_forgotten(world: World) -> None:
    gone = "projects/local/subscriptions/gone"
    for number, name in enumerate((ORDERS, gone, "no path")):
        for message_id in ("no-id", "12", str(2**62)):
            failure = FailedMessage(message_id, name, TOPIC, "X", "", b"%d" % number, ordering_key="a")
            await world.desk.store.record([failure])
    assert await world.desk.store.erase(Selection(), an_action()) == 9
    await world.places.free()
    assert await world.desk.store.freed_places(100) == []
