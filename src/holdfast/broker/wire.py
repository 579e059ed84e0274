"""Pub/Sub messages as bytes. The hot path joins bytes instead of building objects: protobuf lets encoded fields be
appended to an encoded message, and the last value of a field wins.

Field numbers are those of google.pubsub.v1.
"""

from __future__ import annotations

from typing import Any

from google.pubsub_v1.types import pubsub

from holdfast.clock import NANOSECONDS
from holdfast.model.message import Message

# The raw protobuf class; google-cloud-pubsub's own wrapper costs several times more per message.
PubsubMessage: Any = pubsub.PubsubMessage.pb()

# (field number << 3) | wire type; 2 is "length, then bytes", 0 is a varint.
_MESSAGE_ID = b"\x1a"  # PubsubMessage.message_id = 3
_PUBLISH_TIME = b"\x22"  # PubsubMessage.publish_time = 4
_SECONDS = b"\x08"  # Timestamp.seconds = 1
_NANOS = b"\x10"  # Timestamp.nanos = 2
_RECEIVED = b"\x0a"  # PullResponse.received_messages = 1, and StreamingPullResponse's
_ACK_ID = b"\x0a"  # ReceivedMessage.ack_id = 1
_MESSAGE = b"\x12"  # ReceivedMessage.message = 2
_ATTEMPT = b"\x18"  # ReceivedMessage.delivery_attempt = 3


def varint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encoded_publish_time(when_ns: int) -> bytes:
    """Both parts are written even when 0, so that they overwrite whatever a client put there."""
    seconds, nanos = divmod(when_ns, NANOSECONDS)
    body = _SECONDS + varint(seconds) + _NANOS + varint(nanos)
    return _PUBLISH_TIME + varint(len(body)) + body


def stored_body(message: Any, message_id: str, publish_time: bytes) -> bytes:
    """The message as it is kept and delivered: `publish_time` is encoded_publish_time, made once per request."""
    identity = message_id.encode()
    body: bytes = message.SerializeToString()
    return body + _MESSAGE_ID + varint(len(identity)) + identity + publish_time


def received_message(ack_id: str, body: bytes, attempt: int) -> bytes:
    """One element of a Pull or StreamingPull response. Attempt 0 is not sent."""
    ack = ack_id.encode()
    inner = _ACK_ID + varint(len(ack)) + ack + _MESSAGE + varint(len(body)) + body
    if attempt:
        inner += _ATTEMPT + varint(attempt)
    return _RECEIVED + varint(len(inner)) + inner


def decode(body: bytes) -> Message:
    parsed = PubsubMessage.FromString(body)
    return Message(
        data=parsed.data,
        attributes=dict(parsed.attributes),
        ordering_key=parsed.ordering_key,
        message_id=parsed.message_id,
        publish_time_ns=parsed.publish_time.seconds * NANOSECONDS + parsed.publish_time.nanos,
    )


def encode(message: Message) -> Any:
    """Without id and publish time: those are the broker's to give."""
    return PubsubMessage(data=message.data, attributes=message.attributes, ordering_key=message.ordering_key)
