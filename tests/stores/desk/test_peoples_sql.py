"""What people do to the tables with SQL of their own: counters stay right, and the desk does not write over it."""

from __future__ import annotations

from collections import Counter

import pytest

from holdfast.deadletter.audit import verify
from holdfast.deadletter.selection import Selection
from holdfast.deadletter.store import DeskStore
from holdfast.model.failed_message import FailureStatus
from holdfast.testing.contracts.changes import an_action, recorded
from holdfast.testing.contracts.failures import a_failure, all_rows, message_ids
from holdfast.testing.contracts.groups import group_of
from holdfast.testing.contracts.statistics import check_totals
from tests.stores.desk.conftest import Backend, SqliteFile

QUEUED, PERMANENT, REPLAYED = (
    FailureStatus.QUEUED_FOR_RETRY,
    FailureStatus.PERMANENT_FAILURE,
    FailureStatus.REPLAYED,
)
HOUR = 3600 * 1_000_000_000


async def check_counters(store: DeskStore) -> None:
    rows = await all_rows(store)
    assert await store.count_by_status() == dict.fromkeys(FailureStatus, 0) | Counter(row.status for row in rows)
    for fingerprint in {row.fingerprint for row in rows}:
        waiting = [row for row in rows if row.fingerprint == fingerprint and row.status is PERMANENT]
        assert (await group_of(store, fingerprint)).waiting == len(waiting)
    await check_totals(store)
    statistics = await store.statistics(0)
    assert sum(one.retries for one in statistics.by_reason) == sum(row.retry_count for row in rows)


@pytest.fixture
async def filled(durable: DeskStore) -> DeskStore:
    await durable.record(
        [
            a_failure(
                str(n),
                status=QUEUED if n % 3 == 0 else PERMANENT,
                fingerprint="ab"[n % 2],
                retry_at_ns=1_000,
                created_at_ns=n * HOUR,
                attributes={"k": "v"},
            )
            for n in range(12)
        ]
    )
    return durable


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE failed_messages SET status = 'replayed' WHERE message_id IN ('1', '2', '3')",
        "UPDATE failed_messages SET status = 'permanent_failure', retry_count = retry_count + 3",
        "UPDATE failed_messages SET failure_reason = 'OTHER', fingerprint = 'a' WHERE status = 'queued_for_retry'",
        "UPDATE failed_messages SET error_details = 'looked at'",
        "DELETE FROM failed_messages WHERE message_id IN ('3', '4')",
        "DELETE FROM failed_messages",
    ],
)
async def test_counters_stay_right(backend: Backend, filled: DeskStore, sql: str) -> None:
    backend.execute(sql)
    await check_counters(filled)


async def test_a_row_that_was_moved_in_time_is_found_there(backend: Backend, filled: DeskStore) -> None:
    backend.execute(
        "UPDATE failed_messages SET created_at = (SELECT max(created_at) FROM failed_messages) WHERE message_id = '0'"
    )
    assert await message_ids(filled, Selection(since_ns=11 * HOUR)) == ["11", "0"]
    assert await message_ids(filled, Selection(until_ns=2 * HOUR)) == ["1"]
    await check_counters(filled)


async def test_what_was_deleted_leaves_nothing_behind(backend: Backend, filled: DeskStore) -> None:
    backend.execute("DELETE FROM failed_messages WHERE status = 'permanent_failure'")
    assert await filled.count(Selection(attributes={"k": "v"}), 100) == 4
    assert await filled.lost(0) == 8


async def test_the_desk_does_not_write_over_it(backend: Backend, filled: DeskStore) -> None:
    [row] = (await filled.list(Selection(message_id="1"), 1)).failures
    backend.execute("UPDATE failed_messages SET status = 'replayed' WHERE message_id = '1'")
    assert await filled.save([row.schedule_retry(9_000)]) == [False]
    now = await filled.get(row.id)
    assert now is not None
    assert (now.status, now.version) == (REPLAYED, row.version + 1)


async def test_every_change_is_another_version(backend: Backend, filled: DeskStore) -> None:
    before = {row.id: row.version for row in await all_rows(filled)}
    backend.execute("UPDATE failed_messages SET retry_at = NULL")
    assert {row.id: row.version - 1 for row in await all_rows(filled)} == before


