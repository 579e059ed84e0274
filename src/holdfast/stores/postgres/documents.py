"""Documents in PostgreSQL: document, order and dedupe marks change in one transaction, whoever else writes.

How several processes share the tables
--------------------------------------
A transaction locks the documents it found (FOR UPDATE), has guard.py judge, and writes. What it did not find there is
nothing to lock: that is inserted only if it is still absent, and a mark that was found expired is made anew only if it
still is as found. When that changes fewer rows than it should, somebody was faster: the transaction is undone and
begun again. So row locks and primary keys make it right, also beside a process with another version of this file.

Nobody waits in a circle: documents are locked by their keys in order, then inserted in order, then updated (they are
locked already), then marks are inserted in order. Inserts come before updates because an insert also waits for whoever
is updating the row that it meets.

Those who begin again do so one at a time, through one advisory lock that is taken first: many who create the same
documents at once would otherwise go on overtaking each other.

Measured with eight at once in batches of 100 and 500, two cores, in writes a second. The plainest way, an advisory lock
for each of 512 hashes of the keys, reached 9,000 to 10,000 where each had documents of its own, because two large
batches always share a hash; this reached 12,500 to 15,000. With the same few documents for all, hashes were as fast in
batches of 100 and up to 1.4 times as fast in batches of 500; while all create the same thousand, up to 1.6 times, but
that passes. SERIALIZABLE was slower than this nearly everywhere. One lock for each key would be more than
max_locks_per_transaction allows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from psycopg import AsyncConnection, AsyncCursor

from holdfast.consumer.changes import Count
from holdfast.consumer.documents import Mark, MarkRecord, Page, Result, Write
from holdfast.consumer.guard import Judged, Stored, judge, needed_for
from holdfast.consumer.guard import Path as DocumentPath
from holdfast.errors import BadInput, StorageUnavailable
from holdfast.model.document import Document, EventOrder
from holdfast.stores.page_token import last_id_of, token_after
from holdfast.stores.postgres.database import DEFAULT_SCHEMA, Database, Migrations, Overtaken

# Keys compare by their bytes, which in UTF-8 is by code point, as everywhere else in Holdfast. Some room in the pages
# lets most updates of a document leave its index alone.
FIRST_MIGRATION = """
CREATE TABLE documents (
    collection text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    fields jsonb NOT NULL,
    event_time_ns bigint NOT NULL,    -- these four are the EventOrder of the event that wrote it
    sequence bigint NOT NULL,
    publish_time_ns bigint NOT NULL,
    message_id text COLLATE "C" NOT NULL,
    PRIMARY KEY (collection, id)
) WITH (fillfactor = 85);
CREATE TABLE marks (
    collection text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    message_id text COLLATE "C" NOT NULL,  -- the message that made it, for people who ask
    created_at bigint NOT NULL,       -- nanoseconds since 1970, as is expire_at
    expire_at bigint NOT NULL,
    PRIMARY KEY (collection, id)
);
CREATE INDEX marks_by_expiry ON marks (expire_at)
"""

MIGRATIONS = Migrations((FIRST_MIGRATION,))

# Many rows come as one JSON text: an array of each column takes psycopg five times as long to write.

# Those who begin again, one at a time in each schema. The number is ours, made up.
LOCK_OUT_OTHERS = "SELECT pg_advisory_xact_lock(hashtextextended(current_schema(), 4865464402))"

# The orders of documents, and with them the fields of those that are counted up. Locks them, in order.
FIND_DOCUMENTS = """
SELECT found.collection, found.id, CASE WHEN (wanted.path ->> 2)::boolean THEN found.fields END,
    found.event_time_ns, found.sequence, found.publish_time_ns, found.message_id
FROM jsonb_array_elements(%s::jsonb) AS wanted (path)
JOIN documents AS found ON found.collection = wanted.path ->> 0 AND found.id = wanted.path ->> 1
ORDER BY found.collection, found.id
FOR UPDATE OF found
"""

# When marks expire.
FIND_MARKS = """
SELECT found.collection, found.id, found.expire_at
FROM jsonb_array_elements(%s::jsonb) AS wanted (path)
JOIN marks AS found ON found.collection = wanted.path ->> 0 AND found.id = wanted.path ->> 1
"""

# Who made marks, and when, for people who ask.
FIND_RECORDS = """
SELECT found.collection, found.id, found.message_id, found.created_at, found.expire_at
FROM jsonb_array_elements(%s::jsonb) AS wanted (path)
JOIN marks AS found ON found.collection = wanted.path ->> 0 AND found.id = wanted.path ->> 1
"""

# Creates documents that were not found. One that exists by now is left out.
INSERT_DOCUMENTS = """
INSERT INTO documents (collection, id, fields, event_time_ns, sequence, publish_time_ns, message_id)
SELECT collection, id, fields, event_time_ns, sequence, publish_time_ns, message_id
FROM json_to_recordset(%s::json) AS given (collection text, id text, fields jsonb,
    event_time_ns bigint, sequence bigint, publish_time_ns bigint, message_id text)
