"""Automatic retries against a real broker in this process and a real store, on a clock moved by hand."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from holdfast.broker.service import Broker
from holdfast.clock import NANOSECONDS
from holdfast.deadletter.dead_letter import Arrival
from holdfast.deadletter.retries import CLAIM_SECONDS, RetryScheduler
from holdfast.deadletter.retry_policy import RetryPolicy
from holdfast.errors import BadInput, StorageUnavailable
from holdfast.model.failed_message import FailedMessage, FailureStatus
from holdfast.model.fate import Fate
from holdfast.model.message import Message
from holdfast.model.replay_attributes import ORIGINAL_MESSAGE_ID, REPLAY_ID
from holdfast.model.resources import DeadLetterPolicy, Subscription
from holdfast.testing import ManualClock
from holdfast.testing.contracts.failures import a_failure
from holdfast.transports.local import LocalTransport
from tests.support.desk_parts import (
    DEAD_LETTERS,
    ORDERS,
    SETTLE_SECONDS,
    TOPIC,
    Consumer,
    Parts,
    memory_broker,
    memory_desk,
    rows_of,
    running,
    until,
)

QUEUED = FailureStatus.QUEUED_FOR_RETRY
PERMANENT = FailureStatus.PERMANENT_FAILURE
SUCCESS = FailureStatus.RETRY_SUCCESS

DOWN = "DATABASE_CONNECTION_ERROR"


class Outlet(LocalTransport):
    """Notes what it is asked to send; fails when it is told to, before or after it was done."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self.sent: list[list[Message]] = []
        self.failing: list[Exception] = []
        self.answers_are_lost = False
        self.tells_nothing = False

    @property
    def count(self) -> int:
        return sum(map(len, self.sent))

    async def publish_to(self, subscription: str, messages: Sequence[Message]) -> Sequence[str]:
        self.sent.append(list(messages))
        if self.failing:
            raise self.failing.pop(0)
        ids = await super().publish_to(subscription, messages)
        if self.answers_are_lost:
            raise ConnectionError("the process died")
        return ids

    async def fates(self, subscription: str, message_ids: Sequence[str]) -> Mapping[str, Fate]:
        if self.tells_nothing:
            return dict.fromkeys(message_ids, Fate.UNKNOWN)
        return await super().fates(subscription, message_ids)


@dataclass
class World:
    parts: Parts
    broker: Broker
    outlet: Outlet
    consumer: Consumer
    scheduler: RetryScheduler

    @property
    def clock(self) -> ManualClock:
        return self.parts.clock

    async def record(self, count: int = 1, **changes: Any) -> None:
        failures = [replace(self.failing(number), **changes) for number in range(count)]
        for start in range(0, count, 500):
            await self.parts.intake().record([Arrival(failure) for failure in failures[start : start + 500]])

    def failing(self, number: int) -> FailedMessage:
        return a_failure(f"m{number}", subscription=ORDERS, failure_reason=DOWN, error_details="down")

    async def rows(self) -> list[FailedMessage]:
        return await rows_of(self.parts.store)

    async def row(self) -> FailedMessage:
        [row] = await self.rows()
        return row

    async def turn_after(self, seconds: float) -> None:
        self.clock.advance(seconds)
        await self.scheduler.turn()


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with memory_desk() as parts, memory_broker(parts.clock) as broker:
        outlet = Outlet(broker)
        yield World(parts, broker, outlet, Consumer(broker), parts.scheduler(outlet))


async def test_what_is_due_goes_to_the_subscription_that_failed_and_nowhere_else(world: World) -> None:
    await world.broker.create_subscription(Subscription(ORDERS + "-too", TOPIC))
    await world.record(attributes={"tenant": "a"})
    await world.turn_after(4.9)
    assert world.outlet.sent == []
    await world.turn_after(0.1)
    [message] = await world.consumer.ack()
    assert (message.data, message.attributes["tenant"]) == (b'{"amount": "many"}', "a")
    assert message.attributes[ORIGINAL_MESSAGE_ID] == "m0"
    assert await Consumer(world.broker, ORDERS + "-too").receive() == []
    row = await world.row()
    assert (row.is_out, row.retry_count, row.sent_message_id) == (True, 1, message.message_id)


