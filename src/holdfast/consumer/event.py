"""An event: a delivery whose payload was understood. What handlers are given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.model.document import EventOrder


@dataclass(slots=True)
class Event:
    """Not to be changed by handlers. It is not frozen because the pipeline fills it in as it learns more.

    `topic` is a short id; `event_id` is "" when the producer gave none; a time that nobody told is 0."""

    data: dict[str, Any]
    message_id: str
    topic: str = ""
    subscription: str = ""
    publish_time_ns: int = 0
    attributes: Mapping[str, str] = field(default_factory=dict)
    ordering_key: str = ""
    attempt: int = 0
    event_time_ns: int = 0
    sequence: int = 0
    event_id: str = ""
    idempotency_key: str = ""  # the same whenever this event comes again, also when it is published again

    @property
    def order(self) -> EventOrder:
        return EventOrder(self.event_time_ns, self.sequence, self.publish_time_ns, self.message_id)
