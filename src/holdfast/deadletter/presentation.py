"""What the desk has as JSON, the same in the API and on the command line."""

from __future__ import annotations

import base64
from typing import Any

from holdfast.deadletter.audit import Entry, Verdict
from holdfast.deadletter.browsing import Found
from holdfast.deadletter.grouping import FoundGroup
from holdfast.deadletter.groups import Comment, Group
from holdfast.deadletter.payload import read_payload
from holdfast.deadletter.reporting import Processed, Promise, Report
from holdfast.deadletter.statistics import ReasonStatistics
from holdfast.model.failed_message import FailedMessage, Revision
from holdfast.model.timestamps import format_rfc3339


def failure_to_json(failure: FailedMessage, payload: bool) -> dict[str, Any]:
    """`payload` adds what was carried: `data` in base64, `text` if it is UTF-8, `json` if it is JSON."""
    shown = {
        "id": failure.id,
        "messageId": failure.message_id,
        "subscription": failure.subscription,
        "sourceTopic": failure.source_topic,
        "failureReason": failure.failure_reason,
        "failureClass": str(failure.failure_class),
        "group": failure.fingerprint,
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
        "failedAt": _time(failure.failed_at_ns),
        "sentAt": _time(failure.sent_at_ns),
        "sentMessageId": failure.sent_message_id,
        "generation": failure.generation,
        "originId": failure.origin_id or None,
        "replayId": failure.replay_id or None,
        "revision": failure.revision,
        "legalHold": failure.legal_hold,
        "version": failure.version,
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


def revision_to_json(revision: Revision) -> dict[str, Any]:
    """Without what it holds: that is shown with the edit itself."""
    return {
        "number": revision.number,
        "author": revision.author,
        "comment": revision.comment,
        "createdAt": _time(revision.created_at_ns),
    }


def found_to_json(found: Found) -> dict[str, Any]:
    return failure_to_json(found.failure, payload=True) | {
        "revisions": [revision_to_json(revision) for revision in found.revisions],
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
        "byReason": [_reason_to_json(reason, report.failed) for reason in statistics.by_reason],
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
