"""What is SQLite's own in the desk's store."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from holdfast.deadletter.audit import Action, verify
from holdfast.deadletter.selection import Selection
from holdfast.errors import CorruptData, FailedPrecondition, NotFound, StorageUnavailable
from holdfast.model.failed_message import FailureStatus
from holdfast.stores.desk.failures import newest_first
from holdfast.stores.desk.selection import selected
from holdfast.stores.sqlite.database import Database
from holdfast.stores.sqlite.desk import SqliteDeskStore
from holdfast.stores.sqlite.desk_schema import SCHEMA
from holdfast.testing.contracts.failures import (
    BILLING,
    ORDERS,
    a_failure,
    all_rows,
    message_ids,
    record,
)
from tests.support.postgres import database_url, postgres

__all__ = ["database_url", "postgres"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "failures.db"


@pytest.fixture
async def sqlite_store(path: Path) -> AsyncIterator[SqliteDeskStore]:
    store = await SqliteDeskStore.open(path)
    yield store
    await store.close()


@pytest.fixture
def people(path: Path, sqlite_store: SqliteDeskStore) -> Iterator[sqlite3.Connection]:
    """Someone else's connection to the same file: it sees what is committed, and nothing else."""
    connection = sqlite3.connect(path, isolation_level=None)
    yield connection
    connection.close()


async def test_a_recorded_row_is_committed_when_record_returns(
    sqlite_store: SqliteDeskStore, people: sqlite3.Connection
) -> None:
    await record(sqlite_store, a_failure("1"))
    assert people.execute("SELECT message_id FROM failed_messages").fetchall() == [("1",)]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"latitude": 192.5, "latitude": 1.10}', '{"latitude": 192.5, "latitude": 1.10}'),
        (b"null", "null"),
        ("naïve".encode(), '{"base64": "bmHDr3Zl"}'),
        (b"\x00\xff", '{"base64": "AP8="}'),
        (b"", '{"base64": ""}'),
        (b"NaN", '{"base64": "TmFO"}'),
    ],
)
async def test_original_message_is_json_for_people_whatever_was_sent(
    sqlite_store: SqliteDeskStore, people: sqlite3.Connection, data: bytes, expected: str
) -> None:
    await record(sqlite_store, a_failure("1", data=data))
    row = people.execute("SELECT original_message, json_valid(original_message), data FROM failed_messages")
    assert row.fetchone() == (expected, 1, data)


async def test_people_can_ask_for_a_field_of_the_payload(
    sqlite_store: SqliteDeskStore, people: sqlite3.Connection
) -> None:
    await record(sqlite_store, a_failure("1", data=b'{"latitude": 192.5}'))
    found = people.execute("SELECT original_message ->> '$.latitude' FROM failed_messages")
    assert found.fetchone() == (192.5,)


async def test_json_that_is_nested_too_deep_for_sqlite_is_still_a_row(
    sqlite_store: SqliteDeskStore, people: sqlite3.Connection
) -> None:
    await record(sqlite_store, a_failure("1", data=b"[" * 100_000))
    await record(sqlite_store, a_failure("2", data=b"[" * 1500 + b"]" * 1500))
    valid = people.execute("SELECT json_valid(original_message) FROM failed_messages").fetchall()
    assert valid == [(1,), (1,)]


async def test_the_table_refuses_an_unknown_status(sqlite_store: SqliteDeskStore, people: sqlite3.Connection) -> None:
    await record(sqlite_store, a_failure("1"))
    with pytest.raises(sqlite3.IntegrityError, match="CHECK"):
        people.execute("UPDATE failed_messages SET status = 'lost'")


async def test_ids_are_not_given_twice(sqlite_store: SqliteDeskStore, people: sqlite3.Connection) -> None:
    await record(sqlite_store, a_failure("1"))
    [first] = await all_rows(sqlite_store)
    people.execute("DELETE FROM failed_messages")
    await record(sqlite_store, a_failure("2"))
    [second] = await all_rows(sqlite_store)
    assert second.id > first.id


