"""From a delivery to an event, its route and its place in time. Nothing has changed when this has run: the pipeline
does it first, and a rehearsal nothing else."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.clock import NANOSECONDS, Clock
from holdfast.consumer.app import Consumer, Route
from holdfast.consumer.decode import decode_event, unpacked
from holdfast.consumer.event import Event
from holdfast.consumer.event_time import event_time_ns
from holdfast.consumer.identity import logical_key, marks_of, replay_key
from holdfast.consumer.message_log import LONGEST_WORD, Trail
from holdfast.consumer.routes import Routes
from holdfast.errors import Poison
from holdfast.model.message import Delivery
from holdfast.settings import ConsumerSettings

IN_THE_FUTURE = "EVENT_TIME_IN_FUTURE"


class EventReader:
    """`subscription_topics` as of the Pipeline."""

    def __init__(
        self, app: Consumer, settings: ConsumerSettings, subscription_topics: Mapping[str, str], clock: Clock
    ) -> None:
        self._app = app
        self._settings = settings
        self._clock = clock
        topics = {**subscription_topics, **settings.subscription_topic_map}
        self.routes = Routes(topics, settings.system_events_topic, app.topics)

    def read(self, delivery: Delivery, trail: Trail) -> tuple[Event, Route, int]:
        """The event, whose handler it is, and the size of its payload. Raises Poison; `trail` tells how far it got."""
        payload = unpacked(delivery.message.data)
        event = decode_event(delivery, payload)
        _note_words(event, trail)
        event.topic = trail.topic = self.routes.topic_of(event)
        route = self._app.route(event.topic)
        trail.handler = route.name
        event.event_time_ns = event_time_ns(event.data, event.publish_time_ns, strict=route.strict_time)
        self._check_time(event, trail)
        key = logical_key(self._settings.env, event, route)
        trail.marks = marks_of(event, key, route.marks)
        event.idempotency_key = key or replay_key(event) or event.message_id
        return event, route, len(payload)

    def _check_time(self, event: Event, trail: Trail) -> None:
        """A clock that runs ahead makes an event win over all that come after it, so it must not go unseen."""
        ahead = (event.event_time_ns - self._clock.now_ns()) / NANOSECONDS
        if ahead <= self._settings.future_seconds:
            return
        trail.ahead_seconds = ahead
        if self._settings.refuse_future:
            raise Poison(f"event time: is {ahead:.0f} s ahead of this consumer's clock", reason=IN_THE_FUTURE)


def _note_words(event: Event, trail: Trail) -> None:
    trail.event_type = _word(event.data.get("eventType"))
    trail.schema_version = _word(event.data.get("schemaVersion"))


def _word(value: object) -> str:
    return str(value)[:LONGEST_WORD] if isinstance(value, str | int) else ""
