"""One failed message as one line of NDJSON, and back: all that is known of it, with its revisions. Pure.

A line is what the API shows, with the payload in base64. What belongs to one store alone is told and not taken over:
the ids, the version, and the replay job that took the message. Its first failure is named by what it is: `origin`.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.deadletter.exchange.fields import Fields
from holdfast.deadletter.presentation import content_to_json, failure_to_json, revision_to_json
from holdfast.deadletter.redaction import Redaction
from holdfast.errors import BadInput
from holdfast.model.exact_json import dump_exact_json
from holdfast.model.failed_message import Content, FailedMessage, FailureClass, FailureStatus, Revision
from holdfast.model.strict_json import parse_strict_json

# Attributes and all revisions of one message; the payload itself may have 13 MB in base64.
LARGEST_LINE_BYTES = 128 * 1024 * 1024

# As a store keys a failure: subscription, message id, digest of the content.
Key = tuple[str, str, str]

_KNOWN = frozenset(
    {
        "id",
        "messageId",
        "subscription",
        "sourceTopic",
        "failureReason",
        "failureClass",
        "group",
        "errorDetails",
        "retryCount",
        "status",
        "deliveryAttempt",
        "attributes",
        "orderingKey",
        "publishTime",
        "createdAt",
        "retryAt",
        "retrySuccessAt",
        "failedAt",
        "sentAt",
        "sentMessageId",
        "generation",
        "originId",
        "replayId",
        "revision",
        "legalHold",
        "version",
        "data",
        "revisions",
        "origin",
    }
)


@dataclass(frozen=True, slots=True)
class Line:
    failure: FailedMessage
    revisions: Sequence[Revision]
    origin: Key | None


def write_line(
    failure: FailedMessage, revisions: Sequence[Revision], origin: FailedMessage | None, redaction: Redaction
) -> str:
    """Where something is hidden, the line says so by `redacted`, and cannot be imported."""
    line = _lean(failure_to_json(failure, True, redaction, revisions))
    contents = [failure.content, *(revision.content for revision in revisions)]
    line["revisions"] = [
        revision_to_json(revision, redaction, *contents) | _lean(content_to_json(revision.content, True, redaction))
        for revision in revisions
    ]
    if origin is not None:
        line["origin"] = list(origin.key)
    return dump_exact_json(line) + "\n"


def _lean(shown: dict[str, Any]) -> dict[str, Any]:
    """`data` says it all, where it is there."""
    shown.pop("json", None)
    if "data" in shown:
        shown.pop("text", None)
    return shown


def read_line(text: bytes) -> Line:
    """Raises BadInput that names the field."""
    try:
        given = parse_strict_json(text)
    except ValueError as error:
        raise BadInput("line", str(error)) from error
    if not isinstance(given, dict):
        raise BadInput("line", "must be a JSON object")
    _check_complete(given)
    if unknown := given.keys() - _KNOWN:
        raise BadInput(min(unknown)[:64], "is not known here")
    fields = Fields(given)
    failure = _failure(fields)
    revisions = [_revision(Fields(raw, f"revisions[{at}].")) for at, raw in enumerate(_list(given, "revisions"))]
    if [revision.number for revision in revisions] != list(range(1, failure.revision + 1)):
        raise BadInput("revisions", "must be numbered 1, 2, 3 … up to the revision of the message")
    return Line(failure, revisions, _origin(given))


def _check_complete(given: Mapping[str, Any]) -> None:
    revisions = given.get("revisions")
    parts = [given, *(revisions if isinstance(revisions, list) else ())]
    if any(isinstance(part, Mapping) and "redacted" in part for part in parts):
        raise BadInput("redacted", "the export hides parts of this message: export it with the right to see them")


def _failure(fields: Fields) -> FailedMessage:
    status = fields.one_of("status", FailureStatus)
    retry_at_ns = fields.time("retryAt")
    if retry_at_ns is not None and status is not FailureStatus.QUEUED_FOR_RETRY:
        raise BadInput("retryAt", f"is only of what is {FailureStatus.QUEUED_FOR_RETRY}")
    content = _content(fields)
    return FailedMessage(
        message_id=fields.text("messageId"),
        subscription=fields.text("subscription"),
        source_topic=fields.text("sourceTopic"),
        failure_reason=fields.text("failureReason", longest=100),
        error_details=fields.text("errorDetails", longest=8192),
        data=content.data,
        attributes=content.attributes,
        ordering_key=content.ordering_key,
        publish_time_ns=fields.time("publishTime") or 0,
        delivery_attempt=fields.number("deliveryAttempt"),
        retry_count=fields.number("retryCount"),
        status=status,
        created_at_ns=fields.time("createdAt") or 0,
        failed_at_ns=fields.time("failedAt") or 0,
        retry_at_ns=retry_at_ns,
        retry_success_at_ns=fields.time("retrySuccessAt"),
        failure_class=fields.one_of("failureClass", FailureClass),
        fingerprint=fields.text("group"),
        generation=fields.number("generation"),
        revision=fields.number("revision"),
        legal_hold=fields.flag("legalHold"),
        sent_at_ns=fields.time("sentAt"),
        sent_message_id=fields.text("sentMessageId"),
    )


def _revision(fields: Fields) -> Revision:
    return Revision(
        failure_id=0,  # the store's to say
        number=fields.number("number"),
        content=_content(fields),
        author=fields.text("author"),
        comment=fields.text("comment"),
        created_at_ns=fields.time("createdAt") or 0,
    )


def _content(fields: Fields) -> Content:
    try:
        data = base64.b64decode(fields.text("data", longest=LARGEST_LINE_BYTES), validate=True)
    except binascii.Error:
        raise BadInput(fields.name("data"), "is not base64") from None
    return Content(data, fields.texts("attributes"), fields.text("orderingKey"))


def _origin(given: Mapping[str, Any]) -> Key | None:
    value = given.get("origin")
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != 3 or not all(isinstance(part, str) for part in value):
        raise BadInput("origin", "must be a subscription, a message id and a digest")
    return value[0], value[1], value[2]


def _list(given: Mapping[str, Any], name: str) -> list[Any]:
    value = given.get(name, [])
    if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
        raise BadInput(name, "must be a list of objects")
    return value
