"""Edits of failed messages, and rows that come with their edits from another desk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.deadletter.failures import Edit, Recorded
from holdfast.deadletter.page_tokens import LARGEST_ID
from holdfast.model.failed_message import Content, FailedMessage, Revision
from holdfast.stores.desk.audit import append
from holdfast.stores.desk.failures import keep
from holdfast.stores.desk.recording import record
from holdfast.stores.desk.rows import read_json
from holdfast.stores.desk.statements import Ask, AskMany, Json, Operation, batch, portable

_INSERT = batch(
    """
    INSERT INTO failure_revisions (failure_id, number, data, attributes, ordering_key, author, comment, created_at_ns)
    SELECT :failure_id, :number, :data, :attributes, :ordering_key, :author, :comment, :created_at_ns
    FROM {given}
    """,
    failure_id="bigint",
    number="bigint",
    data="bytes",
    attributes="json",
    ordering_key="text",
    author="text",
    comment="text",
    created_at_ns="bigint",
)

# The edits of one row, oldest first.
_LIST = portable("""
    SELECT failure_id, number, data, CAST(attributes AS text), ordering_key, author, comment, created_at_ns
    FROM failure_revisions WHERE failure_id = :failure_id ORDER BY number
""")


def revise(edits: Sequence[Edit], now_ns: int) -> Operation[Sequence[bool]]:
    kept = yield from keep([edit.failure for edit in edits], now_ns)
    made = [edit for edit, is_kept in zip(edits, kept, strict=True) if is_kept]
    if made:
        yield AskMany(_INSERT, [_values(edit.failure.id, edit.revision) for edit in made])
    for edit in made:
        yield from append(edit.action)
    return kept


def restore(rows: Sequence[tuple[FailedMessage, Sequence[Revision]]]) -> Operation[Sequence[Recorded]]:
    recorded = yield from record([failure for failure, _ in rows])
    edits = [
        _values(row.id, revision)
        for row, (_, revisions) in zip(recorded, rows, strict=True)
        if row.is_new
        for revision in revisions
    ]
    if edits:
        yield AskMany(_INSERT, edits)
    return recorded


def revisions(failure_id: int) -> Operation[Sequence[Revision]]:
    if not 0 < failure_id <= LARGEST_ID:
        return []
    rows = yield Ask(_LIST, {"failure_id": failure_id})
    return [
        Revision(row_id, number, Content(data, read_json(attributes), ordering_key), author, comment, created_at_ns)
        for row_id, number, data, attributes, ordering_key, author, comment, created_at_ns in rows
    ]


def _values(failure_id: int, revision: Revision) -> Mapping[str, Any]:
    return {
        "failure_id": failure_id,
        "number": revision.number,
        "data": revision.content.data,
        "attributes": Json(dict(revision.content.attributes)),
        "ordering_key": revision.content.ordering_key,
        "author": revision.author,
        "comment": revision.comment,
        "created_at_ns": revision.created_at_ns,
    }
