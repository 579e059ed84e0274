"""Messages for one subscription alone: who gets them, how often, and what is told of them afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from holdfast.broker.leases import Failure
from holdfast.broker.log import Change, Settle
from holdfast.broker.retention import remove_once
from holdfast.broker.service import Broker
from holdfast.broker.wire import PubsubMessage, address_suffix, decode, encode, is_addressed, is_for
from holdfast.errors import BadInput, FailedPrecondition, NotFound, StorageUnavailable
from holdfast.model.fate import Fate
from holdfast.model.message import Message
from holdfast.model.names import DELETED_TOPIC
from holdfast.model.replay_attributes import REPLAY_ID
from holdfast.model.resources import DeadLetterPolicy, Subscription
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
    texts,
)

OTHER = "projects/local/subscriptions/other"
SNAPSHOT = "projects/local/snapshots/one"

DAY_SECONDS = 24 * 3600


async def send(broker: Broker, *texts: str, to: str = SUBSCRIPTION, **attributes: str) -> list[str]:
    messages = [encode(Message(text.encode(), attributes)) for text in texts]
    return [one.decode() for one in await broker.publish_to(to, messages, sum(map(len, messages)))]


async def send_once(broker: Broker, *replay_ids: str, to: str = SUBSCRIPTION) -> list[str]:
    messages = [encode(Message(one.encode(), {REPLAY_ID: one})) for one in replay_ids]
    return [one.decode() for one in await broker.publish_to(to, messages, 1)]


async def reopened(broker: Broker, log: MemoryMessageLog, clock: ManualClock) -> Broker:
    await broker.close()
    return await Broker.open(log, clock, BrokerSettings())


def fate(broker: Broker, message_id: str) -> Fate:
    return broker.fates(SUBSCRIPTION, [message_id])[message_id]


# The address.


def test_no_publisher_can_write_an_address() -> None:
    """Not even with the broker's own bytes: the id is always behind them."""
    forged = PubsubMessage(data=b"x").SerializeToString() + address_suffix(7)
    stored = forged + b"\x1a\x0d1234567890123"
    assert is_for(stored, 8)
    assert not is_addressed(stored)
    addressed = stored + address_suffix(7)
    assert (is_for(addressed, 7), is_for(addressed, 8), is_addressed(addressed)) == (True, False, True)


async def test_a_forged_address_is_for_everybody(broker: Broker) -> None:
    queue = await make_subscription(broker)
    await broker.create_subscription(Subscription(OTHER, TOPIC))
    forged = encode(Message(b"forged")) + address_suffix(queue.key)
    await broker.publish(TOPIC, [forged], len(forged))
    assert texts(await take(queue)) == texts(await take(broker.queue(OTHER))) == ["forged"]


async def test_what_is_delivered_is_the_message_as_it_was_sent(broker: Broker) -> None:
    queue = await make_subscription(broker)
    sent = Message(b"\x00\x01", {"a": "b"})
    (message_id,) = await broker.publish_to(SUBSCRIPTION, [encode(sent)], 1)
    (lease,) = await take(queue)
    arrived = decode(lease.body)
    assert arrived == replace(sent, message_id=message_id.decode(), publish_time_ns=arrived.publish_time_ns)


# Who gets it.


async def test_the_others_settle_it_unseen(broker: Broker) -> None:
    queue = await make_subscription(broker)
    await broker.create_subscription(Subscription(OTHER, TOPIC))
    other = broker.queue(OTHER)
    await publish(broker, "a")
    await send(broker, "only mine")
    await publish(broker, "b")
    await send(broker, "last")
    assert texts(await take(other)) == ["a", "b"]
    other.ack([lease.ack_id for lease in await take(other)])
    assert texts(await take(queue)) == ["a", "only mine", "b", "last"]
    await settle_down()
    assert other.outlook().due == 0
    assert list(other.settled.ranges.values()) == [2, 4]


async def test_filters_and_schemas_are_not_asked(broker: Broker) -> None:
    queue = await make_subscription(broker, filter='attributes.kind = "wanted"')
    await send(broker, "unfiltered", kind="other")
    await publish(broker, "filtered out")
    assert texts(await take(queue)) == ["unfiltered"]


async def test_a_subscription_whose_topic_is_deleted_is_still_reached(
    broker: Broker, log: MemoryMessageLog, clock: ManualClock
) -> None:
    await make_subscription(broker)
    await broker.delete_topic(TOPIC)
    await send(broker, "a")
    again = await reopened(broker, log, clock)
    await send(again, "b")
    assert again.get_subscription(SUBSCRIPTION).topic == DELETED_TOPIC
    assert texts(await take(again.queue(SUBSCRIPTION))) == ["a", "b"]
    await again.close()


async def test_it_survives_restarts_trimming_and_what_others_seek_to(
    broker: Broker, log: MemoryMessageLog, clock: ManualClock
) -> None:
    await make_subscription(broker)
    await broker.create_subscription(Subscription(OTHER, TOPIC, retain_acked=True))
    await send(broker, "mine")
    await publish(broker, "all")
    await broker.create_snapshot(SNAPSHOT, OTHER, {})
    other = broker.queue(OTHER)
    for _ in range(3):
        leases = await take(other)
        assert texts(leases) == ["all"]
        await broker.acknowledge(OTHER, [lease.ack_id for lease in leases])
        await remove_once(broker)
        await broker.seek_to_snapshot(OTHER, SNAPSHOT)
    await broker.seek_to_time(OTHER, 0)
    again = await reopened(broker, log, clock)
    await remove_once(again)
    assert texts(await take(again.queue(OTHER))) == ["all"]
    assert texts(await take(again.queue(SUBSCRIPTION))) == ["mine", "all"]
    await again.close()


