"""Document fields as Firestore keeps them, and back. Pure.

A Firestore document has the fields that the consumer wrote, and one more: the map `_holdfast` with the order of the
newest event that wrote it. What JSON and Firestore see differently:

- The fields of TIMESTAMPS are RFC 3339 text here and timestamps there, so that they sort and filter by time. They are
  chosen by name: were it by what a value looks like, one odd value would give a field two types, and Firestore sorts
  by type first. Firestore keeps microseconds, cutting off what is below. A text that its timestamp does not give back
  (nanoseconds, another offset) is kept too, in `_holdfast.texts`, and read instead.
- An array directly within an array is refused by Firestore. The inner one is kept as a map with the one key
  NESTED_ARRAY.
- What only Firestore has is read as JSON: bytes as base64, a reference as its name, a point as a map.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from google.cloud.firestore_v1.types import document as document_types

from holdfast.clock import NANOSECONDS
from holdfast.consumer.guard import Stored
from holdfast.errors import BadInput
from holdfast.model.document import EventOrder
from holdfast.model.strict_json import SMALLEST_INTEGER
from holdfast.model.timestamps import format_rfc3339, parse_rfc3339
from holdfast.stores.firestore.names import is_reserved

RESERVED = "_holdfast"
NESTED_ARRAY = "_holdfast_array"

# Also `source.publishedAt`. `data`, the payload, stays as it came.
TIMESTAMPS = (
    "updatedAt",
    "lastHeartbeatAt",
    "eventTime",
    "lastEventTime",
    "producedAt",
    "publishedAt",
    "ingestedAt",
    "start",
    "end",
)

# A document of another program has no `_holdfast`. These of its fields tell how new it is.
ORDER_FIELDS = (RESERVED, "updatedAt", "lastHeartbeatAt", "eventTime", "producedAt", "publishedAt", "source")
_TIMES_OF_OTHERS = ORDER_FIELDS[1:-1]
OLDEST = EventOrder(SMALLEST_INTEGER, SMALLEST_INTEGER, SMALLEST_INTEGER, "")

# https://firebase.google.com/docs/firestore/quotas
DEEPEST = 20
LONGEST_NAME_BYTES = 1500
LARGEST_DOCUMENT_BYTES = 1024 * 1024

MICROSECOND = 1000  # in nanoseconds
_FIRST_SECOND = -62_135_596_800  # of the year 1
_LAST_SECOND = 253_402_300_799  # of the year 9999

# The messages below the library's wrappers: several times faster, and there are some for every value.
RawDocument = document_types.Document.pb()


class _Refused(Exception):
    pass


# Writing.


def document_of(name: str, path: str, stored: Stored) -> Any:
    """Raises BadInput that names the document, `path`, for what Firestore could never hold."""
    document = RawDocument(name=name)
    try:
        if RESERVED in stored.fields:
            raise _Refused(f"{RESERVED} is a reserved field")
        for key, item in stored.fields.items():
            _fill(document.fields[_checked(key)], item, 0)
    except _Refused as refused:
        raise BadInput(path, str(refused)) from refused
    except UnicodeEncodeError as error:
        raise BadInput(path, "has half of a surrogate pair") from error
    texts = _place_times(document.fields, stored.fields)
    _fill(document.fields[RESERVED], {**stored.order._asdict(), **({"texts": texts} if texts else {})}, 0)
    _check_size(path, document)
    return document


def _fill(value: Any, item: Any, depth: int) -> None:
    match item:
        case None:
            value.null_value = 0
        case bool():
            value.boolean_value = item
        case int():
            value.integer_value = item
        case float():
            value.double_value = item
        case str():
            value.string_value = item
        case Mapping():
            _fill_map(value.map_value, item, _one_deeper(depth))
        case _:
            _fill_array(value.array_value, item, _one_deeper(depth))


def _fill_map(target: Any, items: Mapping[str, Any], depth: int) -> None:
    target.SetInParent()  # or an empty map would be nothing
    for key, item in items.items():
        _fill(target.fields[_checked(key)], item, depth)


def _fill_array(target: Any, items: list[Any], depth: int) -> None:
    target.SetInParent()
    for item in items:
        value, level = target.values.add(), depth
        if isinstance(item, (list, tuple)):
            value, level = value.map_value.fields[NESTED_ARRAY], _one_deeper(depth)
        _fill(value, item, level)


def _one_deeper(depth: int) -> int:
    if depth == DEEPEST:
        raise _Refused(f"is nested deeper than {DEEPEST} levels")
    return depth + 1


def _checked(key: str) -> str:
    if not key or is_reserved(key) or key == NESTED_ARRAY:
        raise _Refused(f"{key!r} cannot be the name of a field")
    if len(key.encode()) > LONGEST_NAME_BYTES:
        raise _Refused(f"has a field whose name is longer than {LONGEST_NAME_BYTES} bytes")
    return key


def _place_times(values: Any, fields: Mapping[str, Any]) -> dict[str, str]:
    """Makes timestamps of texts. Gives those, by field, that a timestamp does not hold exactly."""
    texts: dict[str, str] = {}
    for name in TIMESTAMPS:
        if name in fields:
            _place_time(values[name], name, texts)
    source = fields.get("source")
    if isinstance(source, Mapping) and "publishedAt" in source:
        _place_time(values["source"].map_value.fields["publishedAt"], "source.publishedAt", texts)
    return texts


def _place_time(value: Any, field: str, texts: dict[str, str]) -> None:
    text = value.string_value
    when_ns = _time_in(text)
    if when_ns is None:
        return
    put_time(value, when_ns)
    if _item(value) != text:
        texts[field] = text


def _time_in(text: str) -> int | None:
    """None for what is no timestamp, or none that Firestore can hold."""
    try:
        when_ns = parse_rfc3339(text)
    except ValueError:
        return None
    return when_ns if _FIRST_SECOND <= when_ns // NANOSECONDS <= _LAST_SECOND else None


def put_time(value: Any, when_ns: int) -> None:
    """To the microsecond, as Firestore would do it: what is kept is then what was sent."""
    seconds, nanos = divmod(when_ns, NANOSECONDS)
    value.timestamp_value.seconds = seconds
    value.timestamp_value.nanos = nanos - nanos % MICROSECOND


# How large it is, by https://firebase.google.com/docs/firestore/storage-size.


def _check_size(path: str, document: Any) -> None:
    # No value is more than eight times larger there than in the message: this spares nearly every document the walk.
    if document.ByteSize() * 8 < LARGEST_DOCUMENT_BYTES:
        return
    # The name: 16 bytes and each id with a byte behind it. The document: 32 bytes and its fields.
    size = 16 + len(path.encode()) + 1 + _size_of_map(document.fields)
    if size > LARGEST_DOCUMENT_BYTES:
        raise BadInput(path, f"has {size:,} bytes in Firestore, which holds {LARGEST_DOCUMENT_BYTES:,} at most")


def _size_of_map(fields: Any) -> int:
    return 32 + sum(len(key.encode()) + 1 + _size(value) for key, value in fields.items())


def _size(value: Any) -> int:
    match value.WhichOneof("value_type"):
        case "string_value":
            return len(value.string_value.encode()) + 1
        case "map_value":
            return _size_of_map(value.map_value.fields)
        case "array_value":
            return sum(_size(item) for item in value.array_value.values)
        case "null_value" | "boolean_value":
            return 1
        case _:
            return 8


# Reading.


def fields_of(document: Any) -> dict[str, Any]:
    fields = {key: _item(value) for key, value in document.fields.items() if key != RESERVED}
    if RESERVED in document.fields:
        for field, text in _reserved(document).get("texts", {}).items():
            _restore_text(fields, field, text)
    return fields


def stored_in(document: Any) -> Stored:
    return Stored(fields_of(document), _order_in(document))


def time_of(value: Any) -> int | None:
    if value.WhichOneof("value_type") != "timestamp_value":
        return None
    when = value.timestamp_value
    return int(when.seconds) * NANOSECONDS + int(when.nanos)


def _item(value: Any) -> Any:
    match value.WhichOneof("value_type"):
        case "map_value":
            return _map(value.map_value.fields)
        case "array_value":
            return [_item(item) for item in value.array_value.values]
        case "timestamp_value":
            return format_rfc3339(time_of(value) or 0)
        case "bytes_value":
            return base64.b64encode(value.bytes_value).decode()
        case "geo_point_value":
            return {"latitude": value.geo_point_value.latitude, "longitude": value.geo_point_value.longitude}
        case None | "null_value":
            return None
        case kind:
            return getattr(value, kind)


def _map(fields: Any) -> Any:
    if len(fields) == 1 and NESTED_ARRAY in fields:
        return _item(fields[NESTED_ARRAY])
    return {key: _item(value) for key, value in fields.items()}


def _restore_text(fields: dict[str, Any], field: str, text: str) -> None:
    *parents, name = field.split(".")
    owner: Any = fields
    for parent in parents:
        owner = owner.get(parent) if isinstance(owner, dict) else None
    when_ns = _time_in(text)
    if not isinstance(owner, dict) or when_ns is None:
        return
    # Somebody may have changed the timestamp by hand since: then that is what counts.
    if owner.get(name) == format_rfc3339(when_ns - when_ns % MICROSECOND):
        owner[name] = text


def _reserved(document: Any) -> dict[str, Any]:
    reserved = _item(document.fields[RESERVED])
    return reserved if isinstance(reserved, dict) else {}


def _order_in(document: Any) -> EventOrder:
    if RESERVED not in document.fields:
        return _order_of_another_program(document.fields)
    reserved = _reserved(document)
    return OLDEST._replace(**{part: reserved[part] for part in EventOrder._fields if part in reserved})


def _order_of_another_program(fields: Any) -> EventOrder:
    """As if the event that wrote it had been applied here, so that whoever changes over to Holdfast keeps the
    protection from events that are older than the documents."""
    times = [when for name in _TIMES_OF_OTHERS if name in fields and (when := time_of(fields[name])) is not None]
    if not times:
        return OLDEST
    source = fields["source"].map_value.fields if "source" in fields else {}
    published = time_of(source["publishedAt"]) if "publishedAt" in source else None
    message_id = source["messageId"].string_value if "messageId" in source else ""
    return EventOrder(max(times), 0, published or 0, message_id)
