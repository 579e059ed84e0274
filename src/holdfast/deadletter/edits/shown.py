"""Edits as JSON: revisions, differences and findings, without what is redacted. Numbers stay exact
(model/exact_json.py writes them)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from holdfast.deadletter.edits.checks import Complaint, Finding
from holdfast.deadletter.edits.difference import differences
from holdfast.deadletter.edits.document import document_of
from holdfast.deadletter.presentation import content_to_json, revision_to_json
from holdfast.deadletter.redaction import Redaction
from holdfast.model.failed_message import Content, Revision
from holdfast.model.json_pointer import ABSENT, format_pointer


def revisions_to_json(revisions: Sequence[Revision], redaction: Redaction) -> list[dict[str, Any]]:
    """All of one message, whole. A comment may quote any of them."""
    contents = [revision.content for revision in revisions]
    return [
        revision_to_json(revision, redaction, *contents) | content_to_json(revision.content, True, redaction)
        for revision in revisions
    ]


def differences_to_json(before: Content, after: Content, redaction: Redaction) -> list[dict[str, Any]]:
    old, new = document_of(before), document_of(after)
    return [
        {
            "path": format_pointer(found.path),
            "kind": found.kind,
            **({} if found.old is ABSENT else {"old": redaction.value(old, found.path, found.old)}),
            **({} if found.new is ABSENT else {"new": redaction.value(new, found.path, found.new)}),
        }
        for found in differences(old, new)
    ]


def findings_to_json(findings: Iterable[Finding], redaction: Redaction, *contents: Content) -> list[dict[str, Any]]:
    """`contents` are what they are about: what is redacted of these may be quoted."""
    return [
        {
            "check": finding.check,
            "ok": None if finding.skipped else not finding.complaints,
            "skipped": redaction.text(finding.skipped, *contents),
            "complaints": [_complaint_to_json(complaint, redaction, contents) for complaint in finding.complaints],
        }
        for finding in findings
    ]


def _complaint_to_json(complaint: Complaint, redaction: Redaction, contents: Sequence[Content]) -> dict[str, str]:
    return {
        "path": complaint.path,
        "expected": redaction.text(complaint.expected, *contents),
        "actual": redaction.text(complaint.actual, *contents),
    }
