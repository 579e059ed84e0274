"""The life of a delivery: each end, what is stored then, and what the log and the counters say."""

from __future__ import annotations

import asyncio
import dataclasses
import gzip
import json
import logging
import random
import sqlite3
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from holdfast.clock import NANOSECONDS
from holdfast.consumer import Consumer, Count, Event, Misconfigured, Poison, Transient, Upsert
from holdfast.consumer.documents import Result, Write
from holdfast.consumer.message_log import Hide
from holdfast.consumer.pipeline import Pipeline
from holdfast.consumer.settle import Way
from holdfast.deadletter.redaction import Redaction
from holdfast.errors import BadInput, StorageUnavailable
from holdfast.model.message import Delivery, Message
from holdfast.model.outcome import Applied, Duplicate, Outcome, Poisoned, Retry, Stale
from holdfast.settings import ConsumerSettings
from holdfast.stores.memory.documents import MemoryDocumentStore
from holdfast.testing import ManualClock
from tests.support.failures import Captured

DAY = 86_400


def order_placed(event: Event) -> Upsert:
    return Upsert("orders", event.data["id"], {"total": event.data.get("total", 0)})


class House:
    """A pipeline with one topic, on a memory store and a clock moved by hand."""

    def __init__(
        self,
        handler: Any = order_placed,
        *,
        strict_time: bool = False,
        side_effects: bool = False,
        hide: Hide | None = None,
        **settings: Any,
    ) -> None:
        self.app = Consumer(name="")
        self.app.on("orders", strict_time=strict_time, side_effects=side_effects)(handler)
        self.store = MemoryDocumentStore()
        self.clock = ManualClock()
        self.failures = Captured(self.clock)
        self.pipeline = Pipeline(
            self.app,
            self.store,
            self.failures,
            self.clock,
            ConsumerSettings(**settings),
            {"orders.materializer": "orders"},
            hide,
        )

    async def send(self, payload: dict[str, Any] | bytes, message_id: str = "m1", **message: Any) -> Outcome:
        settlement = await self.pipeline.handle(delivery(payload, message_id, **message), Way.PUSH)
        return settlement.outcome

    async def total(self, document_id: str = "o1") -> Any:
        document = await self.store.get("orders", document_id)
        return None if document is None else document.fields["total"]


def delivery(payload: dict[str, Any] | bytes, message_id: str = "m1", **message: Any) -> Delivery:
    data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    published = message.pop("publish_time_ns", 1_700_000_000 * NANOSECONDS)
    made = Message(data, message_id=message_id, publish_time_ns=published, **message)
    return Delivery("projects/p/subscriptions/orders.materializer", made, attempt=2)


def raising(error: BaseException) -> Any:
    def handler(event: Event) -> Upsert:
        raise error

    return handler


# The ends.


async def test_applied_then_duplicate() -> None:
    house = House()
    assert await house.send({"id": "o1", "total": 5}) == Applied(("orders/o1",))
    assert await house.send({"id": "o1", "total": 5}) == Duplicate("ops_dedupe/m1")
    assert await house.total() == 5


async def test_a_handler_may_be_async() -> None:
    async def handler(event: Event) -> Upsert:
        await asyncio.sleep(0)
        return order_placed(event)

    house = House(handler)
    assert await house.send({"id": "o1"}) == Applied(("orders/o1",))


async def test_the_handler_is_given_the_topic() -> None:
    seen = []

    def handler(event: Event) -> Upsert:
        seen.append(event.topic)
        return order_placed(event)

    await House(handler).send({"id": "o1"})
    assert seen == ["orders"]


async def test_the_same_event_published_again_is_a_duplicate() -> None:
    house = House(env="prod")
    await house.send({"id": "o1", "eventId": "e1", "total": 1}, "m1")
    again = await house.send({"id": "o1", "eventId": "e1", "total": 2}, "m2")
    assert again == Duplicate("ops_dedupe/prod__orders__e1")
    assert await house.total() == 1


