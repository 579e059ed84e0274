"""The desk's store in a PostgreSQL database, which several desks may use at once."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self, TypeVar

from psycopg import AsyncConnection

from holdfast.clock import Clock
from holdfast.errors import FailedPrecondition
from holdfast.stores.desk.rows import in_base64, original_message
from holdfast.stores.desk.statements import Ask, AskMany, Json, Operation, PayloadJson, Plain, Row
from holdfast.stores.desk.store import SqlDeskStore
from holdfast.stores.postgres.database import Database
from holdfast.stores.postgres.desk_schema import MIGRATIONS
from holdfast.stores.postgres.texts import from_text, to_text, to_texts, without_nul

T = TypeVar("T")

# Beside the one of the documents, which may be in the same database.
DEFAULT_SCHEMA = "holdfast_desk"

# Rows of one statement, and how long their texts are together: the server reads them as one JSON value.
_ROWS_AT_ONCE = 1000
_LETTERS_AT_ONCE = 32 * 1024 * 1024

# An erasure or a legal hold of a million rows takes minutes.
_WORK_SECONDS = 600.0

# What jsonb cannot hold although it is JSON: NUL in a string, and numbers of more than a thousand digits.
_NOT_FOR_JSONB = re.compile(r"\\u0000|[eE][+-]?\d{4,}|\d{1001,}")


class PostgresDeskStore(SqlDeskStore):
    """Opened by `open`, or by `read_only` to look at what other processes write."""

    @classmethod
    async def open(cls, url: str, clock: Clock | None = None, schema: str = DEFAULT_SCHEMA) -> Self:
        database = await Database.open(url, schema, MIGRATIONS, by_key=False, work_seconds=_WORK_SECONDS)
        return cls(PostgresDriver(database, read_only=False), clock)

    @classmethod
    async def read_only(cls, url: str, schema: str = DEFAULT_SCHEMA) -> Self:
        database = await Database.open(url, schema, MIGRATIONS, read_only=True, by_key=False)
        return cls(PostgresDriver(database, read_only=True))


class PostgresDriver:
    def __init__(self, database: Database, *, read_only: bool) -> None:
        self._database = database
        self._read_only = read_only

    async def read(self, make: Callable[[], Operation[T]]) -> T:
        return await self._database.run(lambda connection, _: _run(connection, make()))

    async def read_at_once(self, make: Callable[[], Operation[T]]) -> T:
        return await self._database.run(lambda connection, _: _at_once(connection, make()))

    async def write(self, make: Callable[[], Operation[T]]) -> T:
        if self._read_only:
            raise FailedPrecondition("this failure store was opened for reading only")
        return await self._database.run(lambda connection, _: _in_transaction(connection, make()))

    async def check(self) -> None:
        await self._database.check()

    async def close(self) -> None:
        await self._database.close()


_BEGIN_READING = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


async def _at_once(connection: AsyncConnection, operation: Operation[T]) -> T:
    await connection.execute(_BEGIN_READING)
    return await _run(connection, operation)  # whoever gave us the connection ends it


async def _in_transaction(connection: AsyncConnection, operation: Operation[T]) -> T:
    async with connection.transaction():
        return await _run(connection, operation)


async def _run(connection: AsyncConnection, operation: Operation[T]) -> T:
    try:
        asked = next(operation)
        while True:
            asked = operation.send(await _rows(connection, asked))
    except StopIteration as done:
        result: T = done.value
        return result


async def _rows(connection: AsyncConnection, asked: Ask | AskMany) -> Sequence[Row]:
    if isinstance(asked, Ask):
        values = {name: _value(value) for name, value in asked.values.items()}
        return await _fetched(connection, asked.sql.postgres, values)
    rows: list[Row] = []
    for part in _parts([_batch_row(asked, row) for row in asked.rows]):
        rows += await _fetched(connection, asked.batch.sql.postgres, {"rows": f"[{','.join(part)}]"})
    return rows


async def _fetched(connection: AsyncConnection, text: str, values: Mapping[str, Any]) -> list[Row]:
    cursor = await connection.execute(text.encode(), values)
    if cursor.description is None:
        return []
    return [tuple(map(from_text, row)) for row in await cursor.fetchall()]


def _parts(rows: Sequence[str]) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    letters = 0
    for row in rows:
        if parts[-1] and (len(parts[-1]) >= _ROWS_AT_ONCE or letters + len(row) > _LETTERS_AT_ONCE):
            parts.append([])
            letters = 0
        parts[-1].append(row)
        letters += len(row)
    return parts if rows else []


# Values.


def _batch_row(asked: AskMany, row: Mapping[str, Any]) -> str:
    return _JSON.encode({name: _batch_value(row[name]) for name in asked.batch.columns})


def _batch_value(value: Any) -> Any:
    write = _BATCH_WRITERS.get(type(value))
    return value if write is None else write(value)


def _value(value: Any) -> Any:
    write = _WRITERS.get(type(value))
    return value if write is None else write(value)


def _jsonb(data: bytes) -> str:
    text = original_message(data)
    return in_base64(data) if _NOT_FOR_JSONB.search(text) else text


_JSON = json.JSONEncoder(ensure_ascii=False)

# By the exact type, because a batch has ten thousands of values.
_WRITERS: Mapping[type, Callable[[Any], Any]] = {
    str: to_text,
    list: to_texts,
    Json: lambda value: _JSON.encode(to_texts(value.value)),
    Plain: lambda value: without_nul(value.value),
    PayloadJson: lambda value: _jsonb(value.data),
}
_BATCH_WRITERS: Mapping[type, Callable[[Any], Any]] = {
    **_WRITERS,
    bytes: lambda value: base64.b64encode(value).decode(),
}
