"""What a user writes: a Consumer with one handler per topic, each turning an event into changes of documents."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from holdfast.consumer.changes import Change
from holdfast.consumer.event import Event
from holdfast.errors import AlreadyExists
from holdfast.model.names import normalized, short_id

Changes = Change | Sequence[Change]
Handler = Callable[[Event], Changes | Awaitable[Changes]]
AnyHandler = TypeVar("AnyHandler", bound=Handler)

Identity = Callable[[Event], Mapping[str, Any] | None]

# Where dedupe marks are kept, in stores that have nothing but collections.
MARKS = "ops_dedupe"


@dataclass(frozen=True, slots=True)
class Route:
    handler: Handler
    side_effects: bool = False
    identity: Identity | None = None
    marks: str = MARKS
    strict_time: bool = False

    @property
    def on_thread(self) -> bool:
        """A function that does more than give changes would hold up everything else while it waits."""
        return self.side_effects and not inspect.iscoroutinefunction(self.handler)

    @property
    def name(self) -> str:
        return handler_name(self.handler)


class Consumer:
    """Handlers by topic. A handler is a function, sync or async, that may run again for the same event.

    `name` tells its dedupe records from those of other consumers that keep theirs in the same store. Without one it is
    the module of the first handler.
    """

    def __init__(self, name: str | None = None) -> None:
        self._name = name
        self._routes: dict[str, Route] = {}

    def on(
        self,
        topic: str,
        *,
        side_effects: bool = False,
        identity: Identity | None = None,
        marks: str = "",
        strict_time: bool = False,
    ) -> Callable[[AnyHandler], AnyHandler]:
        """Decorates the handler of a topic, named by id or full path.

        `side_effects`: it does more than give changes. It is then not called for an event that is known to be done,
        and should hand `event.idempotency_key` to whatever it calls: a crash right after it makes it run again. One
        that is not async runs on a thread.
        `identity` gives the fields by which an event without an eventId is known when it is published again, or None
        when it has none. `marks` names the collection of the dedupe records; without it, that of this consumer.
        `strict_time`: a time in the payload that cannot be read makes the event poison.
        """
        name = short_id(topic)

        def register(handler: AnyHandler) -> AnyHandler:
            if name in self._routes:
                raise AlreadyExists(f"topic {name!r} has a handler already: {self._routes[name].name}")
            if self._name is None:
                self._name = getattr(handler, "__module__", "")
            collection = marks or (f"{MARKS}_{normalized(self._name)}" if self._name else MARKS)
            self._routes[name] = Route(handler, side_effects, identity, collection, strict_time)
            return handler

        return register

    def copy(self) -> Consumer:
        copied = Consumer(self._name)
        copied._routes = dict(self._routes)
        return copied

    def route(self, topic: str) -> Route:
        return self._routes[topic]

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(self._routes)


def handler_name(handler: Handler) -> str:
    return getattr(handler, "__name__", None) or type(handler).__name__
