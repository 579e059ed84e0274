"""What a consumer would make of a message: decode, route and handle, and nothing is written, logged or counted."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from holdfast.clock import Clock, SystemClock
from holdfast.consumer.app import Consumer, Route
from holdfast.consumer.changes import Change
from holdfast.consumer.classify import classify
from holdfast.consumer.event import Event
from holdfast.consumer.message_log import Trail
from holdfast.consumer.pipeline import checked_changes
from holdfast.consumer.reading import EventReader
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
        self,
        app: Consumer,
        settings: ConsumerSettings,
        subscription_topics: Mapping[str, str] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.topics = frozenset(app.topics)
        self._reader = EventReader(app, settings, subscription_topics or {}, clock or SystemClock())

    async def of(self, delivery: Delivery) -> Rehearsed:
        trail = Trail()
        try:
            event, route, _ = self._reader.read(delivery, trail)
            if route.side_effects:
                return Rehearsed(trail.topic, trail.handler)
            return Rehearsed(trail.topic, trail.handler, await _changes(route, event), was_called=True)
        except Exception as error:  # noqa: BLE001 - classify knows the known ones, as in the pipeline
            failure = classify(error).outcome
            return Rehearsed(trail.topic, trail.handler, failure=failure, was_called=bool(trail.handler))


async def _changes(route: Route, event: Event) -> tuple[Change, ...]:
    given = route.handler(event)
    if inspect.isawaitable(given):
        given = await given
    return checked_changes(route.name, given)
