"""Failed messages onto a topic of their own (DLQ_TOPIC), where a desk reads them."""

from __future__ import annotations

import asyncio

from holdfast.consumer.failure_sink import FailedDelivery
from holdfast.consumer.transport import Transport
from holdfast.errors import StorageUnavailable
from holdfast.model import dead_letter_attributes as names
from holdfast.model.failed_message import FailureClass
from holdfast.model.message import Message
from holdfast.model.names import project_of, short_id, topic_path
from holdfast.model.timestamps import format_rfc3339

# Pub/Sub's limit. The publisher's own come first: a replay must send the same.
MOST_ATTRIBUTES = 100


class DeadLetterTopic:
    """`topic` is a full path."""

    def __init__(self, transport: Transport, topic: str, deadline_seconds: float) -> None:
        self.name = topic
        self._transport = transport
        self._deadline_seconds = deadline_seconds

    async def record(self, failed: FailedDelivery) -> None:
        try:
            async with asyncio.timeout(self._deadline_seconds):
                await self._transport.publish(self.name, dead_letter_of(failed, project_of(self.name)))
        except TimeoutError as error:
            waited = f"{self._deadline_seconds:g} s"
            raise StorageUnavailable(f"{self.name}: the publish was not confirmed within {waited}") from error

    async def check(self) -> None:
        await self._transport.check(self.name)


def dead_letter_of(failed: FailedDelivery, project: str) -> Message:
    """As the broker itself would have forwarded it. `project` is where a topic known by its short id is."""
    message = failed.delivery.message
    attributes = {name: value for name, value in message.attributes.items() if name not in names.ALL}
    for name, value in _about(failed, project).items():
        if value and len(attributes) < MOST_ATTRIBUTES:
            attributes[name] = names.bounded_value(value)
    return Message(message.data, attributes, message.ordering_key)


def _about(failed: FailedDelivery, project: str) -> dict[str, str]:
    """The most useful first."""
    delivery, message = failed.delivery, failed.delivery.message
    is_path = delivery.subscription.startswith("projects/")
    return {
        names.SOURCE_SUBSCRIPTION: short_id(delivery.subscription),
        names.SOURCE_MESSAGE_ID: message.message_id,
        names.FAILURE_REASON: failed.reason,
        names.FAILURE_CLASS: "" if failed.failure_class is FailureClass.UNKNOWN else failed.failure_class,
        names.ERROR: failed.error,
        names.SOURCE_TOPIC: topic_path(project, failed.topic) if failed.topic else "",
        names.SOURCE_PUBLISH_TIME: format_rfc3339(message.publish_time_ns) if message.publish_time_ns else "",
        names.SOURCE_SUBSCRIPTION_PROJECT: project_of(delivery.subscription) if is_path else "",
        names.SOURCE_DELIVERY_COUNT: str(delivery.attempt) if delivery.attempt else "",
    }
