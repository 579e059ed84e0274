"""What a failure looks like in an answer, as JSON Schema: deadletter/presentation.py makes it."""

from __future__ import annotations

from typing import Any

from holdfast.api.http.describing import (
    Parameter,
    anything,
    boolean,
    integer,
    list_of,
    map_of,
    one_of,
    or_null,
    record,
    text,
    time,
)
from holdfast.model.failed_message import FailureClass, FailureStatus

FAILURE_ID = Parameter("id", "The failure's", integer(minimum=1), where="path", example=42)

_SHOWN = {
    "id": integer(),
    "messageId": text("Of the message that failed"),
    "subscription": text("Full path"),
    "sourceTopic": text("Full path, or `unknown`"),
    "failureReason": text("The category that failures are grouped by"),
    "failureClass": one_of([*FailureClass], "What can be done about it"),
    "group": text("Fingerprint of its group"),
    "errorDetails": text(),
    "retryCount": integer("Automatic retries that were made"),
    "status": one_of([*FailureStatus]),
    "deliveryAttempt": integer("How often it was delivered; 0 where nobody told"),
    "attributes": map_of(text()),
    "orderingKey": text(),
    "redacted": list_of(text(), "What is hidden of it, as JSON Pointers; absent where nothing is"),
    "publishTime": or_null(time("Of the message that failed")),
    "createdAt": or_null(time("When it was recorded")),
    "retryAt": or_null(time("When its next retry is due")),
    "retrySuccessAt": or_null(time("When a retry succeeded, or it was replayed")),
    "failedAt": or_null(time("When the delivery failed for good")),
    "sentAt": or_null(time("When the retry was sent that is out now")),
    "sentMessageId": text("As which message it was sent again last"),
    "generation": integer("How often the message was sent again before it failed here"),
    "originId": or_null(integer("The failure that it met with first, where that is another one")),
    "replayId": or_null(integer("The replay that sent it")),
    "revision": integer("Its newest edit; 0 is the original"),
    "legalHold": boolean("Neither erased nor cleaned up"),
    "version": integer("One more with every change"),
}

_PAYLOAD = {
    "data": text("The payload in base64; absent where some of it is redacted", contentEncoding="base64"),
    "text": text("The payload, where it is UTF-8"),
    "json": anything("The payload, where it is JSON"),
}

_REVISION = {"number": integer(), "author": text(), "comment": text(), "createdAt": or_null(time())}

FAILURE = record(_SHOWN, title="Failure", optional=("redacted",))

WHOLE_FAILURE = record(
    {
        **_SHOWN,
        **_PAYLOAD,
        "revisions": list_of(record(_REVISION, title="Revision"), "Its edits, oldest first"),
        "lineage": list_of(integer(), "The failures that this message met with, oldest first"),
    },
    title="WholeFailure",
    optional=("redacted", "data", "text", "json"),
)

EXAMPLE: dict[str, Any] = {
    "id": 42,
    "messageId": "1099511627777",
    "subscription": "projects/local/subscriptions/market-ticks.materializer",
    "sourceTopic": "projects/local/topics/market-ticks",
    "failureReason": "SCHEMA_VALIDATION_ERROR",
    "failureClass": "poison",
    "group": "5f2b8c1d9e3a4f60",
    "errorDetails": "symbol: is missing",
    "retryCount": 0,
    "status": "permanent_failure",
    "deliveryAttempt": 1,
    "attributes": {"origin": "web"},
    "orderingKey": "",
    "publishTime": "2026-11-18T09:00:00Z",
    "createdAt": "2026-11-18T09:00:00.120Z",
    "retryAt": None,
    "retrySuccessAt": None,
    "failedAt": "2026-11-18T09:00:00.100Z",
    "sentAt": None,
    "sentMessageId": "",
    "generation": 0,
    "originId": None,
    "replayId": None,
    "revision": 0,
    "legalHold": False,
    "version": 1,
}
