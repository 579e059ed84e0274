"""The document stores against their contract, and what only SQLite can get wrong."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from holdfast.consumer.documents import DocumentStore
from holdfast.errors import CorruptData, NotFound, StorageUnavailable
from holdfast.model.outcome import Applied
from holdfast.stores.memory.documents import MemoryDocumentStore
from holdfast.stores.sqlite.documents import SCHEMA, SqliteDocumentStore
from holdfast.testing.contracts.documents import DocumentStoreContract, DurableDocumentStoreContract, a_write, one


class TestMemoryDocuments(DocumentStoreContract):
    @pytest.fixture
    def store(self) -> DocumentStore:
        return MemoryDocumentStore()


class TestSqliteDocuments(DurableDocumentStoreContract):
    path: Path
    opened: list[SqliteDocumentStore]

    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[DocumentStore]:
        self.path, self.opened = tmp_path / "documents.db", []
        yield await self._open()
        for store in self.opened:
            await store.close()

    async def reopened(self, store: DocumentStore) -> DocumentStore:
        await store.close()
        return await self._open()

    async def _open(self) -> SqliteDocumentStore:
        self.opened.append(await SqliteDocumentStore.open(self.path))
        return self.opened[-1]

    @pytest.mark.parametrize("table", ["documents", "marks"])
    async def test_a_failing_transaction_leaves_nothing(self, store: DocumentStore, table: str) -> None:
        with failing_inserts(self.path, table), pytest.raises(StorageUnavailable, match="disk on fire"):
            await one(store, a_write(keys=("one", "two")))
        assert await store.get("things", "doc") is None
        assert marks(self.path) == set()
        assert isinstance(await one(store, a_write(keys=("one", "two"))), Applied)
        assert marks(self.path) == {"one", "two"}

    async def test_the_file_says_what_it_is(self, store: DocumentStore) -> None:
        with contextlib.closing(sqlite3.connect(self.path)) as connection:
            assert connection.execute("PRAGMA application_id").fetchone() == (0x48464402,)
            assert connection.execute("PRAGMA user_version").fetchone() == (SCHEMA.version,)

    async def test_reading_only_sees_what_another_store_writes(self, store: DocumentStore) -> None:
        await one(store, a_write(fields={"n": 1}))
        reader = SqliteDocumentStore.read_only(self.path)
        self.opened.append(reader)
        await one(store, a_write("m2", event_time=200, fields={"n": 2}))
        document = await reader.get("things", "doc")
        assert document is not None
        assert document.fields == {"n": 2}
        assert list(await reader.collections()) == ["things"]
        with pytest.raises(StorageUnavailable, match="reading only"):
            await one(reader, a_write("m3"))


def test_reading_only_needs_a_file(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"absent\.db"):
        SqliteDocumentStore.read_only(tmp_path / "absent.db")
    assert list(tmp_path.iterdir()) == []


async def test_a_file_of_another_program_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "documents.db"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA application_id = 1")
        connection.execute("CREATE TABLE theirs (x)")
    with pytest.raises(CorruptData):
        await SqliteDocumentStore.open(path)


@contextlib.contextmanager
def failing_inserts(path: Path, table: str) -> Iterator[None]:
    """A fault in the middle of the transaction, made by SQLite itself."""
    fault = f"CREATE TRIGGER fault AFTER INSERT ON {table} BEGIN SELECT RAISE(ABORT, 'disk on fire'); END"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(fault)
        yield
        connection.execute("DROP TRIGGER fault")


def marks(path: Path) -> set[str]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return {key for (key,) in connection.execute("SELECT id FROM marks")}
