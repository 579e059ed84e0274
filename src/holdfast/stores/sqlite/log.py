"""The broker's log in an SQLite file: appended and settled in groups, one fsync each."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Self, assert_never

from holdfast.broker.log import (
    Append,
    Change,
    Contents,
    DeleteSubscription,
    DeleteTopic,
    FailedAttempts,
    Progress,
    PutSubscription,
    PutTopic,
    Settle,
    StoredMessage,
    StoredSubscription,
    StoredTopic,
)
from holdfast.broker.topics import SEQUENCE_BITS, message_number
from holdfast.model.resources import Subscription, Topic
from holdfast.stores.sqlite.database import Database, Schema

# Messages are clustered by topic and sequence in one integer key, so that appending is writing at the end and reading
# a topic is a range scan, with no index beside the table.
_TABLES = """
    CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
    INSERT INTO counters VALUES ('next_key', 1);
    CREATE TABLE topics (key INTEGER PRIMARY KEY, config TEXT NOT NULL, next_sequence INTEGER NOT NULL DEFAULT 1);
    CREATE TABLE subscriptions (
        key INTEGER PRIMARY KEY, topic_key INTEGER NOT NULL, config TEXT NOT NULL, floor INTEGER NOT NULL
    );
    CREATE TABLE messages (number INTEGER PRIMARY KEY, publish_time_ns INTEGER NOT NULL, body BLOB NOT NULL);
    CREATE TABLE acked (
        subscription_key INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL,
        PRIMARY KEY (subscription_key, first)
    ) WITHOUT ROWID;
    CREATE TABLE failed (
        subscription_key INTEGER NOT NULL, sequence INTEGER NOT NULL,
        attempts INTEGER NOT NULL, due_ns INTEGER NOT NULL,
        PRIMARY KEY (subscription_key, sequence)
    ) WITHOUT ROWID
"""

SCHEMA = Schema(application_id=0x48464401, migrations=[_TABLES])

# The hot two: a published message, and how far a subscription has come.
INSERT_MESSAGE = "INSERT INTO messages (number, publish_time_ns, body) VALUES (?, ?, ?)"
SET_FLOOR = "UPDATE subscriptions SET floor = ? WHERE key = ?"

# Progress above the floor.
SET_RANGE = "INSERT OR REPLACE INTO acked (subscription_key, first, last) VALUES (?, ?, ?)"
DROP_RANGE = "DELETE FROM acked WHERE subscription_key = ? AND first = ?"
SET_FAILED = (
    "INSERT OR REPLACE INTO failed (subscription_key, sequence, attempts, due_ns) VALUES (?, ?, ?, ?)"
)
DROP_FAILED = "DELETE FROM failed WHERE subscription_key = ? AND sequence = ?"

# Resources. A changed subscription keeps its floor.
PUT_TOPIC = (
    "INSERT INTO topics (key, config) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET config = excluded.config"
)
PUT_SUBSCRIPTION = """
    INSERT INTO subscriptions (key, topic_key, config, floor) VALUES (?, ?, ?, ?)
    ON CONFLICT (key) DO UPDATE SET config = excluded.config
"""
RAISE_NEXT_KEY = "UPDATE counters SET value = max(value, ?) WHERE name = 'next_key'"
DELETE_TOPIC = "DELETE FROM topics WHERE key = ?"
DELETE_MESSAGES = "DELETE FROM messages WHERE number BETWEEN ? AND ?"
DELETE_SUBSCRIPTION = "DELETE FROM subscriptions WHERE key = ?"
DELETE_ACKED = "DELETE FROM acked WHERE subscription_key = ?"
DELETE_FAILED = "DELETE FROM failed WHERE subscription_key = ?"

# Reading, always a range of the primary key.
READ_MESSAGES = """
    SELECT number, publish_time_ns, body FROM messages WHERE number BETWEEN ? AND ? ORDER BY number LIMIT ?
"""
READ_LAST = "SELECT number FROM messages WHERE number BETWEEN ? AND ? ORDER BY number DESC LIMIT 1"

# Trimming must not make a topic forget which sequences it has given out.
KEEP_NEXT_SEQUENCE = "UPDATE topics SET next_sequence = max(next_sequence, ?) WHERE key = ?"
TRIM = """
    DELETE FROM messages WHERE number IN
        (SELECT number FROM messages WHERE number BETWEEN ? AND ? ORDER BY number LIMIT ?)
