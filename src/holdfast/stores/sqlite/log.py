"""The broker's log in an SQLite file: appended and settled in groups, one fsync each."""

from __future__ import annotations

import json
import sqlite3
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self, assert_never

from holdfast.broker.facts import Fact, Marked
from holdfast.broker.log import (
    NO_LIMIT,
    AddFacts,
    Append,
    Change,
    Contents,
    DeleteRecord,
    DeleteSubscription,
    DeleteTopic,
    FailedAttempts,
    Progress,
    PutMarks,
    PutRecord,
    PutSubscription,
    PutTopic,
    Reset,
    Settle,
    StoredMessage,
    StoredSubscription,
    StoredTopic,
)
from holdfast.broker.topics import SEQUENCE_BITS, message_number
from holdfast.errors import StorageUnavailable
from holdfast.model.resources import Subscription, Topic
from holdfast.stores.sqlite import facts
from holdfast.stores.sqlite.blocks import decode_block, encode_block
from holdfast.stores.sqlite.database import Database, Schema

# Messages that were published together are one row (blocks.py). Rows are clustered by topic and sequence in one integer
# key, so that appending is writing at the end and reading a topic is a range scan, with no index beside the table.
#
# Keys start at random, so that a broker that begins anew does not give the message ids of the one before it: whoever
# remembers those, such as a consumer's dedupe marks, would take its messages for duplicates.
_TABLES = """
    CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
    INSERT INTO counters VALUES ('next_key', 1 + abs(random() % 4194304));
    CREATE TABLE topics (key INTEGER PRIMARY KEY, config TEXT NOT NULL, next_sequence INTEGER NOT NULL DEFAULT 1);
    CREATE TABLE subscriptions (
        key INTEGER PRIMARY KEY, topic_key INTEGER NOT NULL, config TEXT NOT NULL, floor INTEGER NOT NULL
    );
    CREATE TABLE messages (
        first INTEGER PRIMARY KEY, last INTEGER NOT NULL, -- topic and sequence of the first and last message in it
        count INTEGER NOT NULL, publish_time_ns INTEGER NOT NULL, -- of the first
        block BLOB NOT NULL
    );
    CREATE TABLE acked (
        subscription_key INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL,
        PRIMARY KEY (subscription_key, first)
    ) WITHOUT ROWID;
    CREATE TABLE failed (
        subscription_key INTEGER NOT NULL, sequence INTEGER NOT NULL,
        attempts INTEGER NOT NULL, due_ns INTEGER NOT NULL,
        PRIMARY KEY (subscription_key, sequence)
    ) WITHOUT ROWID;
    CREATE TABLE dropped_topics (key INTEGER PRIMARY KEY);
    CREATE TABLE records (kind TEXT NOT NULL, name TEXT NOT NULL, value BLOB NOT NULL, PRIMARY KEY (kind, name))
"""

SCHEMA = Schema(application_id=0x48464401, migrations=[_TABLES, facts.TABLES], page_bytes=16384)

# The hot two: published messages, and how far a subscription has come.
INSERT_BLOCK = "INSERT INTO messages (first, last, count, publish_time_ns, block) VALUES (?, ?, ?, ?, ?)"
SET_FLOOR = "UPDATE subscriptions SET floor = ? WHERE key = ?"

# Nothing may be kept for a topic that was just deleted: nobody would ever delete it again.
TOPIC_IS_THERE = "SELECT 1 FROM topics WHERE key = ?"

# Progress above the floor.
SET_RANGE = "INSERT OR REPLACE INTO acked (subscription_key, first, last) VALUES (?, ?, ?)"
DROP_RANGE = "DELETE FROM acked WHERE subscription_key = ? AND first = ?"
SET_FAILED = "INSERT OR REPLACE INTO failed (subscription_key, sequence, attempts, due_ns) VALUES (?, ?, ?, ?)"
DROP_FAILED = "DELETE FROM failed WHERE subscription_key = ? AND sequence = ?"

# Resources. A changed subscription keeps its floor.
PUT_TOPIC = "INSERT INTO topics (key, config) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET config = excluded.config"
PUT_SUBSCRIPTION = """
    INSERT INTO subscriptions (key, topic_key, config, floor) VALUES (?, ?, ?, ?)
    ON CONFLICT (key) DO UPDATE SET config = excluded.config
"""
RAISE_NEXT_KEY = "UPDATE counters SET value = max(value, ?) WHERE name = 'next_key'"
DELETE_TOPIC = "DELETE FROM topics WHERE key = ?"
# A deleted topic's messages go in steps; what a step leaves is remembered here.
DROP_LATER = "INSERT OR IGNORE INTO dropped_topics (key) VALUES (?)"
FIND_DROPPED = "SELECT key FROM dropped_topics ORDER BY key LIMIT 1"
DROPPED = "DELETE FROM dropped_topics WHERE key = ?"
DELETE_SUBSCRIPTION = "DELETE FROM subscriptions WHERE key = ?"
DELETE_ACKED = "DELETE FROM acked WHERE subscription_key = ?"
DELETE_FAILED = "DELETE FROM failed WHERE subscription_key = ?"

