"""Failed messages in one SQLite file: the table `failed_messages`, open to people's own SQL as well."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from holdfast.deadletter.failures import Filter, Page
from holdfast.deadletter.page_tokens import LARGEST_ID, last_id_given, token_after
from holdfast.deadletter.payload import read_payload
from holdfast.errors import FailedPrecondition
from holdfast.model.failed_message import FailedMessage, FailureStatus, bounded_error_details
from holdfast.stores.sqlite.database import Database, ReadOnlyDatabase, Schema

# Times are whole nanoseconds since 1970, UTC: they sort as numbers and keep all that Pub/Sub tells.
#
# AUTOINCREMENT: an id is never given twice, so one that a person noted never comes to mean another message.
#
# UNIQUE is not over message_id alone, because every subscription gets its own copy of a message: one message can
# fail in two of them, and that is two failures. FailedMessage.key says why the content is part of it.
#
# `data` is the payload byte for byte: JSON cannot hold any bytes, and a replay must send the same ones.
# `original_message` is for people and their SQL, and never read back: the payload itself where it is JSON
# (so that original_message ->> '$.latitude' works), else {"base64": "…"}. The price is that a payload is
# stored twice; failures are few.
_CREATE_FAILED_MESSAGES = """
    CREATE TABLE failed_messages (
        id                INTEGER PRIMARY KEY AUTOINCREMENT,
        message_id        TEXT NOT NULL,
        subscription      TEXT NOT NULL,
        source_topic      TEXT NOT NULL,
        failure_reason    TEXT NOT NULL,
        error_details     TEXT NOT NULL,
        retry_count       INTEGER NOT NULL DEFAULT 0,
        status            TEXT NOT NULL
            CHECK (status IN ('queued_for_retry', 'permanent_failure', 'retry_success', 'replayed')),
        original_message  TEXT NOT NULL,
        data              BLOB NOT NULL,
        attributes        TEXT NOT NULL,
        ordering_key      TEXT NOT NULL,
        publish_time      INTEGER NOT NULL,
        delivery_attempt  INTEGER NOT NULL,
        retry_at          INTEGER,
        created_at        INTEGER NOT NULL,
        retry_success_at  INTEGER,
        content_digest    TEXT NOT NULL,
        UNIQUE (subscription, message_id, content_digest)
    );
    CREATE INDEX idx_failed_messages_status ON failed_messages (status);
    CREATE INDEX idx_failed_messages_retry_at ON failed_messages (retry_at) WHERE status = 'queued_for_retry';
    CREATE INDEX idx_failed_messages_created_at ON failed_messages (created_at DESC);
    CREATE INDEX idx_failed_messages_failure_reason ON failed_messages (failure_reason);
    CREATE INDEX idx_failed_messages_source_topic ON failed_messages (source_topic);
    CREATE INDEX idx_failed_messages_subscription ON failed_messages (subscription)
"""

SCHEMA = Schema(application_id=0x48464403, migrations=[_CREATE_FAILED_MESSAGES])

# Adds a row, or does nothing when this subscription's failure of this message is there already.
_RECORD = """
    INSERT INTO failed_messages (
        message_id, subscription, source_topic, failure_reason, error_details, retry_count, status,
        original_message, data, attributes, ordering_key, publish_time, delivery_attempt, retry_at,
        created_at, retry_success_at, content_digest
    ) VALUES (
        :message_id, :subscription, :source_topic, :failure_reason, :error_details, :retry_count, :status,
        :original_message, :data, :attributes, :ordering_key, :publish_time, :delivery_attempt, :retry_at,
        :created_at, :retry_success_at, :content_digest
    )
    ON CONFLICT (subscription, message_id, content_digest) DO NOTHING
"""

# Everything that makes up a FailedMessage; _from_row takes the columns in this order.
_SELECT = """
    SELECT id, message_id, subscription, source_topic, failure_reason, error_details, retry_count, status,
           data, attributes, ordering_key, publish_time, delivery_attempt, retry_at, created_at,
           retry_success_at
    FROM failed_messages
