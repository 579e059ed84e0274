"""The broker in this process, without a network in between."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.broker.service import Broker
from holdfast.broker.wire import decode
from holdfast.errors import AlreadyExists
from holdfast.model.message import Delivery, Message
from holdfast.model.resources import Subscription, Topic
from holdfast.transports.ack_ids import ack_ids_by_subscription


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

    async def publish(self, topic: str, message: Message) -> str:
        return await self._broker.publish_message(topic, message)

    async def receive(self, subscription: str, max_messages: int, wait_seconds: float) -> Sequence[Delivery]:
        counted = self._broker.get_subscription(subscription).dead_letter is not None
        leases = await self._broker.pull(subscription, max_messages, wait_seconds)
        return [
            Delivery(subscription, decode(lease.body), lease.attempt if counted else 0, lease.ack_id)
            for lease in leases
        ]

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        for subscription, ack_ids in ack_ids_by_subscription(deliveries).items():
            await self._broker.acknowledge(subscription, ack_ids)

    async def nack(self, deliveries: Sequence[Delivery]) -> None:
        for subscription, ack_ids in ack_ids_by_subscription(deliveries).items():
            self._broker.modify_ack_deadline(subscription, ack_ids, 0)

    async def close(self) -> None:
        """The broker is its owner's to close."""
