"""The one log line per message: who consumed it, where it came from, what became of it. Never its payload."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from dataclasses import dataclass

from holdfast import __version__
from holdfast.consumer.changes import Change
from holdfast.consumer.documents import Mark
from holdfast.consumer.error_codes import error_code
from holdfast.consumer.settle import Settlement, Way
from holdfast.model.message import Delivery, Message
from holdfast.model.outcome import Poisoned, Retry
from holdfast.model.timestamps import format_rfc3339
from holdfast.settings import ConsumerSettings
from holdfast.telemetry import ALERT, log_fields

log = logging.getLogger("holdfast.consumer")

# An error's text may quote what it met; this much explains it without carrying a payload into the log.
LONGEST_ERROR = 300
# A type or a version is a word. They are the payload's to choose, so no more than a word of it is logged.
LONGEST_WORD = 100
# The innermost calls show where an unclassified error came from.
LOGGED_FRAMES = 20


# What the payload may have a word in, and what the handler made of it.
_QUOTING = ("event_type", "schemaVersion", "doc_path", "idempotency_doc", "record_error")

# A text about a message, without what nobody may see of it (desk.redact).
Hide = Callable[[Message, str], str]


@dataclass(slots=True)
class Trail:
    """What became known of a delivery on its way."""

    topic: str = ""
    handler: str = ""
    event_type: str = ""
    schema_version: str = ""
    changes: tuple[Change, ...] = ()
    marks: tuple[Mark, ...] = ()
    ahead_seconds: float = 0.0  # of our clock, where the event's time is too far in the future
    in_store: bool = False  # it had got so far
    error: BaseException | None = None
    classified: bool = True
    record_error: str = ""  # why a failed message could not be recorded


class MessageLog:
    def __init__(self, settings: ConsumerSettings, hide: Hide | None = None) -> None:
        self._hide = hide
        self._identity = {
            "service": settings.service,
            "env": settings.env,
            "version": settings.version or f"holdfast {__version__}",
            "sha": settings.sha,
        }

    def write(self, delivery: Delivery, trail: Trail, settlement: Settlement, way: Way) -> None:
        level = _level(trail, settlement)
        if log.isEnabledFor(level):
            fields = self._identity | self._hidden(delivery.message, _fields(delivery, trail, settlement, way))
            log_fields(log, level, f"message {settlement.outcome.name}", fields)

    def _hidden(self, message: Message, fields: dict[str, object]) -> dict[str, object]:
        if self._hide is not None:
            fields |= {name: self._hide(message, str(fields[name])) for name in _QUOTING if fields.get(name)}
        return fields


def _level(trail: Trail, settlement: Settlement) -> int:
    outcome = settlement.outcome
    if isinstance(outcome, Poisoned):
        return ALERT if outcome.by_store else logging.ERROR
    if isinstance(outcome, Retry):
        if outcome.misconfigured:
            return ALERT if outcome.by_store else logging.CRITICAL
        return logging.ERROR
    return logging.WARNING if trail.ahead_seconds else logging.INFO


def _fields(delivery: Delivery, trail: Trail, settlement: Settlement, way: Way) -> dict[str, object]:
    message, outcome = delivery.message, settlement.outcome
    fields: dict[str, object] = {
        "subscription": delivery.subscription,
        "topic": trail.topic,
        "messageId": message.message_id,
        "publishTime": format_rfc3339(message.publish_time_ns) if message.publish_time_ns else "",
        "deliveryAttempt": delivery.attempt or None,
        "handler": trail.handler,
        "event_type": trail.event_type,
        "schemaVersion": trail.schema_version,
        "outcome": outcome.name,
        **_answer(settlement, way),
        "write_kind": ",".join(type(change).__name__.lower() for change in trail.changes),
        "doc_path": ",".join(change.path for change in trail.changes),
        "idempotency_doc": trail.marks[-1].path if trail.marks else "",
    }
    if trail.ahead_seconds:
        fields["ahead_of_clock_seconds"] = round(trail.ahead_seconds, 3)
    if isinstance(outcome, Poisoned | Retry):
        fields |= _error_fields(trail, settlement)
    return fields


def _answer(settlement: Settlement, way: Way) -> dict[str, object]:
    if way is Way.PUSH:
        return {"http_status": settlement.status}
    return {"ack_action": "ack" if settlement.acks else "nack"}


def _error_fields(trail: Trail, settlement: Settlement) -> dict[str, object]:
    outcome = settlement.outcome
    assert isinstance(outcome, Poisoned | Retry)
    kind = type(trail.error).__name__ if trail.error else ""
    fields: dict[str, object] = {
        "error_type": kind if trail.classified else f"unclassified: {kind}",
        "error_code": error_code(trail.error) if trail.error else "",
        "error": outcome.error[:LONGEST_ERROR],
        "failure_reason": outcome.reason,
        "retryable": isinstance(outcome, Retry),
        "recorded": settlement.recorded,
        "record_error": trail.record_error[:LONGEST_ERROR],
    }
    if isinstance(outcome, Retry):
        fields |= {"misconfigured": outcome.misconfigured, "overloaded": outcome.overloaded}
    if trail.error and not trail.classified:
        # The frames without the error's own text, which is bounded and logged apart.
        fields["traceback"] = "".join(traceback.format_tb(trail.error.__traceback__)[-LOGGED_FRAMES:])
    return fields