async def test_the_time_of_the_status_is_noted(backend: Backend, filled: DeskStore) -> None:
    backend.execute("UPDATE failed_messages SET status = 'replayed' WHERE message_id = '1'")
    backend.execute("UPDATE failed_messages SET error_details = 'x' WHERE message_id = '2'")
    old = "1000000" if isinstance(backend, SqliteFile) else "timestamptz 'epoch' + interval '1 day'"
    changed = backend.execute(f"SELECT message_id FROM failed_messages WHERE changed_at > {old}")
    assert ("1",) in changed


async def test_the_views_have_the_documented_columns(backend: Backend, filled: DeskStore) -> None:
    columns = {
        "v_dlq_statistics": "hour, failure_reason, status, message_count, avg_retry_count",
        "v_active_retry_queue": "message_id, source_topic, failure_reason, retry_count, retry_at, created_at, "
        "seconds_until_retry",
    }
    for view, names in columns.items():
        backend.execute(f"SELECT {names} FROM {view}")


async def test_the_table_has_the_documented_columns_check_and_indexes(backend: Backend, filled: DeskStore) -> None:
    backend.execute(
        "SELECT id, message_id, source_topic, failure_reason, error_details, retry_count, status, original_message, "
        "retry_at, created_at, retry_success_at FROM failed_messages"
    )
    with pytest.raises(Exception, match=r"(?i)check"):
        backend.execute("UPDATE failed_messages SET status = 'lost'")
    listing = (
        "SELECT name FROM sqlite_master WHERE type = 'index'"
        if isinstance(backend, SqliteFile)
        else "SELECT indexname FROM pg_indexes WHERE tablename = 'failed_messages'"
    )
    names = {name for (name,) in backend.execute(listing)}
    assert {
        f"idx_failed_messages_{of}" for of in ("status", "retry_at", "created_at", "failure_reason", "source_topic")
    } <= names


# The audit trail.


@pytest.mark.parametrize("sql", ["UPDATE audit_entries SET actor = 'nobody'", "DELETE FROM audit_entries"])
async def test_the_trail_refuses_changes(backend: Backend, durable: DeskStore, sql: str) -> None:
    await durable.append(an_action())
    with pytest.raises(Exception, match="only ever added to"):
        backend.execute(sql)


@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        ("UPDATE audit_entries SET actor = 'nobody' WHERE number = 3", "entry 3 was changed"),
        ("UPDATE audit_entries SET details = '{\"count\":2}' WHERE number = 3", "entry 3 was changed"),
        ("UPDATE audit_entries SET details = 'rubbish' WHERE number = 3", "entry 3 was changed"),
        ("UPDATE audit_entries SET at_ns = at_ns + 1 WHERE number = 1", "entry 1 was changed"),
        ("UPDATE audit_entries SET hash = replace(hash, 'a', 'b') WHERE number = 4", "entry 4 was changed"),
        ("UPDATE audit_entries SET previous = 'x' WHERE number = 4", "entry 4 does not follow"),
        ("DELETE FROM audit_entries WHERE number = 2", "entry 2 is missing"),
        ("UPDATE audit_entries SET number = -1 WHERE number = 5", "entry 1 is missing"),
    ],
)
async def test_verify_names_what_was_tampered_with(
    backend: Backend, durable: DeskStore, sql: str, problem: str
) -> None:
    for number in range(5):
        await durable.append(an_action("failure.hold", count=1, text=f"abcdef {number}"))
    let_changes_in(backend)
    backend.execute(sql)
    assert problem in (await verify(durable.read_entries())).problem


async def test_a_trail_cut_off_at_its_end_shows_by_a_noted_hash(backend: Backend, durable: DeskStore) -> None:
    entries = [await durable.append(an_action()) for _ in range(3)]
    let_changes_in(backend)
    backend.execute("DELETE FROM audit_entries WHERE number = 3")
    assert (await verify(durable.read_entries())).problem == ""
    assert "cut off" in (await verify(durable.read_entries(), entries[-1].hash)).problem


def let_changes_in(backend: Backend) -> None:
    """As somebody with all rights could."""
    if isinstance(backend, SqliteFile):
        backend.execute("DROP TRIGGER audit_entries_stay")
        backend.execute("DROP TRIGGER audit_entries_are_kept")
    else:
        backend.execute("DROP TRIGGER refuse_change ON audit_entries")


async def test_a_held_row_can_be_found(backend: Backend, durable: DeskStore) -> None:
    await recorded(durable, legal_hold=True)
    assert len(backend.execute("SELECT 1 FROM failed_messages WHERE legal_hold")) == 1
