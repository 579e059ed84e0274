"""Replays as JSON, the same in the API and on the command line."""

from __future__ import annotations

from typing import Any

from holdfast.deadletter.replay.jobs import Item, ItemState
from holdfast.deadletter.replay.options import options_to_json
from holdfast.deadletter.replay.plan import Plan
from holdfast.deadletter.replay.service import Progress
from holdfast.deadletter.replay.shadow import ShadowReport, WouldFail
from holdfast.deadletter.selecting import selection_to_json
from holdfast.model.timestamps import format_rfc3339


def progress_to_json(progress: Progress) -> dict[str, Any]:
    job = progress.job
    return {
        "id": job.id,
        "state": str(job.state),
        "why": job.why,
        "trouble": progress.trouble,
        "selection": selection_to_json(job.selection),
        "options": options_to_json(job.options),
        "actor": job.actor,
        "total": job.total,
        "counts": {str(state): progress.counts.get(state, 0) for state in ItemState},
        "ratePerSecond": round(progress.rate, 1),
        "secondsLeft": None if progress.seconds_left is None else round(progress.seconds_left, 1),
        "createdAt": _time(job.created_at_ns),
        "startedAt": _time(job.started_at_ns),
        "endedAt": _time(job.ended_at_ns),
        "version": job.version,
    }


def item_to_json(item: Item) -> dict[str, Any]:
    return {
        "position": item.position,
        "failureId": item.failure_id,
        "state": str(item.state),
        "messageId": item.message_id,
        "note": item.note,
        "sentAt": _time(item.sent_at_ns),
    }


def plan_to_json(plan: Plan) -> dict[str, Any]:
    return {
        "selected": plan.selected,
        "toSend": plan.to_send,
        "options": options_to_json(plan.options),
        "seconds": None if plan.seconds is None else round(plan.seconds, 1),
        "groups": [
            {"group": cause.fingerprint, "subscription": cause.subscription, "reason": cause.reason, "count": count}
            for cause, count in plan.groups.most_common()
        ],
        "destinations": [{"name": name, "count": count} for name, count in plan.destinations.most_common()],
        "skipped": [{"why": why, "count": count} for why, count in plan.skipped.most_common()],
    }


def shadow_report_to_json(report: ShadowReport) -> dict[str, Any]:
    groups = sorted(report.groups.values(), key=lambda group: -group.count)
    return {
        "wouldPass": report.would_pass,
        "wouldFail": report.would_fail,
        "unknown": [{"why": why, "count": count} for why, count in report.unknown.most_common()],
        "groups": [_group_to_json(group) for group in groups],
        "documents": [{"collection": name, "count": count} for name, count in report.documents.most_common()],
        "sampleDocuments": report.samples,
    }


def _group_to_json(group: WouldFail) -> dict[str, Any]:
    return {
        "fingerprint": group.fingerprint,
        "count": group.count,
        "example": group.example,
        "failureIds": group.failure_ids,
    }


def _time(when_ns: int | None) -> str | None:
    return format_rfc3339(when_ns) if when_ns else None
