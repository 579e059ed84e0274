"""What an older Holdfast wrote is brought up to date: its rows stay, and all that is kept beside them is filled in."""

from __future__ import annotations

import dataclasses
import json
import sqlite3
from pathlib import Path

import pytest

from holdfast.deadletter.fingerprints import in_group
from holdfast.deadletter.groups import GroupFilter, GroupState
from holdfast.deadletter.selection import Selection
from holdfast.deadletter.store import DeskStore
from holdfast.errors import FailedPrecondition
from holdfast.model.failed_message import FailedMessage, FailureStatus
from holdfast.stores.postgres.database import Database as PostgresDatabase
from holdfast.stores.postgres.database import Migrations
from holdfast.stores.postgres.desk import PostgresDeskStore, PostgresDriver
from holdfast.stores.postgres.desk_schema import MIGRATIONS
from holdfast.stores.sqlite.database import Database as SqliteDatabase
from holdfast.stores.sqlite.desk import SqliteDeskStore, SqliteDriver
from holdfast.stores.sqlite.desk_schema import SCHEMA
from holdfast.testing.contracts.changes import an_action
from holdfast.testing.contracts.failures import a_failure, all_rows, record
from holdfast.testing.contracts.statistics import check_totals

HOUR = 3600 * 1_000_000_000