# Snapshots, schemas, IAM policies: kept, not understood.
PUT_RECORD = "INSERT OR REPLACE INTO records (kind, name, value) VALUES (?, ?, ?)"
DELETE_RECORD = "DELETE FROM records WHERE kind = ? AND name = ?"

# Reading, always a range of the primary key.
READ_BLOCKS = "SELECT first, count, block FROM messages WHERE first BETWEEN ? AND ? ORDER BY first"
READ_TIME = "SELECT first, last, publish_time_ns FROM messages WHERE first BETWEEN ? AND ? ORDER BY first LIMIT 1"
READ_LAST = "SELECT first, last FROM messages WHERE first BETWEEN ? AND ? ORDER BY first DESC LIMIT 1"

# Trimming must not make a topic forget which sequences it has given out.
KEEP_NEXT_SEQUENCE = "UPDATE topics SET next_sequence = max(next_sequence, ?) WHERE key = ?"
READ_OLDEST = "SELECT first, last, count FROM messages WHERE first BETWEEN ? AND ? ORDER BY first LIMIT 1"
DELETE_BLOCK = "DELETE FROM messages WHERE first = ?"

_SEQUENCE_MASK = (1 << SEQUENCE_BITS) - 1


# A small topic goes with its deletion; a large one would hold up every publisher.
DROPPED_AT_ONCE = 2000


class SqliteMessageLog:
    def __init__(self, database: Database) -> None:
        self._database = database

    @classmethod
    async def open(cls, path: Path) -> Self:
        return cls(await Database.open(path, SCHEMA))

    async def load(self) -> Contents:
        try:
            return await self._database.read(_load)
        except (StorageUnavailable, ValueError, TypeError, KeyError) as error:
            raise self._database.damaged(f"its topics and subscriptions cannot be read: {error}") from error

    async def commit(self, changes: Sequence[Change]) -> None:
        await self._database.submit(lambda connection: _apply_all(connection, changes))

    async def read_from(
        self, topic_key: int, first: int, last: int, limit: int, max_bytes: int = NO_LIMIT
    ) -> Sequence[StoredMessage]:
        return await self._database.read(lambda connection: _read(connection, topic_key, first, last, limit, max_bytes))

    async def read_one(self, topic_key: int, sequence: int) -> StoredMessage | None:
        found = await self.read_from(topic_key, sequence, sequence, 1)
        return found[0] if found else None

    async def first_since(self, topic_key: int, time_ns: int) -> int:
        return await self._database.read(lambda connection: _first_since(connection, topic_key, time_ns))

    async def trim(self, topic_key: int, below: int, limit: int) -> int:
        return await self._database.submit(lambda connection: _trim(connection, topic_key, below, limit))

    async def purge(self, limit: int) -> int:
        return await self._database.submit(lambda connection: _purge(connection, limit))

    async def facts_of(self, numbers: Sequence[int], limit: int) -> Sequence[Fact]:
        return await self._database.read(lambda connection: facts.facts_of(connection, numbers, limit))

    async def marked(self, keys: Sequence[int], sequence: int) -> Mapping[int, Marked]:
        return await self._database.read(lambda connection: facts.marked(connection, keys, sequence))

    async def forget_facts(self, before_ns: int, limit: int) -> int:
        return await self._database.submit(lambda connection: facts.forget(connection, before_ns, limit))

    async def check(self) -> None:
        await self._database.check_writing()

    async def close(self) -> None:
        await self._database.close()


def _apply_all(connection: sqlite3.Connection, changes: Sequence[Change]) -> None:
    for change in changes:
        _apply(connection, change)