@pytest.mark.parametrize(
    ("wanted", "index"),
    [
        (Selection(statuses=[FailureStatus.REPLAYED]), "idx_failed_messages_status (status=? AND rowid<?)"),
        (Selection(reason="A"), "idx_failed_messages_failure_reason (failure_reason=? AND rowid<?)"),
        (Selection(subscription=ORDERS), "idx_failed_messages_subscription (subscription=? AND rowid<?)"),
    ],
)
async def test_a_filtered_page_is_one_range_of_an_index(
    people: sqlite3.Connection, wanted: Selection, index: str
) -> None:
    found = selected(wanted)
    values = found.values | {"before": 9, "limit": 3}
    plan = people.execute("EXPLAIN QUERY PLAN " + newest_first(found).sqlite, values).fetchall()
    assert len(plan) == 1  # a second step would be sorting
    assert index in plan[0][3]


async def test_a_closed_store_says_so(sqlite_store: SqliteDeskStore) -> None:
    await sqlite_store.close()
    with pytest.raises(StorageUnavailable, match="closed"):
        await record(sqlite_store, a_failure("1"))


async def test_a_reader_sees_what_a_writer_records(path: Path, sqlite_store: SqliteDeskStore) -> None:
    await record(sqlite_store, a_failure("1", subscription=BILLING))
    reader = SqliteDeskStore.read_only(path)
    await record(sqlite_store, a_failure("2"))
    assert await message_ids(reader) == ["2", "1"]
    assert await message_ids(reader, Selection(subscription=BILLING)) == ["1"]
    assert (await reader.count_by_status())[FailureStatus.PERMANENT_FAILURE] == 2
    await reader.close()


async def test_a_reader_changes_nothing(path: Path, sqlite_store: SqliteDeskStore) -> None:
    reader = SqliteDeskStore.read_only(path)
    with pytest.raises(FailedPrecondition, match="reading only"):
        await record(reader, a_failure("1"))
    assert await all_rows(reader) == []
    await reader.close()


def test_a_reader_of_nothing_is_told(path: Path) -> None:
    with pytest.raises(NotFound, match=r"failures\.db"):
        SqliteDeskStore.read_only(path)


async def test_another_parts_file_is_refused(path: Path) -> None:
    other = sqlite3.connect(path)
    other.executescript("PRAGMA application_id = 1; CREATE TABLE t (x)")
    other.close()
    with pytest.raises(CorruptData, match="another"):
        await SqliteDeskStore.open(path)


async def test_attributes_are_json_for_people(sqlite_store: SqliteDeskStore, people: sqlite3.Connection) -> None:
    await record(sqlite_store, a_failure("1", attributes={"tenant": "Zürich"}))
    [(text,)] = people.execute("SELECT attributes FROM failed_messages")
    assert json.loads(text) == {"tenant": "Zürich"}
    assert "Zürich" in text


@pytest.mark.parametrize("bit", [0x01, 0x80])  # still text, and text no more
async def test_a_flipped_byte_of_the_audit_trail_is_named(path: Path, bit: int) -> None:
    store = await SqliteDeskStore.open(path)
    for number in range(3):
        await store.append(Action(f"somebody-{number}", "failure.hold", "7"))
    await store.close()
    flip(path, b"somebody-1", bit)
    reader = SqliteDeskStore.read_only(path)
    assert (await verify(reader.read_entries())).problem == "entry 2 was changed"
    await reader.close()


def flip(path: Path, at: bytes, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[content.index(at)] ^= bit
    path.write_bytes(content)


async def test_a_slow_read_does_not_hold_up_the_others(path: Path) -> None:
    database = await Database.open(path, SCHEMA)
    going_on = threading.Event()
    slow = asyncio.create_task(database.read(lambda _: going_on.wait(10)))
    assert await database.read(lambda connection: connection.execute("SELECT 1").fetchall()) == [(1,)]
    going_on.set()
    assert await slow is True
    await database.close()
