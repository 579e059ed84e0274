"""A message as the parts of Holdfast talk about it, whichever wire it came by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Message:
    data: bytes
    attributes: Mapping[str, str] = field(default_factory=dict)
    ordering_key: str = ""
    message_id: str = ""
    publish_time_ns: int = 0


@dataclass(frozen=True, slots=True)
class Delivery:
    """One attempt to hand a message to one subscription's consumer. `attempt` starts at 1 and never goes back;
    it is 0 where the subscription has no dead-letter policy, because Pub/Sub does not tell it then."""

    subscription: str
    message: Message
    attempt: int = 0
    ack_id: str = ""
