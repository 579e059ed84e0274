"""From an HTTP request to the protobuf request, and from the protobuf response to JSON.

google.protobuf.json_format does most of it. What it lets pass in silence (base64 that is none) or tells badly (where an
unknown field is) is looked at first, in json_shape.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from holdfast.api.rest.json_shape import camel_case_mask, check_shape, field_named, is_leaf, is_mask, is_repeated
from holdfast.errors import BadInput

# Query parameters that every Google API takes. They ask for nothing that we do differently, except `alt`.
_STANDARD = {
    ".xgafv",
    "access_token",
    "alt",
    "callback",
    "fields",
    "key",
    "oauth_token",
    "pp",
    "prettyPrint",
    "quotaUser",
    "uploadType",
    "upload_protocol",
    "userIp",
}
_INTEGER_ENUMS = "enum-encoding=int"

# json_format wraps each field's error in the one of the field around it, and sometimes says at the end where it is.
_WRAPPED = re.compile(r"Failed to parse (\S+) field: ")
_AT = re.compile(r"\.? at \w+\.([\w.\[\]]*[\w\]])\.*$")

Query = Iterable[tuple[str, str]]


def fill_request(message: Any, body_field: str, path: Mapping[str, str], query: Query, body: bytes) -> None:
    """Where two of them name the same field, the path wins."""
    if body_field == "*":
        _fill(message, _loaded(body))
    elif body_field:
        _fill(getattr(message, body_field), _loaded(body))
        getattr(message, body_field).SetInParent()
    _fill_from_query(message, query)
    for name, value in path.items():
        *parents, last = name.split(".")
        target = message
        for parent in parents:
            target = getattr(target, parent)
        setattr(target, last, value)


def wants_integer_enums(query: Query) -> bool:
    return any(name in ("alt", "$alt") and _INTEGER_ENUMS in value for name, value in query)


def to_json(message: Any, integer_enums: bool) -> Any:
    return json_format.MessageToDict(message, use_integers_for_enums=integer_enums)


def _loaded(body: bytes) -> Any:
    if not body.strip():
        return {}
    try:
        value = json.loads(body, parse_constant=_refuse_constant)
        if b"\\ud" in body or b"\\uD" in body:
            json.dumps(value, ensure_ascii=False).encode()  # fails for half a surrogate pair, which is no character
        return value
    except (ValueError, RecursionError) as error:  # ValueError: bad JSON, bad UTF-8, or a number of absurd length
        raise BadInput("body", f"is not valid JSON: {error}") from error


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON value")


def _fill(message: Any, value: Any) -> None:
    shaped = check_shape(value, message.DESCRIPTOR, "")
    try:
        json_format.ParseDict(shaped, message)
    except (json_format.ParseError, ValueError, TypeError, OverflowError) as error:
        raise _bad_input(str(error)) from error


def _bad_input(text: str) -> BadInput:
    """'Failed to parse a field: Failed to parse b field: no good..' is a.b: no good."""
    exact = _AT.search(text)
    where = exact[1] if exact else ".".join(_WRAPPED.findall(text))
    return BadInput(where or "body", _AT.sub("", _WRAPPED.sub("", text)).rstrip("."))


def _fill_from_query(message: Any, query: Query) -> None:
    tree: dict[str, Any] = {}
    for name, value in query:
        if name.removeprefix("$") not in _STANDARD:
            _put(tree, message.DESCRIPTOR, name, value)
    if tree:
        _fill(message, tree)


def _put(tree: dict[str, Any], descriptor: Descriptor, name: str, value: str) -> None:
    """`a.b=5` is the field b of the message a; a repeated field takes its parameter several times."""
    *parents, last = name.split(".")
    for parent in parents:
        field = _field(descriptor, parent, name)
        if is_leaf(field) or is_repeated(field):
            raise BadInput(name[:200], f"{parent} has no fields that a query parameter could set")
        tree = tree.setdefault(field.name, {})
        assert field.message_type is not None
        descriptor = field.message_type
    field = _field(descriptor, last, name)
    if not is_leaf(field):
        raise BadInput(name[:200], "is a message; name one of its fields")
    if is_repeated(field):
        tree.setdefault(field.name, []).append(_from_text(field, name, value))
    elif field.name in tree:
        raise BadInput(name, "is given more than once")
    else:
        tree[field.name] = _from_text(field, name, value)


def _field(descriptor: Descriptor, name: str, parameter: str) -> FieldDescriptor:
    field = field_named(descriptor, name)
    if field is None:
        raise BadInput(parameter[:200], "unknown query parameter; the request has no such field")
    return field


def _from_text(field: FieldDescriptor, name: str, value: str) -> Any:
    """json_format takes numbers and enums as text, only not these."""
    if field.type == FieldDescriptor.TYPE_BOOL:
        if value.lower() not in ("true", "false"):
            raise BadInput(name, "must be true or false")
        return value.lower() == "true"
    return camel_case_mask(value) if is_mask(field) else value
