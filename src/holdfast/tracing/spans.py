"""Every span there is, in one table; docs/traces.md has the same rows, and a test compares them.

Names and attributes are those of OpenTelemetry's messaging conventions, where they have one. A span is called
`<operation> <what it is about>`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """OpenTelemetry's kinds."""

    SERVER = "server"
    PRODUCER = "producer"
    CONSUMER = "consumer"
    CLIENT = "client"
    INTERNAL = "internal"


# Attributes.

SYSTEM = "messaging.system"
OPERATION = "messaging.operation.name"
OPERATION_TYPE = "messaging.operation.type"
TOPIC = "messaging.destination.name"
SUBSCRIPTION = "messaging.destination.subscription.name"
PROJECT = "gcp.project_id"
MESSAGE_ID = "messaging.message.id"
BODY_SIZE = "messaging.message.body.size"
BATCH = "messaging.batch.message_count"
ATTEMPT = "messaging.gcp_pubsub.message.delivery_attempt"
ORDERING_KEY = "messaging.gcp_pubsub.message.ordering_key"
ERROR_TYPE = "error.type"
OUTCOME = "messaging.holdfast.outcome"
WAY = "messaging.holdfast.way"
HANDLER = "messaging.holdfast.handler"
FAILURE_MESSAGE_ID = "messaging.holdfast.failed_message.id"

ATTRIBUTES = {
    SYSTEM: "Always `gcp_pubsub`.",
    OPERATION: "The first word of the span's name.",
    OPERATION_TYPE: "`send`, `process` or `settle`, where the operation is one of these.",
    TOPIC: "Id of the topic.",
    SUBSCRIPTION: "Id of the subscription.",
    PROJECT: "Project of the topic or subscription.",
    MESSAGE_ID: "Id that the broker gave the message.",
    BODY_SIZE: "Size of the message as it is stored, or of its data in a consumer, in bytes.",
    BATCH: "Messages that the span is about, where it may be several.",
    ATTEMPT: "Number of the delivery, from 1.",
    ORDERING_KEY: "The message's ordering key, if it has one.",
    ERROR_TYPE: "Where the span failed: the reason, the status, or the kind of exception. Never an error's text.",
    OUTCOME: "How it ended.",
    WAY: "`push` or `pull`.",
    HANDLER: "Name of the handler.",
    FAILURE_MESSAGE_ID: "Id of the message that failed first.",
}

_COMMON = (SYSTEM, OPERATION)


@dataclass(frozen=True, slots=True)
class SpanType:
    """`about` says what stands behind the operation in the span's name."""

    operation: str
    about: str
    kind: Kind
    operation_type: str
    attributes: tuple[str, ...]
    doc: str

    @property
    def all_attributes(self) -> tuple[str, ...]:
        return (*_COMMON, *((OPERATION_TYPE,) if self.operation_type else ()), *self.attributes, ERROR_TYPE)


PUBLISH = SpanType(
    "publish",
    "topic",
    Kind.SERVER,
    "send",
    (TOPIC, SUBSCRIPTION, PROJECT, MESSAGE_ID, BATCH, BODY_SIZE),
    "The broker takes messages in, until they are on disk: one span for each message that has a context of its own, "
    "one for all others of a request.",
)
DELIVER = SpanType(
    "deliver",
    "subscription",
    Kind.PRODUCER,
    "settle",
    (SUBSCRIPTION, PROJECT, MESSAGE_ID, ATTEMPT, BODY_SIZE, OUTCOME),
    "One attempt to deliver, by pull, stream or push, from the lease to its end: `acked`, `nacked`, `expired`, "
    "`dropped`, `given_back` or `forgotten`.",
)
DEAD_LETTER = SpanType(
    "dead-letter",
    "dead-letter topic",
    Kind.PRODUCER,
    "send",
    (TOPIC, SUBSCRIPTION, PROJECT, MESSAGE_ID, ATTEMPT),
    "The copy is put on the dead-letter topic. The id is the original's.",
)
PROCESS = SpanType(
    "process",
    "subscription",
    Kind.CONSUMER,
    "process",
    (TOPIC, SUBSCRIPTION, PROJECT, MESSAGE_ID, ATTEMPT, ORDERING_KEY, BODY_SIZE, WAY, HANDLER, OUTCOME),
    "The consumer's whole work on one delivery: decode, route, handle, apply, settle. The event `decoded` parts the "
    "first two from the rest. The outcome is that of its log.",
)
HANDLE = SpanType(
    "handle",
    "handler",
    Kind.INTERNAL,
    "",
    (HANDLER,),
    "The handler runs. Spans of its own are children of this one.",
)
APPLY = SpanType(
    "apply",
    "handler",
    Kind.INTERNAL,
    "",
    (HANDLER, OUTCOME),
    "What the handler wants waits for its turn and is applied: `applied`, `duplicate` or `stale_ignored`.",
)
WRITE = SpanType(
    "write",
    "documents",
    Kind.CLIENT,
    "",
    (BATCH,),
    "One transaction of the document store with its retries. It is a child of the first message's `apply`, with links "
    "to those of the others that share it.",
)
RECORD = SpanType(
    "record",
    "subscription",
    Kind.CONSUMER,
    "process",
    (SUBSCRIPTION, PROJECT, FAILURE_MESSAGE_ID, BATCH),
    "The desk records a failed message, until its row is on disk; with how many others at once.",
)
RETRY = SpanType(
    "retry",
    "subscription",
    Kind.PRODUCER,
    "send",
    (SUBSCRIPTION, PROJECT, MESSAGE_ID, FAILURE_MESSAGE_ID, BATCH),
    "An automatic retry is sent. It goes on with the message's own trace; what is sent carries this span's context.",
)
REPLAY = SpanType(
    "replay",
    "subscription or topic",
    Kind.PRODUCER,
    "send",
    (TOPIC, SUBSCRIPTION, PROJECT, MESSAGE_ID, FAILURE_MESSAGE_ID, BATCH),
    "The same for a replay that a person has asked for, by hand or as a job.",
)

SPANS = (PUBLISH, DELIVER, DEAD_LETTER, PROCESS, HANDLE, APPLY, WRITE, RECORD, RETRY, REPLAY)


def of_topic(path: str) -> dict[str, str | int]:
    return _of(TOPIC, path)


def of_subscription(path: str) -> dict[str, str | int]:
    return _of(SUBSCRIPTION, path)


def short_name(path: str) -> str:
    return path.rsplit("/", 1)[-1]


def _of(attribute: str, path: str) -> dict[str, str | int]:
    """A push request may name anything, or nothing, as its subscription."""
    parts = path.split("/")
    return {attribute: parts[-1], **({PROJECT: parts[1]} if len(parts) == 4 else {})}
