"""What Cloud Pub/Sub documents as the largest and smallest of everything, checked before any work is done."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.broker import breaker, held
from holdfast.broker.filters import compile_filter
from holdfast.broker.push.attributes import ALL as PUSH_ATTRIBUTES
from holdfast.broker.push.attributes import limits_of
from holdfast.broker.wire import PubsubMessage
from holdfast.errors import BadInput, Unsupported
from holdfast.model.names import DELETED_TOPIC, check_subscription, check_topic
from holdfast.model.resources import PushConfig, Subscription, Topic
from holdfast.outgoing.targets import parse_target
from holdfast.settings import PushSettings

_LABEL_KEY = re.compile(r"[^\W\d_A-Z][\w-]*")
_LABEL_VALUE = re.compile(r"[\w-]*")

_DATA_FIELD = 0x0A  # PubsubMessage.data = 1, in the encoding that puts its length behind it

REQUEST_BYTES = 10_000_000
REQUEST_MESSAGES = 1000
ATTRIBUTES = 100
ATTRIBUTE_KEY_BYTES = 256
ATTRIBUTE_VALUE_BYTES = 1024
ORDERING_KEY_BYTES = 1024
ACK_DEADLINE_SECONDS = (10, 600)
DELIVERY_ATTEMPTS = (5, 100)
BACKOFF_SECONDS = (0, 600)
RETENTION_SECONDS = (600, 31 * 24 * 3600)
EXPIRATION_SECONDS = (24 * 3600, 365 * 24 * 3600 * 1000)
LABELS = 64
LABEL_CHARACTERS = 63
FILTER_BYTES = 256

# Keys that begin with "goog" are Google's. Its clients write some themselves: googclient_traceparent, for traces, and
# googclient_schemaencoding with its like.
CLIENTS_PREFIX = b"googclient_"


def check_publish(messages: Sequence[bytes], request_bytes: int) -> None:
    """`messages` are serialized PubsubMessages."""
    if not messages:
        raise BadInput("messages", "at least one message is needed")
    if len(messages) > REQUEST_MESSAGES:
        raise BadInput("messages", f"{len(messages)} messages in one request; at most {REQUEST_MESSAGES} are allowed")
    if request_bytes > REQUEST_BYTES:
        raise BadInput("messages", f"the request has {request_bytes} bytes; at most {REQUEST_BYTES} are allowed")
    for index in _in_doubt(messages):
        _check_message(f"messages[{index}]", PubsubMessage.FromString(messages[index]))


def _in_doubt(messages: Sequence[bytes]) -> list[int]:
    """Most messages are data and a few short attributes: then the data's length, which stands in front, shows that
    nothing else can be too long. Only the others are taken apart. One loop, because a call for each message would cost
    as much as the rest."""
    found: list[int] = []
    for index, message in enumerate(messages):
        if len(message) >= 3 and message[0] == _DATA_FIELD:
            length = message[1]
            if length >= 0x80:
                length = length & 0x7F | message[2] << 7 if message[2] < 0x80 else 0  # 0: too long to be read here
            # Attributes and ordering key share what is left: no key, and no count of them, can pass its limit.
            is_short = length > 0 and len(message) - length <= ATTRIBUTE_KEY_BYTES
            if is_short and (message.find(b"goog", length) < 0 or not _may_name_goog(message)):
                continue
        found.append(index)
    return found


def _may_name_goog(message: bytes) -> bool:
    return message.count(b"goog") != message.count(CLIENTS_PREFIX)


def _check_message(field: str, message: Any) -> None:
    attributes = message.attributes
    if not message.data and not attributes:
        raise BadInput(field, "a message needs data or at least one attribute")
    if len(message.ordering_key.encode()) > ORDERING_KEY_BYTES:
        raise BadInput(f"{field}.ordering_key", f"at most {ORDERING_KEY_BYTES} bytes are allowed")
    if attributes:
        check_attributes(f"{field}.attributes", attributes)


def check_attributes(field: str, attributes: Mapping[str, str]) -> None:
    if len(attributes) > ATTRIBUTES:
        raise BadInput(field, f"{len(attributes)} attributes; at most {ATTRIBUTES} are allowed")
    for key, value in attributes.items():
        reserved = key.startswith("goog") and not key.startswith(CLIENTS_PREFIX.decode())
        if len(key.encode()) > ATTRIBUTE_KEY_BYTES or reserved:
            raise BadInput(field, f"key {key[:50]!r}: at most {ATTRIBUTE_KEY_BYTES} bytes, not starting with 'goog'")
        if len(value.encode()) > ATTRIBUTE_VALUE_BYTES:
            raise BadInput(f"{field}[{key!r}]", f"a value has at most {ATTRIBUTE_VALUE_BYTES} bytes")


def check_topic_config(topic: Topic) -> None:
    check_topic("name", topic.name)
    check_labels(topic.labels)
    if topic.message_retention_seconds is not None:
        _check_range("message_retention_duration", topic.message_retention_seconds, RETENTION_SECONDS)


def check_labels(labels: Mapping[str, str]) -> None:
    if len(labels) > LABELS:
        raise BadInput("labels", f"{len(labels)} labels; at most {LABELS} are allowed")
    for key, value in labels.items():
        if not _LABEL_KEY.fullmatch(key):
            raise BadInput("labels", f"key {key[:80]!r}: a lower-case letter, then lower-case letters, digits, - and _")
        if len(key) > LABEL_CHARACTERS or len(value) > LABEL_CHARACTERS or not _LABEL_VALUE.fullmatch(value):
            raise BadInput(f"labels[{key[:80]!r}]", f"at most {LABEL_CHARACTERS} lower-case letters, digits, - and _")


def check_subscription_config(config: Subscription, *, strict: bool = False) -> None:
    check_subscription("name", config.name)
    check_labels(config.labels)
    if not strict:
        held.check_label(config)
        breaker.check_label(config)
    if config.expiration_seconds is not None:
        _check_range("expiration_policy.ttl", config.expiration_seconds, EXPIRATION_SECONDS)
    if len(config.filter.encode()) > FILTER_BYTES:
        raise BadInput("filter", f"at most {FILTER_BYTES} bytes are allowed")
    if config.filter:
        compile_filter(config.filter)
    if config.exactly_once and config.push:
        raise BadInput("enable_exactly_once_delivery", "is for pull subscriptions only")
    if config.topic != DELETED_TOPIC:
        check_topic("topic", config.topic)
    _check_range("ack_deadline_seconds", config.ack_deadline_seconds, ACK_DEADLINE_SECONDS)
    _check_range("message_retention_duration", config.message_retention_seconds, RETENTION_SECONDS)
    if config.dead_letter:
        check_topic("dead_letter_policy.dead_letter_topic", config.dead_letter.topic)
        _check_range(
            "dead_letter_policy.max_delivery_attempts",
            config.dead_letter.max_delivery_attempts,
            DELIVERY_ATTEMPTS,
        )
    if config.retry:
        low, high = config.retry.minimum_backoff_seconds, config.retry.maximum_backoff_seconds
        _check_range("retry_policy.minimum_backoff", low, BACKOFF_SECONDS)
        _check_range("retry_policy.maximum_backoff", high, BACKOFF_SECONDS)
        if low > high:
            raise BadInput("retry_policy.minimum_backoff", f"{low:g} s is above maximum_backoff, {high:g} s")
    if config.push:
        _check_push(config.push, strict)


def _check_push(push: PushConfig, strict: bool) -> None:
    parse_target("push_config.push_endpoint", push.endpoint)
    limits_of(push, PushSettings())
    if push.oidc is not None and not push.oidc.service_account:
        raise BadInput("push_config.oidc_token.service_account_email", "must be given")
    unknown = set(push.attributes) - {"x-goog-version"} - (frozenset() if strict else PUSH_ATTRIBUTES)
    if unknown:
        raise BadInput("push_config.attributes", f"unknown attribute {min(unknown)!r}")
    if push.attributes.get("x-goog-version", "v1") not in ("v1", "v1beta2"):
        raise Unsupported("push_config.attributes", "x-goog-version must be v1")


def _check_range(field: str, value: float, bounds: tuple[float, float]) -> None:
    low, high = bounds
    if not low <= value <= high:
        raise BadInput(field, f"{value:g} is out of range; {low:g} to {high:g} is allowed")
