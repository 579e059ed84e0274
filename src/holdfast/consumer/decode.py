"""Bytes to a delivery, a delivery to an event. Pure: nothing has changed when these have run."""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Mapping
from typing import Any

from holdfast.consumer.event import Event
from holdfast.consumer.event_time import to_nanoseconds
from holdfast.errors import Poison
from holdfast.model.message import Delivery, Message
from holdfast.model.replay_attributes import first_published_ns
from holdfast.model.strict_json import parse_strict_json

# The failure reason of what cannot be parsed at all; what parses but is wrong is a SCHEMA_VALIDATION_ERROR.
UNREADABLE = "DECODE_ERROR"

# Ids become dedupe keys and document ids; Firestore takes 1500 bytes, so nothing longer can ever be stored.
LONGEST_ID_BYTES = 1500

# "projects/", a project, "/subscriptions/" and an id have 450 at most.
LONGEST_SUBSCRIPTION = 500

# What Pub/Sub takes uncompressed. A few kilobytes of gzip can claim to be gigabytes.
LARGEST_UNPACKED_BYTES = 10_000_000
# Each costs a copy of what comes after it.
MOST_GZIP_MEMBERS = 100
_GZIP_MAGIC = b"\x1f\x8b"
_GZIP_WINDOW = 16 + zlib.MAX_WBITS  # says "with gzip's own header" to zlib


def decode_envelope(body: bytes) -> Delivery:
    """The JSON that Pub/Sub POSTs to a push endpoint. Raises Poison, never readable, that names the field."""
    try:
        return _envelope(parse_strict_json(body))
    except _Wrong as error:
        raise Poison(str(error), reason=UNREADABLE, readable=False) from error
    except ValueError as error:
        raise Poison(f"envelope: {error}", reason=UNREADABLE, readable=False) from error


def unpacked(data: bytes) -> bytes:
    """A message's data, decompressed where it is gzip: no JSON begins like that. Raises Poison."""
    if not data.startswith(_GZIP_MAGIC):
        return data
    try:
        return _gunzipped(data)
    except (zlib.error, EOFError) as error:
        raise Poison("data: is not valid gzip", reason=UNREADABLE, readable=False) from error


def decode_event(delivery: Delivery, payload: bytes) -> Event:
    """The payload as an event; its topic, and so its time, are still unknown. Raises Poison that names the field."""
    message = delivery.message
    data = _payload(payload)
    return Event(
        data=data,
        message_id=message.message_id,
        subscription=delivery.subscription,
        publish_time_ns=first_published_ns(message.attributes, message.publish_time_ns),
        attributes=message.attributes,
        ordering_key=message.ordering_key,
        attempt=delivery.attempt,
        sequence=_sequence(data),
        event_id=_event_id(data),
    )


# The envelope.


class _Wrong(ValueError):
    def __init__(self, field: str, why: str) -> None:
        super().__init__(f"{field}: {why}")


def _envelope(envelope: Any) -> Delivery:
    if not isinstance(envelope, dict):
        raise _Wrong("envelope", "must be a JSON object")
    message = envelope.get("message")
    if not isinstance(message, dict):
        raise _Wrong("message", "must be an object" if "message" in envelope else "is missing")
    subscription = _text(envelope, "subscription")
    if len(subscription) > LONGEST_SUBSCRIPTION:
        raise _Wrong("subscription", f"is longer than {LONGEST_SUBSCRIPTION} characters")
    return Delivery(
        subscription=subscription,
        message=_message(message),
        attempt=_attempt(envelope),
    )


def _message(message: Mapping[str, Any]) -> Message:
    return Message(
        data=_data(message),
        attributes=_attributes(message),
        ordering_key=_either(message, "orderingKey", "ordering_key"),
        message_id=_message_id(message),
        publish_time_ns=_publish_time(message),
    )


def _message_id(message: Mapping[str, Any]) -> str:
    message_id = _either(message, "messageId", "message_id")
    if not message_id:
        raise _Wrong("message.messageId", "is missing or empty")
    if len(message_id.encode()) > LONGEST_ID_BYTES:
        raise _Wrong("message.messageId", f"is longer than {LONGEST_ID_BYTES} bytes")
    return message_id


