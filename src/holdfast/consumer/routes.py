"""Which topic an event came from. Pub/Sub does not tell it, so it is inferred, surest sign first. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from holdfast.consumer.event import Event
from holdfast.errors import Poison
from holdfast.model.message import Delivery
from holdfast.model.names import original_subscription, short_id

UNROUTABLE = "UNROUTABLE"

# Of a name that somebody else chose, in an error. Pub/Sub's own end before this.
LONGEST_NAME = 300

_PAYLOAD_FIELDS = ("topic", "pubsubTopic", "sourceTopic")


class Routes:
    """`subscription_topics` maps a subscription, by full path or short id, to a topic. `known` are the topics that have
    a handler. A consumer with a single one can only mean that, when nothing tells it."""

    def __init__(self, subscription_topics: Mapping[str, str], system_events_topic: str, known: Sequence[str]) -> None:
        self._subscription_topics = subscription_topics
        self._system_events_topic = system_events_topic
        self._known = frozenset(known)
        self._only_topic = known[0] if len(known) == 1 else ""

    def topic_of(self, event: Event) -> str:
        """The short id of a topic that has a handler. Raises Poison when nothing names one.

        A field or an attribute called "topic" may be about something else: what names no handler is passed over. But
        then the shape alone is no reason to take the message for one of ours."""
        named = ""
        for sign in self._signs(event):
            topic = short_id(sign)
            if topic in self._known:
                return topic
            named = named or topic
        if named:
            raise Poison(f"topic: there is no handler for {named[:LONGEST_NAME]!r}", reason=UNROUTABLE)
        if guessed := self._guessed_by_shape(event):
            return guessed
        raise Poison(
            "topic: not in attributes.topic, not in the payload (topic, pubsubTopic, sourceTopic), "
            f"and subscription {event.subscription[:LONGEST_NAME]!r} is not in the subscription topic map",
            reason=UNROUTABLE,
        )

    def topic_without_payload(self, delivery: Delivery) -> str:
        """What is known of a message whose payload cannot be read: "" where nothing else names a topic of ours."""
        signs = (
            delivery.message.attributes.get("topic", ""),
            self._named_by_subscription(delivery.subscription),
            self._only_topic,
        )
        return next((topic for sign in signs if (topic := short_id(sign)) in self._known), "")

    def _signs(self, event: Event) -> Iterator[str]:
        """From the surest to the weakest that names a topic."""
        if attribute := event.attributes.get("topic"):
            yield attribute
        for name in _PAYLOAD_FIELDS:
            value = event.data.get(name)
            if isinstance(value, str) and value:
                yield value
        if mapped := self._named_by_subscription(event.subscription):
            yield mapped
        if self._only_topic:
            yield self._only_topic

    def _named_by_subscription(self, subscription: str) -> str:
        topics, name = self._subscription_topics, original_subscription(subscription)
        return next(
            (topic for one in (subscription, name) if (topic := topics.get(one) or topics.get(short_id(one)))), ""
        )

    def _guessed_by_shape(self, event: Event) -> str:
        service = event.data.get("service")
        has_shape = isinstance(service, str) and bool(service.strip())
        return self._system_events_topic if has_shape and self._system_events_topic in self._known else ""
