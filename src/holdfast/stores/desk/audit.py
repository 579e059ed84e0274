"""The audit trail. An entry is appended last in its transaction: appenders wait for each other, one at a time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from holdfast.deadletter.audit import NOTHING_BEFORE, Action, AuditFilter, AuditPage, Entry, chained, names_failure
from holdfast.deadletter.page_tokens import last_id_given, token_after
from holdfast.stores.desk.statements import Ask, Operation, Row, Sql, either, portable

# One appender at a time. SQLite has only one writer as it is. The number is ours, made up.
_LOCK = either("SELECT 1", "SELECT pg_advisory_xact_lock(hashtextextended(current_schema(), 4865464403))")

# The end of the chain.
_LAST = portable("SELECT number, hash FROM audit_entries ORDER BY number DESC LIMIT 1")

_INSERT = portable("""
    INSERT INTO audit_entries (number, at_ns, actor, name, target, details, previous, hash)
    VALUES (:number, :at_ns, :actor, :name, :target, :details, :previous, :hash)
""")

# As bytes, because what was tampered with need not be text any more.
_SELECT = either(
    """SELECT number, at_ns, CAST(actor AS blob), CAST(name AS blob), CAST(target AS blob), CAST(details AS blob),
        CAST(previous AS blob), CAST(hash AS blob) FROM audit_entries WHERE true""",
    "SELECT number, at_ns, actor, name, target, details, previous, hash FROM audit_entries WHERE true",
)
_ACTOR = portable("AND actor = :actor")
_NAME = portable("AND name = :name")
_TARGET = portable("AND target = :target")
_TARGET_OR_MANY = portable("AND target IN (:target, 'failures')")
_SINCE = portable("AND at_ns >= :since")
_UNTIL = portable("AND at_ns < :until")
_NEWEST_FIRST = portable("AND number < :before ORDER BY number DESC LIMIT :limit")
_OLDEST_FIRST = portable("AND number > :after ORDER BY number LIMIT :limit")


def append(action: Action) -> Operation[Entry]:
    yield Ask(_LOCK)
    last = yield Ask(_LAST)
    number, previous = last[0] if last else (0, NOTHING_BEFORE)
    entry = chained(number + 1, action, previous)
    values = {
        "number": entry.number,
        "at_ns": action.at_ns,
        "actor": action.actor,
        "name": action.name,
        "target": action.target,
        "details": json.dumps(dict(action.details), sort_keys=True),
        "previous": entry.previous,
        "hash": entry.hash,
    }
    yield Ask(_INSERT, values)
    return entry


def list_entries(wanted: AuditFilter, page_size: int, page_token: str) -> Operation[AuditPage]:
    one = _failure_meant(wanted.target)
    conditions: dict[str, tuple[Sql, Any]] = {
        "actor": (_ACTOR, wanted.actor or None),
        "name": (_NAME, wanted.name or None),
        "target": (_TARGET_OR_MANY if one else _TARGET, wanted.target or None),
        "since": (_SINCE, wanted.since_ns),
        "until": (_UNTIL, wanted.until_ns),
    }
    query = _SELECT
    values: dict[str, Any] = {"before": last_id_given(page_token), "limit": page_size + 1}
    for name, (condition, value) in conditions.items():
        if value is not None:
            query, values[name] = query + condition, value
    found: list[Entry] = []
    while len(found) <= page_size:
        rows = yield Ask(query + _NEWEST_FIRST, values)
        entries = [_entry(row) for row in rows]
        found += [entry for entry in entries if not one or names_failure(entry.action, one)]
        if len(rows) <= page_size:
            break
        values["before"] = entries[-1].number
    page = found[:page_size]
    return AuditPage(page, token_after(page[-1].number) if len(found) > page_size else "")


def _failure_meant(target: str) -> int:
    """0 where the target is no failed message."""
    number = target.removeprefix("failures/")
    return int(number) if number != target and number.isascii() and number.isdecimal() and len(number) <= 19 else 0


def entries_after(number: int, limit: int) -> Operation[Sequence[Entry]]:
    rows = yield Ask(_SELECT + _OLDEST_FIRST, {"after": number, "limit": limit})
    return [_entry(row) for row in rows]


def _entry(row: Row) -> Entry:
    number, at_ns, *texts = row
    actor, name, target, details, previous, entry_hash = map(_text, texts)
    return Entry(number, Action(actor, name, target, _details(details), at_ns), previous, entry_hash)


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _details(text: str) -> dict[str, Any]:
    """What cannot be read is given as it is: its hash will not be right."""
    try:
        details = json.loads(text)
    except ValueError:
        details = None
    return details if isinstance(details, dict) else {"unreadable": text}