async def test_an_older_event_is_stale_and_its_redelivery_a_duplicate() -> None:
    house = House()
    await house.send({"id": "o1", "ts": 20, "total": 2}, "m2")
    assert await house.send({"id": "o1", "ts": 10, "total": 1}, "m1") == Stale("orders/o1")
    assert await house.send({"id": "o1", "ts": 10, "total": 1}, "m1") == Duplicate("ops_dedupe/m1")
    assert await house.total() == 2


async def test_marks_are_kept_for_as_long_as_the_setting_says() -> None:
    house = House(dedupe_days=2.0)
    await house.send({"id": "o1", "eventId": "e1"}, "m1")
    house.clock.advance(2 * DAY - 1)
    assert isinstance(await house.send({"id": "o2", "eventId": "e1"}, "m2"), Duplicate)
    house.clock.advance(1)
    assert isinstance(await house.send({"id": "o2", "eventId": "e1"}, "m2"), Applied)


@pytest.mark.parametrize(
    ("payload", "reason", "readable"),
    [
        (b"nonsense", "DECODE_ERROR", False),
        (b"[]", "SCHEMA_VALIDATION_ERROR", True),
        ({"id": "a/b"}, "SCHEMA_VALIDATION_ERROR", True),
    ],
)
async def test_poison(payload: dict[str, Any] | bytes, reason: str, readable: bool) -> None:
    house = House()
    outcome = await house.send(payload)
    assert isinstance(outcome, Poisoned)
    assert (outcome.reason, outcome.readable) == (reason, readable)
    assert list(await house.store.collections()) == []


async def test_a_message_for_nobody_is_poison() -> None:
    app = Consumer()
    app.on("orders")(order_placed)
    app.on("refunds")(order_placed)
    house = House()
    pipeline = Pipeline(app, house.store, house.failures, house.clock, ConsumerSettings())
    outcome = (await pipeline.handle(delivery({"id": "o1", "topic": "unheard-of"}), Way.PUSH)).outcome
    assert isinstance(outcome, Poisoned)
    assert (outcome.reason, outcome.readable) == ("UNROUTABLE", True)


async def test_a_time_that_cannot_be_read_is_poison_only_where_it_must_be_one() -> None:
    payload = {"id": "o1", "time": "noon"}
    assert isinstance(await House().send(payload), Applied)
    outcome = await House(strict_time=True).send(payload)
    assert isinstance(outcome, Poisoned)
    assert outcome.error.startswith("time: ")


async def test_a_plain_function_with_side_effects_holds_nobody_up() -> None:
    let_go, begun = threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def slow(event: Event) -> Upsert:
        loop.call_soon_threadsafe(begun.set)
        let_go.wait(10)
        return order_placed(event)

    house = House(slow, side_effects=True)
    slow_one = asyncio.create_task(house.send({"id": "o1"}))
    await begun.wait()  # for ever, if it held up the loop
    let_go.set()
    assert await slow_one == Applied(("orders/o1",))


async def test_as_many_of_them_wait_at_once_as_there_are_workers() -> None:
    """However few processors there are."""
    most = 40
    all_of_them = threading.Barrier(most)

    def meeting(event: Event) -> Upsert:
        all_of_them.wait(10)
        return order_placed(event)

    house = House(meeting, side_effects=True, max_workers=most)
    outcomes = await asyncio.gather(*(house.send({"id": f"o{n}"}, f"m{n}") for n in range(most)))
    assert {type(outcome) for outcome in outcomes} == {Applied}


async def test_fields_that_are_no_json_are_poison() -> None:
    outcome = await House(lambda event: Upsert("orders", "o1", {"x": {1, 2}})).send({})
    assert outcome == Poisoned("SCHEMA_VALIDATION_ERROR", "x: set is not a JSON value", readable=True)


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (Poison("no", reason="MINE"), Poisoned("MINE", "no", readable=True)),
        (Transient("busy", retry_after=5), Retry("busy", retry_after=5)),
        (Misconfigured("no key"), Retry("no key", misconfigured=True, reason="MISCONFIGURED")),
        (ConnectionError("down"), Retry("down")),
        (ZeroDivisionError("oops"), Retry("oops", reason="UNCLASSIFIED_ERROR")),
    ],
)
async def test_what_a_handler_raises_is_classified(error: Exception, outcome: Outcome) -> None:
    assert await House(raising(error)).send({"id": "o1"}) == outcome


