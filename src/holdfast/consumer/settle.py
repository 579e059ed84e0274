"""An outcome as the answer to a push request: the only place that knows which outcome has which status."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, assert_never
from urllib.parse import quote

from holdfast.model import push_headers
from holdfast.model.outcome import Applied, Duplicate, Outcome, Poisoned, Retry, Stale

LONGEST_REASON = 100  # the failure table's column
LONGEST_ERROR = 512  # percent-encoded at most 6 KiB; clients refuse headers above 8 KiB


@dataclass(frozen=True, slots=True)
class PushAnswer:
    status: int
    body: Mapping[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict)


def settle(outcome: Outcome, message_id: str) -> PushAnswer:
    """2xx acks the message; anything else has it sent again, or dead-lettered where the headers say so."""
    body: dict[str, Any] = {"outcome": outcome.name, "messageId": message_id}
    match outcome:
        case Applied():
            return PushAnswer(200, {**body, "documents": list(outcome.documents)})
        case Duplicate():
            return PushAnswer(200, {**body, "key": outcome.key})
        case Stale():
            return PushAnswer(200, {**body, "document": outcome.document})
        case Poisoned():
            details = {"reason": outcome.reason, "error": outcome.error}
            return PushAnswer(422 if outcome.readable else 400, {**body, **details}, poison_headers(outcome))
        case Retry():
            headers = error_header(outcome.error) | _retry_after(outcome.retry_after)
            return PushAnswer(_retry_status(outcome), {**body, "error": outcome.error}, headers)
        case _:
            assert_never(outcome)


def poison_headers(outcome: Poisoned) -> dict[str, str]:
    """Percent-encoded: both texts may hold anything, and a header only some of ASCII."""
    return {
        push_headers.DEAD_LETTER: "now",
        push_headers.FAILURE_REASON: quote(outcome.reason[:LONGEST_REASON], safe="", errors="replace"),
        **error_header(outcome.error),
    }


def error_header(error: str) -> dict[str, str]:
    return {push_headers.ERROR: quote(error[:LONGEST_ERROR], safe="", errors="replace")}


def _retry_status(outcome: Retry) -> int:
    if outcome.overloaded:
        return 429
    return 500 if outcome.retry_after is None else 503


def _retry_after(seconds: float | None) -> dict[str, str]:
    # The header takes whole seconds; 0 would invite the sender back at once.
    return {} if seconds is None else {"Retry-After": str(max(1, math.ceil(seconds)))}
