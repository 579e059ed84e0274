"""A failed message as a row of `failed_messages`, and back."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.deadletter.payload import read_payload
from holdfast.model.failed_message import FailedMessage, FailureClass, FailureStatus, bounded_error_details
from holdfast.stores.desk.statements import Ask, Json, Operation, PayloadJson, Row, Sql, portable

# Everything that makes up a FailedMessage; _failure takes the columns in this order.
_COLUMNS = """
    id, message_id, subscription, source_topic, failure_reason, error_details, data,
    CAST(attributes AS text), ordering_key, publish_time, delivery_attempt, retry_count, status,
    ns(created_at), ns(failed_at), ns(retry_at), ns(retry_success_at), failure_class, fingerprint, generation,
    origin_id, revision, legal_hold, ns(sent_at), sent_message_id, replay_id, version
"""

# Rows by their ids, in no order.
_LOAD = portable("SELECT" + _COLUMNS + "FROM failed_messages WHERE id IN list(:ids)")

# Whole rows of what a statement in the middle finds as (id, size), as far as their payloads fit into one page. One
# statement for all of it sees one state, and asks the database once.
_WHOLE_BEGIN = portable("WITH found AS (")
_WHOLE_MIDDLE = """
    ), fitting AS (
        SELECT id AS found_id, row_number() OVER (ORDER BY {order}) AS place, count(*) OVER () AS how_many,
            sum(size) OVER (ORDER BY {order} ROWS UNBOUNDED PRECEDING) - size AS before_it
        FROM found
    )
