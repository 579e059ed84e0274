"""Routes written in holdfast.toml instead of Python: these fields of a topic's events to that collection.

    [[consumer.routes]]
    topic = "orders"
    collection = "orders"
    id = "order.id"
    fields = { total = "order.total", customer = "order.customer.name" }
    required = ["total"]

A path names a value within the payload: keys joined by dots, whole numbers for the items of lists.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.consumer.app import Consumer
from holdfast.consumer.changes import Upsert, check_id
from holdfast.consumer.event import Event
from holdfast.errors import AlreadyExists, BadInput, Poison, SettingError
from holdfast.model.names import check_topic, short_id, topic_path

KEY = "consumer.routes"

_KNOWN = ("topic", "collection", "id", "fields", "required")
_ABSENT = object()


def add_declared_routes(app: Consumer, routes: Sequence[Mapping[str, Any]]) -> Consumer:
    """A consumer with both. Raises SettingError that names the route and its key."""
    app = app.copy()
    for number, raw in enumerate(routes):
        route = DeclaredRoute(f"{KEY}[{number}]", raw)
        try:
            app.on(route.topic)(route)
        except AlreadyExists as error:
            raise SettingError(f"{KEY}[{number}].topic", raw["topic"], str(error)) from error
    return app


def declared_topics(routes: Sequence[Mapping[str, Any]]) -> list[str]:
    return [DeclaredRoute(f"{KEY}[{number}]", raw).topic for number, raw in enumerate(routes)]


class DeclaredRoute:
    """One of them, as a handler."""

    def __init__(self, where: str, raw: Mapping[str, Any]) -> None:
        for key in raw:
            if key not in _KNOWN:
                raise SettingError(f"{where}.{key}", raw[key], f"there is no such key; these are: {', '.join(_KNOWN)}")
        self.topic = short_id(_text(where, raw, "topic"))
        self._collection = _text(where, raw, "collection")
        self._id = _path(f"{where}.id", raw["id"]) if "id" in raw else ""
        self._fields = _fields(where, raw)
        self._required = _names(f"{where}.required", raw.get("required", []))
        self.__name__ = f"route of {self.topic}"
        self._check(where, raw)

    def _check(self, where: str, raw: Mapping[str, Any]) -> None:
        try:
            check_topic("topic", topic_path("any", self.topic))
            check_id("collection", self._collection)
        except BadInput as error:
            raise SettingError(f"{where}.topic", raw["topic"], error.why) from error
        except Poison as error:
            raise SettingError(f"{where}.collection", self._collection, str(error)) from error
        for name in self._required:
            if self._fields is not None and name not in self._fields:
                raise SettingError(f"{where}.required", name, "is not one of the fields")

    def __call__(self, event: Event) -> Upsert:
        fields = event.data if self._fields is None else self._picked(event.data, self._fields)
        for name in self._required:
            path = (self._fields or {}).get(name, name)
            if _at(event.data, path) in (None, _ABSENT):
                raise Poison(f"{path}: is missing")
        return Upsert(self._collection, self._document_id(event), fields)

    def _picked(self, data: Mapping[str, Any], fields: Mapping[str, str]) -> dict[str, Any]:
        found = {name: _at(data, path) for name, path in fields.items()}
        return {name: value for name, value in found.items() if value is not _ABSENT}

    def _document_id(self, event: Event) -> str:
        if not self._id:
            return event.event_id or event.message_id
        value = _at(event.data, self._id)
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        if not isinstance(value, str) or not value:
            raise Poison(f"{self._id}: must be text or a whole number, to be the document's id")
        return value


def _at(data: object, path: str) -> object:
    for part in path.split("."):
        if isinstance(data, Mapping) and part in data:
            data = data[part]
        elif isinstance(data, list) and part.isascii() and part.isdecimal() and int(part[:9]) < len(data):
            data = data[int(part)]
        else:
            return _ABSENT
    return data


# Reading the file.


def _text(where: str, raw: Mapping[str, Any], key: str) -> str:
    value = raw.get(key)
    if not isinstance(value, str) or not value:
        raise SettingError(f"{where}.{key}", value, "must be text that is not empty")
    return value


def _fields(where: str, raw: Mapping[str, Any]) -> dict[str, str] | None:
    """Document field to path; None for all of the payload."""
    given = raw.get("fields")
    if given is None:
        return None
    if isinstance(given, Mapping):
        for name, path in given.items():
            _path(f"{where}.fields.{name}", path)
        return dict(given)
    names = _names(f"{where}.fields", given)
    return {name: _path(f"{where}.fields", name) for name in names}


def _path(where: str, value: object) -> str:
    if not isinstance(value, str) or not all(value.split(".")):
        raise SettingError(where, value, "must be a path, such as order.total")
    return value


def _names(where: str, given: object) -> list[str]:
    if not isinstance(given, list) or not all(isinstance(name, str) and name for name in given):
        raise SettingError(where, given, "must be a list of names")
    return list(given)
