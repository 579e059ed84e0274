"""What once went wrong, or could have: each of these lost, froze or stuck something."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from holdfast.broker.backlog import PAGE_BYTES, PAGE_MESSAGES
from holdfast.broker.leases import Failure, NoHolder
from holdfast.broker.log import Change, Reset, Settle
from holdfast.broker.service import Broker
from holdfast.clock import NANOSECONDS
from holdfast.errors import NotFound, StorageUnavailable
from holdfast.model.message import Message
from holdfast.model.resources import DeadLetterPolicy, RetryPolicy, Subscription, Topic
from holdfast.settings import BrokerSettings
from holdfast.stores.memory.log import MemoryMessageLog
from holdfast.testing import ManualClock
from tests.broker.helpers import (
    DEAD_LETTERS,
    SUBSCRIPTION,
    TOPIC,
    make_dead_letter_topic,
    make_subscription,
    publish,
    settle_down,
    take,
    take_one,
    text,
    texts,
)

Refuse = Callable[[], None]


@pytest.fixture
def refuse_appends(log: MemoryMessageLog, monkeypatch: pytest.MonkeyPatch) -> Refuse:
    """A full disk: publishes fail, while small changes still fit."""
    commit = log.commit

    async def refuse(changes: Sequence[Change]) -> None:
        if any(not isinstance(change, Settle) for change in changes):
            raise StorageUnavailable("disk full")
        await commit(changes)

    return lambda: monkeypatch.setattr(log, "commit", refuse)


async def test_a_failed_publish_and_a_restart_do_not_swallow_later_publishes(
    broker: Broker, log: MemoryMessageLog, clock: ManualClock, refuse_appends: Refuse, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = await make_subscription(broker)
    await publish(broker, "a")
    queue.ack([(await take_one(queue)).ack_id])
    refuse_appends()
    with pytest.raises(StorageUnavailable):
        await publish(broker, "refused")
    assert await take(queue) == []  # the gap is settled
    await broker.close()
    monkeypatch.undo()
    again = await Broker.open(log, clock, BrokerSettings())
    await publish(again, "b", "c")
    assert texts(await take(again.queue(SUBSCRIPTION))) == ["b", "c"]


async def test_what_failed_while_the_clock_was_wrong_does_not_wait_until_it_is_right(
    broker: Broker, log: MemoryMessageLog, clock: ManualClock
) -> None:
    """Days ahead, say, and set right before the next start."""
    queue = await make_subscription(broker, retry=RetryPolicy(10, 600))
    await publish(broker, "a")
    queue.nack([(await take_one(queue)).ack_id])
    await broker.close()
    right = ManualClock(clock.now_ns() - 3 * 86_400 * NANOSECONDS)
    again = await Broker.open(log, right, BrokerSettings())
    queue = again.queue(SUBSCRIPTION)
    assert await take(queue) == []
    right.advance(600)
    assert [(text(lease), lease.attempt) for lease in await take(queue)] == [("a", 2)]


async def test_one_cancelled_ack_leaves_the_others_alone(
    broker: Broker, log: MemoryMessageLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = await make_subscription(broker)
    await publish(broker, "a", "b", "c")
    leases = await take(queue)
    gate, commit = asyncio.Event(), log.commit

    async def slow(changes: Sequence[Change]) -> None:
        await gate.wait()
        await commit(changes)

    monkeypatch.setattr(log, "commit", slow)
    acks = [asyncio.create_task(broker.acknowledge(SUBSCRIPTION, [lease.ack_id])) for lease in leases]
    await settle_down()
    acks[0].cancel()
    acks[1].cancel()
    await settle_down()
    gate.set()
    await asyncio.wait_for(acks[2], 5)
    await publish(broker, "d")
    await asyncio.wait_for(broker.acknowledge(SUBSCRIPTION, [(await take_one(queue)).ack_id]), 5)
    assert (await log.load()).subscriptions[0].progress.floor == 5


async def test_a_message_that_expires_while_leased_and_is_then_nacked_is_gone(
    broker: Broker, clock: ManualClock
) -> None:
    queue = await make_subscription(broker, message_retention_seconds=600)
    await publish(broker, "old")
    (lease,) = await take(queue, deadline_seconds=600)
    clock.advance(595)
    queue.extend([lease.ack_id], 600)
    await publish(broker, "new")
    clock.advance(10)
    await queue.drop_expired()
    queue.nack([lease.ack_id])
    await settle_down()
    assert texts(await asyncio.wait_for(take(queue), 5)) == ["new"]


async def test_expiry_passes_a_gap_at_the_floor(
    broker: Broker, clock: ManualClock, refuse_appends: Refuse, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = await make_subscription(broker, message_retention_seconds=600)
    refuse_appends()
    with pytest.raises(StorageUnavailable):
        await publish(broker, "refused")
    monkeypatch.undo()
    await publish(broker, *(str(number) for number in range(PAGE_MESSAGES + 10)))
    clock.advance(601)
    await publish(broker, "young")
    await asyncio.wait_for(queue.drop_expired(), 5)
    assert queue.settled.floor == PAGE_MESSAGES + 12
    assert texts(await take(queue)) == ["young"]


async def test_a_save_never_comes_after_a_seek(
    broker: Broker, log: MemoryMessageLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = await make_subscription(broker, retain_acked=True)
    await publish(broker, "a", "b", "c")
    leases = await take(queue)
    gate, commit, order = asyncio.Event(), log.commit, []

    async def slow(changes: Sequence[Change]) -> None:
        if isinstance(changes[0], Reset):
            await gate.wait()
        await commit(changes)
        order.append(type(changes[0]))

    monkeypatch.setattr(log, "commit", slow)
    seeking = asyncio.create_task(broker.seek_to_time(SUBSCRIPTION, 0))
    await settle_down()
    queue.ack([leases[0].ack_id])
    await settle_down()
    gate.set()
    await seeking
    await settle_down()
    assert order[0] is Reset
    stored = (await log.load()).subscriptions[0].progress
    assert (stored.floor, stored.acked) == (queue.settled.floor, dict(queue.settled.ranges))


async def test_a_change_whose_caller_left_is_finished(
    broker: Broker, log: MemoryMessageLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.create_topic(Topic(TOPIC))
    gate, commit = asyncio.Event(), log.commit

    async def slow(changes: Sequence[Change]) -> None:
        await commit(changes)
        await gate.wait()

    monkeypatch.setattr(log, "commit", slow)
    creating = asyncio.create_task(broker.create_subscription(Subscription(SUBSCRIPTION, TOPIC)))
    await settle_down()
    creating.cancel()
    gate.set()
    await settle_down()
    assert broker.get_subscription(SUBSCRIPTION).name == SUBSCRIPTION


async def test_timers_do_not_multiply(broker: Broker, clock: ManualClock) -> None:
    queue = await make_subscription(
        broker, ack_deadline_seconds=600, retry=RetryPolicy(0.1, 0.1), labels={"holdfast-breaker": "off"}
    )
    await publish(broker, *(str(number) for number in range(50)))
    leases = await take(queue)
    for _ in range(100):
        queue.nack([leases[0].ack_id])
        await settle_down()
        clock.advance(0.11)
        leases[0] = await take_one(queue)
    assert len(broker._timers._heap) < 20


async def test_a_reason_that_is_no_text_does_not_keep_a_message_from_the_dead_letter_topic(broker: Broker) -> None:
    reader = await make_dead_letter_topic(broker)
    queue = await make_subscription(broker, dead_letter=DeadLetterPolicy(DEAD_LETTERS, 5))
    await publish(broker, "a")
    queue.fail(await take_one(queue), Failure(error="caf\udce9", reason="caf\udce9", dead_letter_now=True))
    assert text(await asyncio.wait_for(take_one(reader), 5)) == "a"


async def test_pages_are_bounded_in_bytes(broker: Broker) -> None:
    queue = await make_subscription(broker)
    for _ in range(10):
        await broker.publish_message(TOPIC, Message(b"x" * (PAGE_BYTES // 2)))
    await queue.take(1, 1, NoHolder())
    assert sum(len(message.body) for message in queue._backlog._page) <= 2 * PAGE_BYTES
    assert len(await take(queue)) == 9


async def test_publishing_to_a_topic_that_is_being_deleted_is_not_found(
    broker: Broker, log: MemoryMessageLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.create_topic(Topic(TOPIC))
    found = broker._topic(TOPIC)
    await broker.delete_topic(TOPIC)
    with pytest.raises(NotFound, match="was deleted"):
        await found.publish([b"\n\x01x"], 1)


async def test_a_message_goes_out_again_only_once_its_failure_is_on_disk(
    broker: Broker, log: MemoryMessageLog, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a crash would make it come again with an attempt number that is lower than the last one."""
    queue = await make_subscription(broker)
    await publish(broker, "a")
    (first,) = await take(queue)
    gate, commit = asyncio.Event(), log.commit
    tries: list[Sequence[Change]] = []

    async def slow_then_full_then_well(changes: Sequence[Change]) -> None:
        tries.append(changes)
        await gate.wait()
        if len(tries) == 1:
            raise StorageUnavailable("disk full")
        await commit(changes)

    monkeypatch.setattr(log, "commit", slow_then_full_then_well)
    queue.nack([first.ack_id])
    await settle_down()
    early = await take(queue)
    gate.set()
    await settle_down()
    assert (early, len(tries), await take(queue)) == ([], 1, [])
    clock.advance(1)  # the time after which it is tried again
    await settle_down()
    (second,) = await take(queue)
    assert (len(tries), second.attempt) == (2, 2)


