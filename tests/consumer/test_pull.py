"""Streaming pull on a real broker in this process, a clock moved by hand, and a transport that can be made to fail."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from holdfast.broker.service import Broker
from holdfast.consumer import Consumer, Event, Poison, Transient, Upsert
from holdfast.consumer.leases import ACK_TRIES, DEADLINE_SECONDS, EXTEND_EVERY_SECONDS
from holdfast.consumer.pipeline import Pipeline
from holdfast.consumer.pull import LONGEST_PAUSE_SECONDS, ORDINARY_LIFE_SECONDS, pulling
from holdfast.consumer.settle import Settlement, Way
from holdfast.consumer.transport import Stream
from holdfast.errors import HoldfastError, Misconfigured, NotFound, StaleAckIds, StorageUnavailable
from holdfast.model.message import Delivery, Message
from holdfast.model.outcome import Applied
from holdfast.model.resources import DeadLetterPolicy, Subscription, Topic
from holdfast.settings import BrokerSettings, ConsumerSettings
from holdfast.stores.memory.documents import MemoryDocumentStore
from holdfast.stores.memory.log import MemoryMessageLog
from holdfast.testing import ManualClock
from holdfast.transports.local import LocalTransport
from tests.support.failures import Captured

TOPIC = "projects/local/topics/orders"
DEAD_LETTERS = "projects/local/topics/orders.dlq"
WORKER = "projects/local/subscriptions/worker"
OTHER = "projects/local/subscriptions/other"

# Nothing here waits for time or for a disk, so whatever can happen has happened after some rounds of the loop.
ROUNDS = 200

# Longest wait, in real time, for something that takes many more of them.
PATIENCE_SECONDS = 10


class Breakable:
    """A stream that ends when it is told to."""

    def __init__(self, stream: Stream, transport: FaultyTransport, broken: asyncio.Future[None]) -> None:
        self._stream = stream
        self._transport = transport
        self._broken = broken
        self._kept: list[Delivery] = []

    @property
    def ordered(self) -> bool:
        return self._stream.ordered or self._transport.claims_order

    async def receive(self) -> Sequence[Delivery]:
        deliveries = [*self._kept] or await self._receive()
        if self._transport.boundless:
            deliveries, self._kept = deliveries[:1], deliveries[1:]
        self._transport.received += len(deliveries)
        return deliveries * 2 if self._transport.doubled else deliveries

    async def _receive(self) -> list[Delivery]:
        receiving = asyncio.ensure_future(self._stream.receive())
        ends: list[asyncio.Future[Any]] = [receiving, self._broken]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if self._broken.done():
                self._broken.result()
            return [*await receiving]
        finally:
            receiving.cancel()
            await asyncio.gather(receiving, return_exceptions=True)


class FaultyTransport(LocalTransport):
    """Notes what it is asked for. `failing` makes calls fail, by name, before they change anything."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self.failing: dict[str, list[Exception]] = defaultdict(list)
        self.boundless = False  # streams send without limits, one message at a time
        self.doubled = False  # every delivery comes twice
        self.claims_order = False  # streams say that there is an order, and send several of a key at once
        self.received = 0
        self.opened: Counter[str] = Counter()
        self.limits: tuple[int, int] = (0, 0)
        self.streams: dict[str, asyncio.Future[None]] = {}
        self.nacked: list[tuple[str, float]] = []
        self.rejected: list[tuple[str, str, str]] = []
        self.told: list[tuple[str, str]] = []  # with each nack: reason and error
        self.extended: Counter[str] = Counter()
        self.acked: list[list[str]] = []
        self.ack_may_go = asyncio.Event()
        self.ack_may_go.set()

    def break_stream(self, error: BaseException, subscription: str = WORKER) -> None:
        self.streams[subscription].set_exception(error)

    @asynccontextmanager
    async def stream(  # type: ignore[override]
        self, subscription: str, max_messages: int, max_bytes: int, deadline_seconds: int
    ) -> AsyncIterator[Breakable]:
        self.opened[subscription] += 1
        self.limits = (max_messages, max_bytes)
        self._fail("stream")
        if self.boundless:
            max_messages = max_bytes = 0
        async with super().stream(subscription, max_messages, max_bytes, deadline_seconds) as stream:
            broken = self.streams[subscription] = asyncio.get_running_loop().create_future()
            try:
                yield Breakable(stream, self, broken)
            finally:
                broken.cancel()

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        await self.ack_may_go.wait()
        self._fail("ack")
        self.acked.append([text(delivery) for delivery in deliveries])
        await super().ack(deliveries)

    async def nack(
        self, deliveries: Sequence[Delivery], delay_seconds: float = 0.0, *, reason: str = "", error: str = ""
    ) -> None:
        self._fail("nack")
        self.told.append((reason, error))
        self.nacked += [(text(delivery), delay_seconds) for delivery in deliveries]
        await super().nack(deliveries, delay_seconds, reason=reason, error=error)

    async def reject(self, deliveries: Sequence[Delivery], reason: str, error: str) -> None:
        self._fail("nack")
        self.rejected += [(text(delivery), reason, error) for delivery in deliveries]
        await super().reject(deliveries, reason, error)

    async def extend(self, deliveries: Sequence[Delivery], seconds: int) -> None:
        self._fail("extend")
        self.extended.update(text(delivery) for delivery in deliveries)
        await super().extend(deliveries, seconds)

    def _fail(self, call: str) -> None:
        if self.failing[call]:
            raise self.failing[call].pop(0)


