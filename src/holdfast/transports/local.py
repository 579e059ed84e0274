"""The broker in this process, without a network in between."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

from holdfast.broker.leases import NACKED, Failure, Lease
from holdfast.broker.service import Broker
from holdfast.broker.streams import Batch, Properties, PullStream
from holdfast.broker.wire import decode, encode
from holdfast.consumer.settle import LONGEST_ERROR, LONGEST_REASON
from holdfast.errors import AlreadyExists, NotFound, StaleAckIds, StorageUnavailable
from holdfast.model.fate import Fate, Release
from holdfast.model.message import Delivery, Message
from holdfast.model.names import is_subscription
from holdfast.model.replay_attributes import REPLAY_ID
from holdfast.model.resources import Subscription, Topic
from holdfast.transports.ack_ids import ack_ids_by_subscription, whole_seconds


class LocalTransport:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def ensure_topic(self, topic: str) -> bool:
        try:
            await self._broker.create_topic(Topic(topic))
        except AlreadyExists:
            return False
        return True

    async def ensure_subscription(self, subscription: Subscription) -> bool:
        try:
            await self._broker.create_subscription(subscription)
        except AlreadyExists:
            return False
        return True

    async def list_topics(self, project: str) -> Sequence[str]:
        return [topic.name for topic in self._broker.list_topics(project)]

    async def list_subscriptions(self, project: str) -> Sequence[str]:
        return [subscription.name for subscription in self._broker.list_subscriptions(project)]

    def watch_subscriptions(self, callback: Callable[[], None]) -> Callable[[], None]:
        signals = (self._broker.subscriptions_changed, self._broker.topic_created)
        for signal in signals:
            signal.listen(callback)

        def unwatch() -> None:
            for signal in signals:
                signal.unlisten(callback)

        return unwatch

    async def publish(self, topic: str, message: Message) -> str:
        encoded = encode(message)
        publish = self._broker.publish_once if REPLAY_ID in message.attributes else self._broker.publish
        (message_id,) = await publish(topic, [encoded], len(encoded))
        return message_id.decode()

    # As an outlet.

    async def publish_to(self, subscription: str, messages: Sequence[Message]) -> Sequence[str]:
        encoded = [encode(message) for message in messages]
        ids = await self._broker.publish_to(subscription, encoded, sum(map(len, encoded)))
        return [message_id.decode() for message_id in ids]

    async def exists(self, target: str) -> bool:
        try:
            self._broker.get_subscription(target) if is_subscription(target) else self._broker.get_topic(target)
        except NotFound:
            return False
        return True

    async def fates(self, subscription: str, message_ids: Sequence[str]) -> Mapping[str, Fate]:
        return self._broker.fates(subscription, message_ids)

    async def release(self, subscription: str, message_id: str) -> Release:
        return await self._broker.release(subscription, message_id)

    # Receiving.

    async def receive(self, subscription: str, max_messages: int, wait_seconds: float) -> Sequence[Delivery]:
        config = self._broker.get_subscription(subscription)
        return _deliveries(config, await self._broker.pull(subscription, max_messages, wait_seconds))

    @asynccontextmanager
    async def stream(
        self, subscription: str, max_messages: int, max_bytes: int, deadline_seconds: int
    ) -> AsyncIterator[LocalStream]:
        stream = PullStream(self._broker.queue(subscription), deadline_seconds, max_messages, max_bytes)
        try:
            yield LocalStream(self._broker, subscription, stream)
        finally:
            stream.close()

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        stale: list[str] = []
        for subscription, ack_ids in ack_ids_by_subscription(deliveries).items():
            try:
                await self._broker.acknowledge(subscription, ack_ids)
            except StaleAckIds as error:
                stale += error.ack_ids
        if stale:
            raise StaleAckIds(stale)

    async def nack(
        self, deliveries: Sequence[Delivery], delay_seconds: float = 0.0, *, reason: str = "", error: str = ""
    ) -> None:
        self._modify(deliveries, whole_seconds(delay_seconds), _failure(reason, error))

    async def reject(self, deliveries: Sequence[Delivery], reason: str, error: str) -> None:
        self._modify(deliveries, 0, replace(_failure(reason, error), dead_letter_now=True))

    async def extend(self, deliveries: Sequence[Delivery], seconds: int) -> None:
        self._modify(deliveries, seconds)

    def _modify(self, deliveries: Sequence[Delivery], seconds: int, failure: Failure | None = None) -> None:
        for subscription, ack_ids in ack_ids_by_subscription(deliveries).items():
            with suppress(StaleAckIds):  # they are over, which is what a nack wants and an extension cannot help
                self._broker.modify_ack_deadline(subscription, ack_ids, seconds, failure)

    async def check(self, name: str) -> None:
        await self._broker.check()
        if is_subscription(name):
            self._broker.get_subscription(name)
        else:
            self._broker.get_topic(name)

    async def close(self) -> None:
        """The broker is its owner's to close."""


class LocalStream:
    def __init__(self, broker: Broker, subscription: str, stream: PullStream) -> None:
        self.ordered = False
        self._broker = broker
        self._subscription = subscription
        self._stream = stream

    async def receive(self) -> Sequence[Delivery]:
        while True:
            item = await self._stream.next()
            match item:
                case Batch(leases) if leases:
                    return _deliveries(self._broker.get_subscription(self._subscription), leases)
                case Properties(ordered=ordered):
                    self.ordered = ordered
                case None:
                    raise StorageUnavailable("the broker ended the stream")


def _failure(reason: str, error: str) -> Failure:
    return replace(NACKED, reason=reason[:LONGEST_REASON], error=error[:LONGEST_ERROR] or NACKED.error)


def _deliveries(subscription: Subscription, leases: Sequence[Lease]) -> list[Delivery]:
    """The attempt is told only where there is a dead-letter policy, as over the network."""
    counted = subscription.dead_letter is not None
    return [
        Delivery(subscription.name, decode(lease.body), lease.attempt if counted else 0, lease.ack_id)
        for lease in leases
    ]
