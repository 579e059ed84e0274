"""Two desks on one real PostgreSQL never retry the same row twice, nor move one on twice."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest

from holdfast.broker.service import Broker
from holdfast.deadletter.dead_letter import Arrival
from holdfast.model.failed_message import FailedMessage, FailureStatus
from holdfast.model.message import Message
from holdfast.model.replay_attributes import REPLAY_ID
from holdfast.stores.postgres.desk import PostgresDeskStore
from holdfast.testing import ManualClock
from holdfast.testing.contracts.failures import a_failure
from holdfast.transports.local import LocalTransport
from tests.support.desk_parts import ORDERS, Consumer, Parts, memory_broker, rows_of, running
from tests.support.postgres import database_url, postgres

__all__ = ["database_url", "postgres"]

ROWS = 300


class Outlet(LocalTransport):
    """Does not say what was sent twice, as our broker would: here it must not happen."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self.sent: Counter[str] = Counter()

    async def publish_to(self, subscription: str, messages: Sequence[Message]) -> Sequence[str]:
        self.sent.update(message.attributes[REPLAY_ID] for message in messages)
        return await super().publish_to(subscription, messages)


@pytest.fixture
async def desks(database_url: str) -> AsyncIterator[list[Parts]]:
    clock = ManualClock()
    stores = [await PostgresDeskStore.open(database_url, clock) for _ in range(2)]
    yield [await Parts.over(store, clock) for store in stores]
    for store in stores:
        await store.close()


def failing(number: int) -> FailedMessage:
    return a_failure(f"m{number}", subscription=ORDERS, failure_reason="DATABASE_CONNECTION_ERROR")


async def test_two_desks_on_one_database_retry_each_row_once(desks: list[Parts]) -> None:
    clock = desks[0].clock
    async with memory_broker(clock) as broker:
        outlet, consumer = Outlet(broker), Consumer(broker)
        arrivals = [Arrival(failing(number)) for number in range(ROWS)]
        await asyncio.gather(*(desk.intake().record(arrivals) for desk in desks))  # both have read all of them
        schedulers = [desk.scheduler(outlet, per_second=2000) for desk in desks]
        collectors = [desk.collector(LocalTransport(broker)) for desk in desks]
        async with running(*schedulers, *collectors):
            for delay, number in ((5, 1), (10, 2), (20, 3)):
                clock.advance(delay)
                await until_sent(outlet, clock, ROWS * number)
                await (consumer.fail() if number < 3 else consumer.ack())
                await until_all(desks[0], clock, number)
    assert set(outlet.sent.values()) == {1}
    rows = await rows_of(desks[1].store)
    assert Counter((row.status, row.retry_count) for row in rows) == {(FailureStatus.RETRY_SUCCESS, 3): ROWS}


async def until_sent(outlet: Outlet, clock: ManualClock, count: int) -> None:
    async with asyncio.timeout(60):
        while outlet.sent.total() < count:
            await asyncio.sleep(0.02)
            clock.advance(0.05)  # the pace of the desks is on this clock too


async def until_all(desk: Parts, clock: ManualClock, number: int) -> None:
    """Of this retry the end is known, of all rows."""
    async with asyncio.timeout(60):
        while not all(row.retry_count == number and not row.is_out for row in await rows_of(desk.store)):
            await asyncio.sleep(0.02)
            clock.advance(0.01)


async def test_a_desk_that_died_leaves_its_claims_to_the_other(desks: list[Parts]) -> None:
    clock = desks[0].clock
    async with memory_broker(clock) as broker:
        outlet = Outlet(broker)
        await desks[0].intake().record([Arrival(failing(1))])
        [row] = await rows_of(desks[0].store)
        clock.advance(5)
        assert await desks[0].store.save([row.claim_retry(clock.now_ns() + 60 * 10**9)]) == [True]
        other = desks[1].scheduler(outlet)
        await other.turn()
        assert outlet.sent.total() == 0
        clock.advance(60)
        await other.turn()
        assert outlet.sent.total() == 1


async def test_whoever_changes_a_row_first_wins(desks: list[Parts]) -> None:
    await desks[0].intake().record([Arrival(failing(number)) for number in range(50)])
    rows = await rows_of(desks[0].store)
    random.Random(1).shuffle(rows)
    changes = [[replace(row.claim_retry(desk), version=row.version) for row in rows] for desk in (1, 2)]
    kept = await asyncio.gather(*(desk.store.save(change) for desk, change in zip(desks, changes, strict=True)))
    assert [one + other for one, other in zip(*kept, strict=True)] == [1] * 50
