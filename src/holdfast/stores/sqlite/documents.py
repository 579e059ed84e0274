"""Documents in SQLite: document, order and dedupe marks change in one transaction."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.consumer.documents import Mark, MarkRecord, Page, Result, Write
from holdfast.consumer.guard import Path as DocumentPath
from holdfast.consumer.guard import Stored, judge, needed_for
from holdfast.errors import StorageUnavailable
from holdfast.model.document import Document, EventOrder
from holdfast.stores.page_token import last_id_of, token_after
from holdfast.stores.sqlite.database import Database, ReadOnlyDatabase, Schema

# Both tables are kept in key order, without a second index: they are read and written by key only.
FIRST_MIGRATION = """
CREATE TABLE documents (
    collection TEXT NOT NULL,
    id TEXT NOT NULL,
    fields TEXT NOT NULL,             -- a JSON object
    event_time_ns INTEGER NOT NULL,   -- these four are the EventOrder of the event that wrote it
    sequence INTEGER NOT NULL,
    publish_time_ns INTEGER NOT NULL,
    message_id TEXT NOT NULL,
    PRIMARY KEY (collection, id)
) WITHOUT ROWID;
CREATE TABLE dedupe (
    key TEXT NOT NULL PRIMARY KEY,
    message_id TEXT NOT NULL,         -- the message that claimed it, for people who ask
    created_at INTEGER NOT NULL,      -- nanoseconds since 1970, as is expire_at
    expire_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX dedupe_by_expiry ON dedupe (expire_at)
"""

# Marks have a collection now, as they have in stores that know nothing but documents.
SECOND_MIGRATION = """
CREATE TABLE marks (
    collection TEXT NOT NULL,
    id TEXT NOT NULL,
    message_id TEXT NOT NULL,         -- the message that made it, for people who ask
    created_at INTEGER NOT NULL,      -- nanoseconds since 1970, as is expire_at
    expire_at INTEGER NOT NULL,
    PRIMARY KEY (collection, id)
) WITHOUT ROWID;
INSERT OR REPLACE INTO marks (collection, id, message_id, created_at, expire_at)
    SELECT 'ops_dedupe', substr(key, instr(key, ':') + 1), message_id, created_at, expire_at FROM dedupe;
DROP TABLE dedupe;
CREATE INDEX marks_by_expiry ON marks (expire_at)
"""

# "HFD" and 2: the second kind of file that Holdfast writes.
SCHEMA = Schema(application_id=0x48464402, migrations=(FIRST_MIGRATION, SECOND_MIGRATION))

# {rows} are as many rows of parameters as there are: one statement for a whole batch. Python gives the interpreter away
# and takes it back around every statement, and the event loop would win each time.

# When marks expire. The join is CROSS so that each is looked up by its key.
FIND_MARKS = """
WITH wanted (c, i) AS (VALUES {rows})
SELECT collection, id, expire_at FROM wanted CROSS JOIN marks ON collection = c AND id = i
"""

# Who made marks, and when, for people who ask.
FIND_RECORDS = """
WITH wanted (c, i) AS (VALUES {rows})
SELECT collection, id, message_id, created_at, expire_at FROM wanted CROSS JOIN marks ON collection = c AND id = i
"""

# The order of the event that wrote a document last.
FIND_ORDERS = """
WITH wanted (c, i) AS (VALUES {rows})
SELECT collection, id, event_time_ns, sequence, publish_time_ns, message_id
FROM wanted CROSS JOIN documents ON collection = c AND id = i
"""

# The same with the document itself, for one that is counted up.
FIND_DOCUMENT = """
SELECT fields, event_time_ns, sequence, publish_time_ns, message_id FROM documents WHERE collection = ? AND id = ?
"""

# Makes marks. One that is there already has expired, or the event would have been a duplicate.
PUT_MARKS = "INSERT OR REPLACE INTO marks (collection, id, message_id, created_at, expire_at) VALUES {rows}"

# Writes documents whole, new or not.
PUT_DOCUMENTS = """
INSERT OR REPLACE INTO documents
    (collection, id, fields, event_time_ns, sequence, publish_time_ns, message_id)
VALUES {rows}
"""

# One document.
GET_DOCUMENT = "SELECT id, fields FROM documents WHERE collection = ? AND id = ?"

# A page of a collection: what follows an id.
LIST_DOCUMENTS = "SELECT id, fields FROM documents WHERE collection = ? AND id > ? ORDER BY id LIMIT ?"

# The names of all collections, by one key lookup each: SELECT DISTINCT would read every document.
LIST_COLLECTIONS = """
WITH RECURSIVE found (name) AS (
    SELECT min(collection) FROM documents
    UNION ALL
    SELECT (SELECT min(collection) FROM documents WHERE collection > name) FROM found WHERE name IS NOT NULL
)
SELECT name FROM found WHERE name IS NOT NULL
"""

# Removes some marks whose time has passed.
FORGET_EXPIRED = """
DELETE FROM marks WHERE (collection, id) IN
    (SELECT collection, id FROM marks WHERE expire_at <= ? ORDER BY expire_at LIMIT ?)
"""

LARGEST_BATCH = 1000

# In one statement. SQLite takes 32,766 parameters.
MOST_ROWS = 1000

_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))  # json.dumps would make one each time

# Marks forgotten per transaction, so that a long absence does not make the messages wait.
FORGOTTEN_AT_ONCE = 1000


class SqliteDocumentStore:
    """Opened by `open`, or by `read_only` to look into a file that another process may be writing."""

    def __init__(self, reader: Database | ReadOnlyDatabase, writer: Database | None) -> None:
        self.largest_batch = LARGEST_BATCH
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, path: Path) -> SqliteDocumentStore:
        database = await Database.open(path, SCHEMA)
        return cls(database, database)

    @classmethod
    def read_only(cls, path: Path) -> SqliteDocumentStore:
        return cls(ReadOnlyDatabase(path, SCHEMA), None)

    async def apply(self, writes: Sequence[Write]) -> Sequence[Result]:
        return await self._writing().submit(lambda connection: _apply(connection, writes))

    async def find_mark(self, marks: Sequence[Mark], now_ns: int) -> Mark | None:
        found = await self._reader.read(lambda connection: _marks(connection, marks))
        return next((mark for mark in marks if found.get(mark, now_ns) > now_ns), None)

    async def made(self, marks: Sequence[Mark]) -> Mapping[Mark, MarkRecord]:
        found = await self._reader.read(lambda connection: _execute_rows(connection, FIND_RECORDS, list(marks)))
        return {Mark(collection, mark_id): MarkRecord(*record) for collection, mark_id, *record in found}

    async def get(self, collection: str, document_id: str) -> Document | None:
        row = await self._reader.read(
            lambda connection: connection.execute(GET_DOCUMENT, (collection, document_id)).fetchone()
        )
        return None if row is None else _document(collection, row)

    async def list(self, collection: str, page_size: int, page_token: str = "") -> Page:
        # One more than asked for tells whether there is a next page.
        wanted = (collection, last_id_of(page_token), page_size + 1)
        rows = await self._reader.read(lambda connection: connection.execute(LIST_DOCUMENTS, wanted).fetchall())
        page = [_document(collection, row) for row in rows[:page_size]]
        return Page(page, token_after(page[-1].id) if len(rows) > page_size else "")

    async def collections(self) -> Sequence[str]:
        return await self._reader.read(lambda connection: [name for (name,) in connection.execute(LIST_COLLECTIONS)])

    async def forget_expired(self, now_ns: int) -> int:
        total = 0
        while True:
            forgotten = await self._writing().submit(
                lambda connection: connection.execute(FORGET_EXPIRED, (now_ns, FORGOTTEN_AT_ONCE)).rowcount
            )
            total += forgotten
            if forgotten < FORGOTTEN_AT_ONCE:
                return total

    async def check(self) -> None:
        if self._writer is None:
            await self._reader.check_reading()
        else:
            await self._writer.check_writing()

    async def close(self) -> None:
        await self._reader.close()

    def _writing(self) -> Database:
        if self._writer is None:
            raise StorageUnavailable("the document store was opened for reading only")
        return self._writer


def _apply(connection: sqlite3.Connection, writes: Sequence[Write]) -> Sequence[Result]:
    needed = needed_for(writes)
    documents = _orders(connection, needed.documents)
    documents |= {path: found for path in needed.counted if (found := _stored(connection, path))}
    judged = judge(writes, _marks(connection, needed.marks), documents)
    marks = [(*mark, made.message_id, made.created_ns, made.expire_ns) for mark, made in judged.marks.items()]
    _execute_rows(connection, PUT_MARKS, marks)
    written = [(*path, _encoded(stored.fields), *stored.order) for path, stored in judged.documents.items()]
    _execute_rows(connection, PUT_DOCUMENTS, written)
    return judged.results


def _execute_rows(connection: sqlite3.Connection, sql: str, rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """All rows in as few statements as possible; gives what they found."""
    found: list[tuple[Any, ...]] = []
    for first in range(0, len(rows), MOST_ROWS):
        some = rows[first : first + MOST_ROWS]
        row = f"({', '.join('?' * len(some[0]))})"
        statement = sql.format(rows=", ".join([row] * len(some)))
        found += connection.execute(statement, [value for values in some for value in values]).fetchall()
    return found


def _marks(connection: sqlite3.Connection, marks: Iterable[Mark]) -> dict[Mark, int]:
    """Those that are there, and when they expire."""
    found = _execute_rows(connection, FIND_MARKS, list(marks))
    return {Mark(collection, mark_id): expire_at for collection, mark_id, expire_at in found}


def _orders(connection: sqlite3.Connection, paths: Iterable[DocumentPath]) -> dict[DocumentPath, Stored]:
    found = _execute_rows(connection, FIND_ORDERS, list(paths))
    return {(collection, document_id): Stored({}, EventOrder(*order)) for collection, document_id, *order in found}


def _stored(connection: sqlite3.Connection, path: DocumentPath) -> Stored | None:
    row = connection.execute(FIND_DOCUMENT, path).fetchone()
    return None if row is None else Stored(json.loads(row[0]), EventOrder(*row[1:]))


def _encoded(fields: Mapping[str, Any]) -> str:
    return _ENCODER.encode(fields)


def _document(collection: str, row: tuple[Any, ...]) -> Document:
    document_id, fields = row
    return Document(collection, document_id, json.loads(fields))