class World:
    """A broker, a consumer that pulls from it, and what its handler saw. A handler waits while its `id` is held."""

    def __init__(self, broker: Broker, clock: ManualClock, **settings: Any) -> None:
        self.broker = broker
        self.clock = clock
        self.transport = FaultyTransport(broker)
        self.settings = ConsumerSettings(**settings)
        self.store = MemoryDocumentStore()
        self.failures = Captured(clock)
        app = Consumer()
        app.on("orders")(self._order)
        self.pipeline = Pipeline(app, self.store, self.failures, clock, self.settings)
        self.errors: dict[str, BaseException] = {}
        self.held: set[str] = set()
        self.begun: list[str] = []
        self.ended: list[str] = []
        self.running = 0
        self.most_running = 0
        self._released = asyncio.Event()

    async def _order(self, event: Event) -> Upsert:
        name = str(event.data["id"])
        self.begun.append(name)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            while name in self.held:
                await self._released.wait()
            if name in self.errors:
                raise self.errors[name]
            self.ended.append(name)
            return Upsert("orders", name, {"seen": 1})
        finally:
            self.running -= 1

    def release(self, *names: str) -> None:
        self.held -= set(names)
        self._released.set()
        self._released = asyncio.Event()

    @asynccontextmanager
    async def pulling(self, *subscriptions: str) -> AsyncIterator[None]:
        async with pulling(self.transport, self.pipeline, self.clock, self.settings, subscriptions or (WORKER,)):
            try:
                yield
            except BaseException:  # a test that failed: nothing may hold up the stop, as no time passes any more
                self.release(*self.held)
                self.transport.ack_may_go.set()
                raise

    async def publish(self, *names: str, key: str = "", padding: int = 0) -> None:
        for name in names:
            data = json.dumps({"id": name, "padding": "x" * padding}).encode()
            await self.broker.publish_message(TOPIC, Message(data, ordering_key=key))

    async def documents(self) -> set[str]:
        page = await self.store.list("orders", 1000)
        return {document.id for document in page.documents}

    def is_settled(self, subscription: str = WORKER) -> bool:
        queue = self.broker.queue(subscription)
        return queue.settled.floor == queue.topic.visible_end and not queue.settled.failed

    async def advance(self, seconds: float) -> None:
        """In steps, with time for everybody to do what is due."""
        await let_it_run()
        while seconds > 0:
            step = min(1.0, seconds)
            self.clock.advance(step)
            seconds -= step
            await let_it_run()


