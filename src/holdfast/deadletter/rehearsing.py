"""What the consumer in this process would make of a failed message, or of an event that is just coming in."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.clock import Clock
from holdfast.consumer.rehearsal import Rehearsal
from holdfast.deadletter.dead_letter import UNKNOWN_TOPIC, without_our_attributes
from holdfast.ingest.validation import Problem
from holdfast.model.failed_message import Content, FailedMessage
from holdfast.model.message import Delivery, Message
from holdfast.model.names import short_id
from holdfast.model.outcome import Poisoned


def delivery_of(failure: FailedMessage, content: Content, attempt: int) -> Delivery:
    """As it would come again. What no subscription has seen yet tells its topic itself."""
    attributes = without_our_attributes(content.attributes)
    if failure.is_of_ingest and failure.source_topic != UNKNOWN_TOPIC:
        attributes = _naming(failure.source_topic, attributes)
    message = Message(content.data, attributes, content.ordering_key, failure.message_id, failure.first_seen_ns)
    return Delivery(failure.subscription, message, attempt)


class RouteRules:
    """ingest/validation.py asks it. What is not sure to fail passes, such as an event whose handler has met an error
    that may be gone a second later."""

    def __init__(self, rehearsal: Rehearsal, clock: Clock) -> None:
        self._rehearsal = rehearsal
        self._clock = clock

    async def problem(self, topic: str, message: Message) -> Problem | None:
        if short_id(topic) not in self._rehearsal.topics:  # of another consumer
            return None
        named = _naming(topic, message.attributes)
        event = Message(message.data, named, message.ordering_key, publish_time_ns=self._clock.now_ns())
        rehearsed = await self._rehearsal.of(Delivery("", event, attempt=1))
        if not isinstance(rehearsed.failure, Poisoned):
            return None
        return Problem(rehearsed.failure.reason, rehearsed.failure.error)


def _naming(topic: str, attributes: Mapping[str, str]) -> dict[str, str]:
    """A topic that the attributes name themselves comes first, as with every delivery."""
    return {"topic": short_id(topic), **attributes}
