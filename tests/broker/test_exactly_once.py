"""Exactly-once delivery: an ack id is worth something only while its own lease is."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from holdfast.broker.log import Change
from holdfast.broker.service import Broker
from holdfast.broker.streams import Batch, Confirmation, Properties, PullStream
from holdfast.errors import StaleAckIds, StorageUnavailable
from holdfast.settings import BrokerSettings
from holdfast.stores.memory.log import MemoryMessageLog
from holdfast.testing import ManualClock
from tests.broker.helpers import SUBSCRIPTION, make_subscription, publish, settle_down, take, take_one


async def test_an_ack_of_a_lost_lease_fails_and_the_message_comes_again(broker: Broker, clock: ManualClock) -> None:
    queue = await make_subscription(broker, exactly_once=True)
    await publish(broker, "a", "b")
    old, good = await take(queue)
    queue.extend([good.ack_id], 60)
    clock.advance(10.2)
    await settle_down()
    with pytest.raises(StaleAckIds) as caught:
        await broker.acknowledge(SUBSCRIPTION, [old.ack_id, good.ack_id])
    assert caught.value.ack_ids == [old.ack_id]
    again = await take_one(queue)
    await broker.acknowledge(SUBSCRIPTION, [again.ack_id])
    assert queue.settled.floor == 3  # the good one of the refused call counted


async def test_at_the_deadline_an_ack_is_too_late_even_before_redelivery(broker: Broker, clock: ManualClock) -> None:
    queue = await make_subscription(broker, exactly_once=True)
    await publish(broker, "a")
    lease = await take_one(queue)
    clock._now += 10 * 10**9  # no timer has run yet
    with pytest.raises(StaleAckIds):
        await broker.acknowledge(SUBSCRIPTION, [lease.ack_id])


async def test_a_second_ack_fails_and_so_does_one_after_a_nack(broker: Broker) -> None:
    queue = await make_subscription(broker, exactly_once=True)
    await publish(broker, "a")
    lease = await take_one(queue)
    broker.modify_ack_deadline(SUBSCRIPTION, [lease.ack_id], 0)
    with pytest.raises(StaleAckIds):
        await broker.acknowledge(SUBSCRIPTION, [lease.ack_id])
    again = await take_one(queue)
    await broker.acknowledge(SUBSCRIPTION, [again.ack_id])
    with pytest.raises(StaleAckIds):
        await broker.acknowledge(SUBSCRIPTION, [again.ack_id])
    with pytest.raises(StaleAckIds):
        broker.modify_ack_deadline(SUBSCRIPTION, [again.ack_id], 60)


async def test_an_ack_id_from_before_a_restart_is_stale(
    broker: Broker, log: MemoryMessageLog, clock: ManualClock
) -> None:
    queue = await make_subscription(broker, exactly_once=True)
    await publish(broker, "a")
    lease = await take_one(queue)
    again = await Broker.open(log, clock, BrokerSettings())
    with pytest.raises(StaleAckIds):
        await again.acknowledge(SUBSCRIPTION, [lease.ack_id])


async def test_an_ack_that_was_not_saved_may_be_sent_again(
    broker: Broker, log: MemoryMessageLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = await make_subscription(broker, exactly_once=True)
    await publish(broker, "a")
    lease = await take_one(queue)
    commit = log.commit

    async def refuse(changes: Sequence[Change]) -> None:
        raise StorageUnavailable("disk full")

    monkeypatch.setattr(log, "commit", refuse)
    with pytest.raises(StorageUnavailable):
        await broker.acknowledge(SUBSCRIPTION, [lease.ack_id])
    monkeypatch.setattr(log, "commit", commit)
    await broker.acknowledge(SUBSCRIPTION, [lease.ack_id])
    assert (await log.load()).subscriptions[0].progress.floor == 2


async def test_a_stream_confirms_acks_and_deadlines(broker: Broker, clock: ManualClock) -> None:
    queue = await make_subscription(broker, exactly_once=True)
    await publish(broker, "a", "b")
    stream = PullStream(queue, 10, 0, 0)
    assert await stream.next() == Properties(exactly_once=True, ordered=False)
    batch = await stream.next()
    assert isinstance(batch, Batch)
    first, second = batch.leases
    stream.modify_deadlines([(first.ack_id, 60), (second.ack_id, 60)])
    assert await stream.next() == Confirmation(False, [first.ack_id, second.ack_id], [])
    stream.ack([first.ack_id])
    assert await stream.next() == Confirmation(True, [first.ack_id], [])
    stream.ack([first.ack_id, second.ack_id])
    assert await stream.next() == Confirmation(True, [second.ack_id], [first.ack_id])
    stream.end()
    assert await stream.next() is None


async def test_a_stream_hears_when_exactly_once_is_turned_on(broker: Broker) -> None:
    from dataclasses import replace

    queue = await make_subscription(broker)
    stream = PullStream(queue, 10, 0, 0)
    assert await stream.next() == Properties(exactly_once=False, ordered=False)
    await broker.update_subscription(SUBSCRIPTION, lambda config: replace(config, exactly_once=True))
    assert await stream.next() == Properties(exactly_once=True, ordered=False)
