"""What is POSTed for a message: Pub/Sub's JSON, or the data alone."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

from holdfast.broker.wire import PubsubMessage
from holdfast.clock import NANOSECONDS
from holdfast.model.resources import PushConfig, Subscription
from holdfast.model.timestamps import format_rfc3339
from holdfast.outgoing.request_head import may_be_header, request_head
from holdfast.outgoing.targets import Target

# Header names that an attribute of an unwrapped message may not set, besides those that frame a request.
_RESERVED = frozenset({"te", "trailer", "user-agent"})
# Up to this, one write of it all is cheaper than several.
JOINED_BYTES = 64 << 10

_BEFORE_DATA = b'{"message":{"data":"'
_METADATA_PREFIX = "x-goog-pubsub-"
_ORDERING_KEY = "x-goog-pubsub-ordering-key"


class RequestBuilder:
    """Everything that is the same for all messages of a subscription is made once."""

    def __init__(self, config: Subscription, push: PushConfig, target: Target) -> None:
        self._push = push
        self._subscription = config.name
        self._tells_attempt = config.dead_letter is not None
        content_type = {"Content-Type": "application/json"} if push.wrapped else {}
        self._head = request_head("POST", target, content_type)
        self._after_message = f'}},"subscription":{json.dumps(config.name)}'

    def size(self, stored: bytes) -> int:
        """About what the request of a message takes in memory."""
        return len(stored) * 4 // 3 if self._push.wrapped else len(stored)

    def build(self, stored: bytes, attempt: int, authorization: str, traceparent: str = "") -> tuple[bytes, ...]:
        """In pieces: a large message is not copied once more."""
        message = PubsubMessage.FromString(stored)
        body: tuple[bytes, ...]
        if self._push.wrapped:
            headers, body = b"", (_BEFORE_DATA, b64encode(message.data), self._after_data(message, attempt))
        else:
            headers, body = self._metadata(message) if self._push.write_metadata else b"", (message.data,)
        if authorization:
            headers += b"Authorization: %b\r\n" % authorization.encode()
        if traceparent and not (self._push.write_metadata and _names_trace(message)):
            headers += b"traceparent: %b\r\n" % traceparent.encode()
        length = sum([len(piece) for piece in body])
        pieces = (b"%b%bContent-Length: %d\r\n\r\n" % (self._head, headers, length), *body)
        return pieces if length > JOINED_BYTES else (b"".join(pieces),)

    def _after_data(self, message: Any, attempt: int) -> bytes:
        """Both spellings of id and time are there because Pub/Sub sends both. Ids and times need no escaping."""
        message_id, time = message.message_id, _publish_time(message)
        text = (
            f'","messageId":"{message_id}","message_id":"{message_id}","publishTime":"{time}","publish_time":"{time}"'
        )
        if message.attributes:
            text += f',"attributes":{json.dumps(dict(message.attributes))}'
        if message.ordering_key:
            text += f',"orderingKey":{json.dumps(message.ordering_key)}'
        end = f',"deliveryAttempt":{attempt}}}' if self._tells_attempt else "}"
        return (text + self._after_message + end).encode()

    def _metadata(self, message: Any) -> bytes:
        """As headers. An attribute that is no possible header is left out: the message matters more."""
        found = {
            "x-goog-pubsub-subscription-name": self._subscription,
            "x-goog-pubsub-message-id": message.message_id,
            "x-goog-pubsub-publish-time": _publish_time(message),
        }
        if message.ordering_key and may_be_header(_ORDERING_KEY, message.ordering_key):
            found[_ORDERING_KEY] = message.ordering_key
        found |= {name: value for name, value in message.attributes.items() if self._may_be_header(name, value)}
        return b"".join([b"%b: %b\r\n" % (name.encode(), value.encode()) for name, value in found.items()])

    def _may_be_header(self, name: str, value: str) -> bool:
        lower = name.lower()
        if lower in _RESERVED or lower.startswith((_METADATA_PREFIX, "proxy-")):
            return False
        if lower == "authorization" and self._push.oidc is not None:
            return False
        return may_be_header(name, value)


def _names_trace(message: Any) -> bool:
    """An attribute of the publisher's that may be the same header."""
    return any(name.lower() == "traceparent" for name in message.attributes)


def _publish_time(message: Any) -> str:
    return format_rfc3339(message.publish_time.seconds * NANOSECONDS + message.publish_time.nanos)
