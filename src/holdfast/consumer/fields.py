"""Document fields as plain JSON: what every store keeps, whatever a handler returned. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from holdfast.errors import BadInput
from holdfast.model.strict_json import LARGEST_INTEGER, SMALLEST_INTEGER
from holdfast.model.timestamps import format_rfc3339, parse_rfc3339

# A payload may nest 64 levels and a handler may wrap it; beyond this it is a loop.
_DEEPEST = 100


def json_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """A copy with datetimes as RFC 3339 text. Raises BadInput that names the field which is not JSON."""
    return _object("fields", "", fields, 1)


def _object(name: str, prefix: str, fields: Mapping[Any, Any], depth: int) -> dict[str, Any]:
    plain = {}
    for key, value in fields.items():
        # Most of what there is, told without a call.
        if type(key) is not str or not key.isascii():
            _key(name, key)
        plain[key] = value if type(value) is str and value.isascii() else _json_value(f"{prefix}{key}", value, depth)
    return plain


def _json_value(path: str, value: object, depth: int) -> Any:
    if depth > _DEEPEST:
        raise BadInput(path[:300], f"is nested deeper than {_DEEPEST} levels")
    match value:
        case None | bool():
            return value
        case str():
            return _text(path, value)
        case int():
            return _integer(path, value)
        case float():
            return _number(path, value)
        case datetime():
            return _timestamp(path, value)
        case Mapping():
            return _object(path, f"{path}.", value, depth + 1)
        case list() | tuple():
            return [_json_value(path, item, depth + 1) for item in value]
        case _:
            raise BadInput(path[:300], f"{type(value).__name__} is not a JSON value")


def _key(path: str, key: object) -> str:
    if not isinstance(key, str):
        raise BadInput(path[:300], "has a key that is not text")
    return _text(path, key)


def _text(path: str, value: str) -> str:
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise BadInput(path[:300], "has half of a surrogate pair") from error
    return value


def _integer(path: str, value: int) -> int:
    if not SMALLEST_INTEGER <= value <= LARGEST_INTEGER:
        raise BadInput(path[:300], "is beyond 64 bits")
    return value


def _number(path: str, value: float) -> float:
    if not math.isfinite(value):
        raise BadInput(path[:300], "is not a finite number")
    return value


def _timestamp(path: str, value: datetime) -> str:
    if value.utcoffset() is None:
        raise BadInput(path[:300], "is a datetime without a time zone")
    try:
        return format_rfc3339(parse_rfc3339(value.astimezone(UTC).isoformat()))
    except (ValueError, OverflowError) as error:
        raise BadInput(path[:300], "is a datetime outside the years 1 to 9999") from error
