"""The collector against a transport that redelivers what is not acked, and a store that can fail."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from holdfast.clock import Clock
from holdfast.consumer.transport import Stream
from holdfast.deadletter.collector import BATCH, Collector
from holdfast.deadletter.failures import FailureStore, Recorded
from holdfast.errors import NotFound, StorageUnavailable
from holdfast.model import dead_letter_attributes as names
from holdfast.model.failed_message import FailedMessage
from holdfast.model.message import Delivery, Message
from holdfast.model.resources import Subscription
from holdfast.stores.desk.store import Driver
from holdfast.stores.sqlite.desk import SqliteDeskStore
from holdfast.testing import ManualClock
from holdfast.testing.contracts.failures import all_rows, message_ids

ORDERS = "projects/local/subscriptions/orders.dlq.desk"
BILLING = "projects/local/subscriptions/billing.dlq.desk"


class AtLeastOnce:
    """An honest broker: a message is owed until it is acked, and given again when it is nacked or its lease
    runs out. `broken` makes calls fail before they change anything."""

    def __init__(self) -> None:
        self.waiting: dict[str, list[Message]] = defaultdict(list)
        self.leased: dict[str, Delivery] = {}
        self.acked: list[str] = []
        self.nacked: list[str] = []
        self.receives = 0
        self.broken: dict[str, Exception] = {}  # by method, or by subscription for receive
        self.changed = asyncio.Condition()

    async def publish(self, subscription: str, message: Message) -> str:
        async with self.changed:
            self.waiting[subscription].append(message)
            self.changed.notify_all()
        return message.message_id

    async def receive(self, subscription: str, max_messages: int, wait_seconds: float) -> Sequence[Delivery]:
        self.receives += 1
        self._fail_if_broken("receive", subscription)
        try:
            async with asyncio.timeout(wait_seconds), self.changed:
                self.changed.notify_all()
                await self.changed.wait_for(lambda: self.waiting[subscription])
                return [self._lease(subscription) for _ in self.waiting[subscription][:max_messages]]
        except TimeoutError:
            return []

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        self._fail_if_broken("ack")
        async with self.changed:
            for delivery in deliveries:
                if self.leased.pop(delivery.ack_id, None):
                    self.acked.append(delivery.message.message_id)
            self.changed.notify_all()

    async def nack(
        self, deliveries: Sequence[Delivery], delay_seconds: float = 0.0, *, reason: str = "", error: str = ""
    ) -> None:
        self._fail_if_broken("nack")
        async with self.changed:
            for delivery in deliveries:
                self.nacked.append(delivery.message.message_id)
                self._return(delivery.ack_id)
            self.changed.notify_all()

    async def reject(self, deliveries: Sequence[Delivery], reason: str, error: str) -> None:
        raise AssertionError("the collector gives nothing up")

    def stream(
        self, subscription: str, max_messages: int, max_bytes: int, deadline_seconds: int
    ) -> AbstractAsyncContextManager[Stream]:
        raise AssertionError("the collector has no stream")

    async def extend(self, deliveries: Sequence[Delivery], seconds: int) -> None:
        raise AssertionError("the collector holds nothing for long")

    async def ensure_topic(self, topic: str) -> bool:
        raise AssertionError("the collector creates nothing")

    async def ensure_subscription(self, subscription: Subscription) -> bool:
        raise AssertionError("the collector creates nothing")

    async def close(self) -> None:
        raise AssertionError("the collector does not own the transport")

    # For the tests.

    async def expire_leases(self) -> None:
        async with self.changed:
            for ack_id in list(self.leased):
                self._return(ack_id)
            self.changed.notify_all()

    async def until_acked(self, *message_ids: str) -> None:
        async with asyncio.timeout(10), self.changed:
            await self.changed.wait_for(lambda: set(message_ids) <= set(self.acked))

    async def until_receiving(self, receives: int) -> None:
        async with asyncio.timeout(10), self.changed:
            await self.changed.wait_for(lambda: self.receives >= receives)

    def _lease(self, subscription: str) -> Delivery:
        message = self.waiting[subscription].pop(0)
        ack_id = f"{subscription} {message.message_id} {self.receives}"
        self.leased[ack_id] = Delivery(subscription, message, ack_id=ack_id)
        return self.leased[ack_id]

    def _return(self, ack_id: str) -> None:
        delivery = self.leased.pop(ack_id, None)
        if delivery:
            self.waiting[delivery.subscription].append(delivery.message)

    def _fail_if_broken(self, *keys: str) -> None:
        for key in keys:
            if key in self.broken:
                raise self.broken[key]


class Store(SqliteDeskStore):
    """Fails for every message, or for those named. Holds every record back while `gate` is closed."""

    def __init__(self, driver: Driver, clock: Clock | None = None) -> None:
        super().__init__(driver, clock)
        self.broken: Exception | None = None
        self.refuses: Mapping[str, Exception] = {}
        self.gate = asyncio.Event()
        self.gate.set()
        self.asked = asyncio.Event()

    async def record(self, failures: Sequence[FailedMessage]) -> Sequence[Recorded]:
        self.asked.set()
        await self.gate.wait()
        if self.broken:
            raise self.broken
        for failure in failures:
            if failure.message_id in self.refuses:
                raise self.refuses[failure.message_id]
        return await super().record(failures)


class WatchedClock(ManualClock):
    """Tells when someone begins to sleep, and for how many seconds."""

    def __init__(self) -> None:
        super().__init__()
        self.sleeps: asyncio.Queue[float] = asyncio.Queue()

    async def sleep_until(self, when_ns: int) -> None:
        self.sleeps.put_nowait((when_ns - self.now_ns()) / 1e9)
        await super().sleep_until(when_ns)

    async def next_sleep(self) -> float:
        async with asyncio.timeout(10):
            return await self.sleeps.get()


def dead_letter(message_id: str, **attributes: str) -> Message:
    return Message(b"\x00payload", attributes, message_id=message_id, publish_time_ns=1)


@pytest.fixture
def transport() -> AtLeastOnce:
    return AtLeastOnce()


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    store = await Store.in_memory()
    yield store
    await store.close()


@pytest.fixture
def clock() -> WatchedClock:
    return WatchedClock()


@asynccontextmanager
async def collecting(
    transport: AtLeastOnce, store: FailureStore, clock: Clock, *subscriptions: str
) -> AsyncIterator[Collector]:
    """Runs a collector; at the end it must stop at once and leave no task behind."""
    before = asyncio.all_tasks()
    collector = Collector(transport, store, clock, subscriptions or [ORDERS])
    running = asyncio.create_task(collector.run())
    try:
        yield collector
    finally:
        collector.stop()
        async with asyncio.timeout(5):
            await running
        assert asyncio.all_tasks() == before


async def test_a_dead_letter_becomes_a_row_and_is_acked(
    transport: AtLeastOnce, store: Store, clock: WatchedClock
) -> None:
    async with collecting(transport, store, clock):
        await transport.publish(ORDERS, dead_letter("1", **{names.SOURCE_MESSAGE_ID: "source-1", "tenant": "a"}))
        await transport.until_acked("1")
    [failure] = await all_rows(store)
    assert failure.message_id == "source-1"
    assert failure.subscription == "projects/local/subscriptions/orders"
    assert failure.attributes == {"tenant": "a"}
    assert failure.created_at_ns == clock.now_ns()


async def test_nothing_is_acked_before_it_is_recorded(
    transport: AtLeastOnce, store: Store, clock: WatchedClock
) -> None:
    store.gate.clear()
    async with collecting(transport, store, clock):
        await transport.publish(ORDERS, dead_letter("1"))
        await store.asked.wait()
        assert transport.acked == []
        store.gate.set()
        await transport.until_acked("1")
    assert await message_ids(store) == ["1"]


async def test_many_dead_letters_of_several_subscriptions(
    transport: AtLeastOnce, store: Store, clock: WatchedClock
) -> None:
    wanted = [str(number) for number in range(300)]
    for message_id in wanted:
        await transport.publish(ORDERS if int(message_id) % 2 else BILLING, dead_letter(message_id))
    async with collecting(transport, store, clock, ORDERS, BILLING):
        await transport.until_acked(*wanted)
    assert sorted(await message_ids(store)) == sorted(wanted)
    assert transport.receives < 30  # in batches


async def test_a_dead_letter_that_came_twice_is_one_row_and_acked_twice(
    transport: AtLeastOnce, store: Store, clock: WatchedClock
) -> None:
    for message_id in ("first copy", "second copy"):
        await transport.publish(ORDERS, dead_letter(message_id, **{names.SOURCE_MESSAGE_ID: "1"}))
    async with collecting(transport, store, clock):
        await transport.until_acked("first copy", "second copy")
    assert await message_ids(store) == ["1"]


async def test_an_ack_that_failed_is_made_up_for_at_the_redelivery(
    transport: AtLeastOnce, store: Store, clock: WatchedClock
) -> None:
    transport.broken["ack"] = ConnectionError("gone")
    async with collecting(transport, store, clock):
        await transport.publish(ORDERS, dead_letter("1"))
        await clock.next_sleep()
        assert await message_ids(store) == ["1"]
        transport.broken.clear()
        await transport.expire_leases()
        clock.advance(1)
        await transport.until_acked("1")
    assert await message_ids(store) == ["1"]


@pytest.mark.parametrize("error", [StorageUnavailable("disk full"), ValueError("a bug")])
async def test_while_the_store_is_down_nothing_is_acked_and_pauses_grow(
    transport: AtLeastOnce,
    store: Store,
    clock: WatchedClock,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
) -> None:
    store.broken = error
    async with collecting(transport, store, clock):
        await transport.publish(ORDERS, dead_letter("1"))
        pauses = [await clock.next_sleep()]
        for _ in range(11):
            clock.advance(60)
            pauses.append(await clock.next_sleep())
        assert pauses[0] == pytest.approx(0.5, rel=0.11)
        assert pauses[3] > 4 * pauses[0]
        assert 54 <= pauses[-1] <= 60
        assert transport.acked == []
        assert transport.leased == {}  # handed back, not kept
        assert "cannot record 1 dead letters" in caplog.text
        assert str(error) in caplog.text
        assert "payload" not in caplog.text

        store.broken = None
        clock.advance(60)
        await transport.until_acked("1")
    assert await message_ids(store) == ["1"]


async def test_after_a_recovery_pauses_are_short_again(
    transport: AtLeastOnce, store: Store, clock: WatchedClock
) -> None:
    store.broken = StorageUnavailable("down")
    async with collecting(transport, store, clock):
        await transport.publish(ORDERS, dead_letter("1"))
        for _ in range(5):
            await clock.next_sleep()
            clock.advance(60)
        await clock.next_sleep()
        store.broken = None
        clock.advance(60)
        await transport.until_acked("1")
        store.broken = StorageUnavailable("down again")
        await transport.publish(ORDERS, dead_letter("2"))
        assert await clock.next_sleep() <= 0.5 * 1.1


@pytest.mark.parametrize("error", [StorageUnavailable("locked"), UnicodeEncodeError("utf-8", "x", 0, 1, "no")])
async def test_one_row_that_cannot_be_recorded_does_not_hold_up_the_others(
    transport: AtLeastOnce, store: Store, clock: WatchedClock, error: Exception
) -> None:
    store.refuses = {"bad": error}
    good = [str(number) for number in range(3 * BATCH)]
    for message_id in ("bad", *good):
        await transport.publish(ORDERS, dead_letter(message_id))
    async with collecting(transport, store, clock):
        await transport.until_acked(*good)  # without a pause: the clock stands still
        await clock.next_sleep()  # now only the bad one is left
        assert set(transport.nacked) == {"bad"}
        await transport.publish(ORDERS, dead_letter("late"))
        clock.advance(60)
        await transport.until_acked("late")
        await clock.next_sleep()
        store.refuses = {}
        clock.advance(60)
        await transport.until_acked("bad")
    assert sorted(await message_ids(store)) == sorted([*good, "late", "bad"])


@pytest.mark.parametrize("error", [NotFound("no such subscription"), ConnectionError("refused")])
async def test_a_broken_subscription_is_tried_again_and_leaves_the_others_alone(
    transport: AtLeastOnce,
    store: Store,
    clock: WatchedClock,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
) -> None:
    transport.broken[ORDERS] = error
    await transport.publish(ORDERS, dead_letter("1"))
    await transport.publish(BILLING, dead_letter("2"))
    async with collecting(transport, store, clock, ORDERS, BILLING):
        await transport.until_acked("2")
        await clock.next_sleep()
        assert f"cannot collect from {ORDERS}" in caplog.text
        transport.broken.clear()
        clock.advance(1)
        await transport.until_acked("1")


async def test_a_nack_that_fails_loses_nothing(transport: AtLeastOnce, store: Store, clock: WatchedClock) -> None:
    store.broken = StorageUnavailable("down")
    transport.broken["nack"] = ConnectionError("gone")
    async with collecting(transport, store, clock):
        await transport.publish(ORDERS, dead_letter("1"))
        await clock.next_sleep()
        store.broken = None
        await transport.expire_leases()
        clock.advance(60)
        await transport.until_acked("1")


async def test_garbage_is_recorded_too(transport: AtLeastOnce, store: Store, clock: WatchedClock) -> None:
    garbage = dict.fromkeys(names.ALL - {names.SOURCE_MESSAGE_ID}, "\ud800/\x00" * 50)
    await transport.publish(ORDERS, dead_letter("1", **garbage))
    async with collecting(transport, store, clock):
        await transport.until_acked("1")
    assert await message_ids(store) == ["1"]


# Stopping. `collecting` itself checks that the collector ends at once and leaves no task.


async def test_it_stops_while_it_waits_for_a_dead_letter(
    transport: AtLeastOnce, store: Store, clock: WatchedClock
) -> None:
    async with collecting(transport, store, clock, ORDERS, BILLING):
        await transport.until_receiving(2)


async def test_it_stops_during_a_pause(transport: AtLeastOnce, store: Store, clock: WatchedClock) -> None:
    store.broken = StorageUnavailable("down")
    async with collecting(transport, store, clock):
        await transport.publish(ORDERS, dead_letter("1"))
        await clock.next_sleep()
    assert transport.leased == {}


async def test_it_stops_before_it_has_begun(transport: AtLeastOnce, store: Store, clock: WatchedClock) -> None:
    async with collecting(transport, store, clock) as collector:
        collector.stop()
    assert transport.receives == 0


async def test_it_stops_with_no_subscription_at_all(store: Store, clock: WatchedClock) -> None:
    collector = Collector(AtLeastOnce(), store, clock, [])
    running = asyncio.create_task(collector.run())
    collector.stop()
    await asyncio.wait_for(running, 5)


async def test_a_stop_lets_what_was_received_be_recorded_and_acked(
    transport: AtLeastOnce, store: Store, clock: WatchedClock
) -> None:
    store.gate.clear()
    async with collecting(transport, store, clock) as collector:
        await transport.publish(ORDERS, dead_letter("1"))
        await store.asked.wait()
        collector.stop()
        await asyncio.sleep(0)
        store.gate.set()
    assert transport.acked == ["1"]
    assert await message_ids(store) == ["1"]


async def test_what_a_cancelled_collector_left_is_collected_by_the_next(
    transport: AtLeastOnce, store: Store, clock: WatchedClock
) -> None:
    before = asyncio.all_tasks()
    store.gate.clear()
    running = asyncio.create_task(Collector(transport, store, clock, [ORDERS]).run())
    await transport.publish(ORDERS, dead_letter("1"))
    await store.asked.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert asyncio.all_tasks() == before
    assert transport.acked == []

    store.gate.set()
    await transport.expire_leases()
    async with collecting(transport, store, clock):
        await transport.until_acked("1")
    assert await message_ids(store) == ["1"]


# All troubles at once.


class Unreliable(AtLeastOnce):
    """Every call may fail, before or after it took effect."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self.chance = chance
        self.calm = False

    def maybe_fail(self) -> None:
        if not self.calm and self.chance.random() < 0.2:
            raise ConnectionError("now and then")

    async def receive(self, subscription: str, max_messages: int, wait_seconds: float) -> Sequence[Delivery]:
        self.maybe_fail()
        received = await super().receive(subscription, self.chance.randint(1, max_messages), 0.001)
        self.maybe_fail()
        return received

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        self.maybe_fail()
        await super().ack(deliveries)
        self.maybe_fail()

    async def nack(
        self, deliveries: Sequence[Delivery], delay_seconds: float = 0.0, *, reason: str = "", error: str = ""
    ) -> None:
        self.maybe_fail()
        await super().nack(deliveries)
        self.maybe_fail()


