"""PORT: how a part reads from and publishes to a broker, ours in this process or any Pub/Sub over the network.

One contract suite (holdfast.testing.contracts.transport) holds for every implementation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from holdfast.model.message import Delivery, Message
from holdfast.model.resources import Subscription


class Stream(Protocol):
    """Deliveries of one subscription, as they come. They are settled through the transport: that outlives a stream."""

    @property
    def ordered(self) -> bool:
        """Whether the messages of one ordering key must be handled one after the other. Known by the first receive."""
        ...

    async def receive(self) -> Sequence[Delivery]:
        """Waits for at least one. Raises when the stream is over: it is of no more use then, and what it gave may
        come again soon, unless `extend` said that it is still worked on. Cancelling it ends the stream too."""
        ...


class Transport(Protocol):
    """Topics and subscriptions are named by full path (projects/…/topics/…)."""

    async def ensure_topic(self, topic: str) -> bool:
        """Creates it when absent; True when it was created. An existing one is left as it is."""
        ...

    async def ensure_subscription(self, subscription: Subscription) -> bool:
        """Creates it when absent; True when it was created. An existing one is left as it is."""
        ...

    async def list_topics(self, project: str) -> Sequence[str]:
        """Of `project` (projects/…), by full path."""
        ...

    async def list_subscriptions(self, project: str) -> Sequence[str]:
        """Of `project` (projects/…), by full path."""
        ...

    def watch_subscriptions(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Calls back whenever one may have been created or deleted, or a topic that needs one created, as soon as the
        broker tells: one over the network never does. Gives what ends that."""
        ...

    async def publish(self, topic: str, message: Message) -> str:
        """Gives the message id once the broker has it."""
        ...

    async def receive(self, subscription: str, max_messages: int, wait_seconds: float) -> Sequence[Delivery]:
        """Waits up to wait_seconds for the first message; gives what is there then, at most max_messages."""
        ...

    def stream(
        self, subscription: str, max_messages: int, max_bytes: int, deadline_seconds: int
    ) -> AbstractAsyncContextManager[Stream]:
        """The broker sends on its own, until max_messages or max_bytes (one message more, at most) are not settled.
        Each may be settled within deadline_seconds (10 to 600) of its sending, longer where it is extended."""
        ...

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """They do not come again. Raises StaleAckIds, once the others are acked, for those that came too late; only
        under exactly-once delivery can an ack come too late."""
        ...

    async def nack(
        self, deliveries: Sequence[Delivery], delay_seconds: float = 0.0, *, reason: str = "", error: str = ""
    ) -> None:
        """They come again: not before the delay is over, 600 seconds at most. Nothing happens to those that were
        settled before. A broker of ours puts the last reason and error on the dead letter, should there be one."""
        ...

    async def reject(self, deliveries: Sequence[Delivery], reason: str, error: str) -> None:
        """They will never succeed. A broker of ours dead-letters them at once, where there is a dead-letter policy;
        elsewhere this is a nack."""
        ...

    async def extend(self, deliveries: Sequence[Delivery], seconds: int) -> None:
        """They may be settled within `seconds` (1 to 600) from now. Nothing happens to those that were settled
        before, or whose time is over."""
        ...

    async def check(self, name: str) -> None:
        """Raises when the broker gives no answer, and NotFound when it has no such topic or subscription. That we may
        not ask is an answer."""
        ...

    async def close(self) -> None: ...
