"""A failed message as JSON, the same in the API and on the command line."""

from __future__ import annotations

import base64
from typing import Any

from holdfast.deadletter.payload import read_payload
from holdfast.model.failed_message import FailedMessage
from holdfast.model.timestamps import format_rfc3339


def failure_to_json(failure: FailedMessage, payload: bool) -> dict[str, Any]:
    """`payload` adds what was carried: `data` in base64, `text` if it is UTF-8, `json` if it is JSON."""
    shown = {
        "id": failure.id,
        "messageId": failure.message_id,
        "subscription": failure.subscription,
        "sourceTopic": failure.source_topic,
        "failureReason": failure.failure_reason,
        "errorDetails": failure.error_details,
        "retryCount": failure.retry_count,
        "status": str(failure.status),
        "deliveryAttempt": failure.delivery_attempt,
        "attributes": dict(failure.attributes),
        "orderingKey": failure.ordering_key,
        "publishTime": _time(failure.publish_time_ns),
        "createdAt": _time(failure.created_at_ns),
        "retryAt": _time(failure.retry_at_ns),
        "retrySuccessAt": _time(failure.retry_success_at_ns),
    }
    return shown | payload_to_json(failure.data) if payload else shown


def payload_to_json(data: bytes) -> dict[str, Any]:
    readable = read_payload(data)
    shown: dict[str, Any] = {"data": base64.b64encode(data).decode()}
    if readable.text is not None:
        shown["text"] = readable.text
    if readable.is_json:
        shown["json"] = readable.json
    return shown


def _time(when_ns: int | None) -> str | None:
    """0 is how a time that nobody told is kept."""
    return format_rfc3339(when_ns) if when_ns else None
