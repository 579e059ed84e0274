"""What is in a data directory, read past Holdfast: rows by SQL, files by their hash."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from holdfast.broker.topics import SEQUENCE_BITS

DATABASES = ("broker.db", "documents.db", "failures.db")


def rows(database: Path, query: str, *values: object) -> list[tuple[Any, ...]]:
    """Read-only, so that looking changes nothing."""
    with closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True, timeout=10)) as connection:
        return connection.execute(query, values).fetchall()


def is_settled(data: Path, subscription: str, message_id: str) -> bool:
    """Whether the log on disk says that this subscription is done with this message: nothing will send it again."""
    topic_key, sequence = divmod(int(message_id), 1 << SEQUENCE_BITS)
    found = rows(
        data / "broker.db",
        "SELECT key, floor FROM subscriptions WHERE topic_key = ? AND config ->> '$.name' LIKE ?",
        topic_key,
        f"%/subscriptions/{subscription}",
    )
    assert len(found) == 1, f"{subscription} is not on the topic of {message_id}"
    key, floor = found[0]
    above = "SELECT 1 FROM acked WHERE subscription_key = ? AND ? BETWEEN first AND last"
    waiting = "SELECT 1 FROM failed WHERE subscription_key = ? AND sequence = ?"
    done = sequence < floor or bool(rows(data / "broker.db", above, key, sequence))
    return done and not rows(data / "broker.db", waiting, key, sequence)


def snapshot(directory: Path) -> Mapping[str, str]:
    """The hash of every file. Without what SQLite puts beside a database for anyone who looks into it, and which holds
    nothing: the shared memory, and a -wal that is empty."""
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and not path.name.endswith("-shm") and not (path.name.endswith("-wal") and is_empty(path))
    }


def is_empty(path: Path) -> bool:
    return path.stat().st_size == 0