def text(delivery: Delivery) -> str:
    return str(json.loads(delivery.message.data)["id"])


async def let_it_run() -> None:
    for _ in range(ROUNDS):
        await asyncio.sleep(0)


async def until(look: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not look():
        assert time.monotonic() < end, "it did not happen"
        await let_it_run()


@asynccontextmanager
async def world(subscription: dict[str, Any] | None = None, **settings: Any) -> AsyncIterator[World]:
    clock = ManualClock()
    broker = await Broker.open(MemoryMessageLog(), clock, BrokerSettings())
    for topic in (TOPIC, DEAD_LETTERS):
        await broker.create_topic(Topic(topic))
    await broker.create_subscription(Subscription(WORKER, TOPIC, **(subscription or {})))
    try:
        yield World(broker, clock, **settings)
    finally:
        await broker.close()


def logged(caplog: pytest.LogCaptureFixture, level: int, words: str) -> list[Any]:
    return [record for record in caplog.records if record.levelno == level and words in record.getMessage()]


# The ordinary way.


async def test_what_is_pulled_is_applied_and_acked() -> None:
    async with world() as w:
        await w.publish("a", "b")
        async with w.pulling():
            await until(w.is_settled)
            await w.publish("c")
            await until(w.is_settled)
        assert await w.documents() == {"a", "b", "c"}
        assert w.transport.nacked == []


async def test_acks_that_gather_while_one_is_under_way_go_together() -> None:
    async with world() as w, w.pulling():
        w.transport.ack_may_go.clear()
        await w.publish("a")
        await until(lambda: w.ended == ["a"])
        await let_it_run()
        await w.publish("b", "c", "d")
        await until(lambda: len(w.ended) == 4)
        await let_it_run()
        w.transport.ack_may_go.set()
        await until(w.is_settled)
        assert w.transport.acked == [["a"], ["b", "c", "d"]]


async def test_poison_on_a_subscription_with_a_policy_is_rejected() -> None:
    async with world({"dead_letter": DeadLetterPolicy(DEAD_LETTERS, 5)}) as w:
        w.errors["bad"] = Poison("never", reason="NO_PRICE")
        await w.publish("bad")
        async with w.pulling():
            await until(w.is_settled)
        assert w.transport.rejected == [("bad", "NO_PRICE", "never")]
        assert w.begun == ["bad"]


async def test_a_retry_says_why() -> None:
    async with world() as w:
        w.errors |= {name: Transient(f"{name} is away", reason="AWAY") for name in ("a", "b")}
        await w.publish("a", "b")
        async with w.pulling():
            await until(lambda: len(w.transport.told) == 2)
        assert sorted(w.transport.told) == [("AWAY", "a is away"), ("AWAY", "b is away")]


async def test_an_outage_costs_no_call_for_each_message() -> None:
    """Its errors may all differ, in a port or a time."""
    async with world() as w:
        names = [f"m{number}" for number in range(200)]
        w.errors |= {name: Transient(f"{name} is away", retry_after=60) for name in names}
        await w.publish(*names)
        async with w.pulling():
            await until(lambda: len(w.transport.nacked) == len(names))
        assert len(w.transport.told) < 100


# Failures and delays.


async def test_a_failure_comes_again_after_its_delay_and_not_before() -> None:
    async with world() as w, w.pulling():
        w.errors["a"] = Transient("later", retry_after=45.5)
        await w.publish("a")
        await until(lambda: w.transport.nacked == [("a", 46)])  # brokers know whole seconds
        w.errors.clear()
        await w.advance(45)  # its lease is not extended, and not cut short, meanwhile
        assert w.begun == ["a"]
        assert w.transport.extended == {}
        await w.advance(2)
        assert w.begun == ["a", "a"]
        assert w.is_settled()


async def test_an_extension_under_way_does_not_cut_a_delay_short() -> None:
    """The nack waits for it, so that the broker hears of the delay last."""
    async with world() as w:
        order: list[str] = []
        may_extend = asyncio.Event()
        extend, nack = w.transport.extend, w.transport.nack

        async def slow_extend(deliveries: Sequence[Delivery], seconds: int) -> None:
            await may_extend.wait()
            order.append("extend")
            await extend(deliveries, seconds)

        async def noted_nack(deliveries: Sequence[Delivery], delay_seconds: float = 0.0, **why: str) -> None:
            order.append("nack")
            await nack(deliveries, delay_seconds, **why)

        w.transport.extend, w.transport.nack = slow_extend, noted_nack  # type: ignore[method-assign]
        w.held.add("a")
        w.errors["a"] = Transient("later", retry_after=300)
        async with w.pulling():
            await w.publish("a")
            await until(lambda: w.begun == ["a"])
            await w.advance(EXTEND_EVERY_SECONDS)
            w.release("a")
            await let_it_run()
            assert order == []
            may_extend.set()
            await until(lambda: order == ["extend", "nack"])
            await w.advance(299)
            assert w.begun == ["a"]


async def test_a_cancelled_error_of_somebody_else_is_a_failure_like_any_other() -> None:
    async with world() as w, w.pulling():
        w.errors["a"] = asyncio.CancelledError()
        await w.publish("a", "b")
        await until(lambda: "b" in w.ended and len(w.transport.nacked) == 1)
        w.errors.clear()
        await w.publish("c")
        await w.advance(2)
        assert w.is_settled()
        assert await w.documents() == {"a", "b", "c"}


async def test_what_the_pipeline_itself_throws_is_nacked_and_the_others_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with world() as w:
        handle = w.pipeline.handle
        errors: list[BaseException] = [RuntimeError("a defect"), asyncio.CancelledError()]

        async def sometimes(delivery: Delivery, way: Way) -> Settlement:
            if errors:
                raise errors.pop(0)
            return await handle(delivery, way)

        w.pipeline.handle = sometimes  # type: ignore[method-assign]
        async with w.pulling():
            await w.publish("a", "b", "c")
            await until(lambda: len(w.transport.nacked) == 2)
            await w.advance(2)
            assert w.is_settled()
        assert await w.documents() == {"a", "b", "c"}
        assert len(logged(caplog, logging.ERROR, "could not be handled")) == 2


# Leases.


async def test_a_slow_handler_is_not_given_its_message_twice() -> None:
    async with world() as w, w.pulling():
        w.held.add("slow")
        await w.publish("slow")
        await w.advance(20 * DEADLINE_SECONDS)
        assert w.begun == ["slow"]
        w.release("slow")
        await until(w.is_settled)
        assert w.begun == ["slow"]


async def test_a_failed_extension_is_made_up_for(caplog: pytest.LogCaptureFixture) -> None:
    async with world() as w, w.pulling():
        w.held.add("slow")
        await w.publish("slow")
        for _ in range(3):
            w.transport.failing["extend"] = [StorageUnavailable("away")] * 2
            await w.advance(DEADLINE_SECONDS)
        assert w.begun == ["slow"]
        assert len(logged(caplog, logging.WARNING, "could not be extended")) == 6
        w.release("slow")
        await until(w.is_settled)


async def test_what_is_worked_on_for_too_long_is_let_go(caplog: pytest.LogCaptureFixture) -> None:
    async with world(max_lease_seconds=60) as w, w.pulling():
        w.held.add("endless")
        await w.publish("endless")
        await w.advance(60)
        assert w.begun == ["endless"]
        await w.advance(DEADLINE_SECONDS + EXTEND_EVERY_SECONDS)
        assert w.begun == ["endless", "endless"]  # somebody else may have it now; here it is ourselves
        assert len(logged(caplog, logging.ERROR, "for too long")) == 1
        w.release("endless")
        await until(w.is_settled)  # what was let go is acked all the same


async def test_what_waits_for_its_ack_stays_ours() -> None:
    async with world() as w, w.pulling():
        w.transport.ack_may_go.clear()
        await w.publish("a")
        await w.advance(3 * DEADLINE_SECONDS)
        assert w.begun == ["a"]
        w.transport.ack_may_go.set()
        await until(w.is_settled)


async def test_an_ack_is_offered_again_while_the_broker_is_away() -> None:
    async with world() as w, w.pulling():
        w.transport.failing["ack"] = [StorageUnavailable("away")] * (ACK_TRIES - 1)
        await w.publish("a")
        await w.advance(25)
        assert w.is_settled()
        assert w.begun == ["a"]


@pytest.mark.parametrize(
    ("errors", "words", "level"),
    [
        ([StorageUnavailable("away")] * ACK_TRIES, "could not be acked", logging.ERROR),
        ([NotFound("gone")], "could not be acked", logging.ERROR),
        ([RuntimeError("a defect")], "could not be acked", logging.ERROR),
        ([StaleAckIds(["1"])], "too late", logging.WARNING),
    ],
)
async def test_a_lost_ack_costs_a_redelivery_and_nothing_else(
    caplog: pytest.LogCaptureFixture, errors: list[Exception], words: str, level: int
) -> None:
    async with world() as w, w.pulling():
        w.transport.failing["ack"] = errors
        await w.publish("a")
        await w.advance(25 + 2 * DEADLINE_SECONDS)
        assert w.is_settled()
        assert w.begun == ["a", "a"]
        assert [one.outcome for one in w.pipeline.recent.latest()] == ["duplicate", "applied"]
        assert len(logged(caplog, level, words)) == 1


async def test_exactly_once_acks_are_taken() -> None:
    async with world({"exactly_once": True}) as w, w.pulling():
        w.held.add("slow")
        await w.publish("slow", "b")
        await w.advance(2 * DEADLINE_SECONDS)
        w.release("slow")
        await until(w.is_settled)
        assert sorted(w.begun) == ["b", "slow"]


# Flow control.


async def test_the_pipeline_never_gets_more_than_it_takes() -> None:
    async with world(queue_size=3, max_workers=2) as w:
        in_house = most = 0
        handle = w.pipeline.handle

        async def counted(delivery: Delivery, way: Way) -> Settlement:
            nonlocal in_house, most
            in_house += 1
            most = max(most, in_house)
            try:
                return await handle(delivery, way)
            finally:
                in_house -= 1

        w.pipeline.handle = counted  # type: ignore[method-assign]
        names = [f"order-{number}" for number in range(100)]
        await w.publish(*names)
        async with w.pulling():
            await until(w.is_settled)
        assert most == 5
        assert {one.outcome for one in w.pipeline.recent.latest()} == {"applied"}
        assert w.transport.nacked == []


async def test_the_broker_sends_no_more_than_may_be_in_hand() -> None:
    async with world(queue_size=1, max_workers=1, pull_max_messages=10, pull_max_megabytes=3) as w:
        names = [f"order-{number}" for number in range(30)]
        w.held |= set(names)
        await w.publish(*names)
        async with w.pulling():
            await let_it_run()
            assert w.transport.limits == (10, 3_000_000)
            await w.advance(EXTEND_EVERY_SECONDS)
            assert len(w.transport.extended) == 10
            w.release(*names)
            await until(w.is_settled)


@pytest.mark.parametrize("limit", [{"pull_max_messages": 2}, {"pull_max_megabytes": 1}])
async def test_a_stream_is_not_read_while_too_much_is_in_hand(limit: dict[str, Any]) -> None:
    """Google's emulator sends without a look at what a stream allows."""
    async with world(queue_size=1, max_workers=1, **limit) as w:
        w.transport.boundless = True
        names = [f"order-{number}" for number in range(6)]
        w.held |= set(names)
        await w.publish(*names, padding=600_000)
        async with w.pulling():
            await let_it_run()
            assert w.transport.received == 2
            w.release(names[0])
            await let_it_run()
            assert w.transport.received == 3
            w.release(*names)
            await until(w.is_settled)


async def test_subscriptions_take_turns() -> None:
    """One that filled the pipeline before the other came leaves it every free place until they have equally many."""
    async with world(queue_size=2, max_workers=2) as w:
        await w.broker.create_subscription(Subscription(OTHER, TOPIC, filter='attributes.to = "other"'))
        in_house: list[tuple[str, asyncio.Event]] = []

        async def handle(delivery: Delivery, way: Way) -> Settlement:
            place = (delivery.subscription, asyncio.Event())
            in_house.append(place)
            await place[1].wait()
            in_house.remove(place)
            return Settlement(Applied(()), 200)

        w.pipeline.handle = handle  # type: ignore[method-assign]
        async with w.pulling(WORKER, OTHER):
            await w.publish(*(f"order-{number}" for number in range(20)))
            await until(lambda: len(in_house) == 4)
            for _ in range(20):
                await w.broker.publish_message(TOPIC, Message(b'{"id": "other"}', {"to": "other"}))
            await let_it_run()
            shares = []
            for _ in range(6):
                in_house[0][1].set()
                await let_it_run()
                shares.append(Counter(subscription for subscription, _ in in_house))
            while not (w.is_settled(WORKER) and w.is_settled(OTHER)):
                for _, leave in in_house:
                    leave.set()
                await let_it_run()
        assert shares == [{WORKER: 3, OTHER: 1}, *[{WORKER: 2, OTHER: 2}] * 5]


async def test_a_subscription_that_is_named_twice_is_pulled_once() -> None:
    async with world() as w, w.pulling(WORKER, WORKER):
        await w.publish("a")
        await until(w.is_settled)
        assert w.transport.opened[WORKER] == 1


# Order.


async def test_what_is_sent_again_through_a_topic_of_its_own_is_pulled_once_that_is_there(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with world() as w, w.pulling():
        await w.advance(100)
        topic = "projects/local/topics/worker.replay"
        await w.transport.ensure_topic(topic)
        await w.transport.ensure_subscription(Subscription(f"{WORKER}.replay", topic))
        await w.transport.publish(topic, Message(json.dumps({"id": "again", "topic": "orders"}).encode()))
        await w.advance(2 * LONGEST_PAUSE_SECONDS)
        await until(lambda: w.begun == ["again"])
    assert not caplog.records


async def test_a_subscription_that_is_not_there_is_still_told(caplog: pytest.LogCaptureFixture) -> None:
    async with world() as w, w.pulling(f"{WORKER}-nowhere"):
        await until(lambda: len(caplog.records) >= 1)
    assert "does not exist" in str(caplog.records[0].fields)  # type: ignore[attr-defined]


async def test_messages_of_one_key_are_handled_one_after_the_other() -> None:
    async with world() as w:
        w.transport.claims_order = True
        names = [f"order-{number}" for number in range(20)]
        w.held |= set(names)
        await w.publish(*names, key="customer")
        async with w.pulling():
            for number, name in enumerate(names, start=1):
                await let_it_run()
                assert w.begun == names[:number]
                w.release(name)
            await until(w.is_settled)


async def test_keys_do_not_wait_for_each_other() -> None:
    async with world({"ordered": True}) as w, w.pulling():
        w.held.add("a1")
        for key in ("a", "b"):
            await w.publish(f"{key}1", f"{key}2", key=key)
        await w.publish("free")
        await until(lambda: set(w.ended) == {"b1", "b2", "free"})
        assert w.ended.index("b1") < w.ended.index("b2")
        w.release("a1")
        await until(w.is_settled)
        assert w.ended.index("a1") < w.ended.index("a2")


async def test_a_failure_takes_those_behind_it_along() -> None:
    async with world() as w:
        w.transport.claims_order = True
        w.errors["a1"] = Transient("later", retry_after=5)
        await w.publish("a1", "a2", "a3", key="a")
        await w.publish("b1", key="b")
        async with w.pulling():
            await until(lambda: len(w.transport.nacked) == 3)
            assert w.transport.nacked == [("a1", 5), ("a2", 5), ("a3", 5)]
            w.errors.clear()
            await w.advance(7)
            assert w.is_settled()
        assert [name for name in w.ended if name.startswith("a")] == ["a1", "a2", "a3"]


async def test_keys_mean_nothing_where_the_subscription_keeps_no_order() -> None:
    async with world() as w, w.pulling():
        w.held.add("a1")
        w.errors["a2"] = Transient("later", retry_after=5)
        await w.publish("a1", "a2", "a3", key="a")
        await until(lambda: w.ended == ["a3"] and bool(w.transport.nacked))
        assert w.transport.nacked == [("a2", 5)]
        w.release("a1")


# Streams that end.


async def test_a_stream_that_had_its_time_is_opened_again_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    async with world() as w, w.pulling():
        for number in range(3):
            await w.advance(ORDINARY_LIFE_SECONDS)
            w.transport.break_stream(StorageUnavailable("its half hour is over"))
            await w.advance(1)
            await w.publish(f"after-{number}")
            await until(w.is_settled)
        assert w.transport.opened[WORKER] == 4
        assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize(
    ("error", "level"),
    [
        (StorageUnavailable("no answer"), logging.ERROR),
        (NotFound("no such subscription"), logging.ERROR),
        (Misconfigured("no permission"), logging.CRITICAL),
        (RuntimeError("a defect"), logging.ERROR),
        (asyncio.CancelledError(), logging.ERROR),
    ],
)
async def test_whatever_ends_a_stream_it_is_told_and_tried_again(
    caplog: pytest.LogCaptureFixture, error: BaseException, level: int
) -> None:
    async with world() as w, w.pulling():
        await let_it_run()
        w.transport.break_stream(error)
        await let_it_run()
        assert len(logged(caplog, level, "cannot be pulled")) == 1
        await w.publish("a")
        await w.advance(1)
        assert w.is_settled()


async def test_pauses_grow_while_the_trouble_lasts_and_others_are_not_held_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with world() as w, w.pulling("projects/local/subscriptions/absent", WORKER):
        await w.publish("a")
        await until(w.is_settled)
        await w.advance(300)
        told = len(logged(caplog, logging.ERROR, "cannot be pulled"))
        assert 10 <= told <= 20
        await w.broker.create_subscription(Subscription("projects/local/subscriptions/absent", TOPIC))
        await w.publish("b")
        await w.advance(31)
        assert w.is_settled()
        assert w.is_settled("projects/local/subscriptions/absent")


async def test_what_is_worked_on_while_a_stream_ends_stays_ours() -> None:
    async with world() as w, w.pulling():
        w.held.add("slow")
        await w.publish("slow")
        await until(lambda: w.begun == ["slow"])
        w.transport.break_stream(StorageUnavailable("gone"))
        await w.advance(DEADLINE_SECONDS)
        assert w.transport.opened[WORKER] == 2
        assert w.begun == ["slow"]
        w.release("slow")
        await until(w.is_settled)


async def test_a_delivery_that_is_in_our_hands_already_is_not_begun_again() -> None:
    async with world() as w:
        w.transport.doubled = True
        await w.publish("a", "b")
        async with w.pulling():
            await until(w.is_settled)
        assert w.begun == ["a", "b"]


# Stopping.


async def test_at_a_stop_what_was_begun_is_finished_and_the_rest_given_back() -> None:
    async with world(queue_size=1, max_workers=1) as w:
        names = ["one", "two", "three", "four"]
        w.held |= set(names)
        await w.publish(*names)
        async with w.pulling():
            await until(lambda: w.begun == ["one"])
            asyncio.get_running_loop().call_soon(w.release, "one", "two")
        assert w.ended == ["one", "two"]
        assert w.transport.nacked == [("three", 0.0), ("four", 0.0)]
        assert await w.documents() == {"one", "two"}
        assert w.transport.acked[-1][-1] == "two"
        w.release(*names)
        async with w.pulling():
            await until(w.is_settled)
        assert w.begun == names


async def test_a_stop_waits_for_a_slow_handler_and_keeps_its_lease() -> None:
    async with world(drain_seconds=100) as w:
        w.held.add("slow")
        await w.publish("slow")
        manager = w.pulling()
        await manager.__aenter__()
        await until(lambda: w.begun == ["slow"])
        stopping = asyncio.ensure_future(manager.__aexit__(None, None, None))
        await w.advance(2 * DEADLINE_SECONDS)
        assert not stopping.done()
        assert await w.broker.pull(WORKER, 10, 0) == []
        w.release("slow")
        await stopping
        assert w.is_settled()


async def test_a_stop_gives_up_on_a_handler_that_does_not_end(caplog: pytest.LogCaptureFixture) -> None:
    async with world(drain_seconds=10) as w:
        w.held.add("endless")
        await w.publish("endless", "b")
        manager = w.pulling()
        await manager.__aenter__()
        await until(lambda: w.ended == ["b"])
        stopping = asyncio.ensure_future(manager.__aexit__(None, None, None))
        await w.advance(9)
        assert not stopping.done()
        await w.advance(1)
        await stopping
        assert w.transport.nacked == [("endless", 0.0)]
        assert len(logged(caplog, logging.WARNING, "unfinished")) == 1
        w.release("endless")
        async with w.pulling():
            await until(w.is_settled)


async def test_a_stop_is_not_held_up_by_a_handler_that_cannot_be_cancelled() -> None:
    async with world(drain_seconds=10) as w:
        may_end = asyncio.Event()
        handle = w.pipeline.handle

        async def stubborn(delivery: Delivery, way: Way) -> Settlement:
            while not may_end.is_set():
                with suppress(asyncio.CancelledError):
                    await may_end.wait()
            return await handle(delivery, way)

        w.pipeline.handle = stubborn  # type: ignore[method-assign]
        await w.publish("a")
        manager = w.pulling()
        await manager.__aenter__()
        await let_it_run()
        stopping = asyncio.ensure_future(manager.__aexit__(None, None, None))
        await w.advance(20)
        await stopping
        assert w.transport.nacked == [("a", 0.0)]
        may_end.set()
        await let_it_run()


async def test_a_stop_is_not_held_up_by_a_broker_that_is_away(caplog: pytest.LogCaptureFixture) -> None:
    async with world() as w:
        w.transport.ack_may_go.clear()
        await w.publish("a")
        manager = w.pulling()
        await manager.__aenter__()
        await until(lambda: w.ended == ["a"])
        stopping = asyncio.ensure_future(manager.__aexit__(None, None, None))
        await w.advance(6)
        await stopping
        assert len(logged(caplog, logging.WARNING, "does not answer")) == 1


async def test_a_stop_right_after_the_start_leaves_nothing_behind() -> None:
    async with world() as w:
        await w.publish("a")
        async with w.pulling(WORKER, OTHER):
            pass
        left = {task.get_coro() for task in asyncio.all_tasks()}
        assert [one for one in left if "/consumer/pull" in str(one) or "/consumer/leases" in str(one)] == []


async def test_a_stop_waits_until_the_broker_has_the_last_acks() -> None:
    async with world() as w:
        w.transport.ack_may_go.clear()
        await w.publish("a")
        manager = w.pulling()
        await manager.__aenter__()
        await until(lambda: w.ended == ["a"])
        stopping = asyncio.ensure_future(manager.__aexit__(None, None, None))
        await w.advance(4)
        assert not stopping.done()
        w.transport.ack_may_go.set()
        await stopping
        assert w.is_settled()


async def test_trouble_in_one_stop_is_no_trouble_in_another() -> None:
    async with world() as w:
        async with w.pulling("projects/local/subscriptions/absent", WORKER):
            await w.publish("a")
            await until(lambda: w.ended == ["a"])
            w.transport.failing["extend"] = [HoldfastError("away")] * 5
        assert w.is_settled()
