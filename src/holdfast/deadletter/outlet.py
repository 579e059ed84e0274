"""PORT: how the desk sends a message again. Implemented by the transports (local, google)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from holdfast.model.fate import Fate, Release
from holdfast.model.message import Message

__all__ = ["Fate", "Outlet", "Release"]


class Outlet(Protocol):
    """Topics and subscriptions are named by full path."""

    async def publish(self, topic: str, message: Message) -> str:
        """To every subscription of the topic. Gives the message id once the broker has it. A REPLAY_ID counts as with
        `publish_to`. Raises NotFound when there is no such topic."""
        ...

    async def publish_to(self, subscription: str, messages: Sequence[Message]) -> Sequence[str]:
        """To this subscription and no other. Gives their ids once the broker has them, all or none.

        A message whose attribute REPLAY_ID (model/replay_attributes.py) was given before is not sent again: its first
        id comes back. Only our broker promises that; elsewhere the messages go through the topic
        `<subscription id>.replay`, which feeds the same consumer, and its dedupe keeps them from being applied twice.
        Raises NotFound when there is no such subscription.
        """
        ...

    async def exists(self, target: str) -> bool:
        """Whether there is a topic or subscription of this path."""
        ...

    async def fates(self, subscription: str, message_ids: Sequence[str]) -> Mapping[str, Fate]:
        """What became of messages that `publish_to` gave these ids. Raises NotFound when there is no such subscription,
        where somebody tells."""
        ...

    async def release(self, subscription: str, message_id: str) -> Release:
        """Lets an ordering key go on that was held at this dead-lettered message, and gives up its place. Raises
        NotFound when there is no such subscription, where somebody tells."""
        ...
