"""A desk over a real store and, where a test wants one, a real broker in this process, on a clock moved by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from holdfast.broker.service import Broker
from holdfast.deadletter.collector import Collector
from holdfast.deadletter.intake import Intake
from holdfast.deadletter.outlet import Outlet
from holdfast.deadletter.pace import Pace
from holdfast.deadletter.resubmission import Resubmission
from holdfast.deadletter.retries import RetryScheduler
from holdfast.deadletter.retry_ends import RetryEnds
from holdfast.deadletter.retry_policy import RetryPolicy
from holdfast.deadletter.selection import Selection
from holdfast.deadletter.sending import Sending
from holdfast.deadletter.sources import Sources
from holdfast.deadletter.store import DeskStore
from holdfast.ingest.validation import Validation
from holdfast.model.failed_message import FailedMessage
from holdfast.model.message import Delivery, Message
from holdfast.model.resources import DeadLetterPolicy, Subscription, Topic
from holdfast.settings import BrokerSettings
from holdfast.stores.memory.log import MemoryMessageLog
from holdfast.stores.sqlite.desk import SqliteDeskStore
from holdfast.testing import ManualClock
from holdfast.transports.local import LocalTransport

PROJECT = "projects/local"
TOPIC = "projects/local/topics/orders"
ORDERS = "projects/local/subscriptions/orders"
DEAD_LETTERS = "projects/local/topics/orders.dlq"
DESK = "projects/local/subscriptions/orders.dlq.desk"

SETTLE_SECONDS = 900.0


async def rows_of(store: DeskStore) -> list[FailedMessage]:
    """Oldest first."""
    return [*reversed((await store.list(Selection(), 10_000)).failures)]


async def until(condition: Callable[[], bool]) -> None:
    """For what no part tells: it is looked for at every turn of the loop."""
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.002)


@asynccontextmanager
async def running(*parts: RetryScheduler | Collector) -> AsyncIterator[None]:
    """At the end they must stop at once and leave no task behind."""
    before = asyncio.all_tasks()
    tasks = [asyncio.create_task(part.run()) for part in parts]
    try:
        yield
    finally:
        for part in parts:
            part.stop()
        async with asyncio.timeout(5):
            await asyncio.gather(*tasks)
        left = asyncio.all_tasks() - before
        assert not [task for task in left if "Timers" not in repr(task)]  # those are the broker's


@dataclass
class Parts:
    """What a desk process has, wired as it is there. `policy` has no jitter: tests move the clock by whole delays."""

    store: DeskStore
    clock: ManualClock
    sending: Sending
    policy: RetryPolicy = field(default_factory=lambda: RetryPolicy(jitter=0.0))
    validation: Validation | None = None

    @classmethod
    async def over(cls, store: DeskStore, clock: ManualClock) -> Parts:
        return cls(store, clock, await Sending.of(store))

    def intake(self, on_queued: Callable[[], None] = lambda: None) -> Intake:
        return Intake(self.store, self.sending, self.policy, self.clock, on_queued)

    def scheduler(self, outlet: Outlet, per_second: float = 100.0) -> RetryScheduler:
        ends = RetryEnds(self.store, outlet, self.policy, self.clock, SETTLE_SECONDS)
        resubmission = Resubmission(outlet, self.sending, self.policy, self.clock, self.validation)
        return RetryScheduler(self.store, outlet, self.sending, ends, resubmission, self.clock, Pace(per_second))

    def collector(self, transport: LocalTransport, intake: Intake | None = None) -> Collector:
        sources = Sources(transport, PROJECT)
        return Collector(transport, intake or self.intake(), self.clock, sources)


@asynccontextmanager
async def memory_desk() -> AsyncIterator[Parts]:
    clock = ManualClock()
    store = await SqliteDeskStore.in_memory(clock)
    try:
        yield await Parts.over(store, clock)
    finally:
        await store.close()


@asynccontextmanager
async def memory_broker(clock: ManualClock) -> AsyncIterator[Broker]:
    """With a subscription that dead-letters after five attempts, and the desk's. Failures of all messages are what the
    tests want here, and no storm."""
    broker = await Broker.open(MemoryMessageLog(), clock, BrokerSettings(breaker_share=0))
    for topic in (TOPIC, DEAD_LETTERS):
        await broker.create_topic(Topic(topic))
    await broker.create_subscription(Subscription(ORDERS, TOPIC, dead_letter=DeadLetterPolicy(DEAD_LETTERS, 5)))
    await broker.create_subscription(Subscription(DESK, DEAD_LETTERS))
    try:
        yield broker
    finally:
        await broker.close()


class Consumer:
    """Of the subscription, by hand."""

    def __init__(self, broker: Broker, subscription: str = ORDERS) -> None:
        self._transport = LocalTransport(broker)
        self._subscription = subscription

    async def receive(self, most: int = 1000) -> Sequence[Delivery]:
        return await self._transport.receive(self._subscription, most, 0.0)

    async def ack(self) -> list[Message]:
        """Whatever is there."""
        deliveries = await self.receive()
        await self._transport.ack(deliveries)
        return [delivery.message for delivery in deliveries]

    async def fail(self) -> list[Message]:
        """Whatever is there, until it is dead-lettered."""
        failed: dict[str, Message] = {}
        while deliveries := await self.receive():
            failed |= {delivery.message.message_id: delivery.message for delivery in deliveries}
            await self._transport.nack(deliveries)
            await asyncio.sleep(0)
        return list(failed.values())