async def test_a_retry_that_was_acked_is_a_success(world: World) -> None:
    await world.record()
    await world.turn_after(5)
    await world.turn_after(1)
    assert (await world.row()).status is QUEUED  # it is out, and nobody knows
    await world.consumer.ack()
    await world.turn_after(1)
    row = await world.row()
    assert (row.status, row.retry_count, row.retry_success_at_ns) == (SUCCESS, 1, world.clock.now_ns())
    assert len(world.outlet.sent) == 1


async def test_a_retry_that_expired_before_anybody_had_it_is_no_success(world: World) -> None:
    await world.broker.update_subscription(ORDERS, lambda config: replace(config, message_retention_seconds=600))
    await world.record()
    await world.turn_after(5)
    await world.turn_after(601)
    await world.broker.queue(ORDERS).drop_expired()
    await world.turn_after(SETTLE_SECONDS)
    row = await world.row()
    assert row.status is PERMANENT
    assert row.error_details == "its last retry expired, and nobody may have seen it; before: down"


async def test_one_that_fails_twice_and_then_succeeds(world: World) -> None:
    transport = LocalTransport(world.broker)
    await world.record()
    async with running(world.parts.collector(transport)):
        for delay, number in ((5, 1), (10, 2)):
            await world.turn_after(delay)
            await world.consumer.fail()
            await until_retried(world, number)
        await world.turn_after(20)
        await world.consumer.ack()
        await world.turn_after(1)
    row = await world.row()
    assert (row.status, row.retry_count) == (SUCCESS, 3)