class UnreliableStore(SqliteDeskStore):
    transport: Unreliable

    async def record(self, failures: Sequence[FailedMessage]) -> Sequence[Recorded]:
        self.transport.maybe_fail()
        await asyncio.sleep(0)
        recorded = await super().record(failures)
        self.transport.maybe_fail()
        return recorded


class HastyClock(ManualClock):
    """Nobody waits: time moves to where a sleeper wants it."""

    async def sleep_until(self, when_ns: int) -> None:
        self.advance(max(0, when_ns - self.now_ns()) / 1e9)
        await asyncio.sleep(0)


@pytest.mark.parametrize("seed", range(20))
async def test_whatever_fails_every_dead_letter_ends_as_one_row(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    chance = random.Random(seed)
    transport = Unreliable(chance)
    store = await UnreliableStore.in_memory()
    store.transport = transport
    wanted = [f"{seed} {number}" for number in range(100)]
    for message_id in wanted:
        await transport.publish(ORDERS, dead_letter(message_id))

    # Killed again and again, at any point.
    for _ in range(10):
        running = asyncio.create_task(Collector(transport, store, HastyClock(), [ORDERS]).run())
        for _ in range(chance.randint(0, 200)):
            await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        recorded = set(await message_ids(store))
        assert set(transport.acked) <= recorded  # at no time is anything acked that is not a row
        await transport.expire_leases()

    transport.calm = True
    async with collecting(transport, store, HastyClock()):
        await transport.until_acked(*wanted)
    assert sorted(await message_ids(store)) == sorted(wanted)
    await store.close()