def _apply(connection: sqlite3.Connection, change: Change) -> None:
    match change:
        case Append(topic_key, messages):
            _append(connection, topic_key, messages)
        case Settle():
            _settle(connection, change)
        case PutTopic(key, topic):
            connection.execute(PUT_TOPIC, (key, json.dumps(topic.to_json())))
            connection.execute(RAISE_NEXT_KEY, (key + 1,))
        case DeleteTopic(key):
            for statement in (DELETE_TOPIC, facts.DELETE_MARKS):
                connection.execute(statement, (key,))
            if _delete_messages(connection, key, _SEQUENCE_MASK + 1, DROPPED_AT_ONCE) == DROPPED_AT_ONCE:
                connection.execute(DROP_LATER, (key,))
        case PutSubscription(key, topic_key, subscription, floor):
            connection.execute(PUT_SUBSCRIPTION, (key, topic_key, json.dumps(subscription.to_json()), floor))
            connection.execute(RAISE_NEXT_KEY, (key + 1,))
        case DeleteSubscription(key):
            for statement in (DELETE_SUBSCRIPTION, DELETE_ACKED, DELETE_FAILED, facts.DELETE_MARKS):
                connection.execute(statement, (key,))
        case Reset(key, progress):
            for statement in (DELETE_ACKED, DELETE_FAILED):
                connection.execute(statement, (key,))
            _settle(connection, Settle(key, progress.floor, (), progress.acked, (), progress.failed))
        case PutRecord(kind, name, value):
            connection.execute(PUT_RECORD, (kind, name, value))
        case DeleteRecord(kind, name):
            connection.execute(DELETE_RECORD, (kind, name))
        case AddFacts(added):
            facts.add(connection, added)
        case PutMarks(marks, forget_before_ns):
            facts.put_marks(connection, marks, forget_before_ns)
        case _:
            assert_never(change)


def _append(connection: sqlite3.Connection, topic_key: int, messages: Sequence[StoredMessage]) -> None:
    if connection.execute(TOPIC_IS_THERE, (topic_key,)).fetchone() is None:
        raise StorageUnavailable(f"there is no topic {topic_key}")
    if not messages:
        return
    last = _last_sequence(connection, topic_key)
    if last is not None and messages[0].sequence <= last:
        raise StorageUnavailable(f"topic {topic_key} has sequence {last} already")
    try:
        _insert_block(connection, topic_key, messages)
    except ValueError as error:
        raise StorageUnavailable(f"topic {topic_key}: {error}") from error


def _insert_block(connection: sqlite3.Connection, topic_key: int, messages: Sequence[StoredMessage]) -> None:
    first, last = messages[0], messages[-1]
    numbers = message_number(topic_key, first.sequence), message_number(topic_key, last.sequence)
    connection.execute(INSERT_BLOCK, (*numbers, len(messages), first.publish_time_ns, encode_block(messages)))


def _settle(connection: sqlite3.Connection, change: Settle) -> None:
    key = change.subscription_key
    if connection.execute(SET_FLOOR, (change.floor, key)).rowcount == 0:
        raise StorageUnavailable(f"there is no subscription {key}")
    connection.executemany(DROP_RANGE, [(key, first) for first in change.ranges_gone])
    connection.executemany(SET_RANGE, [(key, first, last) for first, last in change.ranges_set.items()])
    connection.executemany(DROP_FAILED, [(key, sequence) for sequence in change.failed_gone])
    connection.executemany(
        SET_FAILED, [(key, sequence, f.attempts, f.due_ns) for sequence, f in change.failed_set.items()]
    )


def _trim(connection: sqlite3.Connection, topic_key: int, below: int, limit: int) -> int:
    last = _last_sequence(connection, topic_key)
    if last is None:
        return 0
    connection.execute(KEEP_NEXT_SEQUENCE, (last + 1, topic_key))
    return _delete_messages(connection, topic_key, below, limit)


def _delete_messages(connection: sqlite3.Connection, topic_key: int, below: int, limit: int) -> int:
    """Of the oldest, those under `below`, at most `limit`. What is left of a block is written again."""
    deleted = 0
    bounds = _number(topic_key, 0), _number(topic_key, below - 1)
    while deleted < limit and (row := connection.execute(READ_OLDEST, bounds).fetchone()) is not None:
        first, last, count = row
        if last <= bounds[1] and count <= limit - deleted:
            connection.execute(DELETE_BLOCK, (first,))
            deleted += count
        else:
            deleted += _cut_block(connection, topic_key, first, below, limit - deleted)
            break
    return deleted


def _cut_block(connection: sqlite3.Connection, topic_key: int, number: int, below: int, limit: int) -> int:
    messages = _block_at(connection, number)
    gone = sum(message.sequence < below for message in messages[:limit])
    connection.execute(DELETE_BLOCK, (number,))
    _insert_block(connection, topic_key, messages[gone:])
    return gone


def _purge(connection: sqlite3.Connection, limit: int) -> int:
    row = connection.execute(FIND_DROPPED).fetchone()
    if row is None:
        return 0
    deleted = _delete_messages(connection, row[0], _SEQUENCE_MASK + 1, limit)
    if deleted < limit:
        connection.execute(DROPPED, row)
    return deleted


def _read(
    connection: sqlite3.Connection, topic_key: int, first: int, last: int, limit: int, max_bytes: int
) -> Sequence[StoredMessage]:
    found: list[StoredMessage] = []
    begin = _block_before(connection, topic_key, first)
    for number, count, block in connection.execute(READ_BLOCKS, (begin, _number(topic_key, last))):
        for message in _decoded(number, count, block):
            if len(found) >= limit or max_bytes <= 0:
                return found
            if first <= message.sequence <= last:
                found.append(message)
                max_bytes -= len(message.body)
    return found