async def test_one_that_always_fails_is_given_up_after_three_at_5_10_and_20_seconds(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    transport = LocalTransport(world.broker)
    await world.record()
    begun, sent_at = world.clock.now_ns(), []
    async with running(world.parts.collector(transport)):
        for number in (1, 2, 3):
            while len(world.outlet.sent) < number:
                await world.turn_after(1)
            sent_at.append((world.clock.now_ns() - begun) / NANOSECONDS)
            await world.consumer.fail()
            await until_row(world, lambda row: not row.is_out)
    row = await world.row()
    assert sent_at == [5, 15, 35]
    assert (row.status, row.retry_count) == (PERMANENT, 3)
    critical = [record for record in caplog.records if record.levelno == logging.CRITICAL]
    assert [record.getMessage() for record in critical] == ["a message failed for good"]
    assert "amount" not in caplog.text  # never what the message carries
    await world.turn_after(1000)
    assert len(world.outlet.sent) == 3


async def until_retried(world: World, number: int) -> None:
    """And the end of that retry is known."""
    await until_row(world, lambda row: row.retry_count == number and not row.is_out)


async def until_row(world: World, is_so: Callable[[FailedMessage], bool]) -> None:
    async with asyncio.timeout(20):
        while not any(map(is_so, await world.rows())):
            await asyncio.sleep(0.002)


# Once, whatever happens.


async def test_a_crash_between_sending_and_noting_sends_nothing_twice(world: World) -> None:
    await world.record()
    world.outlet.answers_are_lost = True
    world.clock.advance(5)
    with pytest.raises(ConnectionError):
        await world.scheduler.turn()
    world.outlet.answers_are_lost = False
    again = world.parts.scheduler(world.outlet)  # the next process
    await again.turn()
    assert len(world.outlet.sent) == 1  # the claim holds
    world.clock.advance(CLAIM_SECONDS)
    await again.turn()
    assert len(world.outlet.sent) == 2
    [message] = await world.consumer.ack()
    world.clock.advance(1)
    await again.turn()
    row = await world.row()
    assert (row.status, row.retry_count, row.sent_message_id) == (SUCCESS, 1, message.message_id)


async def test_what_is_put_under_legal_hold_while_it_is_sent_is_not_sent_once_more(world: World) -> None:
    """Only our broker would take it once."""

    class HoldsMeanwhile(Outlet):
        async def publish_to(self, subscription: str, messages: Sequence[Message]) -> Sequence[str]:
            ids = await super().publish_to(subscription, messages)
            assert await world.parts.store.save([(await world.row()).hold(True)]) == [True]
            return ids

    await world.record()
    outlet = HoldsMeanwhile(world.broker)
    scheduler = world.parts.scheduler(outlet)
    for seconds in (5, CLAIM_SECONDS):
        world.clock.advance(seconds)
        await scheduler.turn()
    assert outlet.count == 1
    row = await world.row()
    assert (row.is_out, row.retry_count, row.legal_hold) == (True, 1, True)


async def test_two_desks_on_one_store_send_each_once(world: World) -> None:
    await world.record(200)
    world.clock.advance(5)
    schedulers = [world.parts.scheduler(world.outlet, per_second=10_000) for _ in range(4)]
    await asyncio.gather(*(scheduler.turn() for scheduler in schedulers))
    sent = Counter(message.attributes[REPLAY_ID] for messages in world.outlet.sent for message in messages)
    assert len(sent) == 200
    assert set(sent.values()) == {1}
    assert all(row.retry_count == 1 for row in await world.rows())


async def test_what_a_person_replays_meanwhile_is_not_retried(world: World) -> None:
    await world.record()
    row = await world.row()
    await world.parts.store.save([row.mark_replayed(world.clock.now_ns(), 1, "x")])
    await world.turn_after(100)
    assert world.outlet.sent == []


async def test_a_time_that_somebody_gave_to_what_is_out_does_not_hold_up_the_others(world: World) -> None:
    await world.record(3)
    first, *_ = await world.rows()
    out = replace(first.mark_sent(world.clock.now_ns(), "x"), retry_at_ns=world.clock.now_ns())
    assert await world.parts.store.save([out]) == [True]
    await world.turn_after(5)
    assert world.outlet.count == 2


async def test_a_key_that_is_held_goes_on_in_order_after_its_retries(world: World) -> None:
    await world.broker.delete_subscription(ORDERS)
    policy = DeadLetterPolicy(DEAD_LETTERS, 5)
    labels = {"holdfast-ordered-dead-letters": "hold"}
    held = Subscription(ORDERS, TOPIC, dead_letter=policy, ordered=True, labels=labels)
    await world.broker.create_subscription(held)
    for text in (b"1", b"2", b"3"):
        await world.broker.publish_message(TOPIC, Message(text, ordering_key="key"))
    async with running(world.parts.collector(LocalTransport(world.broker))):
        assert [message.data for message in await world.consumer.fail()] == [b"1"]
        await until_row(world, lambda row: row.status is QUEUED)
        await world.turn_after(5)
        assert [message.data for message in await world.consumer.fail()] == [b"1"]
        await until_retried(world, 1)
        assert await world.consumer.receive() == []  # the others still wait
        await world.turn_after(10)
        seen: list[bytes] = []
        while acked := await world.consumer.ack():
            seen += [message.data for message in acked]
    assert seen == [b"1", b"2", b"3"]


# How many at once.


async def test_a_thousand_failures_do_not_retry_at_once(world: World) -> None:
    """They failed in the same second. Jitter spreads them over two fifths of their delay; the pace bounds the rest."""
    spread = random.Random(7)
    world.parts.policy = RetryPolicy(jitter=0.2, spread=spread.random)
    await world.record(1000, failure_reason="API_RATE_LIMIT_EXCEEDED")
    by_second: Counter[int] = Counter()
    begun = world.clock.now_ns()
    for _ in range(750):
        before = len(world.outlet.sent)
        await world.turn_after(0.1)
        second = (world.clock.now_ns() - begun) // NANOSECONDS
        by_second[second] += sum(len(messages) for messages in world.outlet.sent[before:])
    assert by_second.total() == 1000
    assert min(second for second, count in by_second.items() if count) >= 48
    assert len([second for second, count in by_second.items() if count]) >= 23
    assert max(by_second.values()) < 75


async def test_no_second_sees_more_retries_than_its_bound(world: World) -> None:
    await world.record(1000)  # without jitter: all are due in the same moment
    at: list[int] = []
    async with running(world.scheduler):
        world.clock.advance(5)
        for wanted in range(10, 1001, 10):
            await until(lambda wanted=wanted: world.outlet.count >= wanted)  # type: ignore[misc]
            at += [world.clock.now_ns()] * (world.outlet.count - len(at))
            world.clock.advance(0.1)
    busiest = max(sum(second <= when < second + NANOSECONDS for when in at) for second in at)
    assert busiest <= 100
    assert (at[-1] - at[0]) / NANOSECONDS == pytest.approx(9.9)


# Waking and waiting.


async def test_it_wakes_when_something_new_is_due(world: World) -> None:
    async with running(world.scheduler):
        await world.parts.intake(world.scheduler.wake).record([Arrival(world.failing(1))])
        await asyncio.sleep(0.05)
        world.clock.advance(5)
        await until(lambda: len(world.outlet.sent) == 1)


async def test_it_finds_what_another_process_has_recorded(world: World) -> None:
    async with running(world.scheduler):
        await asyncio.sleep(0.05)
        await world.record()  # no signal
        async with asyncio.timeout(20):
            while not world.outlet.sent:
                world.clock.advance(5)
                await asyncio.sleep(0.02)
        assert len(world.outlet.sent) == 1


async def test_idle_it_asks_the_store_seldom(world: World) -> None:
    asked: list[int] = []
    due_for_retry = world.parts.store.due_for_retry

    async def counted(now_ns: int, limit: int) -> Sequence[FailedMessage]:
        asked.append(limit)
        return await due_for_retry(now_ns, limit)

    world.parts.store.due_for_retry = counted  # type: ignore[method-assign]
    async with running(world.scheduler):
        for _ in range(60):
            await asyncio.sleep(0.005)
            world.clock.advance(1)
    assert len(asked) <= 2 * 13  # every five seconds, now and for the next time


async def test_what_was_due_before_a_restart_is_sent_after_it(world: World) -> None:
    await world.record(3)
    async with running(world.parts.scheduler(world.outlet)):
        pass
    world.clock.advance(3600)
    async with running(world.parts.scheduler(world.outlet)):
        await until(lambda: world.outlet.count == 3)


# What cannot be sent.


async def test_a_subscription_that_is_gone_gives_its_failures_up(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await world.record(2)
    await world.broker.delete_subscription(ORDERS)
    await world.turn_after(5)
    for row in await world.rows():
        assert (row.status, row.retry_count) == (PERMANENT, 0)
        assert row.error_details.startswith("cannot be sent again: ")
        assert row.error_details.endswith("; before: down")
    assert [record.getMessage() for record in caplog.records].count("a message failed for good") == 2


async def test_a_message_that_the_broker_refuses_does_not_keep_the_others_back(world: World) -> None:
    await world.record(3)
    bad = replace(world.failing(9), attributes={"x" * 300: "a name that no broker takes"})
    await world.parts.intake().record([Arrival(bad)])
    await world.turn_after(5)
    *good, last = await world.rows()
    assert [row.is_out for row in good] == [True] * 3
    assert (last.status, last.retry_count) == (PERMANENT, 0)


async def test_a_message_without_room_for_its_lineage_is_given_up(world: World) -> None:
    await world.record(attributes={f"name-{number}": "x" for number in range(100)})
    await world.turn_after(5)
    row = await world.row()
    assert row.status is PERMANENT
    assert "attributes: 100 leave no room" in row.error_details


async def test_a_broker_that_cannot_be_reached_costs_no_retry(world: World, caplog: pytest.LogCaptureFixture) -> None:
    await world.record()
    world.outlet.failing = [StorageUnavailable("not there")] * 3
    pauses = []
    world.clock.advance(5)
    for _ in range(3):
        before = world.clock.now_ns()
        await world.scheduler.turn()
        row = await world.row()
        assert row.retry_count == 0
        assert row.retry_at_ns is not None
        pauses.append((row.retry_at_ns - before) / NANOSECONDS)
        world.clock.advance(pauses[-1] + 0.001)
    assert pauses[0] < pauses[1] < pauses[2] < 6
    await world.scheduler.turn()
    assert (await world.row()).retry_count == 1
    assert "cannot send 1 retries" in caplog.text


async def test_trouble_of_the_store_ends_nothing(world: World, caplog: pytest.LogCaptureFixture) -> None:
    await world.record()
    broken = [StorageUnavailable("locked"), ValueError("a bug")]
    due_for_retry = world.parts.store.due_for_retry

    async def troubled(now_ns: int, limit: int) -> Sequence[FailedMessage]:
        if broken:
            raise broken.pop(0)
        return await due_for_retry(now_ns, limit)

    world.parts.store.due_for_retry = troubled  # type: ignore[method-assign]
    async with running(world.scheduler):
        for _ in range(10):
            await asyncio.sleep(0.01)
            world.clock.advance(2)
        await until(lambda: len(world.outlet.sent) == 1)
    assert caplog.text.count("cannot retry failed messages now") == 2


# Ends that no dead letter tells.


async def test_where_no_broker_tells_silence_is_a_success_after_a_while(world: World) -> None:
    world.outlet.tells_nothing = True
    await world.record()
    await world.turn_after(5)
    await world.turn_after(SETTLE_SECONDS - 1)
    assert (await world.row()).status is QUEUED
    await world.turn_after(1)
    await world.turn_after(10)
    assert (await world.row()).status is SUCCESS


async def test_after_a_day_silence_says_nothing_any_more(world: World) -> None:
    """The broker did tell, and then the message has expired there."""
    await world.record()
    await world.turn_after(5)
    world.outlet.tells_nothing = True
    await world.turn_after(SETTLE_SECONDS + 24 * 3600)
    row = await world.row()
    assert row.status is PERMANENT
    assert row.error_details == "nobody knows how its last retry ended; before: down"


async def test_a_dead_letter_that_does_not_come_is_not_waited_for_for_ever(world: World) -> None:
    await world.record()
    await world.turn_after(5)
    await world.consumer.fail()
    await world.turn_after(1)
    assert (await world.row()).is_out
    for _ in range(3):
        await world.turn_after(10)
    row = await world.row()
    assert (row.status, row.retry_count, row.is_out, row.error_details) == (QUEUED, 1, False, "down")


async def test_a_subscription_that_goes_while_a_retry_is_out(world: World) -> None:
    await world.record()
    await world.turn_after(5)
    await world.broker.delete_subscription(ORDERS)
    await world.turn_after(1)
    row = await world.row()
    assert row.status is PERMANENT
    assert row.error_details == "the subscription was deleted while a retry was out; before: down"


async def test_a_broker_that_cannot_be_asked_is_asked_again(world: World, caplog: pytest.LogCaptureFixture) -> None:
    await world.record()
    await world.turn_after(5)
    await world.consumer.ack()
    fates = world.outlet.fates
    troubles = [StorageUnavailable("not there"), BadInput("messageId", "what?")]

    async def troubled(subscription: str, message_ids: Sequence[str]) -> Mapping[str, Fate]:
        if troubles:
            raise troubles.pop()
        return await fates(subscription, message_ids)

    world.outlet.fates = troubled  # type: ignore[method-assign]
    for _ in range(5):
        await world.turn_after(10)
    assert (await world.row()).status is SUCCESS
    assert caplog.text.count("cannot ask what became of 1 retries") == 2
