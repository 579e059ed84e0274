"""What a consumer would make of a message: decode, route and handle, and nothing is written, logged or counted."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from holdfast.consumer.app import Consumer, Route
from holdfast.consumer.changes import Change
from holdfast.consumer.classify import classify
from holdfast.consumer.decode import decode_event, unpacked
from holdfast.consumer.event import Event
from holdfast.consumer.event_time import event_time_ns
from holdfast.consumer.identity import logical_key
from holdfast.consumer.pipeline import checked_changes
from holdfast.consumer.routes import Routes
from holdfast.model.message import Delivery
from holdfast.model.outcome import Poisoned, Retry
from holdfast.settings import ConsumerSettings


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """`failure` is what went wrong, as the pipeline would see it. A handler with side effects is not called."""

    topic: str = ""
    handler: str = ""
    changes: Sequence[Change] = ()
    failure: Poisoned | Retry | None = None
    was_called: bool = False


class Rehearsal:
    """`subscription_topics` as of the Pipeline."""

    def __init__(
        self, app: Consumer, settings: ConsumerSettings, subscription_topics: Mapping[str, str] | None = None
    ) -> None:
        self._app = app
        self._settings = settings
        topics = {**(subscription_topics or {}), **settings.subscription_topic_map}
        self._routes = Routes(topics, settings.system_events_topic, app.topics)

    async def of(self, delivery: Delivery) -> Rehearsed:
        topic = handler = ""
        try:
            event = decode_event(delivery, unpacked(delivery.message.data))
            event.topic = topic = self._routes.topic_of(event)
            route = self._app.route(topic)
            handler = route.name
            event.event_time_ns = event_time_ns(event.data, event.publish_time_ns, strict=route.strict_time)
            event.idempotency_key = logical_key(self._settings.env, event, route) or event.message_id
            if route.side_effects:
                return Rehearsed(topic, handler)
            return Rehearsed(topic, handler, await _changes(route, event), was_called=True)
        except Exception as error:  # noqa: BLE001 - classify knows the known ones, as in the pipeline
            return Rehearsed(topic, handler, failure=classify(error).outcome, was_called=bool(handler))


async def _changes(route: Route, event: Event) -> tuple[Change, ...]:
    given = route.handler(event)
    if inspect.isawaitable(given):
        given = await given
    return checked_changes(route.name, given)