async def test_what_cannot_be_sent_is_refused(broker: Broker) -> None:
    with pytest.raises(NotFound):
        await send(broker, "x")
    await make_subscription(broker)
    with pytest.raises(BadInput, match=r"messages\[1\]"):
        await send(broker, "x", "")
    await broker.detach_subscription(SUBSCRIPTION)
    with pytest.raises(FailedPrecondition, match="detached"):
        await send(broker, "x")


# Once.


async def test_a_replay_id_is_remembered_over_restarts_and_then_forgotten(
    broker: Broker, log: MemoryMessageLog, clock: ManualClock
) -> None:
    queue = await make_subscription(broker)
    first = await send_once(broker, "r1", "r2")
    queue.ack([lease.ack_id for lease in await take(queue)])
    for _ in range(2):
        broker = await reopened(broker, log, clock)
        await remove_once(broker)
        assert await send_once(broker, "r2", "r1") == first[::-1]
        clock.advance(DAY_SECONDS / 2 - 1)
    assert await take(broker.queue(SUBSCRIPTION)) == []
    clock.advance(3)
    await remove_once(broker)
    assert not (await log.load()).records
    assert set(await send_once(broker, "r1", "r2")).isdisjoint(first)
    await broker.close()


async def test_what_still_waits_is_remembered_for_longer(broker: Broker, clock: ManualClock) -> None:
    queue = await make_subscription(broker)
    first = await send_once(broker, "r1")
    clock.advance(3 * DAY_SECONDS)
    await remove_once(broker)
    assert await send_once(broker, "r1") == first
    assert fate(broker, first[0]) is Fate.PENDING
    queue.ack([lease.ack_id for lease in await take(queue)])
    await remove_once(broker)
    assert await send_once(broker, "r1") != first


async def test_a_failed_append_remembers_nothing(
    broker: Broker, log: MemoryMessageLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also not for a call that waited for the first one to end."""
    queue = await make_subscription(broker)
    commit, refused = log.commit, asyncio.Event()

    async def refuse_once(changes: Sequence[Change]) -> None:
        if not refused.is_set() and not any(isinstance(change, Settle) for change in changes):
            refused.set()
            await asyncio.sleep(0)
            raise StorageUnavailable("disk full")
        await commit(changes)

    monkeypatch.setattr(log, "commit", refuse_once)
    results = await asyncio.gather(*(send_once(broker, "r1") for _ in range(3)), return_exceptions=True)
    assert [isinstance(result, StorageUnavailable) for result in results] == [True, False, False]
    assert results[1] == results[2]
    assert texts(await take(queue)) == ["r1"]


async def test_a_caller_that_goes_away_leaves_memory_and_disk_alike(broker: Broker) -> None:
    queue = await make_subscription(broker)
    sending = asyncio.ensure_future(send_once(broker, "r1"))
    await asyncio.sleep(0)
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)
    await send_once(broker, "r1")
    assert texts(await take(queue)) == ["r1"]


# Fates.


async def test_fates_survive_a_restart_and_trimming(broker: Broker, log: MemoryMessageLog, clock: ManualClock) -> None:
    await make_dead_letter_topic(broker)
    queue = await make_subscription(broker, dead_letter=DeadLetterPolicy(DEAD_LETTERS))
    acked, dead, pending = await send(broker, "acked", "dead", "pending")
    leases = await take(queue, 2)
    queue.ack([leases[0].ack_id])
    queue.fail(leases[1], Failure(dead_letter_now=True))
    await settle_down()
    await remove_once(broker)
    again = await reopened(broker, log, clock)
    assert [fate(again, one) for one in (acked, dead, pending)] == [Fate.ACKED, Fate.DEAD_LETTERED, Fate.PENDING]
    clock.advance(DAY_SECONDS + 1)
    leases = await take(again.queue(SUBSCRIPTION))
    again.queue(SUBSCRIPTION).ack([lease.ack_id for lease in leases])
    await remove_once(again)
    assert {fate(again, one) for one in (acked, dead, pending)} == {Fate.UNKNOWN}
    assert not (await log.load()).records
    await again.close()


async def test_a_dead_letter_is_told_before_the_original_is_settled(
    broker: Broker, log: MemoryMessageLog, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash between the two must not look like success."""
    await make_dead_letter_topic(broker)
    queue = await make_subscription(broker, dead_letter=DeadLetterPolicy(DEAD_LETTERS))
    (dead,) = await send(broker, "dead")
    (lease,) = await take(queue)
    commit = log.commit

    async def crash(changes: Sequence[Change]) -> None:
        if any(isinstance(change, Settle) for change in changes):
            raise StorageUnavailable("killed")
        await commit(changes)

    monkeypatch.setattr(log, "commit", crash)
    queue.fail(lease, Failure(dead_letter_now=True))
    await settle_down()
    crashed = await Broker.open(log, clock, BrokerSettings())  # what a new process would find
    assert fate(crashed, dead) is Fate.DEAD_LETTERED
    monkeypatch.undo()


async def test_nobody_asks_after_the_messages_of_others(broker: Broker) -> None:
    await make_subscription(broker)
    await broker.create_subscription(Subscription(OTHER, TOPIC))
    (message_id,) = await send(broker, "x")
    assert broker.fates(OTHER, [message_id]) == {message_id: Fate.UNKNOWN}
    with pytest.raises(NotFound):
        broker.fates("projects/local/subscriptions/nowhere", [message_id])


async def test_what_may_have_expired_is_not_told_as_acked(broker: Broker, clock: ManualClock) -> None:
    await make_subscription(broker, message_retention_seconds=600)
    (message_id,) = await send(broker, "x")
    clock.advance(601)
    await remove_once(broker)
    assert fate(broker, message_id) is Fate.EXPIRED