"""

_SEQUENCE_MASK = (1 << SEQUENCE_BITS) - 1


class SqliteMessageLog:
    def __init__(self, database: Database) -> None:
        self._database = database

    @classmethod
    async def open(cls, path: Path) -> Self:
        return cls(await Database.open(path, SCHEMA))

    async def load(self) -> Contents:
        return await self._database.read(_load)

    async def commit(self, changes: Sequence[Change]) -> None:
        await self._database.submit(lambda connection: _apply_all(connection, changes))

    async def read_from(self, topic_key: int, first: int, last: int, limit: int) -> Sequence[StoredMessage]:
        bounds = message_number(topic_key, first), message_number(topic_key, last), limit
        rows = await self._database.read(
            lambda connection: connection.execute(READ_MESSAGES, bounds).fetchall()
        )
        return [StoredMessage(number & _SEQUENCE_MASK, time_ns, body) for number, time_ns, body in rows]

    async def read_one(self, topic_key: int, sequence: int) -> StoredMessage | None:
        found = await self.read_from(topic_key, sequence, sequence, 1)
        return found[0] if found else None

    async def trim(self, topic_key: int, below: int, limit: int) -> int:
        return await self._database.submit(lambda connection: _trim(connection, topic_key, below, limit))

    async def close(self) -> None:
        await self._database.close()


def _apply_all(connection: sqlite3.Connection, changes: Sequence[Change]) -> None:
    for change in changes:
        _apply(connection, change)


def _apply(connection: sqlite3.Connection, change: Change) -> None:
    match change:
        case Append(topic_key, messages):
            base = message_number(topic_key, 0)
            connection.executemany(
                INSERT_MESSAGE, [(base | m.sequence, m.publish_time_ns, m.body) for m in messages]
            )
        case Settle():
            _settle(connection, change)
        case PutTopic(key, topic):
            connection.execute(PUT_TOPIC, (key, json.dumps(topic.to_json())))
            connection.execute(RAISE_NEXT_KEY, (key + 1,))
        case DeleteTopic(key):
            connection.execute(DELETE_MESSAGES, _whole_topic(key))
            connection.execute(DELETE_TOPIC, (key,))
        case PutSubscription(key, topic_key, subscription, floor):
            connection.execute(PUT_SUBSCRIPTION, (key, topic_key, json.dumps(subscription.to_json()), floor))
            connection.execute(RAISE_NEXT_KEY, (key + 1,))
        case DeleteSubscription(key):
            for statement in (DELETE_SUBSCRIPTION, DELETE_ACKED, DELETE_FAILED):
                connection.execute(statement, (key,))
        case _:
            assert_never(change)


def _settle(connection: sqlite3.Connection, change: Settle) -> None:
    key = change.subscription_key
    connection.execute(SET_FLOOR, (change.floor, key))
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
    bounds = message_number(topic_key, 0), message_number(topic_key, below) - 1, limit
    return connection.execute(TRIM, bounds).rowcount


def _last_sequence(connection: sqlite3.Connection, topic_key: int) -> int | None:
    row = connection.execute(READ_LAST, _whole_topic(topic_key)).fetchone()
    return row[0] & _SEQUENCE_MASK if row else None


def _whole_topic(key: int) -> tuple[int, int]:
    return message_number(key, 0), message_number(key, _SEQUENCE_MASK)


def _load(connection: sqlite3.Connection) -> Contents:
    connection.execute("BEGIN")  # one view of all tables
    try:
        topics = [
            _load_topic(connection, *row) for row in connection.execute("SELECT * FROM topics ORDER BY key")
        ]
        subscriptions = [
            StoredSubscription(
                key,
                topic_key,
                Subscription.from_json(json.loads(config)),
                _load_progress(connection, key, floor),
            )
            for key, topic_key, config, floor in connection.execute(
                "SELECT * FROM subscriptions ORDER BY key"
            )
        ]
        next_key = connection.execute("SELECT value FROM counters WHERE name = 'next_key'").fetchone()[0]
    finally:
        connection.execute("COMMIT")
    return Contents(topics, subscriptions, next_key)


def _load_topic(connection: sqlite3.Connection, key: int, config: str, next_sequence: int) -> StoredTopic:
    last = _last_sequence(connection, key)
    if last is not None:
        next_sequence = max(next_sequence, last + 1)
    return StoredTopic(key, Topic.from_json(json.loads(config)), next_sequence)


def _load_progress(connection: sqlite3.Connection, key: int, floor: int) -> Progress:
    acked = connection.execute("SELECT first, last FROM acked WHERE subscription_key = ?", (key,))
    failed = connection.execute(
        "SELECT sequence, attempts, due_ns FROM failed WHERE subscription_key = ?", (key,)
    )
    return Progress(
        floor,
        dict(acked.fetchall()),
        {sequence: FailedAttempts(count, due) for sequence, count, due in failed},
    )