def _decoded(number: int, count: int, block: bytes) -> list[StoredMessage]:
    try:
        return decode_block(number & _SEQUENCE_MASK, count, block)
    except (struct.error, ValueError) as error:
        raise StorageUnavailable(f"the messages at {number} are damaged: {error}") from error


def _block_before(connection: sqlite3.Connection, topic_key: int, sequence: int) -> int:
    """Where to begin reading: the block that would hold the sequence, or what comes after it."""
    number = _number(topic_key, sequence)
    row = connection.execute(READ_LAST, (_number(topic_key, 0), number)).fetchone()
    return row[0] if row else number


def _block_at(connection: sqlite3.Connection, number: int) -> list[StoredMessage]:
    ((first, count, block),) = connection.execute(READ_BLOCKS, (number, number)).fetchall()
    return _decoded(first, count, block)


def _first_since(connection: sqlite3.Connection, topic_key: int, time_ns: int) -> int:
    """Halves the range of sequences until one is left: forty lookups at most, however large the topic. That finds the
    first block that begins at or after the time; the one before it may end after it."""
    low, high = 0, _next_sequence(connection, topic_key)
    while low < high:
        middle = (low + high) // 2
        bounds = message_number(topic_key, middle), message_number(topic_key, high - 1)
        row = connection.execute(READ_TIME, bounds).fetchone()
        if row is None or row[2] >= time_ns:
            high = middle
        else:
            low = (row[1] & _SEQUENCE_MASK) + 1
    if low > 0:
        before = connection.execute(READ_LAST, (_number(topic_key, 0), _number(topic_key, low - 1))).fetchone()
        late = [m for m in _block_at(connection, before[0]) if m.publish_time_ns >= time_ns] if before else []
        if late:
            return late[0].sequence
    row = connection.execute(READ_TIME, (message_number(topic_key, low), _whole_topic(topic_key)[1])).fetchone()
    return row[0] & _SEQUENCE_MASK if row else _next_sequence(connection, topic_key)


def _next_sequence(connection: sqlite3.Connection, topic_key: int) -> int:
    last = _last_sequence(connection, topic_key)
    row = connection.execute("SELECT next_sequence FROM topics WHERE key = ?", (topic_key,)).fetchone()
    return max(last + 1 if last is not None else 1, row[0] if row else 1)


def _last_sequence(connection: sqlite3.Connection, topic_key: int) -> int | None:
    row = connection.execute(READ_LAST, _whole_topic(topic_key)).fetchone()
    return row[1] & _SEQUENCE_MASK if row else None


def _whole_topic(key: int) -> tuple[int, int]:
    return _number(key, 0), _number(key, _SEQUENCE_MASK)


def _number(topic_key: int, sequence: int) -> int:
    """Of a bound, which may lie outside of all sequences but must not reach into another topic."""
    return message_number(topic_key, max(0, min(sequence, _SEQUENCE_MASK)))


def _load(connection: sqlite3.Connection) -> Contents:
    connection.execute("BEGIN")  # one view of all tables
    try:
        topics = [
            _load_topic(connection, *row) for row in connection.execute("SELECT key, config FROM topics ORDER BY key")
        ]
        subscriptions = [
            StoredSubscription(
                key,
                topic_key,
                Subscription.from_json(json.loads(config)),
                _load_progress(connection, key, floor),
            )
            for key, topic_key, config, floor in connection.execute("SELECT * FROM subscriptions ORDER BY key")
        ]
        if lost := {one.topic_key for one in subscriptions} - {topic.key for topic in topics}:
            raise ValueError(f"subscriptions without their topic {min(lost)}")
        records = {(kind, name): value for kind, name, value in connection.execute("SELECT * FROM records")}
        next_key = connection.execute("SELECT value FROM counters WHERE name = 'next_key'").fetchone()[0]
    finally:
        connection.execute("COMMIT")
    return Contents(topics, subscriptions, records, next_key)


def _load_topic(connection: sqlite3.Connection, key: int, config: str) -> StoredTopic:
    return StoredTopic(key, Topic.from_json(json.loads(config)), _next_sequence(connection, key))


def _load_progress(connection: sqlite3.Connection, key: int, floor: int) -> Progress:
    acked = connection.execute("SELECT first, last FROM acked WHERE subscription_key = ?", (key,))
    failed = connection.execute("SELECT sequence, attempts, due_ns FROM failed WHERE subscription_key = ?", (key,))
    return Progress(
        floor,
        dict(acked.fetchall()),
        {sequence: FailedAttempts(count, due) for sequence, count, due in failed},
    )
