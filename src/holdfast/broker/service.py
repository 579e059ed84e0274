"""Every Pub/Sub operation, once. gRPC, REST, the local transport and push all come through here.

Names are full paths. Errors are those of holdfast.errors; the API layers translate them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

from holdfast.broker import limits, wire
from holdfast.broker.dead_letter import dead_letter_copy
from holdfast.broker.leases import Failure, Lease, NoHolder
from holdfast.broker.log import (
    Contents,
    DeleteSubscription,
    DeleteTopic,
    MessageLog,
    Progress,
    PutSubscription,
    PutTopic,
)
from holdfast.broker.signals import Signal, Timers
from holdfast.broker.subscriptions import SubscriptionQueue
from holdfast.broker.tail_cache import TailCache
from holdfast.broker.topics import TopicLog
from holdfast.clock import Clock
from holdfast.errors import AlreadyExists, BadInput, NotFound
from holdfast.model.message import Message
from holdfast.model.names import DELETED_TOPIC, check_project, check_topic
from holdfast.model.resources import PushConfig, Subscription, Topic
from holdfast.settings import BrokerSettings

log = logging.getLogger("holdfast.broker")

# Real Pub/Sub answers an empty pull after a while; clients give up after theirs. Shorter than any client's patience.
EMPTY_PULL_SECONDS = 2.0

# A pull's answer must stay under gRPC's usual 4 MB limit for what a client receives, unless one message is larger.
PULL_BYTES = 3_500_000


class Broker:
    """Opened by `Broker.open`, which continues where the log says the last process was."""

    def __init__(self, log: MessageLog, clock: Clock, settings: BrokerSettings) -> None:
        self.subscriptions_changed = Signal()
        self._log = log
        self._clock = clock
        self._strict = settings.strict
        self._cache = TailCache(settings.cache_megabytes * 1_000_000)
        self._timers = Timers(clock)
        self._topics: dict[str, TopicLog] = {}
        self._orphans: dict[int, TopicLog] = {}  # deleted topics whose messages a subscription may still read
        self._queues: dict[str, SubscriptionQueue] = {}
        self._next_key = 1
        # Creating and deleting wait for the disk in between; one at a time keeps names unique.
        self._administration = asyncio.Lock()

    @classmethod
    async def open(cls, log: MessageLog, clock: Clock, settings: BrokerSettings) -> Self:
        broker = cls(log, clock, settings)
        broker._restore(await log.load())
        return broker

    def _restore(self, contents: Contents) -> None:
        self._next_key = contents.next_key
        by_key: dict[int, TopicLog] = {}
        for stored in contents.topics:
            topic = TopicLog(stored.key, stored.topic, stored.next_sequence, self._log, self._cache)
            by_key[stored.key] = topic
            if stored.topic.name == DELETED_TOPIC:
                self._orphans[stored.key] = topic
            else:
                self._topics[stored.topic.name] = topic
        for found in contents.subscriptions:
            self._add_queue(found.key, found.subscription, by_key[found.topic_key], found.progress)

    async def close(self) -> None:
        """Everything decided so far is on disk at return. The log itself is its owner's to close."""
        for queue in self._queues.values():
            await queue.close()
        self._timers.stop()

    # Topics.

    async def create_topic(self, topic: Topic) -> Topic:
        check_topic("name", topic.name)
        async with self._administration:
            if topic.name in self._topics:
                raise AlreadyExists(f"topic {topic.name} already exists")
            key = self._take_key()
            await self._log.commit([PutTopic(key, topic)])
            self._topics[topic.name] = TopicLog(key, topic, 1, self._log, self._cache)
        return topic

    def get_topic(self, name: str) -> Topic:
        return self._topic(name).topic

    def list_topics(self, project: str) -> list[Topic]:
        check_project("project", project)
        return [self._topics[name].topic for name in sorted(self._topics) if name.startswith(f"{project}/")]

    def list_topic_subscriptions(self, name: str) -> list[str]:
        topic = self._topic(name)
        return sorted(queue.config.name for queue in self._queues.values() if queue.topic is topic)

    async def delete_topic(self, name: str) -> None:
        """Its subscriptions stay, keep what they had not settled, and show `_deleted-topic_` from now on."""
        async with self._administration:
            topic = self._topic(name)
            queues = [queue for queue in self._queues.values() if queue.topic is topic]
            if queues:
                await self._orphan(topic, queues)
            else:
                await self._log.commit([DeleteTopic(topic.key)])
                self._cache.forget_topic(topic.key)
            del self._topics[name]

    async def _orphan(self, topic: TopicLog, queues: Sequence[SubscriptionQueue]) -> None:
        tombstone = Topic(DELETED_TOPIC)
        configs = [replace(queue.config, topic=DELETED_TOPIC) for queue in queues]
        changes = [PutSubscription(q.key, topic.key, c, q.settled.floor) for q, c in zip(queues, configs, strict=True)]
        await self._log.commit([PutTopic(topic.key, tombstone), *changes])
        topic.topic = tombstone
        self._orphans[topic.key] = topic
        for queue, config in zip(queues, configs, strict=True):
            queue.reconfigure(config)

    async def publish(self, topic: str, messages: Sequence[Any], request_bytes: int) -> list[str]:
        """`messages` are google.pubsub.v1.PubsubMessage. The ids are given once every message is on disk."""
        found = self._topic(topic)
        limits.check_publish(messages, request_bytes)
        for message in messages:  # the broker's to give, whatever the client wrote there
            message.ClearField("message_id")
            message.ClearField("publish_time")
        return await found.publish(messages, self._clock.now_ns())

    async def publish_message(self, topic: str, message: Message) -> str:
        encoded = wire.encode(message)
        return (await self.publish(topic, [encoded], encoded.ByteSize()))[0]

    # Subscriptions.

    async def create_subscription(self, config: Subscription) -> Subscription:
        limits.check_subscription_config(config)
        async with self._administration:
            if config.name in self._queues:
                raise AlreadyExists(f"subscription {config.name} already exists")
            topic = self._topic(config.topic)
            key, floor = self._take_key(), topic.visible_end
            await self._log.commit([PutSubscription(key, topic.key, config, floor)])
            self._add_queue(key, config, topic, Progress(floor))
        return config

    def get_subscription(self, name: str) -> Subscription:
        return self.queue(name).config

    def list_subscriptions(self, project: str) -> list[Subscription]:
        check_project("project", project)
        return [self._queues[name].config for name in sorted(self._queues) if name.startswith(f"{project}/")]

    async def modify_push_config(self, name: str, push: PushConfig | None) -> None:
        """None turns it into a pull subscription."""
        async with self._administration:
            queue = self.queue(name)
            config = replace(queue.config, push=push)
            limits.check_subscription_config(config)
            await self._log.commit([PutSubscription(queue.key, queue.topic.key, config, queue.settled.floor)])
            queue.reconfigure(config)
        self.subscriptions_changed.fire()

    async def delete_subscription(self, name: str) -> None:
        async with self._administration:
            queue = self.queue(name)
            changes: list[Any] = [DeleteSubscription(queue.key)]
            last_reader = not any(q is not queue and q.topic is queue.topic for q in self._queues.values())
            if queue.topic.key in self._orphans and last_reader:
                changes.append(DeleteTopic(queue.topic.key))
                self._cache.forget_topic(self._orphans.pop(queue.topic.key).key)
            await self._log.commit(changes)
            del self._queues[name]
            queue.topic.listeners.remove(queue.changed.fire)
            await queue.delete()
        self.subscriptions_changed.fire()

    def queue(self, name: str) -> SubscriptionQueue:
        try:
            return self._queues[name]
        except KeyError:
            raise NotFound(f"subscription {name} does not exist") from None

    @property
    def queues(self) -> Sequence[SubscriptionQueue]:
        return list(self._queues.values())

    # Deliveries.

    async def pull(self, subscription: str, max_messages: int, wait_seconds: float = EMPTY_PULL_SECONDS) -> list[Lease]:
        """Waits a little for the first message; then gives what is there."""
        if max_messages < 1:
            raise BadInput("max_messages", f"{max_messages} is out of range; at least 1 is needed")
        queue = self.queue(subscription)
        max_messages = min(max_messages, limits.REQUEST_MESSAGES)
        if wait_seconds <= 0:  # wait_for would give up before it had looked
            return await queue.take(max_messages, PULL_BYTES, NoHolder())
        taking = queue.take_or_wait(max_messages, PULL_BYTES, NoHolder())
        try:
            return await asyncio.wait_for(taking, wait_seconds)
        except TimeoutError:
            return []

    async def acknowledge(self, subscription: str, ack_ids: Sequence[str]) -> None:
        _require_ack_ids(ack_ids)
        await self.queue(subscription).ack(ack_ids)

    def modify_ack_deadline(self, subscription: str, ack_ids: Sequence[str], seconds: int) -> None:
        """0 seconds is a nack."""
        _require_ack_ids(ack_ids)
        queue = self.queue(subscription)
        if not 0 <= seconds <= limits.ACK_DEADLINE_SECONDS[1]:
            raise BadInput("ack_deadline_seconds", f"{seconds} is out of range; 0 to 600 is allowed")
        if seconds == 0:
            queue.nack(ack_ids)
        else:
            queue.extend(ack_ids, seconds)

    async def _dead_letter(self, subscription: Subscription, lease: Lease, failure: Failure) -> None:
        assert subscription.dead_letter is not None  # the queue asks only then
        copy = dead_letter_copy(subscription, lease, failure, self._strict)
        encoded = wire.encode(copy)
        # Not through publish(): a message at the limits must still fit with the attributes that we add.
        await self._topic(subscription.dead_letter.topic).publish([encoded], self._clock.now_ns())

    # Inside.

    def _topic(self, name: str) -> TopicLog:
        try:
            return self._topics[name]
        except KeyError:
            raise NotFound(f"topic {name} does not exist") from None

    def _add_queue(self, key: int, config: Subscription, topic: TopicLog, progress: Progress) -> None:
        queue = SubscriptionQueue(key, config, topic, progress, self._log, self._clock, self._timers, self._dead_letter)
        topic.listeners.append(queue.changed.fire)
        self._queues[config.name] = queue
        self.subscriptions_changed.fire()

    def _take_key(self) -> int:
        key, self._next_key = self._next_key, self._next_key + 1
        return key

    async def forget_settled(self, step: int) -> int:
        """Deletes, at most `step` a topic, messages that every subscription has settled; gives how many."""
        deleted = 0
        for topic in [*self._topics.values(), *self._orphans.values()]:
            async with self._administration:  # a subscription that is just being created counts too
                floors = [queue.settled.floor for queue in self._queues.values() if queue.topic is topic]
                deleted += await self._log.trim(topic.key, min(floors, default=topic.visible_end), step)
        return deleted


def _require_ack_ids(ack_ids: Sequence[str]) -> None:
    if not ack_ids:
        raise BadInput("ack_ids", "at least one ack id is needed")
