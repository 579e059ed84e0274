"""Stores of every kind for the desk's tests."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import psycopg
import pytest

from holdfast.deadletter.store import DeskStore
from holdfast.stores.postgres.desk import PostgresDeskStore
from holdfast.stores.sqlite.desk import SqliteDeskStore
from holdfast.testing import ManualClock
from tests.support.postgres import database_url, postgres

__all__ = ["database_url", "postgres"]


class Backend(Protocol):
    """A place for a desk's store that outlives it, open to people's own SQL."""

    async def open(self, clock: ManualClock) -> DeskStore: ...

    def execute(self, sql: str) -> Sequence[tuple[Any, ...]]: ...


class SqliteFile:
    def __init__(self, path: Path) -> None:
        self.path = path

    async def open(self, clock: ManualClock) -> DeskStore:
        return await SqliteDeskStore.open(self.path, clock)

    def execute(self, sql: str) -> Sequence[tuple[Any, ...]]:
        connection = sqlite3.connect(self.path, isolation_level=None)
        try:
            return connection.execute(sql).fetchall()
        finally:
            connection.close()


class PostgresDatabase:
    def __init__(self, url: str) -> None:
        self.url = url

    async def open(self, clock: ManualClock) -> DeskStore:
        return await PostgresDeskStore.open(self.url, clock)

    def execute(self, sql: str) -> Sequence[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True, options="-csearch_path=holdfast_desk") as connection:
            cursor = connection.execute(sql.encode())
            return cursor.fetchall() if cursor.description else []


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["sqlite", "postgres"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    if request.param == "sqlite":
        return SqliteFile(tmp_path / "failures.db")
    return PostgresDatabase(request.getfixturevalue("database_url"))


@pytest.fixture
async def durable(backend: Backend, clock: ManualClock) -> AsyncIterator[DeskStore]:
    """In a place that people can look into."""
    store = await backend.open(clock)
    yield store
    await store.close()


@pytest.fixture(params=["sqlite", "memory", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> AsyncIterator[DeskStore]:
    match request.param:
        case "sqlite":
            store: DeskStore = await SqliteDeskStore.open(tmp_path / "failures.db", clock)
        case "memory":
            store = await SqliteDeskStore.in_memory(clock)
        case _:
            store = await PostgresDeskStore.open(request.getfixturevalue("database_url"), clock)
    yield store
    await store.close()


@pytest.fixture
async def reopen(
    backend: Backend, durable: DeskStore, clock: ManualClock
) -> AsyncIterator[Callable[[], Awaitable[DeskStore]]]:
    opened: list[DeskStore] = []

    async def close_and_open() -> DeskStore:
        await durable.close()
        opened.append(await backend.open(clock))
        return opened[-1]

    yield close_and_open
    for again in opened:
        await again.close()
