"""What becomes of a message after its outcome: the only place that knows which outcome is acked, and with which status.

|                             | push                                              | pull                    |
|-----------------------------|---------------------------------------------------|-------------------------|
| applied, duplicate, stale   | 200                                               | ack                     |
| poison, recorded            | 200                                               | ack                     |
| poison, left to the broker  | 422, or 400 where it could not even be parsed     | nack                    |
| retry                       | 500; 503 with Retry-After where the time is known | nack with a delay       |
| retry, misconfigured        | 500, or 200 once it is recorded on DLQ_TOPIC      | the same                |
| retry, the queue is full    | 429                                               | held by flow control    |
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, assert_never
from urllib.parse import quote

from holdfast.backoff import backoff_seconds
from holdfast.model import push_headers
from holdfast.model.outcome import Applied, Duplicate, Outcome, Poisoned, Retry, Stale

LONGEST_REASON = 100  # the failure table's column
LONGEST_ERROR = 512  # percent-encoded at most 6 KiB; clients refuse headers above 8 KiB

# Where nobody told how long: a nack alone would bring the message back at once on a subscription without retry policy.
SHORTEST_DELAY_SECONDS = 1.0
LONGEST_DELAY_SECONDS = 60.0


class Way(Enum):
    """How a delivery came, and so how it is answered."""

    PUSH = "push"
    PULL = "pull"


@dataclass(frozen=True, slots=True)
class Settlement:
    """`recorded` names where a failed message was put before it is acked, "" where it was not. A pulled message that is
    not acked should come again after `delay_seconds`."""

    outcome: Outcome
    status: int
    recorded: str = ""
    delay_seconds: float = 0.0

    @property
    def acks(self) -> bool:
        return self.status == 200

    @property
    def rejects(self) -> bool:
        """The broker is told to dead-letter it, and not to send it again."""
        return isinstance(self.outcome, Poisoned) and self.status in (400, 422)


def must_be_recorded(outcome: Outcome, way: Way, *, has_policy: bool, has_topic: bool) -> bool:
    """Whether the message is acked once it is in other safe hands. Else the broker keeps it: it sends it again, and
    dead-letters it where the subscription `has_policy`. `has_topic`: there is a DLQ_TOPIC."""
    match outcome:
        case Poisoned():
            # A pulled message would be sent again until its attempts are spent; a pushed one says "now".
            return not has_policy or (has_topic and (outcome.by_store or way is Way.PULL))
        case Retry():
            return has_topic and outcome.misconfigured and outcome.by_store
        case Applied() | Duplicate() | Stale():
            return False
        case _:
            assert_never(outcome)


def settle(outcome: Outcome, attempt: int, recorded: str = "") -> Settlement:
    """`attempt` is the delivery's number, 0 where it is not known."""
    if recorded:
        return Settlement(outcome, 200, recorded)
    match outcome:
        case Applied() | Duplicate() | Stale():
            return Settlement(outcome, 200)
        case Poisoned():
            return Settlement(outcome, 422 if outcome.readable else 400)
        case Retry():
            return Settlement(outcome, _retry_status(outcome), delay_seconds=_delay(outcome, attempt))
        case _:
            assert_never(outcome)


def not_recorded(outcome: Outcome, attempt: int) -> Settlement:
    """It should have been, and could not be: it must come again, whatever the outcome."""
    return Settlement(outcome, 500, delay_seconds=_delay(outcome, attempt))


def _retry_status(outcome: Retry) -> int:
    if outcome.overloaded:
        return 429
    return 500 if outcome.retry_after is None else 503


def _delay(outcome: Outcome, attempt: int) -> float:
    if isinstance(outcome, Retry) and outcome.retry_after is not None:
        return outcome.retry_after
    return backoff_seconds(SHORTEST_DELAY_SECONDS, LONGEST_DELAY_SECONDS, max(1, attempt))


# The answer to a push request.


@dataclass(frozen=True, slots=True)
class PushAnswer:
    status: int
    body: Mapping[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict)


def push_answer(settlement: Settlement, message_id: str) -> PushAnswer:
    """2xx acks the message; anything else has it sent again, or dead-lettered where the headers say so."""
    outcome = settlement.outcome
    body: dict[str, Any] = {"outcome": outcome.name, "messageId": message_id}
    if settlement.recorded:
        body["recorded"] = settlement.recorded
    match outcome:
        case Applied():
            return PushAnswer(settlement.status, {**body, "documents": list(outcome.documents)})
        case Duplicate():
            return PushAnswer(settlement.status, {**body, "key": outcome.key})
        case Stale():
            return PushAnswer(settlement.status, {**body, "document": outcome.document})
        case Poisoned():
            details = {"reason": outcome.reason, "error": outcome.error}
            headers = poison_headers(outcome) if settlement.rejects else error_header(outcome.error)
            return PushAnswer(settlement.status, {**body, **details}, headers)
        case Retry():
            details = {"reason": outcome.reason, "error": outcome.error}
            headers = failure_headers(outcome.reason, outcome.error) | _retry_after(outcome.retry_after)
            return PushAnswer(settlement.status, {**body, **details}, headers)
        case _:
            assert_never(outcome)


def poison_headers(outcome: Poisoned) -> dict[str, str]:
    return {push_headers.DEAD_LETTER: "now", **failure_headers(outcome.reason, outcome.error)}


def failure_headers(reason: str, error: str) -> dict[str, str]:
    """Percent-encoded: both texts may hold anything, and a header only some of ASCII."""
    return {
        push_headers.FAILURE_REASON: quote(reason[:LONGEST_REASON], safe="", errors="replace"),
        **error_header(error),
    }


def error_header(error: str) -> dict[str, str]:
    return {push_headers.ERROR: quote(error[:LONGEST_ERROR], safe="", errors="replace")}


def _retry_after(seconds: float | None) -> dict[str, str]:
    # The header takes whole seconds; 0 would invite the sender back at once.
    return {} if seconds is None else {"Retry-After": str(max(1, math.ceil(seconds)))}
