"""The desk's store in one SQLite file, or in memory."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self, TypeVar

from holdfast.clock import Clock
from holdfast.errors import FailedPrecondition
from holdfast.stores.desk.rows import original_message
from holdfast.stores.desk.statements import Ask, AskMany, Json, Operation, PayloadJson, Plain, Row
from holdfast.stores.desk.store import SqlDeskStore
from holdfast.stores.sqlite.database import Database, ReadOnlyDatabase
from holdfast.stores.sqlite.desk_schema import SCHEMA

T = TypeVar("T")


class SqliteDeskStore(SqlDeskStore):
    """Made by `open`, or by `read_only` for a look into a file that another process may be writing."""

    @classmethod
    async def open(cls, path: Path, clock: Clock | None = None) -> Self:
        database = await Database.open(path, SCHEMA)
        return cls(SqliteDriver(database, database), clock)

    @classmethod
    async def open_shared(cls, path: Path, clock: Clock | None = None) -> Self:
        """To record failures beside the desk that has the file."""
        database = await Database.open_shared(path, SCHEMA)
        return cls(SqliteDriver(database, database), clock)

    @classmethod
    async def in_memory(cls, clock: Clock | None = None) -> Self:
        """Gone when it is closed."""
        database = await Database.in_memory(SCHEMA)
        return cls(SqliteDriver(database, database), clock)

    @classmethod
    def read_only(cls, path: Path) -> Self:
        return cls(SqliteDriver(ReadOnlyDatabase(path, SCHEMA), None))


class SqliteDriver:
    def __init__(self, reader: Database | ReadOnlyDatabase, writer: Database | None) -> None:
        self._reader = reader
        self._writer = writer

    async def read(self, make: Callable[[], Operation[T]]) -> T:
        return await self._reader.read(lambda connection: _run(connection, make()))

    async def read_at_once(self, make: Callable[[], Operation[T]]) -> T:
        return await self._reader.read(lambda connection: _at_once(connection, make()))

    async def write(self, make: Callable[[], Operation[T]]) -> T:
        if self._writer is None:
            raise FailedPrecondition("this failure store was opened for reading only")
        return await self._writer.submit(lambda connection: _run(connection, make()))

    async def check(self) -> None:
        await self._reader.check_reading()
        if self._writer is not None:
            await self._writer.check_room()

    async def close(self) -> None:
        await self._reader.close()


def _at_once(connection: sqlite3.Connection, operation: Operation[T]) -> T:
    if connection.in_transaction:  # in memory a read is a part of what is written
        return _run(connection, operation)
    connection.execute("BEGIN")
    try:
        return _run(connection, operation)
    finally:
        connection.execute("ROLLBACK")


def _run(connection: sqlite3.Connection, operation: Operation[T]) -> T:
    try:
        asked = next(operation)
        while True:
            asked = operation.send(_rows(connection, asked))
    except StopIteration as done:
        result: T = done.value
        return result


def _rows(connection: sqlite3.Connection, asked: Ask | AskMany) -> list[Row]:
    if isinstance(asked, Ask):
        return connection.execute(asked.sql.sqlite, _written(asked.values)).fetchall()
    text = asked.batch.sql.sqlite
    if not asked.batch.gives_rows:
        connection.executemany(text, map(_written, asked.rows))
        return []
    return [row for values in asked.rows for row in connection.execute(text, _written(values)).fetchall()]


def _written(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value if (write := _WRITERS.get(type(value))) is None else write(value) for name, value in values.items()
    }


def _plain(value: Plain) -> Any:
    return json.dumps(value.value) if isinstance(value.value, list) else value.value


# By the exact type, because a batch has ten thousands of values.
_WRITERS: Mapping[type, Callable[[Any], Any]] = {
    Json: lambda value: json.dumps(value.value, ensure_ascii=False),
    PayloadJson: lambda value: original_message(value.data),
    Plain: _plain,
    list: json.dumps,
}
