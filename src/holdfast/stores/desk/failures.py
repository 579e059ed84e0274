"""Failed messages: looked up, listed, changed and erased."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from holdfast.deadletter.audit import Action, id_ranges
from holdfast.deadletter.failures import Page, Retention
from holdfast.deadletter.page_tokens import LARGEST_ID, last_id_given, token_after
from holdfast.deadletter.selection import Selection
from holdfast.errors import Conflict
from holdfast.model.failed_message import FailedMessage, FailureStatus
from holdfast.stores.desk.audit import append
from holdfast.stores.desk.rows import changing_columns, load, load_found, to_microsecond
from holdfast.stores.desk.selection import Selected, selected
from holdfast.stores.desk.statements import Ask, AskMany, Operation, Sql, batch, either, portable

# What is selected, as ids and sizes of payloads.
_SELECT_IDS = "SELECT {key} AS id, length(f.data) AS size"
_NEWEST_FIRST = "AND {key} < :before ORDER BY {key} DESC LIMIT :limit"
_OLDEST_FIRST = "AND {key} > :after ORDER BY {key} LIMIT :limit"

# SQLite has only one writer as it is.
_FOR_UPDATE = either("", "FOR UPDATE OF f")

# How many are selected, counted no further than asked for.
_COUNT_BEGIN = portable("SELECT count(*) FROM (SELECT 1")
_COUNT_END = portable("LIMIT :at_most) AS found")

# A failure and those that followed from sending it again.
_LINEAGE = portable("""
    SELECT id FROM failed_messages WHERE id = :origin_id
    UNION SELECT id FROM failed_messages WHERE origin_id = :origin_id AND origin_id <> 0
    ORDER BY id LIMIT :limit
""")

# What failed under these ids, and what they were sent again for.
_OF_MESSAGES = portable("""
    SELECT id FROM failed_messages WHERE message_id IN list(:ids)
    UNION SELECT id FROM failed_messages WHERE sent_message_id <> '' AND sent_message_id IN list(:ids)
    UNION SELECT failure_id FROM replay_items WHERE message_id <> '' AND message_id IN list(:ids)
    ORDER BY id LIMIT :limit
""")

# The retry queue, the longest due first. People's own SQL may have given a time to what is out.
_DUE = portable("""
    SELECT id, length(data) AS size, retry_at AS due_at FROM failed_messages
    WHERE status = 'queued_for_retry' AND retry_at <= ts(:now) AND sent_at IS NULL
    ORDER BY retry_at, id LIMIT :limit
""")

# Retries whose end is not known.
_OUT = portable("""
    SELECT id, length(data) AS size FROM failed_messages
    WHERE status = 'queued_for_retry' AND sent_at IS NOT NULL AND id > :after ORDER BY id LIMIT :limit
""")

# Keeps what can change of rows that nobody else has changed.
_SAVE = batch(
    """
    UPDATE failed_messages SET
        changed_at = CASE WHEN failed_messages.status = :status THEN failed_messages.changed_at ELSE ts(:now) END,
        error_details = :error_details, retry_count = :retry_count, status = :status, retry_at = ts(:retry_at),
        retry_success_at = ts(:retry_success_at), revision = :revision, legal_hold = :legal_hold,
        sent_at = ts(:sent_at), sent_message_id = :sent_message_id, replay_id = :replay_id,
        version = failed_messages.version + 1
    FROM {given} WHERE failed_messages.id = :id AND failed_messages.version = :version
    RETURNING failed_messages.id
    """,
    now="bigint",
    id="bigint",
    version="bigint",
    error_details="text",
    retry_count="bigint",
    status="text",
    retry_at="bigint",
    retry_success_at="bigint",
    revision="bigint",
    legal_hold="boolean",
    sent_at="bigint",
    sent_message_id="text",
    replay_id="bigint",
)

# Legal hold on, or off, where it is not so already.
_HOLD = portable("""
    UPDATE failed_messages SET legal_hold = :legal_hold, version = version + 1
    WHERE id IN list(:ids) AND legal_hold <> :legal_hold RETURNING id
""")

# Triggers see to everything that belongs to the rows.
_ERASE = portable("DELETE FROM failed_messages WHERE id IN list(:ids) AND NOT legal_hold RETURNING id")

# Rows that ended long ago.
_PAST_ENDED = portable("""
    SELECT f.id FROM failed_messages AS f
    WHERE f.status IN ('retry_success', 'replayed') AND f.status = :status AND f.changed_at < ts(:before)
        AND NOT f.legal_hold ORDER BY f.changed_at LIMIT :limit
""")

# Rows that failed for good long ago. What was changed before a time was also created before it, and that has an index.
_PAST_FAILED = portable("""
    SELECT f.id FROM failed_messages AS f
    WHERE f.created_at < ts(:before) AND f.changed_at < ts(:before) AND f.status = :status
        AND NOT f.legal_hold ORDER BY f.created_at LIMIT :limit
