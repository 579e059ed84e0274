"""A desk and a broker, both real, in this process: a topic with three subscriptions, of which one fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TypeVar

import pytest

from holdfast.broker.service import Broker
from holdfast.clock import NANOSECONDS, SystemClock
from holdfast.deadletter.audit import Action
from holdfast.deadletter.failures import Edit
from holdfast.deadletter.outlet import Outlet
from holdfast.deadletter.replay.jobs import Item, ItemState, JobState, Options
from holdfast.deadletter.replay.run import Parts
from holdfast.deadletter.replay.runner import ReplayRunner
from holdfast.deadletter.replay.service import Progress, Replays
from holdfast.deadletter.replay.shadow import Shadow
from holdfast.deadletter.selection import Selection
from holdfast.deadletter.sending import Sending
from holdfast.model.failed_message import Content, FailedMessage, Revision
from holdfast.model.message import Delivery
from holdfast.model.resources import DeadLetterPolicy, RetryPolicy, Subscription, Topic
from holdfast.settings import BrokerSettings
from holdfast.stores.desk.store import SqlDeskStore
from holdfast.stores.memory.log import MemoryMessageLog
from holdfast.stores.postgres.desk import PostgresDeskStore
from holdfast.stores.sqlite.desk import SqliteDeskStore
from holdfast.transports.local import LocalTransport
from tests.support.postgres import database_url, postgres
from tests.support.waiting import comes_about

__all__ = ["database_url", "postgres"]

T = TypeVar("T")

PROJECT = "projects/local"
TOPIC = f"{PROJECT}/topics/orders"
OTHER_TOPIC = f"{PROJECT}/topics/repaired"
DEAD_LETTERS = f"{PROJECT}/topics/orders.dlq"
WORKER = f"{PROJECT}/subscriptions/orders.worker"
OTHERS = (f"{PROJECT}/subscriptions/orders.audit", f"{PROJECT}/subscriptions/orders.mail")
REPAIRED = f"{PROJECT}/subscriptions/repaired.worker"

FAST = Options(per_second=0, concurrency=0, canary=0)

CREATED = 1_700_000_000 * NANOSECONDS


def failure(number: int, **more: object) -> FailedMessage:
    base = FailedMessage(
        message_id=f"original-{number}",
        subscription=WORKER,
        source_topic=TOPIC,
        failure_reason="SCHEMA_VALIDATION_ERROR",
        error_details="total: is missing",
        data=b'{"number": %d}' % number,
        publish_time_ns=CREATED + number,
        created_at_ns=CREATED,
        fingerprint="cause-a",
    )
    return replace(base, **more)  # type: ignore[arg-type]


@dataclass
class World:
    store: SqlDeskStore
    broker: Broker
    outlet: LocalTransport
    clock: SystemClock = field(default_factory=SystemClock)
    settle_seconds: float = 900

    async def record(self, *failures: FailedMessage) -> list[int]:
        return [recorded.id for recorded in await self.store.record(failures)]

    async def parts(self, outlet: Outlet | None = None, name: str = "desk-1", shadow: Shadow | None = None) -> Parts:
        return Parts(
            store=self.store,
            outlet=outlet or self.outlet,
            sending=await Sending.of(self.store),
            clock=self.clock,
            name=name,
            most_generations=5,
            settle_seconds=self.settle_seconds,
            shadow=shadow,
        )

    @asynccontextmanager
    async def desk(
        self, outlet: Outlet | None = None, name: str = "desk-1", shadow: Shadow | None = None
    ) -> AsyncIterator[Replays]:
        parts = await self.parts(outlet, name, shadow)
        runner = ReplayRunner(parts)
        task = asyncio.create_task(runner.run())
        try:
            yield Replays(parts, runner, Options())
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def started(self, desk: Replays, options: Options = FAST, selection: Selection | None = None) -> int:
        made = await desk.create(selection or Selection(), options, "anna")
        await desk.start(made.job.id, "anna")
        return made.job.id

    async def pull(self, subscription: str, count: int) -> list[Delivery]:
        """Without settling them."""
        found: list[Delivery] = []
        async with asyncio.timeout(15.0):
            while len(found) < count:
                found += await self.outlet.receive(subscription, count - len(found), 1.0)
        return found

    async def ack(self, subscription: str, count: int) -> list[Delivery]:
        found = await self.pull(subscription, count)
        await self.outlet.ack(found)
        return found

    async def has_nothing(self, subscription: str) -> bool:
        return not await self.outlet.receive(subscription, 1, 0.05)

    async def row(self, failure_id: int) -> FailedMessage:
        return must(await self.store.get(failure_id))

    async def edit(self, failure_id: int, data: bytes) -> None:
        row = await self.row(failure_id)
        revised = row.revise()
        revision = Revision(failure_id, revised.revision, Content(data), "anna")
        action = Action("anna", "failure.edit", f"failure/{failure_id}")
        assert await self.store.revise([Edit(revised, revision, action)]) == [True]

    async def items(self, job_id: int) -> Sequence[Item]:
        return (await self.store.list_items(job_id, [], 1000)).items


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with world_over(await SqliteDeskStore.in_memory()) as world:
        yield world


@pytest.fixture
async def shared_world(database_url: str) -> AsyncIterator[World]:
    """Over the store that several desks may share."""
    async with world_over(await PostgresDeskStore.open(database_url)) as world:
        yield world


@asynccontextmanager
async def world_over(store: SqlDeskStore) -> AsyncIterator[World]:
    broker = await Broker.open(MemoryMessageLog(), SystemClock(), BrokerSettings())
    for topic in (TOPIC, OTHER_TOPIC, DEAD_LETTERS):
        await broker.create_topic(Topic(topic))
    policy = DeadLetterPolicy(DEAD_LETTERS, 5)
    await broker.create_subscription(
        Subscription(WORKER, TOPIC, dead_letter=policy, retry=RetryPolicy(0, 0), ack_deadline_seconds=600)
    )
    for name in OTHERS:
        await broker.create_subscription(Subscription(name, TOPIC))
    await broker.create_subscription(Subscription(REPAIRED, OTHER_TOPIC))
    yield World(store, broker, LocalTransport(broker))
    await broker.close()
    await store.close()


async def reached(desk: Replays, job_id: int, *states: JobState) -> Progress:
    async def look() -> Progress | None:
        progress = await desk.get(job_id)
        return progress if progress.job.state in states else None

    return must(await comes_about(look))


async def counted(desk: Replays, job_id: int, **wanted: int) -> Progress:
    """Once the items have these counts."""

    async def look() -> Progress | None:
        progress = await desk.get(job_id)
        fits = all(progress.counts.get(ItemState(state), 0) == count for state, count in wanted.items())
        return progress if fits else None

    return must(await comes_about(look))


def must(found: T | None) -> T:
    assert found is not None
    return found