async def test_a_retry_behind_one_that_expired_still_comes(broker: Broker, clock: ManualClock) -> None:
    queue = await make_subscription(broker, retry=RetryPolicy(400, 400), message_retention_seconds=600)
    await publish(broker, "old")
    clock.advance(250)
    await publish(broker, "young")
    old, young = await take(queue)
    queue.nack([old.ack_id])
    await settle_down()
    clock.advance(100)
    queue.nack([young.ack_id])
    await settle_down()
    waiting = asyncio.create_task(take_one(queue))
    await settle_down()
    clock.advance(300)  # the old one is due, and past its retention
    await settle_down()
    clock.advance(101)
    await settle_down()
    assert text(await asyncio.wait_for(waiting, 1)) == "young"


async def test_a_save_that_fails_in_an_unknown_way_is_tried_again(
    broker: Broker, log: MemoryMessageLog, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = await make_subscription(broker)
    await publish(broker, "a")
    commit, tries = log.commit, 0

    async def fails_once(changes: Sequence[Change]) -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise RuntimeError("a bug")
        await commit(changes)

    (lease,) = await take(queue)
    monkeypatch.setattr(log, "commit", fails_once)
    _, saved = queue.ack([lease.ack_id])
    with pytest.raises(RuntimeError):
        await saved
    clock.advance(1)
    await settle_down()
    assert (tries, queue.settled.has_unsaved) == (2, False)
