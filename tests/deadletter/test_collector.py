"""The collector against a real broker in this process and a real store, both of which can be made to fail."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from holdfast.broker.service import Broker
from holdfast.deadletter.collector import BATCH, LOOK_AGAIN_SECONDS, Collector
from holdfast.deadletter.dead_letter import Arrival
from holdfast.deadletter.intake import Intake
from holdfast.deadletter.sources import Sources
from holdfast.errors import StorageUnavailable
from holdfast.model import dead_letter_attributes as names
from holdfast.model.message import Delivery, Message
from holdfast.model.resources import Subscription, Topic
from holdfast.settings import BrokerSettings
from holdfast.stores.memory.log import MemoryMessageLog
from holdfast.stores.sqlite.desk import SqliteDeskStore
from holdfast.testing import ManualClock
from holdfast.topology.default import desk_subscription_of
from holdfast.transports.local import LocalStream, LocalTransport
from tests.support.desk_parts import (
    DEAD_LETTERS,
    DESK,
    ORDERS,
    PROJECT,
    Consumer,
    Parts,
    memory_broker,
    rows_of,
    running,
    until,
)

BILLING_DEAD_LETTERS = "projects/local/topics/billing.dlq"
BILLING = "projects/local/subscriptions/billing.dlq.desk"


class Transport(LocalTransport):
    """Notes what is acked and given back; fails where it is told to."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self.acked: list[str] = []
        self.given_back: list[str] = []
        self.broken: dict[str, Exception] = {}
        self.opened: dict[str, int] = defaultdict(int)
        self.changed = asyncio.Condition()

    @asynccontextmanager
    async def stream(
        self, subscription: str, max_messages: int, max_bytes: int, deadline_seconds: int
    ) -> AsyncIterator[LocalStream]:
        self.opened[subscription] += 1
        self._fail_if_broken(subscription)
        async with super().stream(subscription, max_messages, max_bytes, deadline_seconds) as stream:
            yield stream

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        self._fail_if_broken("ack")
        await super().ack(deliveries)
        async with self.changed:
            self.acked += [delivery.message.message_id for delivery in deliveries]
            self.changed.notify_all()

    async def nack(
        self, deliveries: Sequence[Delivery], delay_seconds: float = 0.0, *, reason: str = "", error: str = ""
    ) -> None:
        self.given_back += [delivery.message.message_id for delivery in deliveries]
        self._fail_if_broken("nack")
        await super().nack(deliveries, delay_seconds)

    async def list_subscriptions(self, project: str) -> Sequence[str]:
        self._fail_if_broken("list")
        return await super().list_subscriptions(project)

    async def until_acked(self, *message_ids: str) -> None:
        async with asyncio.timeout(20), self.changed:
            await self.changed.wait_for(lambda: set(message_ids) <= set(self.acked))

    def _fail_if_broken(self, call: str) -> None:
        if call in self.broken:
            raise self.broken[call]


class WatchedIntake(Intake):
    """Notes its batches; refuses some messages, or all, and waits where it is told to."""

    batches: list[int]
    broken: Exception | None = None
    refuses: dict[str, Exception]
    gate: asyncio.Event

    @classmethod
    def of(cls, parts: Parts) -> WatchedIntake:
        intake = cls(parts.store, parts.sending, parts.policy, parts.clock)
        intake.batches, intake.refuses, intake.gate = [], {}, asyncio.Event()
        intake.gate.set()
        return intake

    async def record(self, arrivals: Sequence[Arrival]) -> None:
        self.batches.append(len(arrivals))
        await self.gate.wait()
        for arrival in arrivals:
            error = self.broken or self.refuses.get(arrival.failure.message_id)
            if error:
                raise error
        await super().record(arrivals)


class WatchedClock(ManualClock):
    """Tells of pauses after failures, and of how many seconds."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses: asyncio.Queue[float] = asyncio.Queue()

    async def sleep_until(self, when_ns: int) -> None:
        seconds = (when_ns - self.now_ns()) / 1e9
        if seconds != LOOK_AGAIN_SECONDS and _is_of_collector():
            self.pauses.put_nowait(seconds)
        await super().sleep_until(when_ns)

    async def next_pause(self) -> float:
        async with asyncio.timeout(20):
            return await self.pauses.get()


def _is_of_collector() -> bool:
    """And not the broker's, which is on this clock too."""
    task = asyncio.current_task()
    return task is not None and "Timers" not in repr(task)


