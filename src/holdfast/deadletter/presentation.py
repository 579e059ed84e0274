"""What the desk has as JSON, the same in the API and on the command line. Failed messages become JSON nowhere else, so
that what is redacted is hidden everywhere."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.deadletter.audit import Entry, Verdict
from holdfast.deadletter.browsing import Found
from holdfast.deadletter.edits.document import PAYLOAD_FORMS, document_of
from holdfast.deadletter.grouping import FoundGroup
from holdfast.deadletter.groups import Comment, Group
from holdfast.deadletter.payload import read_payload
from holdfast.deadletter.quotes import HIDDEN
from holdfast.deadletter.redaction import Redaction
from holdfast.deadletter.reporting import Processed, Promise, Report
from holdfast.deadletter.statistics import ReasonStatistics, bounded_reasons
from holdfast.model.exact_json import dump_exact_json, plain
from holdfast.model.failed_message import Content, FailedMessage, Revision
from holdfast.model.json_pointer import format_pointer
from holdfast.model.timestamps import format_rfc3339


def failure_to_json(
    failure: FailedMessage, payload: bool, redaction: Redaction, edits: Sequence[Revision] = ()
) -> dict[str, Any]:
    """`payload` adds what was carried: `data` in base64, `text` if it is UTF-8, `json` if it is JSON. What is hidden
    is named by `redacted`, and a payload that has some of it is shown without `data`. The error may quote `edits` too:
    they were sent since."""
    return {
        "id": failure.id,
        "messageId": failure.message_id,
        "subscription": failure.subscription,
        "sourceTopic": failure.source_topic,
        "failureReason": failure.failure_reason,
        "failureClass": str(failure.failure_class),
        "group": failure.fingerprint,
        "errorDetails": redaction.text(failure.error_details, failure.content, *(edit.content for edit in edits)),
        "retryCount": failure.retry_count,
        "status": str(failure.status),
        "deliveryAttempt": failure.delivery_attempt,
        "publishTime": _time(failure.publish_time_ns),
        "createdAt": _time(failure.created_at_ns),
        "retryAt": _time(failure.retry_at_ns),
        "retrySuccessAt": _time(failure.retry_success_at_ns),
        "failedAt": _time(failure.failed_at_ns),
        "sentAt": _time(failure.sent_at_ns),
        "sentMessageId": failure.sent_message_id,
        "generation": failure.generation,
        "originId": failure.origin_id or None,
        "replayId": failure.replay_id or None,
        "revision": failure.revision,
        "legalHold": failure.legal_hold,
        "version": failure.version,
        **content_to_json(failure.content, payload, redaction),
    }


def content_to_json(content: Content, payload: bool, redaction: Redaction) -> dict[str, Any]:
    hidden = redaction.hidden_paths(document_of(content)) if redaction else []
    if not hidden:
        told = {"attributes": dict(content.attributes), "orderingKey": content.ordering_key}
        return told | payload_to_json(content.data) if payload else told
    shown = redaction.document(document_of(content))
    told = {"attributes": shown["attributes"], "orderingKey": shown["orderingKey"]}
    told["redacted"] = [format_pointer(path) for path in hidden]
    if not payload:
        return told
    hides_payload = any(path[0] in PAYLOAD_FORMS for path in hidden)
    return told | (_hidden_payload(shown) if hides_payload else payload_to_json(content.data))


def _hidden_payload(shown: Mapping[str, Any]) -> dict[str, Any]:
    if "json" in shown:
        return {"text": dump_exact_json(shown["json"]), "json": plain(shown["json"])}
    return {"text": HIDDEN}


def payload_to_json(data: bytes) -> dict[str, Any]:
    readable = read_payload(data)
    shown: dict[str, Any] = {"data": base64.b64encode(data).decode()}
    if readable.text is not None:
        shown["text"] = readable.text
    if readable.is_json:
        shown["json"] = readable.json
    return shown


def revision_to_json(revision: Revision, redaction: Redaction, *others: Content) -> dict[str, Any]:
    """Without what it holds: that is shown with the edit itself."""
    return {
        "number": revision.number,
        "author": revision.author,
        "comment": redaction.text(revision.comment, revision.content, *others),
        "createdAt": _time(revision.created_at_ns),
    }


def found_to_json(found: Found, redaction: Redaction) -> dict[str, Any]:
    contents = [found.failure.content, *(revision.content for revision in found.revisions)]
    return failure_to_json(found.failure, True, redaction, found.revisions) | {
        "revisions": [revision_to_json(revision, redaction, *contents) for revision in found.revisions],
        "lineage": list(found.lineage),
    }


def group_to_json(group: Group) -> dict[str, Any]:
    return {
        "fingerprint": group.fingerprint,
        "subscription": group.subscription,
        "failureReason": group.failure_reason,
        "failureClass": str(group.failure_class),
        "example": group.example,
        "state": str(group.state),
        "assignee": group.assignee,
        "count": group.count,
        "waiting": group.waiting,
        "firstSeen": _time(group.first_seen_ns),
        "lastSeen": _time(group.last_seen_ns),
        "version": group.version,
    }


def found_group_to_json(found: FoundGroup) -> dict[str, Any]:
    hours = sorted(found.counts_by_hour.items())
    return group_to_json(found.group) | {
        "countsByHour": [{"hour": format_rfc3339(hour), "count": count} for hour, count in hours],
        "comments": [comment_to_json(comment) for comment in found.comments],
    }


def comment_to_json(comment: Comment) -> dict[str, Any]:
    return {"author": comment.author, "text": comment.text, "createdAt": _time(comment.created_at_ns)}


def entry_to_json(entry: Entry) -> dict[str, Any]:
    return {
        "number": entry.number,
        "at": _time(entry.action.at_ns),
        "actor": entry.action.actor,
        "action": entry.action.name,
        "target": entry.action.target,
        "details": dict(entry.action.details),
        "previous": entry.previous,
        "hash": entry.hash,
    }


def verdict_to_json(verdict: Verdict) -> dict[str, Any]:
    return {
        "ok": not verdict.problem,
        "entry": verdict.number,
        "head": verdict.head,
        "problem": verdict.problem,
    }


def report_to_json(report: Report) -> dict[str, Any]:
    statistics = report.statistics
    return {
        "since": _time(report.since_ns),
        "until": _time(report.until_ns),
        "failed": report.failed,
        "byStatus": {str(status): count for status, count in statistics.by_status.items()},
        "byReason": [_reason_to_json(reason, report.failed) for reason in bounded_reasons(statistics.by_reason)],
        "retries": {
            "ended": statistics.retried,
            "succeeded": statistics.retry_succeeded,
            "successRate": report.retry_success_rate,
            "averageBeforeSuccess": report.average_retries_before_success,
        },
        "medianRecoverySeconds": statistics.median_recovery_seconds,
        "medianDetectionSeconds": statistics.median_detection_seconds,
        "p95DetectionSeconds": statistics.p95_detection_seconds,
        "reviewQueue": report.review_queue,
        "largestQueue": statistics.largest_queue,
        "lost": report.lost,
        "lossRate": report.loss_rate,
        "processed": _processed_to_json(report.processed),
        "sla": [_promise_to_json(promise) for promise in report.promises],
    }


def _reason_to_json(reason: ReasonStatistics, failed: int) -> dict[str, Any]:
    return {
        "reason": reason.reason,
        "count": reason.count,
        "share": reason.count / failed,
        "averageRetries": reason.retries / reason.count,
        "recovered": reason.recovered,
        "successRate": reason.recovered / reason.count,
    }


def _processed_to_json(processed: Processed | None) -> dict[str, Any] | None:
    if processed is None:
        return None
    return {
        "by": processed.by,
        "since": _time(processed.since_ns),
        "total": processed.total,
        "failed": processed.failed,
        "failureRate": processed.failure_rate,
        "lost": processed.lost,
    }


def _promise_to_json(promise: Promise) -> dict[str, Any]:
    return {
        "name": promise.name,
        "target": promise.target,
        "moreIsBetter": promise.more_is_better,
        "unit": promise.unit,
        "actual": promise.actual,
        "met": promise.is_kept,
    }


def _time(when_ns: int | None) -> str | None:
    """0 is how a time that nobody told is kept."""
    return format_rfc3339(when_ns) if when_ns else None
