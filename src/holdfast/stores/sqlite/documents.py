"""Documents in SQLite: document, order and dedupe marks change in one transaction."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast.consumer.documents import Page, Write
from holdfast.consumer.fields import json_fields
from holdfast.errors import StorageUnavailable
from holdfast.model.document import Document, EventOrder
from holdfast.model.outcome import Applied, Duplicate, Stale
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

# "HFD" and 2: the second kind of file that Holdfast writes.
SCHEMA = Schema(application_id=0x48464402, migrations=(FIRST_MIGRATION,))

# Whether a key was seen and still counts.
FIND_MARK = "SELECT 1 FROM dedupe WHERE key = ? AND expire_at > ?"

# The order of the event that wrote a document last.
FIND_ORDER = """
SELECT event_time_ns, sequence, publish_time_ns, message_id FROM documents WHERE collection = ? AND id = ?
"""

# Claims a key. A mark that is there already has expired, or the event would have been a duplicate.
CLAIM_MARK = "INSERT OR REPLACE INTO dedupe (key, message_id, created_at, expire_at) VALUES (?, ?, ?, ?)"

# Writes a document whole, new or not.
PUT_DOCUMENT = """
INSERT OR REPLACE INTO documents
    (collection, id, fields, event_time_ns, sequence, publish_time_ns, message_id)
VALUES (?, ?, ?, ?, ?, ?, ?)
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
DELETE FROM dedupe WHERE key IN (SELECT key FROM dedupe WHERE expire_at <= ? ORDER BY expire_at LIMIT ?)
"""

# Marks forgotten per transaction, so that a long absence does not make the messages wait.
FORGOTTEN_AT_ONCE = 1000


class SqliteDocumentStore:
    """Opened by `open`, or by `read_only` to look into a file that another process may be writing."""

    def __init__(self, reader: Database | ReadOnlyDatabase, writer: Database | None) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, path: Path) -> SqliteDocumentStore:
        database = await Database.open(path, SCHEMA)
        return cls(database, database)

    @classmethod
    def read_only(cls, path: Path) -> SqliteDocumentStore:
        return cls(ReadOnlyDatabase(path, SCHEMA), None)

    async def apply(self, write: Write) -> Applied | Duplicate | Stale:
        # Encoded here and not on the writer thread: a refusal is this caller's alone.
        fields = json.dumps(json_fields(write.fields), ensure_ascii=False, separators=(",", ":"))
        return await self._writing().submit(lambda connection: _apply(connection, write, fields))

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

    async def close(self) -> None:
        await self._reader.close()

    def _writing(self) -> Database:
        if self._writer is None:
            raise StorageUnavailable("the document store was opened for reading only")
        return self._writer


def _apply(connection: sqlite3.Connection, write: Write, fields: str) -> Applied | Duplicate | Stale:
    for key in write.dedupe_keys:
        if connection.execute(FIND_MARK, (key, write.now_ns)).fetchone():
            return Duplicate(key)
    stored = _stored_order(connection, write)
    if stored is not None and stored == write.order:
        return Duplicate(write.path)
    _claim(connection, write)
    if stored is not None and stored > write.order:
        return Stale(write.path)
    connection.execute(PUT_DOCUMENT, (write.collection, write.document_id, fields, *write.order))
    return Applied((write.path,))


def _stored_order(connection: sqlite3.Connection, write: Write) -> EventOrder | None:
    row = connection.execute(FIND_ORDER, (write.collection, write.document_id)).fetchone()
    return None if row is None else EventOrder(*row)


def _claim(connection: sqlite3.Connection, write: Write) -> None:
    marks = [(key, write.order.message_id, write.now_ns, write.dedupe_until_ns) for key in write.dedupe_keys]
    connection.executemany(CLAIM_MARK, marks)


def _document(collection: str, row: tuple[Any, ...]) -> Document:
    document_id, fields = row
    return Document(collection, document_id, json.loads(fields))