@dataclass
class World:
    parts: Parts
    broker: Broker
    transport: Transport
    intake: WatchedIntake
    clock: WatchedClock
    made: list[str] = field(default_factory=list)

    def collector(
        self, always: Sequence[str] = (), make: Callable[[str, str], Subscription] | None = None
    ) -> Collector:
        sources = Sources(self.transport, PROJECT, always, make=make)
        return Collector(self.transport, self.intake, self.clock, sources)

    async def dead_letter(self, *source_ids: str, topic: str = DEAD_LETTERS, **attributes: str) -> list[str]:
        messages = [
            Message(b"\x00payload", attributes | {names.SOURCE_MESSAGE_ID: source_id}) for source_id in source_ids
        ]
        return [await self.broker.publish_message(topic, message) for message in messages]

    async def message_ids(self) -> list[str]:
        return [row.message_id for row in await rows_of(self.parts.store)]


@pytest.fixture
async def world() -> AsyncIterator[World]:
    clock = WatchedClock()
    store = await SqliteDeskStore.in_memory(clock)
    async with memory_broker(clock) as broker:
        parts = await Parts.over(store, clock)
        yield World(parts, broker, Transport(broker), WatchedIntake.of(parts), clock)
    await store.close()


async def with_billing(world: World) -> None:
    await world.broker.create_topic(Topic(BILLING_DEAD_LETTERS))
    await world.broker.create_subscription(Subscription(BILLING, BILLING_DEAD_LETTERS))


async def test_a_dead_letter_becomes_a_row_and_is_acked(world: World) -> None:
    async with running(world.collector()):
        [message_id] = await world.dead_letter("source-1", tenant="a")
        await world.transport.until_acked(message_id)
    [row] = await rows_of(world.parts.store)
    assert (row.message_id, row.subscription, row.attributes) == ("source-1", ORDERS, {"tenant": "a"})
    assert row.created_at_ns == world.clock.now_ns()
    assert await Consumer(world.broker, DESK).receive() == []


async def test_nothing_is_acked_before_it_is_recorded(world: World) -> None:
    world.intake.gate.clear()
    async with running(world.collector()):
        [message_id] = await world.dead_letter("1")
        await until_recording(world)
        assert world.transport.acked == []
        world.intake.gate.set()
        await world.transport.until_acked(message_id)
    assert await world.message_ids() == ["1"]


async def until_recording(world: World) -> None:
    async with asyncio.timeout(20):
        while not world.intake.batches:
            await asyncio.sleep(0.002)


async def test_many_share_few_commits(world: World) -> None:
    await with_billing(world)
    orders = await world.dead_letter(*(f"o{number}" for number in range(1500)))
    billing = await world.dead_letter(*(f"b{number}" for number in range(700)), topic=BILLING_DEAD_LETTERS)
    async with running(world.collector()):
        await world.transport.until_acked(*orders, *billing)
    assert len(await world.message_ids()) == 2200
    assert max(world.intake.batches) <= BATCH
    assert len(world.intake.batches) <= 10


async def test_what_comes_while_the_store_is_busy_is_recorded_together(world: World) -> None:
    world.intake.gate.clear()
    async with running(world.collector()):
        first = await world.dead_letter("first")
        await until_recording(world)
        others = [(await world.dead_letter(f"{number}"))[0] for number in range(100)]
        await asyncio.sleep(0.05)
        world.intake.gate.set()
        await world.transport.until_acked(*first, *others)
    assert world.intake.batches == [1, 100]


async def test_a_dead_letter_that_came_twice_is_one_row_and_acked_twice(world: World) -> None:
    copies = await world.dead_letter("1", "1")
    async with running(world.collector()):
        await world.transport.until_acked(*copies)
    assert await world.message_ids() == ["1"]


async def test_garbage_is_recorded_too(world: World) -> None:
    garbage = dict.fromkeys(names.ALL - {names.SOURCE_MESSAGE_ID}, "/\x00é" * 50)
    async with running(world.collector()):
        [message_id] = await world.dead_letter("1", **garbage)
        await world.transport.until_acked(message_id)
    assert await world.message_ids() == ["1"]


# Trouble.


async def test_an_ack_that_failed_is_made_up_for_at_the_redelivery(world: World) -> None:
    world.transport.broken["ack"] = ConnectionError("gone")
    async with running(world.collector()):
        [message_id] = await world.dead_letter("1")
        await world.clock.next_pause()
        assert await world.message_ids() == ["1"]
        world.transport.broken.clear()
        world.clock.advance(61)
        await world.transport.until_acked(message_id)
    assert await world.message_ids() == ["1"]


