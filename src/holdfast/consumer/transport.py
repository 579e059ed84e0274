"""PORT: how a part reads from and publishes to a broker, ours in this process or any Pub/Sub over the network.

One contract suite (holdfast.testing.contracts.transport) holds for every implementation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from holdfast.model.message import Delivery, Message
from holdfast.model.resources import Subscription


class Transport(Protocol):
    """Topics and subscriptions are named by full path (projects/…/topics/…)."""

    async def ensure_topic(self, topic: str) -> bool:
        """Creates it when absent; True when it was created. An existing one is left as it is."""
        ...

    async def ensure_subscription(self, subscription: Subscription) -> bool:
        """Creates it when absent; True when it was created. An existing one is left as it is."""
        ...

    async def publish(self, topic: str, message: Message) -> str:
        """Gives the message id once the broker has it."""
        ...

    async def receive(self, subscription: str, max_messages: int, wait_seconds: float) -> Sequence[Delivery]:
        """Waits up to wait_seconds for the first message; gives what is there then, at most max_messages."""
        ...

    async def ack(self, deliveries: Sequence[Delivery]) -> None: ...

    async def nack(self, deliveries: Sequence[Delivery]) -> None: ...

    async def close(self) -> None: ...
