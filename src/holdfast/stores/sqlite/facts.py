"""Facts and marks of the broker's log in SQLite: what is kept of the past of messages. They are said in
broker/facts.py."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence

from holdfast.broker.facts import FIRST_SLOT, Fact, Mark, Marked, What, oldest_minute, slots_of

# Facts are only ever added at the end, and forgotten from the beginning. An index finds those of a message; few name
# another one, and only these are in the second.
TABLES = """
    CREATE TABLE facts (
        id INTEGER PRIMARY KEY,
        message INTEGER NOT NULL, -- topic and sequence
        at_ns INTEGER NOT NULL,
        what TEXT NOT NULL, subscription_key INTEGER NOT NULL, attempt INTEGER NOT NULL,
        status TEXT NOT NULL, reason TEXT NOT NULL, error TEXT NOT NULL,
        other INTEGER NOT NULL -- another message, or 0
    );
    CREATE INDEX facts_of_message ON facts (message);
    CREATE INDEX facts_of_other ON facts (other) WHERE other <> 0;
    CREATE TABLE marks (
        key INTEGER NOT NULL, slot INTEGER NOT NULL, at_ns INTEGER NOT NULL, below INTEGER NOT NULL,
        PRIMARY KEY (key, slot)
    ) WITHOUT ROWID
"""

ADD = """
    INSERT INTO facts (message, at_ns, what, subscription_key, attempt, status, reason, error, other)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
"""

# Of several messages, by either index.
FACTS_OF = """
    SELECT message, at_ns, what, subscription_key, attempt, status, reason, error, other FROM facts
    WHERE id IN (
        SELECT id FROM facts WHERE message IN (SELECT value FROM json_each(:numbers))
        UNION SELECT id FROM facts WHERE other <> 0 AND other IN (SELECT value FROM json_each(:numbers))
    )
    ORDER BY id LIMIT :limit
"""

# Looks at the oldest alone, so that it costs nothing when there is nothing to forget.
FORGET = (
    "DELETE FROM facts WHERE id IN (SELECT id FROM (SELECT id, at_ns FROM facts ORDER BY id LIMIT ?) WHERE at_ns < ?)"
)

# Not for what was just deleted: nobody would ever delete it again.
PUT_MARK = """
    INSERT OR REPLACE INTO marks (key, slot, at_ns, below)
    SELECT :key, :slot, :at_ns, :below
    WHERE EXISTS (SELECT 1 FROM subscriptions WHERE key = :key) OR EXISTS (SELECT 1 FROM topics WHERE key = :key)
"""
FORGET_MARKS = "DELETE FROM marks WHERE key = ? AND slot BETWEEN 0 AND ?"
DELETE_MARKS = "DELETE FROM marks WHERE key = ?"

MARKED = """
    SELECT key, max(CASE WHEN below <= :sequence THEN at_ns END), min(CASE WHEN below > :sequence THEN at_ns END),
        max(slot = :first_slot AND below > :sequence)
    FROM marks WHERE key IN (SELECT value FROM json_each(:keys)) GROUP BY key
"""


def add(connection: sqlite3.Connection, facts: Sequence[Fact]) -> None:
    connection.executemany(ADD, facts)


def facts_of(connection: sqlite3.Connection, numbers: Sequence[int], limit: int) -> Sequence[Fact]:
    found = connection.execute(FACTS_OF, {"numbers": json.dumps(list(numbers)), "limit": limit})
    return [Fact(message, at_ns, What(what), *rest) for message, at_ns, what, *rest in found]


def forget(connection: sqlite3.Connection, before_ns: int, limit: int) -> int:
    return connection.execute(FORGET, (limit, before_ns)).rowcount


def put_marks(connection: sqlite3.Connection, marks: Sequence[Mark], forget_before_ns: int) -> None:
    connection.executemany(
        PUT_MARK,
        [
            {"key": mark.key, "slot": slot, "at_ns": mark.at_ns, "below": mark.below}
            for mark in marks
            for slot in slots_of(mark)
        ],
    )
    connection.executemany(FORGET_MARKS, [(mark.key, oldest_minute(forget_before_ns) - 1) for mark in marks])


def marked(connection: sqlite3.Connection, keys: Sequence[int], sequence: int) -> Mapping[int, Marked]:
    wanted = {"keys": json.dumps(list(keys)), "sequence": sequence, "first_slot": FIRST_SLOT}
    found = connection.execute(MARKED, wanted).fetchall()
    return {key: Marked(after_ns, by_ns, bool(before_first)) for key, after_ns, by_ns, before_first in found}