@pytest.mark.parametrize("error", [StorageUnavailable("disk full"), ValueError("a bug")])
async def test_while_the_store_is_down_nothing_is_acked_and_pauses_grow(
    world: World, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    world.intake.broken = error
    async with running(world.collector()):
        message_ids = await world.dead_letter("1", "2", "3")
        pauses = [await world.clock.next_pause()]
        for _ in range(9):
            world.clock.advance(31)
            pauses.append(await world.clock.next_pause())
        assert pauses[0] == pytest.approx(0.5, rel=0.11)
        assert pauses[3] > 4 * pauses[0]
        assert 27 <= pauses[-1] <= 30
        assert world.transport.acked == []
        assert set(message_ids) <= set(world.transport.given_back)
        assert "cannot record" in caplog.text
        assert str(error) in caplog.text
        assert "payload" not in caplog.text

        world.intake.broken = None
        world.clock.advance(61)
        await world.transport.until_acked(*message_ids)
    assert sorted(await world.message_ids()) == ["1", "2", "3"]


async def test_an_outage_does_not_try_each_message_alone(world: World) -> None:
    world.intake.broken = StorageUnavailable("down")
    await world.dead_letter(*map(str, range(400)))
    async with running(world.collector()):
        await world.clock.next_pause()
    assert len(world.intake.batches) <= 3


@pytest.mark.parametrize("error", [StorageUnavailable("locked"), UnicodeEncodeError("utf-8", "x", 0, 1, "no")])
@pytest.mark.parametrize("place", [0, 77, 299])
async def test_one_row_that_cannot_be_recorded_does_not_hold_up_the_others(
    world: World, error: Exception, place: int
) -> None:
    world.intake.refuses = {"bad": error}
    sources = [str(number) for number in range(299)]
    sources.insert(place, "bad")
    ids = dict(zip(sources, await world.dead_letter(*sources), strict=True))
    bad = ids.pop("bad")
    async with running(world.collector()):
        await world.transport.until_acked(*ids.values())  # without a pause: the clock stands still
        assert set(world.transport.given_back) == {bad}
        world.clock.advance(1)
        [late] = await world.dead_letter("late")
        await world.transport.until_acked(late)
        world.intake.refuses = {}
        for _ in range(4):
            world.clock.advance(30)
            await asyncio.sleep(0.02)
        await world.transport.until_acked(bad)
    assert sorted(await world.message_ids()) == sorted([*sources, "late"])


async def test_a_broken_subscription_is_tried_again_and_leaves_the_others_alone(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await with_billing(world)
    world.transport.broken[DESK] = ConnectionError("refused")
    [first] = await world.dead_letter("1")
    [second] = await world.dead_letter("2", topic=BILLING_DEAD_LETTERS)
    async with running(world.collector()):
        await world.transport.until_acked(second)
        await world.clock.next_pause()
        assert f"cannot collect from {DESK}" in caplog.text
        world.transport.broken.clear()
        world.clock.advance(1)
        await world.transport.until_acked(first)


async def test_a_nack_that_fails_loses_nothing(world: World) -> None:
    world.intake.broken = StorageUnavailable("down")
    world.transport.broken["nack"] = ConnectionError("gone")
    async with running(world.collector()):
        [message_id] = await world.dead_letter("1")
        await world.clock.next_pause()
        world.intake.broken = None
        world.clock.advance(61)
        await world.transport.until_acked(message_id)


# Which subscriptions.


async def test_a_subscription_that_is_created_later_is_read_at_once(world: World) -> None:
    async with running(world.collector()):
        await world.transport.until_acked(*(await world.dead_letter("1")))
        await with_billing(world)
        await world.transport.until_acked(*(await world.dead_letter("2", topic=BILLING_DEAD_LETTERS)))
    assert [row.subscription for row in await rows_of(world.parts.store)] == [
        ORDERS,
        ORDERS.replace("orders", "billing"),
    ]


async def test_one_that_a_silent_broker_has_now_is_found_after_a_while(world: World) -> None:
    world.transport.watch_subscriptions = lambda callback: lambda: None  # type: ignore[method-assign]
    async with running(world.collector()):
        await world.transport.until_acked(*(await world.dead_letter("1")))
        await with_billing(world)
        await asyncio.sleep(0.05)
        assert world.transport.opened[BILLING] == 0
        world.clock.advance(LOOK_AGAIN_SECONDS)
        await world.transport.until_acked(*(await world.dead_letter("2", topic=BILLING_DEAD_LETTERS)))


async def test_a_dead_letter_topic_without_a_reader_gets_one_at_once(world: World) -> None:
    async with running(world.collector(make=desk_subscription_of)):
        await world.transport.until_acked(*(await world.dead_letter("1")))  # it has looked, and waits
        await world.broker.create_topic(Topic(BILLING_DEAD_LETTERS))
        async with asyncio.timeout(20):
            while not world.transport.opened[BILLING]:
                await asyncio.sleep(0.002)
        await world.transport.until_acked(*(await world.dead_letter("2", topic=BILLING_DEAD_LETTERS)))
    assert world.broker.get_subscription(BILLING).topic == BILLING_DEAD_LETTERS


async def test_without_leave_to_create_none_is_created(world: World) -> None:
    await world.broker.create_topic(Topic(BILLING_DEAD_LETTERS))
    async with running(world.collector()):
        await world.transport.until_acked(*(await world.dead_letter("1")))
    assert BILLING not in await world.transport.list_subscriptions(PROJECT)


async def test_one_that_cannot_be_created_keeps_nobody_from_being_read(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await world.broker.create_topic(Topic("projects/local/topics/" + "x" * 250 + ".dlq"))  # too long with `.desk`
    async with running(world.collector(make=desk_subscription_of)):
        await world.transport.until_acked(*(await world.dead_letter("1")))
    assert "cannot create projects/local/subscriptions/xxx" in caplog.text


async def test_those_that_it_is_told_are_read_too(world: World) -> None:
    await world.broker.create_topic(Topic("projects/local/topics/odd"))
    await world.broker.create_subscription(
        Subscription("projects/local/subscriptions/odd", "projects/local/topics/odd")
    )
    async with running(world.collector(always=["projects/local/subscriptions/odd"])):
        await world.transport.until_acked(*(await world.dead_letter("1", topic="projects/local/topics/odd")))


async def test_a_subscription_that_was_deleted_is_not_asked_for_ever(world: World) -> None:
    await with_billing(world)
    async with running(world.collector()):
        await world.transport.until_acked(*(await world.dead_letter("1", topic=BILLING_DEAD_LETTERS)))
        await world.broker.delete_subscription(BILLING)
        await asyncio.sleep(0.05)
        for _ in range(20):
            world.clock.advance(31)
            await asyncio.sleep(0.005)
        assert world.transport.opened[BILLING] <= 2
        await world.transport.until_acked(*(await world.dead_letter("2")))


async def test_a_listing_that_fails_leaves_the_readers_alone(world: World, caplog: pytest.LogCaptureFixture) -> None:
    async with running(world.collector()):
        await world.transport.until_acked(*(await world.dead_letter("1")))
        world.transport.broken["list"] = StorageUnavailable("not now")
        world.clock.advance(LOOK_AGAIN_SECONDS)
        await until(lambda: "cannot look for dead-letter subscriptions: not now" in caplog.text)
        await world.transport.until_acked(*(await world.dead_letter("2")))


# Stopping. `running` itself checks that the collector ends at once and leaves no task.


async def test_it_stops_while_it_waits_for_a_dead_letter(world: World) -> None:
    async with running(world.collector()):
        await until(lambda: world.transport.opened[DESK] == 1)


async def test_it_stops_before_it_has_begun(world: World) -> None:
    async with running(world.collector()):
        pass


async def test_it_stops_during_a_pause(world: World) -> None:
    world.intake.broken = StorageUnavailable("down")
    async with running(world.collector()):
        await world.dead_letter("1")
        await world.clock.next_pause()


async def test_it_stops_while_a_stream_cannot_be_opened(world: World) -> None:
    world.transport.broken[DESK] = StorageUnavailable("down")
    async with running(world.collector()):
        await world.clock.next_pause()


async def test_what_was_received_is_recorded_before_it_stops(world: World) -> None:
    world.intake.gate.clear()
    collector = world.collector()
    async with running(collector):
        message_ids = await world.dead_letter(*map(str, range(50)))
        await until_recording(world)
        collector.stop()
        await asyncio.sleep(0.02)
        world.intake.gate.set()
    assert set(world.transport.acked) == set(message_ids)
    assert len(await world.message_ids()) == 50


# Speed.


async def test_thousands_a_second_are_captured(caplog: pytest.LogCaptureFixture) -> None:
    """The bench measures it; this only notices a step back by an order of magnitude."""
    caplog.set_level(logging.ERROR)
    clock = ManualClock()
    store = await SqliteDeskStore.in_memory(clock)
    broker = await Broker.open(MemoryMessageLog(), clock, BrokerSettings())
    await broker.create_topic(Topic(DEAD_LETTERS))
    await broker.create_subscription(Subscription(DESK, DEAD_LETTERS))
    transport = Transport(broker)
    ids = [await broker.publish_message(DEAD_LETTERS, Message(b'{"a": 1}')) for _ in range(5000)]
    parts = await Parts.over(store, clock)
    began = time.perf_counter()
    async with running(parts.collector(transport)):
        await transport.until_acked(*ids)
    assert time.perf_counter() - began < 10
    await broker.close()
    await store.close()