ORDER BY collection COLLATE "C", id COLLATE "C"
ON CONFLICT DO NOTHING
"""

# Replaces documents that were found, and so are locked.
UPDATE_DOCUMENTS = """
UPDATE documents SET fields = given.fields, event_time_ns = given.event_time_ns, sequence = given.sequence,
    publish_time_ns = given.publish_time_ns, message_id = given.message_id
FROM json_to_recordset(%s::json) AS given (collection text, id text, fields jsonb,
    event_time_ns bigint, sequence bigint, publish_time_ns bigint, message_id text)
WHERE documents.collection = given.collection AND documents.id = given.id
"""

# Makes marks that were not found. One that exists by now is left out.
INSERT_MARKS = """
INSERT INTO marks (collection, id, message_id, created_at, expire_at)
SELECT collection, id, message_id, created_at, expire_at
FROM json_to_recordset(%s::json) AS given (collection text, id text, message_id text,
    created_at bigint, expire_at bigint)
ORDER BY collection COLLATE "C", id COLLATE "C"
ON CONFLICT DO NOTHING
"""

# Makes marks anew that were found expired, unless somebody has just done that.
RENEW_MARKS = """
UPDATE marks SET message_id = given.message_id, created_at = given.created_at, expire_at = given.expire_at
FROM json_to_recordset(%s::json) AS given (collection text, id text, message_id text,
    created_at bigint, expire_at bigint, found_expire_at bigint)
