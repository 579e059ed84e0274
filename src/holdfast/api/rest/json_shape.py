"""Holds JSON against a message's descriptor before json_format reads it, so that every error names its field."""

from __future__ import annotations

import re
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from holdfast.errors import BadInput

_WELL_KNOWN = "google.protobuf."  # Timestamp, Duration and such: text in JSON, and json_format knows how
_MASK = "google.protobuf.FieldMask"
_SNAKE = re.compile(r"_([a-z0-9])")

# The plain alphabet and the one for URLs; json_format reads both, and drops every other character in silence.
_BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_"


def field_named(descriptor: Descriptor, name: str) -> FieldDescriptor | None:
    """By its name in JSON or in the .proto file; Google's APIs take both."""
    return descriptor.fields_by_camelcase_name.get(name) or descriptor.fields_by_name.get(name)


def is_leaf(field: FieldDescriptor) -> bool:
    """Whether JSON writes it as one value: neither an object nor a list of them."""
    return field.message_type is None or field.message_type.full_name.startswith(_WELL_KNOWN)


def is_repeated(field: FieldDescriptor) -> bool:
    """protobuf has had three ways to ask this; the default has been a list in all versions."""
    return isinstance(field.default_value, list)


def is_mask(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.full_name == _MASK


def camel_case_mask(mask: str) -> str:
    """json_format wants `ackDeadlineSeconds`; people write `ack_deadline_seconds` too, and Cloud Pub/Sub takes it."""
    return _SNAKE.sub(lambda found: found[1].upper(), mask)


def check_shape(value: Any, descriptor: Descriptor, path: str) -> dict[str, Any]:
    """Gives the object as json_format will take it."""
    if not isinstance(value, dict):
        raise BadInput(path or "body", "must be a JSON object")
    shaped = {}
    for name, item in value.items():
        field = field_named(descriptor, name)
        here = f"{path}.{name}" if path else name
        if field is None:
            raise BadInput(here[:200], "unknown field")
        shaped[name] = item if item is None else _check_field(item, field, here)
    return shaped


def _check_field(value: Any, field: FieldDescriptor, path: str) -> Any:
    if not is_repeated(field):
        return _check_one(value, field, path)
    if _is_map(field):
        return _check_map(value, field, path)
    if not isinstance(value, list):
        raise BadInput(path, "must be a list")
    return [_check_one(item, field, f"{path}[{index}]") for index, item in enumerate(value)]


def _check_one(value: Any, field: FieldDescriptor, path: str) -> Any:
    if not is_leaf(field):
        assert field.message_type is not None
        return check_shape(value, field.message_type, path)
    if field.type == FieldDescriptor.TYPE_STRING and not isinstance(value, str):
        raise BadInput(path, "must be text")
    if field.type == FieldDescriptor.TYPE_BYTES:
        _check_base64(value, path)
    if is_mask(field) and isinstance(value, str):
        return camel_case_mask(value)
    return value


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _check_map(value: Any, field: FieldDescriptor, path: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadInput(path, "must be a JSON object")
    assert field.message_type is not None
    values = field.message_type.fields_by_name["value"]
    return {key: _check_one(item, values, f"{path}[{key[:64]!r}]") for key, item in value.items()}


def _check_base64(value: Any, path: str) -> None:
    if not isinstance(value, str):
        raise BadInput(path, "must be text in base64")
    digits = value.rstrip("=")
    # With "replace" every other character becomes a "?", which no alphabet has.
    if digits.encode("ascii", "replace").translate(None, _BASE64) or len(digits) % 4 == 1:
        raise BadInput(path, "is not valid base64")
