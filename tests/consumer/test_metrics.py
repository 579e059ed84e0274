"""What a consumer tells of the messages that it handled."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Sequence
from typing import Any

import pytest

from holdfast.consumer import Consumer, Event, Misconfigured, Poison, Transient, Upsert
from holdfast.consumer.counts import HANDLING_BOUNDS, ConsumerCounts
from holdfast.consumer.documents import Result, Write
from holdfast.consumer.error_kinds import KINDS, kind_of_store_error
from holdfast.consumer.metrics import consumer_metrics
from holdfast.consumer.pipeline import Pipeline
from holdfast.consumer.settle import Way
from holdfast.errors import BadInput, StorageUnavailable
from holdfast.metrics import consumer as table
from holdfast.metrics.bounded import MOST_NAMES, OTHER
from holdfast.metrics.metric import Histogram, Metric
from holdfast.metrics.registry import MetricsRegistry
from holdfast.model.message import Delivery, Message
from holdfast.settings import ConsumerSettings
from holdfast.stores.memory.documents import MemoryDocumentStore
from holdfast.testing import ManualClock
from tests.support.failures import Captured


class Store(MemoryDocumentStore):
    def __init__(self) -> None:
        super().__init__()
        self.failures: list[Exception] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def apply(self, writes: Sequence[Write]) -> Sequence[Result]:
        await self.gate.wait()
        if self.failures:
            raise self.failures.pop(0)
        return await super().apply(writes)


class House:
    """A pipeline with two topics. `error` is what the handler of bills raises."""

    def __init__(self, error: BaseException | None = None, **settings: Any) -> None:
        app = Consumer(name="")
        app.on("orders")(lambda event: Upsert("orders", event.data["id"], {}))

        @app.on("bills")
        def bill(event: Event) -> Upsert:
            raise error or Poison("no bill")

        self.store, self.clock = Store(), ManualClock()
        sink = Captured(self.clock)
        self.pipeline = Pipeline(app, self.store, sink, self.clock, ConsumerSettings(**settings))

    async def send(self, data: bytes, topic: str = "orders", number: int = 1, way: Way = Way.PUSH) -> None:
        message = Message(data, {"topic": topic}, message_id=f"m{number}", publish_time_ns=number)
        await self.pipeline.handle(Delivery("projects/local/subscriptions/s", message), way)

    async def all(self, metric: Metric) -> dict[tuple[str, ...], float | Histogram]:
        registry = MetricsRegistry()
        registry.register(lambda: consumer_metrics(self.pipeline))
        [found] = [dict(samples) for known, samples in await registry.collect() if known is metric]
        return {labels: value for labels, value in found.items() if value}


ORDER = json.dumps({"id": "a"}).encode()


async def test_outcomes_are_told_by_topic_whatever_way_the_message_came() -> None:
    house = House()
    await house.send(ORDER)
    await house.send(ORDER)
    await house.send(ORDER, number=2, way=Way.PULL)
    await house.send(ORDER, "bills", number=3)
    await house.send(b"not JSON", "orders", number=4)
    await house.send(b"{}", "nobody's", number=5)
    assert await house.all(table.OUTCOMES) == {
        ("orders", "applied"): 2,
        ("orders", "duplicate"): 1,
        ("orders", "poison"): 1,
        ("bills", "poison"): 1,
        (OTHER, "poison"): 1,
    }
    handled = await house.all(table.HANDLING)
    counts = {labels: sum(value.counts) for labels, value in handled.items() if isinstance(value, Histogram)}
    assert {labels: count for labels, count in counts.items() if count} == {("orders",): 4, ("bills",): 1, (OTHER,): 1}


async def test_every_outcome_of_a_known_topic_is_there_from_the_start() -> None:
    """Else a rate could not see the first one."""
    counts = ConsumerCounts(["orders"])
    assert counts.by_topic["orders"].outcomes == dict.fromkeys(
        ("applied", "duplicate", "stale_ignored", "poison", "retry"), 0
    )


def test_how_long_handling_takes() -> None:
    counts = ConsumerCounts(["orders"])
    for seconds in (0.0004, 0.3, 99):
        counts.took("orders", seconds)
    its = counts.by_topic["orders"]
    filled = [bound for bound, count in zip((*HANDLING_BOUNDS, None), its.buckets, strict=True) if count]
    assert filled == [0.001, 0.5, None]
    assert its.seconds == 99.3004


def test_topics_are_bounded() -> None:
    counts = ConsumerCounts([f"t{number:05}" for number in range(MOST_NAMES + 5)])
    counts.ended("t00000", "applied")
    counts.ended(f"t{MOST_NAMES + 1:05}", "applied")
    counts.ended("what a message says", "retry")
    assert len(counts.by_topic) == MOST_NAMES + 1
    assert counts.by_topic["t00000"].outcomes["applied"] == 1
    assert counts.by_topic[OTHER].outcomes == {
        "applied": 1, "duplicate": 0, "stale_ignored": 0, "poison": 0, "retry": 1
    }  # fmt: skip


async def test_what_is_in_hands_and_what_waits() -> None:
    house = House(max_workers=1)
    house.store.gate.clear()
    sending = [asyncio.create_task(house.send(json.dumps({"id": f"d{n}"}).encode(), number=n)) for n in range(3)]
    for _ in range(20):
        await asyncio.sleep(0)
    late = asyncio.create_task(house.send(ORDER, number=9))
    for _ in range(20):
        await asyncio.sleep(0)
    assert await house.all(table.IN_HANDS) == {(): 4}
    assert await house.all(table.QUEUE_DEPTH) == {(): 1}
    house.store.gate.set()
    await asyncio.gather(*sending, late)
    assert await house.all(table.IN_HANDS) == await house.all(table.QUEUE_DEPTH) == {}


async def test_the_store_is_asked_again_and_its_errors_are_told_by_kind() -> None:
    house = House(retry_initial_backoff_seconds=0, retry_max_backoff_seconds=0)
    house.store.failures = [StorageUnavailable("away"), StorageUnavailable("away")]
    await house.send(ORDER)
    assert await house.all(table.STORE_RETRIES) == {(): 2}
    assert await house.all(table.STORE_ERRORS) == {("transient",): 2}
    for number, error in enumerate((Misconfigured("no rights"), BadInput("f", "no"), RuntimeError("?")), 2):
        house.store.failures = [error]
        await house.send(ORDER, number=number)
    assert await house.all(table.STORE_ERRORS) == {("transient",): 2, ("permission",): 1, ("other",): 2}


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (Transient("later"), "transient"),
        (ConnectionResetError(), "transient"),
        (sqlite3.OperationalError("locked"), "transient"),
        (PermissionError(), "permission"),
        (Misconfigured("no key"), "permission"),
        (sqlite3.IntegrityError("unique"), "other"),
        (KeyError("x"), "other"),
        (Poison("bad data"), ""),
    ],
)
async def test_errors_of_what_handlers_call_are_told_by_kind(error: BaseException, kind: str) -> None:
    """What is wrong with the message alone is no error of theirs."""
    house = House(error)
    await house.send(ORDER, "bills")
    assert await house.all(table.STORE_ERRORS) == ({(kind,): 1} if kind else {})


def test_an_error_of_the_store_has_always_a_kind() -> None:
    assert kind_of_store_error(BadInput("field", "is no JSON")) in KINDS