WHERE marks.collection = given.collection AND marks.id = given.id AND marks.expire_at = given.found_expire_at
"""

# One document.
GET_DOCUMENT = "SELECT id, fields FROM documents WHERE collection = %s AND id = %s"

# A page of a collection: what follows an id.
LIST_DOCUMENTS = "SELECT id, fields FROM documents WHERE collection = %s AND id > %s ORDER BY id LIMIT %s"

# The names of all collections, by one key lookup each: SELECT DISTINCT would read every document.
LIST_COLLECTIONS = """
WITH RECURSIVE found (name) AS (
    SELECT min(collection) FROM documents
    UNION ALL
    SELECT (SELECT min(collection) FROM documents WHERE collection > name) FROM found WHERE name IS NOT NULL
)
SELECT name FROM found WHERE name IS NOT NULL
"""

# Removes some marks whose time has passed, but for those that somebody is making anew.
FORGET_EXPIRED = """
DELETE FROM marks WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM marks WHERE expire_at <= %s ORDER BY expire_at LIMIT %s FOR UPDATE SKIP LOCKED))
"""

LARGEST_BATCH = 500

# Marks forgotten per transaction, so that a long absence does not make one that takes minutes.
FORGOTTEN_AT_ONCE = 1000

# An entry of an index has 2,704 bytes at most, and some of them are the server's.
LONGEST_KEY_BYTES = 2600

_DOCUMENT_COLUMNS = ("collection", "id", "fields", "event_time_ns", "sequence", "publish_time_ns", "message_id")
_MARK_COLUMNS = ("collection", "id", "message_id", "created_at", "expire_at", "found_expire_at")

# A string, or a double that Python writes with a positive exponent.
_STRING_OR_LARGE_NUMBER = re.compile(r'"(?:[^"\\]|\\.)*"|-?[0-9.]+e\+[0-9]+')


class PostgresDocumentStore:
    """Opened by `open`, or by `read_only` to look at what other processes write."""

    def __init__(self, database: Database, *, read_only: bool) -> None:
        self.largest_batch = LARGEST_BATCH
        self._database = database
        self._read_only = read_only

    @classmethod
    async def open(cls, url: str, schema: str = DEFAULT_SCHEMA) -> PostgresDocumentStore:
        return cls(await Database.open(url, schema, MIGRATIONS), read_only=False)

    @classmethod
    async def read_only(cls, url: str, schema: str = DEFAULT_SCHEMA) -> PostgresDocumentStore:
        return cls(await Database.open(url, schema, MIGRATIONS, read_only=True), read_only=True)

    async def apply(self, writes: Sequence[Write]) -> Sequence[Result]:
        self._require_writing()
        _check_keys(writes)
        return await self._database.run(lambda connection, attempt: _apply(connection, writes, alone=attempt > 0))

    async def find_mark(self, marks: Sequence[Mark], now_ns: int) -> Mark | None:
        wanted = _encoded([mark for mark in marks if _is_storable(*mark)])
        rows = await self._rows(FIND_MARKS, (wanted,))
        found = {Mark(collection, mark_id): expire_ns for collection, mark_id, expire_ns in rows}
        return next((mark for mark in marks if found.get(mark, now_ns) > now_ns), None)

    async def made(self, marks: Sequence[Mark]) -> Mapping[Mark, MarkRecord]:
        rows = await self._rows(FIND_RECORDS, (_encoded([mark for mark in marks if _is_storable(*mark)]),))
        return {Mark(collection, mark_id): MarkRecord(*record) for collection, mark_id, *record in rows}

    async def get(self, collection: str, document_id: str) -> Document | None:
        if not _is_storable(collection, document_id):
            return None
        rows = await self._rows(GET_DOCUMENT, (collection, document_id))
        return Document(collection, *rows[0]) if rows else None

    async def list(self, collection: str, page_size: int, page_token: str = "") -> Page:
        after = last_id_of(page_token)
        if not _is_storable(collection, after):
            return Page(())
        # One more than asked for tells whether there is a next page.
        rows = await self._rows(LIST_DOCUMENTS, (collection, after, page_size + 1))
        page = [Document(collection, *row) for row in rows[:page_size]]
        return Page(page, token_after(page[-1].id) if len(rows) > page_size else "")

    async def collections(self) -> Sequence[str]:
        return [name for (name,) in await self._rows(LIST_COLLECTIONS, ())]

    async def forget_expired(self, now_ns: int) -> int:
        self._require_writing()
        total = 0
        while True:
            forgotten = await self._database.run(lambda connection, _: _forget_some(connection, now_ns))
            total += forgotten
            if forgotten < FORGOTTEN_AT_ONCE:
                return total

    async def check(self) -> None:
        await self._database.check()

    async def close(self) -> None:
        await self._database.close()

    async def _rows(self, query: str, values: Sequence[Any]) -> Sequence[tuple[Any, ...]]:
        async def read(connection: AsyncConnection, _: int) -> Sequence[tuple[Any, ...]]:
            return await (await connection.execute(query.encode(), values)).fetchall()

        return await self._database.run(read)

    def _require_writing(self) -> None:
        if self._read_only:
            raise StorageUnavailable("the document store was opened for reading only")


async def _apply(connection: AsyncConnection, writes: Sequence[Write], *, alone: bool) -> Sequence[Result]:
    needed = needed_for(writes)
    paths = [(*path, False) for path in needed.documents] + [(*path, True) for path in needed.counted]
    async with connection.pipeline():  # all of it in one round trip
        await connection.execute("BEGIN")
        if alone:
            await connection.execute(LOCK_OUT_OTHERS)
        # The documents first, for they may have to wait, and the marks are then as new as they are.
        found_documents = await connection.execute(FIND_DOCUMENTS, (_encoded(paths),))
        found_marks = await connection.execute(FIND_MARKS, (_encoded(list(needed.marks)),))
    documents = {
        (collection, document_id): Stored(fields or {}, EventOrder(*order))
        for collection, document_id, fields, *order in await found_documents.fetchall()
    }
    marks = {Mark(collection, mark_id): expire_ns for collection, mark_id, expire_ns in await found_marks.fetchall()}
    judged = judge(writes, marks, documents)
    try:
        await _write(connection, _changed_rows(judged, marks, documents))
    except _BadText:
        raise _named(writes) from None
    return judged.results


def _changed_rows(
    judged: Judged, marks: Mapping[Mark, int], documents: Mapping[DocumentPath, Stored]
) -> Sequence[tuple[str, Sequence[dict[str, Any]]]]:
    """Statements with their rows. Their order is what keeps transactions from waiting in a circle."""
    new = [_document_row(path, stored) for path, stored in judged.documents.items() if path not in documents]
    replaced = [_document_row(path, stored) for path, stored in judged.documents.items() if path in documents]
    made = [_mark_row(mark, record) for mark, record in judged.marks.items() if mark not in marks]
    renewed = [_mark_row(mark, record, marks[mark]) for mark, record in judged.marks.items() if mark in marks]
    return (
        (INSERT_DOCUMENTS, new),
        (UPDATE_DOCUMENTS, replaced),
        (INSERT_MARKS, made),
        (RENEW_MARKS, renewed),
    )


async def _write(connection: AsyncConnection, changes: Sequence[tuple[str, Sequence[dict[str, Any]]]]) -> None:
    written: list[tuple[AsyncCursor, int]] = []
    async with connection.pipeline():
        for statement, rows in changes:
            if rows:
                cursor = await connection.execute(statement.encode(), (_encoded(rows),))
                written.append((cursor, len(rows)))
    if any(cursor.rowcount != wanted for cursor, wanted in written):
        raise Overtaken


async def _forget_some(connection: AsyncConnection, now_ns: int) -> int:
    return (await connection.execute(FORGET_EXPIRED, (now_ns, FORGOTTEN_AT_ONCE))).rowcount


def _document_row(path: DocumentPath, stored: Stored) -> dict[str, Any]:
    return dict(zip(_DOCUMENT_COLUMNS, (*path, stored.fields, *stored.order), strict=True))


def _mark_row(mark: Mark, made: MarkRecord, found_expire_ns: int = 0) -> dict[str, Any]:
    values = (*mark, made.message_id, made.created_ns, made.expire_ns, found_expire_ns)
    return dict(zip(_MARK_COLUMNS, values, strict=True))


# JSON for PostgreSQL.


class _BadText(Exception):
    """Some text cannot be stored."""


def _encoded(rows: Sequence[Any]) -> str:
    encoded = json.dumps(rows, ensure_ascii=False, separators=(",", ":"))
    # The first look is cheap, but also sees a backslash that somebody wrote.
    if ("\\u0000" in encoded or not _is_storable(encoded)) and _has_bad_text(rows):
        raise _BadText
    # jsonb has one kind of number, and writes 1e+16 back without a point: as an integer, which a double is not.
    return _STRING_OR_LARGE_NUMBER.sub(_with_point, encoded) if "e+" in encoded else encoded


def _with_point(found: re.Match[str]) -> str:
    return found[0] if found[0].startswith('"') else f"{Decimal(found[0]):f}.0"


def _has_bad_text(value: object) -> bool:
    return any(True for _ in _bad_texts("", value))


def _bad_texts(path: str, value: object) -> Iterator[str]:
    """Where there is text that PostgreSQL cannot store."""
    if isinstance(value, str):
        if not _is_storable(value):
            yield path
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if not _is_storable(key):
                yield path or "fields"
            yield from _bad_texts(f"{path}.{key}" if path else key, item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _bad_texts(path, item)


def _is_storable(*texts: str) -> bool:
    """PostgreSQL's text has every character but NUL. Half a surrogate pair is none."""
    try:
        return not any(b"\0" in text.encode() for text in texts)
    except UnicodeEncodeError:
        return False


def _named(writes: Iterable[Write]) -> BadInput:
    for write in writes:
        for change in write.changes:
            values = {**change.fields, **(change.numbers if isinstance(change, Count) else {})}
            for path in _bad_texts("", values):
                return _cannot_store(path[:300])
    return _cannot_store("documents")


def _cannot_store(field: str) -> BadInput:
    return BadInput(field, "has a NUL character or half of a surrogate pair, which PostgreSQL cannot store")


# Keys.


def _check_keys(writes: Iterable[Write]) -> None:
    """Before any of it is sent: an error of the server would not say which of them it is."""
    for write in writes:
        _check_key("message id", "", write.order.message_id, longest=None)
        for mark in write.marks:
            _check_key("dedupe mark", *mark)
        for change in write.changes:
            _check_key("document id", change.collection, change.id)


def _check_key(name: str, collection: str, key: str, longest: int | None = LONGEST_KEY_BYTES) -> None:
    if not _is_storable(collection, key):
        raise _cannot_store(name)
    if longest is not None and len(collection.encode()) + len(key.encode()) > longest:
        raise BadInput(name, f"is longer than {longest} bytes together with its collection")