"""

# One row by its id.
_GET = _SELECT + "WHERE id = :id"

# One page, newest first. A condition is put in only when asked for, so that its index can be used: in SQLite
# an index ends in the id, which makes "this status, ids below" one range of it.
_LIST_BEFORE = _SELECT + "WHERE id < :before"
_AND_STATUS = "AND status = :status"
_AND_FAILURE_REASON = "AND failure_reason = :failure_reason"
_AND_SUBSCRIPTION = "AND subscription = :subscription"
_NEWEST_FIRST = "ORDER BY id DESC LIMIT :limit"

# How many rows have each status; answered from the index alone.
_COUNT_BY_STATUS = "SELECT status, COUNT(*) FROM failed_messages GROUP BY status"


class SqliteFailureStore:
    """Made by `open`, or by `read_only` for a look into a file that another process may be writing."""

    def __init__(self, reader: Database | ReadOnlyDatabase, writer: Database | None) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, path: Path) -> Self:
        database = await Database.open(path, SCHEMA)
        return cls(database, database)

    @classmethod
    async def open_shared(cls, path: Path) -> Self:
        """To record failures beside the desk that has the file."""
        database = await Database.open_shared(path, SCHEMA)
        return cls(database, database)

    @classmethod
    def read_only(cls, path: Path) -> Self:
        return cls(ReadOnlyDatabase(path, SCHEMA), None)

    async def record(self, failure: FailedMessage) -> bool:
        if self._writer is None:
            raise FailedPrecondition("this failure store was opened for reading only")
        row = _to_row(failure)
        return await self._writer.submit(lambda connection: connection.execute(_RECORD, row).rowcount == 1)

    async def get(self, failure_id: int) -> FailedMessage | None:
        if not 0 < failure_id <= LARGEST_ID:  # SQLite cannot be asked for it
            return None
        wanted = {"id": failure_id}
        row = await self._reader.read(lambda connection: connection.execute(_GET, wanted).fetchone())
        return None if row is None else _from_row(row)

    async def list(self, wanted: Filter, page_size: int, page_token: str = "") -> Page:
        query = _list_query(wanted)
        values = {
            "before": last_id_given(page_token),
            "status": wanted.status,
            "failure_reason": wanted.failure_reason,
            "subscription": wanted.subscription,
            "limit": page_size + 1,  # one more tells whether there is a next page
        }
        rows = await self._reader.read(lambda connection: connection.execute(query, values).fetchall())
        failures = [_from_row(row) for row in rows[:page_size]]
        return Page(failures, token_after(failures[-1].id) if len(rows) > page_size else "")

    async def count_by_status(self) -> Mapping[FailureStatus, int]:
        rows = await self._reader.read(lambda connection: connection.execute(_COUNT_BY_STATUS).fetchall())
        return dict.fromkeys(FailureStatus, 0) | {FailureStatus(status): count for status, count in rows}

    async def close(self) -> None:
        await self._reader.close()


def _list_query(wanted: Filter) -> str:
    parts = [_LIST_BEFORE]
    if wanted.status is not None:
        parts.append(_AND_STATUS)
    if wanted.failure_reason:
        parts.append(_AND_FAILURE_REASON)
    if wanted.subscription:
        parts.append(_AND_SUBSCRIPTION)
    parts.append(_NEWEST_FIRST)
    return " ".join(parts)


def _to_row(failure: FailedMessage) -> Mapping[str, Any]:
    return {
        "message_id": failure.message_id,
        "content_digest": failure.key[-1],
        "subscription": failure.subscription,
        "source_topic": failure.source_topic,
        "failure_reason": failure.failure_reason,
        "error_details": bounded_error_details(failure.error_details),
        "retry_count": failure.retry_count,
        "status": failure.status,
        "original_message": _original_message(failure.data),
        "data": failure.data,
        "attributes": json.dumps(dict(failure.attributes), ensure_ascii=False),
        "ordering_key": failure.ordering_key,
        "publish_time": failure.publish_time_ns,
        "delivery_attempt": failure.delivery_attempt,
        "retry_at": failure.retry_at_ns,
        "created_at": failure.created_at_ns,
        "retry_success_at": failure.retry_success_at_ns,
    }


def _original_message(data: bytes) -> str:
    readable = read_payload(data)
    if readable.is_json and readable.text is not None:
        return readable.text  # as it was sent: written anew, long numbers and repeated keys would change
    return json.dumps({"base64": base64.b64encode(data).decode()})


def _from_row(row: tuple[Any, ...]) -> FailedMessage:
    (
        failure_id,
        message_id,
        subscription,
        source_topic,
        failure_reason,
        error_details,
        retry_count,
        status,
        data,
        attributes,
        ordering_key,
        publish_time,
        delivery_attempt,
        retry_at,
        created_at,
        retry_success_at,
    ) = row
    return FailedMessage(
        message_id=message_id,
        subscription=subscription,
        source_topic=source_topic,
        failure_reason=failure_reason,
        error_details=error_details,
        data=data,
        attributes=json.loads(attributes),
        ordering_key=ordering_key,
        publish_time_ns=publish_time,
        delivery_attempt=delivery_attempt,
        retry_count=retry_count,
        status=FailureStatus(status),
        created_at_ns=created_at,
        retry_at_ns=retry_at,
        retry_success_at_ns=retry_success_at,
        id=failure_id,
    )