"""
_WHOLE_END = portable(
    "SELECT" + _COLUMNS + ", how_many FROM fitting JOIN failed_messages ON id = found_id "
    "WHERE before_it < :largest_page_bytes ORDER BY place"
)

# How much of a page may be payloads: each may be 10 MB, and a page of a thousand must fit into memory. The one that
# passes it is the last.
LARGEST_PAGE_BYTES = 64 * 1024 * 1024

# A longer value of an attribute is searched for by its beginning and its hash: index entries have a limit.
_LONGEST_INDEXED = 500


def within_bytes(found: Sequence[Row]) -> Sequence[int]:
    """Of rows (id, payload size) the first ids whose payloads fit into a page, and never none."""
    ids: list[int] = []
    total = 0
    for failure_id, size in found:
        total += size
        if ids and total > LARGEST_PAGE_BYTES:
            break
        ids.append(failure_id)
    return ids


def whole(found: Sql, order: str) -> Sql:
    """`order` is that of `found`, by its columns."""
    return _WHOLE_BEGIN + found + portable(_WHOLE_MIDDLE.format(order=order)) + _WHOLE_END


def load_found(found: Sql, order: str, values: Mapping[str, Any]) -> Operation[tuple[Sequence[FailedMessage], int]]:
    """The rows, and how many were found. There are fewer rows when they are large."""
    rows = yield Ask(whole(found, order), {**values, "largest_page_bytes": LARGEST_PAGE_BYTES})
    return [_failure(row[:-1]) for row in rows], rows[0][-1] if rows else 0


def load(ids: Sequence[int]) -> Operation[Sequence[FailedMessage]]:
    """In the order of the ids; what is gone is left out."""
    if not ids:
        return []
    by_id = {row[0]: row for row in (yield Ask(_LOAD, {"ids": list(ids)}))}
    return [_failure(by_id[failure_id]) for failure_id in ids if failure_id in by_id]


def _failure(row: Row) -> FailedMessage:
    (
        failure_id,
        message_id,
        subscription,
        source_topic,
        failure_reason,
        error_details,
        data,
        attributes,
        ordering_key,
        publish_time,
        delivery_attempt,
        retry_count,
        status,
        created_at,
        failed_at,
        retry_at,
        retry_success_at,
        failure_class,
        fingerprint,
        generation,
        origin_id,
        revision,
        legal_hold,
        sent_at,
        sent_message_id,
        replay_id,
        version,
    ) = row
    return FailedMessage(
        message_id=message_id,
        subscription=subscription,
        source_topic=source_topic,
        failure_reason=failure_reason,
        error_details=error_details,
        data=data,
        attributes=read_json(attributes),
        ordering_key=ordering_key,
        publish_time_ns=publish_time,
        delivery_attempt=delivery_attempt,
        retry_count=retry_count,
        status=FailureStatus(status),
        created_at_ns=created_at,
        failed_at_ns=failed_at or 0,
        retry_at_ns=retry_at,
        retry_success_at_ns=retry_success_at,
        failure_class=FailureClass(failure_class),
        fingerprint=fingerprint,
        generation=generation,
        origin_id=origin_id,
        revision=revision,
        legal_hold=bool(legal_hold),
        sent_at_ns=sent_at,
        sent_message_id=sent_message_id,
        replay_id=replay_id,
        version=version,
        id=failure_id,
    )


def changing_columns(failure: FailedMessage) -> dict[str, Any]:
    """What `save` keeps."""
    return {
        "error_details": bounded_error_details(failure.error_details),
        "retry_count": failure.retry_count,
        "status": failure.status.value,
        "retry_at": to_microsecond(failure.retry_at_ns),
        "retry_success_at": to_microsecond(failure.retry_success_at_ns),
        "revision": failure.revision,
        "legal_hold": failure.legal_hold,
        "sent_at": to_microsecond(failure.sent_at_ns),
        "sent_message_id": failure.sent_message_id,
        "replay_id": failure.replay_id,
    }


def all_columns(failure: FailedMessage) -> Mapping[str, Any]:
    subscription, message_id, content_digest = failure.key
    ended_at = failure.created_at_ns if failure.retry_success_at_ns is None else failure.retry_success_at_ns
    return changing_columns(failure) | {
        "message_id": message_id,
        "subscription": subscription,
        "content_digest": content_digest,
        "source_topic": failure.source_topic,
        "failure_reason": failure.failure_reason,
        "original_message": PayloadJson(failure.data),
        "data": failure.data,
        "data_is_text": is_text(failure.data),
        "attributes": Json(dict(failure.attributes)),
        "ordering_key": failure.ordering_key,
        "publish_time": failure.publish_time_ns,
        "delivery_attempt": failure.delivery_attempt,
        "created_at": to_microsecond(failure.created_at_ns),
        "failed_at": to_microsecond(failure.failed_at_ns) or None,
        "failure_class": failure.failure_class.value,
        "fingerprint": failure.fingerprint,
        "generation": failure.generation,
        "origin_id": failure.origin_id,
        "changed_at": to_microsecond(ended_at),
    }


def to_microsecond(time_ns: int | None) -> int | None:
    """As PostgreSQL keeps times, so that both databases give back the same."""
    return None if time_ns is None else time_ns // 1000 * 1000


def is_text(data: bytes) -> bool:
    """As PostgreSQL understands it, whose text has no NUL."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return b"\x00" not in data


def read_json(text: str) -> Any:
    # Not strict: where a database cannot keep a NUL as an escape, it comes as the character itself.
    return json.loads(text, strict=False)


def indexed_value(value: str) -> str:
    """An attribute's value as the index of attributes has it."""
    if len(value) <= _LONGEST_INDEXED:
        return value
    return f"{value[:_LONGEST_INDEXED]}#{hashlib.sha256(value.encode()).hexdigest()}"


def original_message(data: bytes) -> str:
    """For people and their SQL, and never read back: the payload where it is JSON, else {"base64": "…"}."""
    readable = read_payload(data)
    if readable.is_json and readable.text is not None:
        return readable.text  # as it was sent: written anew, long numbers and repeated keys would change
    return in_base64(data)


def in_base64(data: bytes) -> str:
    return json.dumps({"base64": base64.b64encode(data).decode()})
