"""What waits is applied together; trouble is tried again, and stays with the write it belongs to."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from holdfast.clock import NANOSECONDS
from holdfast.consumer.changes import Upsert
from holdfast.consumer.coalescer import BATCH_BYTES, Coalescer
from holdfast.consumer.documents import Result, Write
from holdfast.errors import BadInput, Misconfigured, StorageUnavailable
from holdfast.model.outcome import Applied
from holdfast.settings import ConsumerSettings
from holdfast.stores.memory.documents import MemoryDocumentStore
from holdfast.testing import ManualClock
from holdfast.testing.contracts.documents import a_write


class Store(MemoryDocumentStore):
    """Remembers the batches, waits for its gate, and fails as it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.gate.set()
        self.batches: list[int] = []
        self.at_once = self.most_at_once = 0
        self.failures: list[Exception] = []

    async def apply(self, writes: Sequence[Write]) -> Sequence[Result]:
        self.batches.append(len(writes))
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await self.gate.wait()
            if self.failures:
                raise self.failures.pop(0)
            if any(change.fields.get("bad") for write in writes for change in write.changes):
                raise BadInput("bad", "cannot be stored")
            return await super().apply(writes)
        finally:
            self.at_once -= 1


class House:
    def __init__(self, **settings: Any) -> None:
        self.store, self.clock = Store(), ManualClock()
        self.coalescer = Coalescer(self.store, self.clock, ConsumerSettings(**settings))

    def send(self, number: int, size: int = 10, **fields: Any) -> asyncio.Task[Result]:
        write = a_write(f"m{number}", changes=(Upsert("things", f"d{number}", fields),))
        return asyncio.create_task(self.coalescer.apply(write, size))


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_what_comes_together_goes_together() -> None:
    house = House()
    results = await asyncio.gather(*(house.send(number) for number in range(50)))
    assert results == [Applied((f"things/d{number}",)) for number in range(50)]
    assert house.store.batches == [50]


async def test_what_waits_shares_the_next_transaction() -> None:
    house = House(max_workers=1)
    house.store.gate.clear()
    first = house.send(0)
    await turns()
    others = [house.send(number) for number in range(1, 30)]
    await turns()
    assert (house.store.batches, house.coalescer.in_transactions) == ([1], 1)
    house.store.gate.set()
    await asyncio.gather(first, *others)
    assert house.store.batches == [1, 29]
    assert house.coalescer.in_transactions == 0


async def test_no_more_transactions_than_workers() -> None:
    house = House(max_workers=3)
    house.store.largest_batch = 2
    house.store.gate.clear()
    sent = [house.send(number) for number in range(20)]
    await turns()
    assert house.store.batches == [2, 2, 2]
    house.store.gate.set()
    await asyncio.gather(*sent)
    assert house.store.most_at_once == 3
    assert house.store.batches == [2] * 10


async def test_a_batch_is_bounded_in_bytes() -> None:
    house = House(max_workers=1)
    await asyncio.gather(*(house.send(number, BATCH_BYTES // 2) for number in range(5)))
    assert house.store.batches == [2, 2, 1]


async def test_one_that_cannot_be_stored_harms_no_neighbour() -> None:
    house = House()
    sent = [house.send(number, bad=number == 5) for number in range(16)]
    results = await asyncio.gather(*sent, return_exceptions=True)
    assert isinstance(results[5], BadInput)
    assert [result for number, result in enumerate(results) if number != 5] == [
        Applied((f"things/d{number}",)) for number in range(16) if number != 5
    ]


async def test_a_store_that_is_away_is_asked_again_with_growing_pauses() -> None:
    house = House()
    house.store.failures = [StorageUnavailable("away")] * 3
    sent = house.send(1)
    waited: list[float] = []
    for _ in range(3):
        await turns()
        before = house.clock.now_ns()
        while len(house.store.batches) == len(waited) + 1:
            house.clock.advance(0.01)
            await turns()
        waited.append((house.clock.now_ns() - before) / NANOSECONDS)
    assert isinstance(await sent, Applied)
    for pause, nominal in zip(waited, [0.25, 0.5, 1.0], strict=True):
        assert nominal * 0.99 <= pause <= nominal * 1.1 + 0.02
    assert house.coalescer.retries == 3


@pytest.mark.parametrize(
    ("settings", "tries"),
    [
        ({"retry_max_attempts": 2}, 2),
        ({"retry_max_attempts": 100, "retry_max_total_seconds": 1.0}, 3),
        ({"retry_max_attempts": 1}, 1),
    ],
)
async def test_it_is_given_up_after_its_attempts_or_its_time(settings: dict[str, Any], tries: int) -> None:
    house = House(**settings)
    house.store.failures = [StorageUnavailable("away")] * 1000
    sent = house.send(1)
    while not sent.done():
        await turns()
        house.clock.advance(0.01)
    with pytest.raises(StorageUnavailable):
        await sent
    assert len(house.store.batches) == tries


@pytest.mark.parametrize("error", [Misconfigured("no rights"), RuntimeError("a bug")])
async def test_what_cannot_help_is_not_tried_again(error: Exception) -> None:
    house = House()
    house.store.failures = [error]
    with pytest.raises(type(error)):
        await house.send(1)
    assert house.store.batches == [1]


async def test_who_has_gone_is_not_waited_for_and_harms_nobody() -> None:
    house = House(max_workers=1)
    house.store.gate.clear()
    running, waiting, other = house.send(1), house.send(2), house.send(3)
    await turns()
    late = house.send(4)
    await turns()
    for gone in (running, late):
        gone.cancel()
    house.store.gate.set()
    assert isinstance(await waiting, Applied)
    assert isinstance(await other, Applied)
    await house.coalescer.close()
    assert house.store.batches == [3]


async def test_nothing_is_left_behind_when_a_worker_ends_as_a_write_comes() -> None:
    """A worker that has just found nothing must not be counted on to take what comes in that moment."""
    coalescer = Coalescer(MemoryDocumentStore(), ManualClock(), ConsumerSettings(max_workers=1))
    writes = [a_write(f"m{number}", changes=(Upsert("things", f"d{number}", {}),)) for number in range(2)]
    first = asyncio.create_task(coalescer.apply(writes[0], 10))
    await asyncio.sleep(0)  # the worker runs next, and the second write comes right behind it
    second = asyncio.create_task(coalescer.apply(writes[1], 10))
    results = await asyncio.wait_for(asyncio.gather(first, second), 5)
    assert list(results) == [Applied(("things/d0",)), Applied(("things/d1",))]


async def test_an_error_of_no_known_kind_stays_with_its_write() -> None:
    house = House()

    async def picky(writes: Sequence[Write]) -> Sequence[Result]:
        if any(write.order.message_id == "m2" for write in writes):
            raise UnicodeEncodeError("utf-8", "x", 0, 1, "surrogates not allowed")
        return await MemoryDocumentStore.apply(house.store, writes)

    house.store.apply = picky  # type: ignore[method-assign]
    results = await asyncio.gather(*(house.send(number) for number in range(4)), return_exceptions=True)
    assert [type(result) for result in results] == [Applied, Applied, UnicodeEncodeError, Applied]