@pytest.mark.parametrize("nothing", [None, {}, "orders/o1"])
async def test_a_handler_that_returns_no_upsert_is_never_a_success(nothing: object) -> None:
    outcome = await House(lambda event: nothing).send({"id": "o1"})
    assert isinstance(outcome, Retry)
    assert "not Upsert" in outcome.error


async def test_a_failed_attempt_claims_nothing() -> None:
    """The mark before the success would make the retry look like a duplicate, and lose the message."""
    house = House(retry_max_attempts=1)
    apply, failures = house.store.apply, [StorageUnavailable("down"), OSError("disk")]

    async def failing(writes: Sequence[Write]) -> Sequence[Result]:
        if failures:
            raise failures.pop()
        return await apply(writes)

    house.store.apply = failing  # type: ignore[method-assign]
    assert await house.send({"id": "o1"}) == Retry("disk", by_store=True)
    assert await house.send({"id": "o1"}) == Retry("down", by_store=True, reason="DATABASE_CONNECTION_ERROR")
    assert await house.send({"id": "o1"}) == Applied(("orders/o1",))


async def test_cancellation_is_passed_on_and_frees_the_place() -> None:
    house = House(Gate(), max_workers=1, queue_size=1)
    for _ in range(5):
        sending = asyncio.create_task(house.send({"id": "o1"}))
        await asyncio.sleep(0)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
    assert sum(house.pipeline.recent.totals.values()) == 0


async def test_a_cancellation_that_nobody_asked_for_is_a_failure_of_the_handler() -> None:
    """A handler may wait for something that somebody else has cancelled. Nobody cancelled the message."""
    house = House(raising(asyncio.CancelledError()), max_workers=1, queue_size=1)
    assert await house.send({"id": "o1"}) == Retry("CancelledError", reason="UNCLASSIFIED_ERROR")


class OfItsOwn(BaseException):
    pass


@pytest.mark.parametrize("side_effects", [False, True])
@pytest.mark.parametrize(
    "error", [SystemExit(3), OfItsOwn(), BaseExceptionGroup("several", [OfItsOwn()]), StopIteration(), StopIteration(5)]
)
async def test_no_kind_of_exception_ends_or_blocks_the_consumer(error: BaseException, side_effects: bool) -> None:
    house = House(raising(error), side_effects=side_effects, max_workers=1)
    for _ in range(2):
        async with asyncio.timeout(10):
            assert isinstance(await house.send({"id": "o1"}), Retry)
    assert house.pipeline.recent.totals["retry"] == 2


async def test_an_interrupt_of_the_process_is_passed_on() -> None:
    with pytest.raises(KeyboardInterrupt):
        await House(raising(KeyboardInterrupt())).send({"id": "o1"})


async def test_redelivered_and_reordered_input_leaves_the_same_documents() -> None:
    events = [({"id": f"o{n % 5}", "ts": n, "total": n, "eventId": f"e{n}"}, f"m{n}") for n in range(50)]
    clean, messy = House(queue_size=1000), House(queue_size=1000)
    for payload, message_id in events:
        await clean.send(payload, message_id)
    chaos = [*events, *events, *((payload, f"again-{message_id}") for payload, message_id in events)]
    random.Random(3).shuffle(chaos)
    await asyncio.gather(*(messy.send(payload, message_id) for payload, message_id in chaos))
    for n in range(5):
        assert await messy.total(f"o{n}") == await clean.total(f"o{n}") == 45 + n


# Admission.