def _data(message: Mapping[str, Any]) -> bytes:
    try:
        return base64.b64decode(_text(message, "data", "message.data"), validate=True)
    except (binascii.Error, ValueError) as error:
        if isinstance(error, _Wrong):
            raise
        raise _Wrong("message.data", "is not base64") from error


def _attributes(message: Mapping[str, Any]) -> dict[str, str]:
    attributes = message.get("attributes")
    if attributes is None:
        return {}
    if not isinstance(attributes, dict):
        raise _Wrong("message.attributes", "must be an object of text values")
    for key, value in attributes.items():
        if not isinstance(value, str):
            raise _Wrong(f"message.attributes.{key[:64]}", "must be text")
    return attributes


def _publish_time(message: Mapping[str, Any]) -> int:
    text = _either(message, "publishTime", "publish_time")
    if not text:
        return 0
    try:
        return to_nanoseconds(text)
    except ValueError as error:
        raise _Wrong("message.publishTime", str(error)) from error


def _attempt(envelope: Mapping[str, Any]) -> int:
    attempt = envelope.get("deliveryAttempt")
    if attempt is None:
        return 0
    if not isinstance(attempt, int) or isinstance(attempt, bool) or attempt < 0:
        raise _Wrong("deliveryAttempt", "must be a whole number, 0 or above")
    return attempt


def _either(message: Mapping[str, Any], name: str, other: str) -> str:
    """Cloud Pub/Sub sends some fields under two names; they must then say the same."""
    told = message.get(name)
    if isinstance(told, str) and told == message.get(other, told):  # nearly always
        return told
    first, second = _text(message, name, f"message.{name}"), _text(message, other, f"message.{other}")
    if first and second and first != second:
        raise _Wrong(f"message.{name}", f"differs from {other}")
    return first or second


def _text(of: Mapping[str, Any], name: str, field: str = "") -> str:
    """Absent and null are "", as in the JSON form of every protobuf message."""
    value = of.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _Wrong(field or name, "must be text")
    return value


# The payload.


def _gunzipped(data: bytes) -> bytes:
    """Several members after each other are one text, as gzip has it."""
    text = bytearray()
    for _ in range(MOST_GZIP_MEMBERS):
        member = zlib.decompressobj(_GZIP_WINDOW)
        text += member.decompress(data, LARGEST_UNPACKED_BYTES + 1 - len(text))
        if len(text) > LARGEST_UNPACKED_BYTES:
            why = f"data: is larger than {LARGEST_UNPACKED_BYTES} bytes once decompressed"
            raise Poison(why, reason=UNREADABLE, readable=False)
        if not member.eof:
            raise EOFError
        data = member.unused_data
        if not data:
            return bytes(text)
    why = f"data: has more than {MOST_GZIP_MEMBERS} gzip members"
    raise Poison(why, reason=UNREADABLE, readable=False)


def _payload(data: bytes) -> dict[str, Any]:
    if not data:
        raise Poison("data: is empty, a JSON object is expected", reason=UNREADABLE, readable=False)
    try:
        payload = parse_strict_json(data)
    except ValueError as error:
        raise Poison(f"data: {error}", reason=UNREADABLE, readable=False) from error
    if not isinstance(payload, dict):
        raise Poison("data: must be a JSON object")
    return payload


def _sequence(data: Mapping[str, Any]) -> int:
    # It only breaks ties between equal event times, and other producers may mean something else by the name:
    # what is not a whole number is no sequence, rather than a reason to refuse the message.
    sequence = data.get("sequence")
    return sequence if isinstance(sequence, int) and not isinstance(sequence, bool) else 0


def _event_id(data: Mapping[str, Any]) -> str:
    event_id = data.get("eventId")
    if isinstance(event_id, int) and not isinstance(event_id, bool):
        event_id = str(event_id)
    if event_id is None or (isinstance(event_id, str) and not event_id.strip()):
        return ""
    if not isinstance(event_id, str):
        raise Poison("eventId: must be text or a whole number")
    if len(event_id.encode()) > LONGEST_ID_BYTES:
        raise Poison(f"eventId: is longer than {LONGEST_ID_BYTES} bytes")
    return event_id
