"""Pub/Sub messages as bytes. The hot path joins bytes instead of building objects: protobuf lets encoded fields be
appended to an encoded message, and the last value of a field wins.

Field numbers are those of google.pubsub.v1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from google.protobuf.message import DecodeError
from google.pubsub_v1.types import pubsub

from holdfast.clock import NANOSECONDS
from holdfast.errors import BadInput
from holdfast.model.message import Message

# The raw protobuf class; google-cloud-pubsub's own wrapper costs several times more per message.
PubsubMessage: Any = pubsub.PubsubMessage.pb()
PublishRequest: Any = pubsub.PublishRequest.pb()

# (field number << 3) | wire type; 2 is "length, then bytes", 0 is a varint.
_MESSAGE_ID = b"\x1a"  # PubsubMessage.message_id = 3
_PUBLISH_TIME = b"\x22"  # PubsubMessage.publish_time = 4
_SECONDS = b"\x08"  # Timestamp.seconds = 1
_NANOS = b"\x10"  # Timestamp.nanos = 2
_REQUEST_TOPIC = 0x0A  # PublishRequest.topic = 1
_REQUEST_MESSAGE = 0x12  # PublishRequest.messages = 2
_RECEIVED = b"\x0a"  # PullResponse.received_messages = 1, and StreamingPullResponse's
_ACK_ID = b"\x0a"  # ReceivedMessage.ack_id = 1
_MESSAGE = b"\x12"  # ReceivedMessage.message = 2
_ATTEMPT = b"\x18"  # ReceivedMessage.delivery_attempt = 3
_ADDRESS = 100_000 << 3 | 1  # a field of our own behind PubsubMessage's: 8 bytes, which clients skip


def varint(value: int) -> bytes:
    if value < len(_VARINTS):
        return _VARINTS[value]
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


# Lengths are mostly short, and several are written for each message.
_VARINTS: list[bytes] = []
_VARINTS += [varint(value) for value in range(1 << 12)]

_ADDRESS_TAG = varint(_ADDRESS)


def encoded_publish_time(when_ns: int) -> bytes:
    """Both parts are written even when 0, so that they overwrite whatever a client put there."""
    seconds, nanos = divmod(when_ns, NANOSECONDS)
    body = _SECONDS + varint(seconds) + _NANOS + varint(nanos)
    return _PUBLISH_TIME + varint(len(body)) + body


def stored_bodies(messages: Sequence[bytes], ids: Sequence[bytes], publish_time_ns: int) -> list[bytes]:
    """The messages as they are kept and delivered. Whatever a client wrote into id and time stands before ours, and
    the last value of a field wins."""
    before_id = encoded_publish_time(publish_time_ns) + _MESSAGE_ID + varint(len(ids[0]))
    if len(ids[0]) != len(ids[-1]):  # the ids of one request pass a power of ten
        return [
            b"".join((message, encoded_publish_time(publish_time_ns), _MESSAGE_ID, varint(len(one)), one))
            for message, one in zip(messages, ids, strict=True)
        ]
    return [message + before_id + one for message, one in zip(messages, ids, strict=True)]


# A stored body ends with its id, digits and at least 13 of them. Only the broker can put anything behind it, so that
# nobody else can write an address: what a publisher writes comes before the id.


def address_suffix(subscription_key: int) -> bytes:
    """Put behind a stored body, it says that the message is for this subscription alone."""
    return _ADDRESS_TAG + subscription_key.to_bytes(8, "little")


def is_for(body: bytes, subscription_key: int) -> bool:
    """A stored body that is not addressed is for everybody. Keys are far below 2**56: an address ends with a zero."""
    return body[-1] != 0 or body.endswith(address_suffix(subscription_key))


def is_addressed(body: bytes) -> bool:
    return body[-1] == 0 and body[-8 - len(_ADDRESS_TAG) : -8] == _ADDRESS_TAG


def publish_response(ids: Sequence[bytes]) -> bytes:
    """A PublishResponse: message_ids = 1, repeated."""
    if len(ids[0]) != len(ids[-1]):
        return b"".join([_RECEIVED + varint(len(one)) + one for one in ids])
    before_id = _RECEIVED + varint(len(ids[0]))  # the same for all
    return before_id + before_id.join(ids)


# Pub/Sub allows 1,000 messages in a request; a hostile one could have millions of empty ones.
MOST_PIECES = 1000


def split_publish_request(request: bytes) -> tuple[str, Sequence[bytes]]:
    """The topic and the serialized messages of a PublishRequest. Protobuf checks that all of it is well formed; the
    messages are then cut out of the request as they are, which is cheaper than serializing each again."""
    try:
        pieces = _pieces(request)
        if len(pieces) > MOST_PIECES:  # before protobuf makes an object of each
            raise BadInput("messages", f"more than {MOST_PIECES} messages in one request")
        parsed = PublishRequest.FromString(request)
    except (DecodeError, IndexError) as error:
        raise BadInput("request", "is not a serialized PublishRequest") from error
    if len(pieces) != len(parsed.messages):
        pieces = [message.SerializeToString() for message in parsed.messages]
    return parsed.topic, pieces


def _pieces(request: bytes) -> list[bytes]:
    """The bytes of each `messages` field. Stops at a field of another kind than this version knows."""
    found: list[bytes] = []
    at, end = 0, len(request)
    while at < end and len(found) <= MOST_PIECES:
        tag, length, at = request[at], request[at + 1], at + 2
        if length >= 0x80:
            length &= 0x7F
            shift = 7
            while True:
                byte = request[at]
                at += 1
                length |= (byte & 0x7F) << shift
                if byte < 0x80:
                    break
                shift += 7
        if tag == _REQUEST_MESSAGE:
            found.append(request[at : at + length])
        elif tag != _REQUEST_TOPIC:
            return []
        at += length
    return found


def received_message(ack_id: str, body: bytes, attempt: int) -> bytes:
    """One element of a Pull or StreamingPull response. Attempt 0 is not sent."""
    ack = ack_id.encode()
    before_body = _ACK_ID + varint(len(ack)) + ack + _MESSAGE + varint(len(body))
    after_body = _ATTEMPT + varint(attempt) if attempt else b""
    length = len(before_body) + len(body) + len(after_body)
    return b"".join((_RECEIVED, varint(length), before_body, body, after_body))


def decode(body: bytes) -> Message:
    parsed = PubsubMessage.FromString(body)
    return Message(
        data=parsed.data,
        attributes=dict(parsed.attributes),
        ordering_key=parsed.ordering_key,
        message_id=parsed.message_id,
        publish_time_ns=parsed.publish_time.seconds * NANOSECONDS + parsed.publish_time.nanos,
    )


def encode(message: Message) -> bytes:
    """Without id and publish time: those are the broker's to give."""
    encoded: bytes = PubsubMessage(
        data=message.data, attributes=message.attributes, ordering_key=message.ordering_key
    ).SerializeToString()
    return encoded