class Gate:
    """A handler that waits until it is opened, and knows how many are inside."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.inside = self.most = 0

    async def __call__(self, event: Event) -> Upsert:
        self.inside += 1
        self.most = max(self.most, self.inside)
        await self.open.wait()
        self.inside -= 1
        return order_placed(event)


async def test_what_does_not_fit_in_the_house_is_turned_away_at_once() -> None:
    gate = Gate()
    house = House(gate, max_workers=2, queue_size=3)
    held = [asyncio.create_task(house.send({"id": f"o{n}"}, f"m{n}")) for n in range(5)]
    await asyncio.sleep(0)
    refused = Retry("backpressure_queue_full", overloaded=True)
    assert await asyncio.wait_for(house.send({"id": "o9"}, "m9"), 5) == refused
    pulled = asyncio.create_task(house.pipeline.handle(delivery({"id": "o10"}, "m10"), Way.PULL))
    gate.open.set()
    assert (await pulled).acks
    assert all(isinstance(outcome, Applied) for outcome in await asyncio.gather(*held))
    assert gate.most == 2
    assert await house.send({"id": "o9"}, "m9") == Applied(("orders/o9",))
    assert house.pipeline.recent.totals["retry"] == 1


# The log, the counts, the recent ones.


def records(caplog: pytest.LogCaptureFixture) -> list[tuple[int, dict[str, Any]]]:
    return [
        (record.levelno, record.__dict__["fields"]) for record in caplog.records if record.name == "holdfast.consumer"
    ]


async def test_one_log_record_per_message(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "holdfast.consumer")
    house = House(env="prod", service="shop", version="7", sha="abc123")
    event = {"id": "o1", "eventId": "e1", "eventType": "order.placed", "schemaVersion": 3, "secret": "hunter2"}
    await house.send(event)
    assert records(caplog) == [
        (
            logging.INFO,
            {
                "service": "shop",
                "env": "prod",
                "version": "7",
                "sha": "abc123",
                "subscription": "projects/p/subscriptions/orders.materializer",
                "topic": "orders",
                "messageId": "m1",
                "publishTime": "2023-11-14T22:13:20Z",
                "deliveryAttempt": 2,
                "handler": "order_placed",
                "event_type": "order.placed",
                "schemaVersion": "3",
                "outcome": "applied",
                "http_status": 200,
                "write_kind": "upsert",
                "doc_path": "orders/o1",
                "idempotency_doc": "ops_dedupe/prod__orders__e1",
            },
        )
    ]
    assert "hunter2" not in caplog.text


async def test_what_is_redacted_is_told_to_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """Neither by an error that quotes it, nor by the document that is named after it."""

    def handler(event: Event) -> Upsert:
        if event.data["card"] == "4711-2":
            raise Poison("card 4711-2 is bad")
        return Upsert("cards", event.data["card"], {})

    house = House(handler, hide=Redaction(["payload:card"]).of_message)
    outcome = await house.send({"card": "4711-2", "eventType": "4711-2"}, "m1")
    assert isinstance(outcome, Poisoned)
    assert outcome.error == "card [redacted] is bad"
    await house.send({"card": "4711-3"}, "m2")
    assert [recent.document for recent in house.pipeline.recent.latest()] == ["cards/[redacted]", ""]
    assert "4711" not in str(records(caplog))


async def test_retry_and_poison_are_errors_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    await House(raising(Transient("x" * 1000))).send({"id": "o1"})
    await House().send(b"nonsense")
    (level, retry), (level_too, poison) = records(caplog)
    assert level == level_too == logging.ERROR
    assert retry["error"] == "x" * 300
    assert (retry["error_type"], retry["retryable"]) == ("Transient", True)
    assert (poison["error_type"], poison["retryable"]) == ("Poison", False)
    assert poison["failure_reason"] == "DECODE_ERROR"
    assert "traceback" not in retry


async def test_the_topic_of_what_cannot_be_read_is_in_the_log_and_at_the_desk(
    caplog: pytest.LogCaptureFixture,
) -> None:
    house = House(dead_letter_policy="never")
    await house.send(b"not JSON")
    [(_, fields)] = records(caplog)
    assert fields["topic"] == "orders"
    [failure] = await house.failures.all()
    assert failure.source_topic == "projects/p/topics/orders"


async def test_the_unclassified_is_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    payload_in_error = ValueError("seen: " + "hunter2 " * 100)
    await House(raising(payload_in_error)).send({"id": "o1"})
    [(level, fields)] = records(caplog)
    assert level == logging.ERROR
    assert fields["error_type"] == "unclassified: ValueError"
    assert "raise error" in fields["traceback"]
    assert len(fields["error"]) == 300
    assert "hunter2" not in fields["traceback"]


async def test_people_can_ask_what_happened() -> None:
    house = House()
    await house.send({"id": "o1"}, "m1")
    house.clock.advance(1)
    await house.send({"id": "o1"}, "m1")
    await house.send({"id": "a/b"}, "m2")
    house.pipeline.refuse(Poison("envelope: is not JSON", reason="DECODE_ERROR", readable=False), 400)
    assert house.pipeline.recent.totals == {
        "applied": 1,
        "duplicate": 1,
        "stale_ignored": 0,
        "poison": 2,
        "retry": 0,
    }
    second, first = house.pipeline.recent.latest("m1")
    assert (first.outcome, first.document, first.topic) == ("applied", "orders/o1", "orders")
    assert (second.outcome, second.time_ns - first.time_ns) == ("duplicate", NANOSECONDS)
    assert [one.error for one in house.pipeline.recent.latest()[:2]] == [
        "envelope: is not JSON",
        'document id: must not contain "/"',
    ]


async def test_only_the_last_thousand_are_kept() -> None:
    house = House()
    for n in range(1005):
        await house.send({"id": "o1", "ts": n}, f"m{n}")
    latest = house.pipeline.recent.latest()
    assert len(latest) == 1000
    assert latest[0].message_id == "m1004"
    assert house.pipeline.recent.totals["applied"] == 1005


async def test_a_house_with_idle_workers_turns_nobody_away() -> None:
    house = House(max_workers=8, queue_size=1)
    outcomes = await asyncio.gather(*(house.send({"id": f"o{n}"}, f"m{n}") for n in range(9)))
    assert {outcome.name for outcome in outcomes} == {"applied"}


async def test_what_is_counted_has_a_name_that_every_store_can_hold() -> None:
    for name in (2024, "\ud800"):
        outcome = await House(lambda event, name=name: Count("totals", "t", {name: 1})).send({"id": "o1"})
        assert isinstance(outcome, Poisoned)


# Failed messages.


class Refusing:
    """A store that refuses every write with one error."""

    def __init__(self, house: House, error: Exception) -> None:
        self.error = error
        house.store.apply = self.apply  # type: ignore[method-assign]

    async def apply(self, writes: Sequence[Write]) -> Sequence[Result]:
        raise self.error


@pytest.mark.parametrize("policy", ["auto", "never"])
@pytest.mark.parametrize("way", Way)
async def test_poison_is_recorded_where_the_broker_would_send_it_for_ever(policy: str, way: Way) -> None:
    house = House(dead_letter_policy=policy)
    poison = dataclasses.replace(delivery({"id": "a/b"}), attempt=0 if policy == "auto" else 3)
    settlement = await house.pipeline.handle(poison, way)
    assert (settlement.acks, settlement.recorded) == (True, "the failure store")
    [failure] = await house.failures.all()
    assert failure.error_details == 'document id: must not contain "/"'
    assert failure.source_topic == "projects/p/topics/orders"


@pytest.mark.parametrize(("policy", "attempt"), [("auto", 1), ("always", 0)])
async def test_poison_is_left_to_a_dead_letter_policy(policy: str, attempt: int) -> None:
    house = House(dead_letter_policy=policy)
    poison = dataclasses.replace(delivery({"id": "a/b"}), attempt=attempt)
    assert (await house.pipeline.handle(poison, Way.PUSH)).status == 422
    assert (await house.pipeline.handle(poison, Way.PULL)).acks is False
    assert await house.failures.all() == []


@pytest.mark.parametrize("error", [BadInput("orders/o1", "is too large"), Misconfigured("PERMISSION_DENIED")])
async def test_what_the_store_refuses_for_good_is_an_alert_and_recorded_where_there_is_a_topic(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    house = House(dlq_topic="orders-dlq")
    Refusing(house, error)
    settlement = await house.pipeline.handle(delivery({"id": "o1"}), Way.PUSH)
    assert (settlement.status, settlement.recorded) == (200, "the failure store")
    assert len(await house.failures.all()) == 1
    [(level, fields)] = records(caplog)
    assert (logging.getLevelName(level), fields["recorded"]) == ("ALERT", "the failure store")


@pytest.mark.parametrize(
    ("error", "status"), [(BadInput("orders/o1", "is too large"), 422), (Misconfigured("PERMISSION_DENIED"), 500)]
)
async def test_without_that_topic_it_is_an_alert_and_the_brokers(
    error: Exception, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    house = House()
    Refusing(house, error)
    settlement = await house.pipeline.handle(delivery({"id": "o1"}), Way.PUSH)
    assert (settlement.status, settlement.recorded) == (status, "")
    assert await house.failures.all() == []
    [(level, _)] = records(caplog)
    assert logging.getLevelName(level) == "ALERT"


async def test_what_a_handler_lacks_is_critical(caplog: pytest.LogCaptureFixture) -> None:
    await House(raising(Misconfigured("no API key"))).send({"id": "o1"})
    [(level, fields)] = records(caplog)
    assert (level, fields["misconfigured"], fields["http_status"]) == (logging.CRITICAL, True, 500)


async def test_the_log_says_what_a_pulled_message_was_answered(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "holdfast.consumer")
    house = House()
    await house.pipeline.handle(delivery({"id": "o1"}), Way.PULL)
    await house.pipeline.handle(delivery({"id": "a/b"}), Way.PULL)
    assert [fields["ack_action"] for _, fields in records(caplog)] == ["ack", "nack"]
    assert all("http_status" not in fields for _, fields in records(caplog))


async def test_the_log_has_the_code_of_what_went_wrong(caplog: pytest.LogCaptureFixture) -> None:
    house = House(retry_max_attempts=1)
    cause = sqlite3.OperationalError("database is locked")
    cause.sqlite_errorname = "SQLITE_BUSY"
    error = StorageUnavailable("documents.db: database is locked")
    error.__cause__ = cause
    Refusing(house, error)
    await house.send({"id": "o1"})
    [(_, fields)] = records(caplog)
    assert (fields["error_type"], fields["error_code"]) == ("StorageUnavailable", "SQLITE_BUSY")


# The event's clock.


async def test_an_event_from_the_future_is_flagged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "holdfast.consumer")
    house = House(future_seconds=60.0)
    now = house.clock.now_ns() // NANOSECONDS
    assert isinstance(await house.send({"id": "o1", "ts": now + 60}, "m1"), Applied)
    assert isinstance(await house.send({"id": "o1", "ts": now + 90}, "m2"), Applied)
    (level, fields), (level_ahead, ahead) = records(caplog)
    assert (level, "ahead_of_clock_seconds" in fields) == (logging.INFO, False)
    assert (level_ahead, ahead["ahead_of_clock_seconds"]) == (logging.WARNING, 90.0)


async def test_an_event_from_the_future_can_be_refused() -> None:
    house = House(future_seconds=60.0, refuse_future=True)
    now = house.clock.now_ns() // NANOSECONDS
    outcome = await house.send({"id": "o1", "ts": now + 90}, "m2")
    assert isinstance(outcome, Poisoned)
    assert (outcome.reason, outcome.error) == (
        "EVENT_TIME_IN_FUTURE",
        "event time: is 90 s ahead of this consumer's clock",
    )
    assert await house.total() is None


async def test_gzip_is_read_as_what_is_in_it() -> None:
    house = House()
    assert isinstance(await house.send(gzip.compress(b'{"id": "o1", "total": 5}')), Applied)
    assert await house.total() == 5


async def test_a_counted_event_is_applied_although_its_document_is_newer() -> None:
    def handler(event: Event) -> list[Upsert | Count]:
        return [Upsert("orders", "o1", {"total": event.data["total"]}), Count("totals", "all", {"orders": 1})]

    house = House(handler)
    await house.send({"ts": 20, "total": 2}, "m2")
    assert await house.send({"ts": 10, "total": 1}, "m1") == Applied(("totals/all",))
    counted = await house.store.get("totals", "all")
    assert counted is not None
    assert counted.fields["orders"] == 2
    assert await house.total() == 2
