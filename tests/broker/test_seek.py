"""Snapshots and seek, retention of acked messages, filters, detaching and expiring."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.broker.retention import remove_once
from holdfast.broker.service import Broker
from holdfast.broker.subscriptions import SubscriptionQueue
from holdfast.errors import AlreadyExists, FailedPrecondition, NotFound
from holdfast.model.message import Message
from holdfast.model.resources import Subscription, Topic
from holdfast.settings import BrokerSettings
from holdfast.stores.memory.log import MemoryMessageLog
from holdfast.testing import ManualClock
from tests.broker.helpers import DEAD_LETTERS, SUBSCRIPTION, TOPIC, make_subscription, publish, take, texts

SNAPSHOT = "projects/local/snapshots/before-deploy"
OTHER = "projects/local/subscriptions/other"
DAY = 24 * 3600


async def ack_all(queue: SubscriptionQueue) -> list[str]:
    leases = await take(queue)
    _, on_disk = queue.ack([lease.ack_id for lease in leases])
    await on_disk
    return texts(leases)


async def test_a_snapshot_brings_back_what_was_open_then(broker: Broker) -> None:
    queue = await make_subscription(broker)
    await publish(broker, "a", "b", "c")
    leases = await take(queue)
    queue.ack([leases[1].ack_id])
    await broker.create_snapshot(SNAPSHOT, SUBSCRIPTION, {})
    queue.ack([leases[0].ack_id, leases[2].ack_id])
    await publish(broker, "d")
    await ack_all(queue)
    await remove_once(broker)
    await broker.seek_to_snapshot(SUBSCRIPTION, SNAPSHOT)
    assert texts(await take(queue)) == ["a", "c", "d"]


async def test_a_snapshot_survives_a_restart_and_serves_another_subscription(
    broker: Broker, log: MemoryMessageLog, clock: ManualClock
) -> None:
    queue = await make_subscription(broker)
    await publish(broker, "a", "b")
    await broker.create_snapshot(SNAPSHOT, SUBSCRIPTION, {"team": "x"})
    await ack_all(queue)
    await broker.close()
    again = await Broker.open(log, clock, BrokerSettings())
    await remove_once(again)
    await again.create_subscription(Subscription(OTHER, TOPIC))
    await again.seek_to_snapshot(OTHER, SNAPSHOT)
    assert texts(await take(again.queue(OTHER))) == ["a", "b"]
    assert again.get_snapshot(SNAPSHOT).labels == {"team": "x"}


async def test_seek_forgets_deliveries_under_way(broker: Broker) -> None:
    queue = await make_subscription(broker, retain_acked=True)
    await publish(broker, "a")
    (lease,) = await take(queue)
    await broker.seek_to_time(SUBSCRIPTION, 0)
    assert texts(await take(queue)) == ["a"]
    queue.nack([lease.ack_id])  # of a forgotten delivery: nothing happens
    assert await take(queue) == []


async def test_seek_to_a_time_settles_before_and_opens_after(broker: Broker, clock: ManualClock) -> None:
    queue = await make_subscription(broker, retain_acked=True)
    await publish(broker, "old")
    clock.advance(60)
    since = clock.now_ns()
    await publish(broker, "new", "newer")
    await ack_all(queue)
    await broker.seek_to_time(SUBSCRIPTION, since)
    assert texts(await take(queue)) == ["new", "newer"]
    await broker.seek_to_time(SUBSCRIPTION, clock.now_ns() + 1)
    assert await take(queue) == []


async def test_seeking_back_does_not_bring_what_was_published_before_the_subscription_was(broker: Broker) -> None:
    await broker.create_topic(Topic(TOPIC))
    await broker.create_subscription(Subscription(OTHER, TOPIC))  # keeps it in the log
    await publish(broker, "before")
    await broker.create_subscription(Subscription(SUBSCRIPTION, TOPIC, retain_acked=True))
    await publish(broker, "after")
    await ack_all(broker.queue(SUBSCRIPTION))
    await broker.update_subscription(SUBSCRIPTION, lambda config: replace(config, ack_deadline_seconds=60))
    await broker.seek_to_time(SUBSCRIPTION, 0)
    assert texts(await take(broker.queue(SUBSCRIPTION))) == ["after"]
    await broker.update_topic(TOPIC, lambda topic: replace(topic, message_retention_seconds=600))
    await broker.seek_to_time(SUBSCRIPTION, 0)
    assert texts(await take(broker.queue(SUBSCRIPTION))) == ["before", "after"]


async def test_without_retention_seeking_back_does_not_bring_acked_messages(broker: Broker, clock: ManualClock) -> None:
    queue = await make_subscription(broker)
    await broker.create_subscription(Subscription(OTHER, TOPIC))  # keeps them in the log
    await publish(broker, "a", "b")
    leases = await take(queue)
    queue.ack([leases[1].ack_id])
    await broker.seek_to_time(SUBSCRIPTION, 0)
    assert texts(await take(queue)) == ["a"]


async def test_topic_retention_lets_a_new_subscription_seek_back(broker: Broker, clock: ManualClock) -> None:
    await broker.create_topic(Topic(TOPIC, message_retention_seconds=DAY))
    await publish(broker, "too old")
    clock.advance(DAY + 1)
    await publish(broker, "kept")
    await remove_once(broker)
    await broker.create_subscription(Subscription(OTHER, TOPIC))
    assert await take(broker.queue(OTHER)) == []
    await broker.seek_to_time(OTHER, 0)
    assert texts(await take(broker.queue(OTHER))) == ["kept"]


async def test_retained_acked_messages_go_when_their_time_is_over(broker: Broker, clock: ManualClock) -> None:
    queue = await make_subscription(broker, retain_acked=True, message_retention_seconds=600)
    await publish(broker, "a")
    await ack_all(queue)
    await remove_once(broker)
    await broker.seek_to_time(SUBSCRIPTION, 0)
    assert await ack_all(queue) == ["a"]
    clock.advance(601)
    await remove_once(broker)
    await broker.seek_to_time(SUBSCRIPTION, 0)
    assert await take(queue) == []


async def test_snapshots_expire_with_their_oldest_message(broker: Broker, clock: ManualClock) -> None:
    await make_subscription(broker)
    await publish(broker, "a")
    clock.advance(6 * DAY)
    snapshot = await broker.create_snapshot(SNAPSHOT, SUBSCRIPTION, {})
    assert snapshot.expire_time_ns == clock.now_ns() + DAY * 10**9
    clock.advance(DAY)
    await remove_once(broker)
    with pytest.raises(NotFound):
        broker.get_snapshot(SNAPSHOT)


async def test_a_snapshot_that_would_expire_within_the_hour_is_refused(broker: Broker, clock: ManualClock) -> None:
    await make_subscription(broker)
    await publish(broker, "a")
    clock.advance(7 * DAY - 1800)
    with pytest.raises(FailedPrecondition, match="hour"):
        await broker.create_snapshot(SNAPSHOT, SUBSCRIPTION, {})


async def test_snapshots_have_names_of_their_own(broker: Broker) -> None:
    await make_subscription(broker)
    await broker.create_snapshot(SNAPSHOT, SUBSCRIPTION, {})
    with pytest.raises(AlreadyExists):
        await broker.create_snapshot(SNAPSHOT, SUBSCRIPTION, {})
    await broker.create_topic(Topic(DEAD_LETTERS))
    await broker.create_subscription(Subscription(OTHER, DEAD_LETTERS))
    with pytest.raises(FailedPrecondition, match="another topic"):
        await broker.seek_to_snapshot(OTHER, SNAPSHOT)
    await broker.delete_snapshot(SNAPSHOT)
    with pytest.raises(NotFound):
        await broker.seek_to_snapshot(SUBSCRIPTION, SNAPSHOT)


async def test_a_deleted_topics_snapshot_keeps_its_messages(
    broker: Broker, log: MemoryMessageLog, clock: ManualClock
) -> None:
    await make_subscription(broker)
    await publish(broker, "a")
    await broker.create_snapshot(SNAPSHOT, SUBSCRIPTION, {})
    await broker.delete_topic(TOPIC)
    await broker.delete_subscription(SUBSCRIPTION)
    again = await Broker.open(log, clock, BrokerSettings())
    assert again.get_snapshot(SNAPSHOT).topic == "_deleted-topic_"
    await again.delete_snapshot(SNAPSHOT)
    assert (await log.load()).topics == []


async def test_a_filter_lets_only_matching_messages_through_and_blocks_nobody(broker: Broker) -> None:
    queue = await make_subscription(broker, filter='attributes.kind = "order" AND NOT attributes:test')
    for number, attributes in enumerate(
        [{"kind": "order"}, {"kind": "refund"}, {"kind": "order", "test": "1"}, {}, {"kind": "order"}]
    ):
        await broker.publish_message(TOPIC, Message(str(number).encode(), attributes))
    leases = await take(queue)
    assert texts(leases) == ["0", "4"]
    queue.ack([lease.ack_id for lease in leases])
    assert queue.settled.floor == 6


async def test_a_detached_subscription_delivers_and_keeps_nothing(broker: Broker, log: MemoryMessageLog) -> None:
    queue = await make_subscription(broker)
    await publish(broker, "a")
    await broker.detach_subscription(SUBSCRIPTION)
    await publish(broker, "b")
    with pytest.raises(FailedPrecondition, match="detached"):
        await take(queue)
    await remove_once(broker)
    assert await log.read_from(queue.topic.key, 1, 1000, 10) == []


async def test_an_unused_subscription_expires_and_a_used_one_does_not(broker: Broker, clock: ManualClock) -> None:
    await make_subscription(broker, expiration_seconds=DAY)
    await broker.create_subscription(Subscription(OTHER, TOPIC, expiration_seconds=None))
    for _ in range(5):
        clock.advance(DAY / 2)
        await take(broker.queue(SUBSCRIPTION))
        await remove_once(broker)
    clock.advance(DAY + 1)
    await remove_once(broker)
    with pytest.raises(NotFound):
        broker.queue(SUBSCRIPTION)
    assert broker.queue(OTHER).config.name == OTHER
