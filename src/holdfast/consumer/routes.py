"""Which topic an event came from. Pub/Sub does not tell it, so it is inferred, surest sign first. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.consumer.event import Event
from holdfast.errors import Poison
from holdfast.model.names import short_id

UNROUTABLE = "UNROUTABLE"

_PAYLOAD_FIELDS = ("topic", "pubsubTopic", "sourceTopic")


class Routes:
    """`subscription_topics` maps a subscription, by full path or short id, to a topic. `only_topic` is the one that a
    consumer with a single handler can mean when nothing tells it."""

    def __init__(self, subscription_topics: Mapping[str, str], system_events_topic: str, only_topic: str = "") -> None:
        self._subscription_topics = subscription_topics
        self._system_events_topic = system_events_topic
        self._only_topic = only_topic

    def topic_of(self, event: Event) -> str:
        """The topic's short id. Raises Poison when nothing tells it."""
        topic = (
            event.attributes.get("topic")
            or _named_by_payload(event)
            or self._named_by_subscription(event.subscription)
            or self._only_topic
            or self._guessed_by_shape(event)
        )
        if not topic:
            raise Poison(
                "topic: not in attributes.topic, not in the payload (topic, pubsubTopic, sourceTopic), "
                f"and subscription {event.subscription[:300]!r} is not in the subscription topic map",
                reason=UNROUTABLE,
            )
        return short_id(topic)

    def _named_by_subscription(self, subscription: str) -> str:
        topics = self._subscription_topics
        return topics.get(subscription) or topics.get(short_id(subscription)) or ""

    def _guessed_by_shape(self, event: Event) -> str:
        service = event.data.get("service")
        return self._system_events_topic if isinstance(service, str) and service.strip() else ""


def _named_by_payload(event: Event) -> str:
    for name in _PAYLOAD_FIELDS:
        value = event.data.get(name)
        if isinstance(value, str) and value:
            return value
    return ""