""")

# Counters that count nothing any more.
_FORGET_COUNTS = portable("DELETE FROM failure_counts WHERE count = 0 AND retries = 0 AND retried = 0")

_LONGEST_LINEAGE = 100

# Ranges of ids that one entry of the audit trail names: some 15 KB.
_RANGES_AN_ENTRY = 1000

# Rows changed by one statement, so that none runs into a database's limit of time.
_AT_ONCE = 5000


def get(failure_id: int) -> Operation[FailedMessage | None]:
    if not 0 < failure_id <= LARGEST_ID:  # no database can be asked for it
        return None
    found = yield from load([failure_id])
    return found[0] if found else None


def list_failures(selection: Selection, page_size: int, page_token: str) -> Operation[Page]:
    found = selected(selection)
    # One more than asked for tells whether there is a next page.
    limits = {"before": last_id_given(page_token), "limit": page_size + 1}
    rows, how_many = yield from load_found(newest_first(found), "id DESC", found.values | limits)
    page = rows[:page_size]
    return Page(page, token_after(page[-1].id) if len(page) < how_many else "")


def newest_first(found: Selected) -> Sql:
    return portable(_SELECT_IDS.format(key=found.key)) + found.sql + portable(_NEWEST_FIRST.format(key=found.key))


def walk(selection: Selection, after_id: int, limit: int) -> Operation[Sequence[FailedMessage]]:
    found = selected(selection)
    rows, _ = yield from load_found(_oldest_first(found), "id", found.values | {"after": after_id, "limit": limit})
    return rows


def count(selection: Selection, at_most: int) -> Operation[int]:
    found = selected(selection)
    [(counted,)] = yield Ask(_COUNT_BEGIN + found.sql + _COUNT_END, found.values | {"at_most": at_most})
    return int(counted)


def lineage(origin_id: int) -> Operation[Sequence[int]]:
    if not 0 < origin_id <= LARGEST_ID:
        return []
    rows = yield Ask(_LINEAGE, {"origin_id": origin_id, "limit": _LONGEST_LINEAGE})
    return [failure_id for (failure_id,) in rows]


def of_messages(message_ids: Sequence[str], limit: int) -> Operation[Sequence[int]]:
    storable = [message_id for message_id in message_ids if "\0" not in message_id]
    return _ids_of((yield Ask(_OF_MESSAGES, {"ids": storable, "limit": limit})))


def due_for_retry(now_ns: int, limit: int) -> Operation[Sequence[FailedMessage]]:
    rows, _ = yield from load_found(_DUE, "due_at, id", {"now": now_ns, "limit": limit})
    return rows


def out_on_retry(limit: int, after_id: int) -> Operation[Sequence[FailedMessage]]:
    rows, _ = yield from load_found(_OUT, "id", {"after": after_id, "limit": limit})
    return rows


def save(changed: Sequence[FailedMessage], action: Action | None, now_ns: int) -> Operation[Sequence[bool]]:
    kept = yield from keep(changed, now_ns)
    if action is not None and any(kept):
        yield from append(action)
    return kept


def keep(changed: Sequence[FailedMessage], now_ns: int) -> Operation[Sequence[bool]]:
    if not changed:
        return []
    rows = [
        changing_columns(failure) | {"id": failure.id, "version": failure.version, "now": to_microsecond(now_ns)}
        for failure in changed
    ]
    kept = {failure_id for (failure_id,) in (yield AskMany(_SAVE, rows))}
    return [failure.id in kept for failure in changed]


def hold(selection: Selection, on: bool, action: Action) -> Operation[int]:
    changed: list[int] = []
    after = 0
    while ids := (yield from _selected_ids(selection, after)):
        changed += _ids_of((yield Ask(_HOLD, {"ids": ids, "legal_hold": on})))
        after = ids[-1]
    yield from _append_naming(action, changed)
    return len(changed)


def erase(selection: Selection, action: Action, expected: int | None) -> Operation[int]:
    erased: list[int] = []
    after = 0
    while ids := (yield from _selected_ids(selection, after)):
        erased += _ids_of((yield Ask(_ERASE, {"ids": ids})))
        after = ids[-1]
    if expected is not None and len(erased) != expected:
        raise Conflict(f"{len(erased)} failed messages would be erased by now, and not {expected}")  # undoes it
    yield from _append_naming(action, erased)
    return len(erased)


def clean_up(retention: Retention, action: Action, limit: int) -> Operation[int]:
    past = (
        (_PAST_ENDED, FailureStatus.RETRY_SUCCESS, retention.retry_success_before_ns),
        (_PAST_ENDED, FailureStatus.REPLAYED, retention.replayed_before_ns),
        (_PAST_FAILED, FailureStatus.PERMANENT_FAILURE, retention.permanent_failure_before_ns),
    )
    erased: list[int] = []
    for query, status, before_ns in past:
        if before_ns is None or len(erased) >= limit:
            continue
        left = {"status": status.value, "before": before_ns, "limit": limit - len(erased)}
        rows = yield Ask(query + _FOR_UPDATE, left)
        erased += _ids_of((yield Ask(_ERASE, {"ids": _ids_of(rows)})))
    if erased:
        yield Ask(_FORGET_COUNTS)
    yield from _append_naming(action, erased)
    return len(erased)


def _selected_ids(selection: Selection, after: int) -> Operation[list[int]]:
    """To be changed: nobody else changes them meanwhile."""
    found = selected(selection)
    limits = {"after": after, "limit": _AT_ONCE}
    rows = yield Ask(_oldest_first(found) + _FOR_UPDATE, found.values | limits)
    return [failure_id for failure_id, _ in rows]


def _oldest_first(found: Selected) -> Sql:
    return portable(_SELECT_IDS.format(key=found.key)) + found.sql + portable(_OLDEST_FIRST.format(key=found.key))


def _ids_of(rows: Iterable[tuple[Any, ...]]) -> list[int]:
    return [failure_id for (failure_id,) in rows]


def _append_naming(action: Action, ids: Sequence[int]) -> Operation[None]:
    """Which they were, in as many entries as that takes. Nothing is told of what changed nothing."""
    ranges = id_ranges(ids)
    for first in range(0, len(ranges), _RANGES_AN_ENTRY):
        named = ",".join(ranges[first : first + _RANGES_AN_ENTRY])
        yield from append(replace(action, details={**action.details, "count": len(ids), "failures": named}))