OLD = [
    a_failure(
        str(number),
        status=FailureStatus.REPLAYED if number == 2 else FailureStatus.PERMANENT_FAILURE,
        error_details=f"order {number} is wrong",
        attributes={"tenant": "ü", "n": str(number)},
        created_at_ns=number * HOUR,
        retry_success_at_ns=5 * HOUR if number == 2 else None,
        retry_count=number,
        data=b"\xff\x00" if number == 3 else b'{"a": 1}',
    )
    for number in range(1, 5)
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The fourth row was deleted: its id must not be given again."""
    path = tmp_path / "failures.db"
    connection = sqlite3.connect(path)
    connection.executescript(SCHEMA.migrations[0])
    connection.execute(f"PRAGMA application_id = {SCHEMA.application_id}")
    connection.execute("PRAGMA user_version = 1")
    for failure in OLD:
        insert_old(connection, failure)
    connection.execute("DELETE FROM failed_messages WHERE message_id = '4'")
    connection.commit()
    connection.close()
    return path


def insert_old(connection: sqlite3.Connection, failure: FailedMessage) -> None:
    row = {
        "message_id": failure.message_id,
        "subscription": failure.subscription,
        "source_topic": failure.source_topic,
        "failure_reason": failure.failure_reason,
        "error_details": failure.error_details,
        "retry_count": failure.retry_count,
        "status": failure.status.value,
        "original_message": "{}",
        "data": failure.data,
        "attributes": json.dumps(dict(failure.attributes)),
        "ordering_key": failure.ordering_key,
        "publish_time": failure.publish_time_ns,
        "delivery_attempt": failure.delivery_attempt,
        "created_at": failure.created_at_ns,
        "retry_success_at": failure.retry_success_at_ns,
        "content_digest": failure.key[-1],
    }
    names = ", ".join(row)
    connection.execute(f"INSERT INTO failed_messages ({names}) VALUES ({', '.join('?' * len(row))})", [*row.values()])


async def test_rows_stay_and_everything_beside_them_is_filled_in(path: Path) -> None:
    store = await SqliteDeskStore.open(path)
    rows = (await all_rows(store))[::-1]
    expected = [in_group(failure) for failure in OLD[:3]]
    assert [(row.id, row.message_id, row.fingerprint) for row in rows] == [
        (number, failure.message_id, failure.fingerprint) for number, failure in enumerate(expected, 1)
    ]
    assert [(row.data, row.attributes, row.status) for row in rows] == [
        (failure.data, failure.attributes, failure.status) for failure in expected
    ]
    assert await store.count(Selection(attributes={"tenant": "ü"}), 10) == 3
    assert (await store.count_by_status())[FailureStatus.PERMANENT_FAILURE] == 2
    [group] = (await store.list_groups(GroupFilter(), 10)).groups
    assert (group.count, group.waiting, group.example) == (3, 2, "order # is wrong")
    assert (group.first_seen_ns, group.last_seen_ns) == (HOUR, 3 * HOUR)
    assert await store.counts_by_hour(group.fingerprint, 0) == {HOUR: 1, 2 * HOUR: 1, 3 * HOUR: 1}
    statistics = await store.statistics(0)
    assert statistics.median_recovery_seconds == 3 * 3600
    assert statistics.by_reason[0].retries == 6
    await store.close()


async def test_a_known_failure_is_known_still_and_a_new_one_gets_a_new_id(path: Path) -> None:
    store = await SqliteDeskStore.open(path)
    assert await record(store, OLD[0]) is False
    [new] = await store.record([a_failure("new")])
    assert new.id > 4
    await store.close()


async def test_who_only_looks_is_told_what_to_do(path: Path) -> None:
    with pytest.raises(FailedPrecondition, match="older Holdfast"):
        SqliteDeskStore.read_only(path)


async def test_a_new_file_and_an_old_one_end_alike(path: Path, tmp_path: Path) -> None:
    await (await SqliteDeskStore.open(path)).close()
    fresh = tmp_path / "fresh.db"
    await (await SqliteDeskStore.open(fresh)).close()
    assert schema_of(path) == schema_of(fresh)


# Totals came later: format 3 of a file, 2 of PostgreSQL.


async def test_a_file_without_totals_gets_them(tmp_path: Path) -> None:
    path = tmp_path / "failures.db"
    older = dataclasses.replace(SCHEMA, migrations=SCHEMA.migrations[:2])
    database = await SqliteDatabase.open(path, older)
    await fill(SqliteDeskStore(SqliteDriver(database, database)))
    await check_filled(await SqliteDeskStore.open(path))


async def test_a_database_without_totals_gets_them(database_url: str) -> None:
    older = Migrations(MIGRATIONS.statements[:1])
    database = await PostgresDatabase.open(database_url, "holdfast_desk", older, by_key=False)
    await fill(PostgresDeskStore(PostgresDriver(database, read_only=False)))
    await check_filled(await PostgresDeskStore.open(database_url))


async def fill(store: DeskStore) -> None:
    statuses = list(FailureStatus)
    for batch in range(3):
        rows = [
            a_failure(
                f"{batch} {n}",
                status=statuses[n % 4],
                fingerprint=f"f{n % 3}" if n % 10 else "",
                failure_reason=f"r{n}" if n > 20 else "usual",
            )
            for n in range(130)
        ]
        await store.record(rows)
    for fingerprint, state in (("f0", GroupState.ACKNOWLEDGED), ("f1", GroupState.RESOLVED)):
        group = await store.get_group(fingerprint)
        assert group is not None
        await store.save_group(dataclasses.replace(group, state=state), an_action())
    await store.erase(Selection(ids=[row.id for row in (await all_rows(store))[:9]]), an_action())
    await store.close()


async def check_filled(store: DeskStore) -> None:
    await check_totals(store)
    totals = await store.totals(0)
    # Reasons are told of groups, which have that of their first member; what was erased is still counted by them.
    assert sum(totals.recorded_by_reason.values()) == sum(totals.recorded.values()) == 390
    assert totals.recorded_by_reason["usual"] >= 60
    now = totals.by_status
    assert totals.permanent == now[FailureStatus.PERMANENT_FAILURE]
    assert sum(totals.settled.values()) == now[FailureStatus.REPLAYED] + now[FailureStatus.RETRY_SUCCESS]
    await store.record([a_failure("later", fingerprint="f1")])  # the triggers are there, too
    await check_totals(store)
    assert sum((await store.totals(0)).recorded.values()) == 391
    await store.close()


def schema_of(path: Path) -> set[tuple[str, str]]:
    connection = sqlite3.connect(path)
    found = connection.execute("SELECT name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'").fetchall()
    connection.close()
    return set(found)
