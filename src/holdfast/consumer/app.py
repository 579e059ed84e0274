"""What a user writes: a Consumer with one handler per topic, each turning an event into an Upsert."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from holdfast.consumer.decode import LONGEST_ID_BYTES
from holdfast.consumer.event import Event
from holdfast.errors import AlreadyExists, Poison
from holdfast.model.names import short_id


@dataclass(frozen=True, slots=True)
class Upsert:
    """Replace the document `collection`/`id` by `fields` (JSON values and datetimes).

    Raises Poison for an id that a store could not hold: ids usually come from the payload.
    """

    collection: str
    id: str
    fields: Mapping[str, Any]

    def __post_init__(self) -> None:
        _check_id("collection", self.collection)
        _check_id("document id", self.id)


Handler = Callable[[Event], Upsert | Awaitable[Upsert]]
AnyHandler = TypeVar("AnyHandler", bound=Handler)


class Consumer:
    """Handlers by topic. A handler is a pure function, sync or async: it may run again for the same event."""

    def __init__(self) -> None:
        self._handlers: dict[str, Handler] = {}

    def on(self, topic: str) -> Callable[[AnyHandler], AnyHandler]:
        """Decorates the handler of a topic, named by id or full path."""
        name = short_id(topic)

        def register(handler: AnyHandler) -> AnyHandler:
            if name in self._handlers:
                taken_by = handler_name(self._handlers[name])
                raise AlreadyExists(f"topic {name!r} has a handler already: {taken_by}")
            self._handlers[name] = handler
            return handler

        return register

    def handler(self, topic: str) -> Handler | None:
        return self._handlers.get(topic)

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(self._handlers)


def handler_name(handler: Handler) -> str:
    return getattr(handler, "__qualname__", None) or type(handler).__qualname__


def _check_id(field: str, value: object) -> None:
    """Firestore's rules, so that what works on one store works on all."""
    if not isinstance(value, str):
        raise Poison(f"{field}: must be text")
    if not value or value in (".", ".."):
        raise Poison(f'{field}: must not be empty, "." or ".."')
    if "/" in value:
        raise Poison(f'{field}: must not contain "/"')
    if len(value.encode(errors="replace")) > LONGEST_ID_BYTES:
        raise Poison(f"{field}: is longer than {LONGEST_ID_BYTES} bytes")
