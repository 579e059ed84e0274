"""What is PostgreSQL's own in the desk's store: people's SQL as it is documented, and several desks at once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import psycopg
import pytest

from holdfast.deadletter.audit import verify
from holdfast.deadletter.selection import Selection
from holdfast.errors import FailedPrecondition, NotFound
from holdfast.model.failed_message import FailedMessage, FailureStatus
from holdfast.stores.postgres.desk import PostgresDeskStore
from holdfast.testing.contracts.changes import an_action, recorded
from holdfast.testing.contracts.failures import a_failure, all_rows, message_ids
from tests.stores.desk.conftest import PostgresDatabase

QUEUED, REPLAYED, SUCCESS = FailureStatus.QUEUED_FOR_RETRY, FailureStatus.REPLAYED, FailureStatus.RETRY_SUCCESS


@pytest.fixture
def people(database_url: str) -> PostgresDatabase:
    return PostgresDatabase(database_url)


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[PostgresDeskStore]:
    async with opened(database_url) as store:
        yield store


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[PostgresDeskStore]:
    store = await PostgresDeskStore.open(url)
    try:
        yield store
    finally:
        await store.close()


# People's SQL.


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"latitude": 192.5}', {"latitude": 192.5}),
        (b"null", None),
        (b"\x00\xff", {"base64": "AP8="}),
        (b'{"nul": "\\u0000"}', {"base64": "eyJudWwiOiAiXHUwMDAwIn0="}),
        (b'{"tiny": 1e-99999}', {"base64": "eyJ0aW55IjogMWUtOTk5OTl9"}),
        (b"[" * 1500 + b"]" * 1500, {"base64": "WyBb"}),
    ],
)
async def test_original_message_is_json_whatever_was_sent(
    store: PostgresDeskStore, people: PostgresDatabase, data: bytes, expected: object
) -> None:
    await recorded(store, data=data)
    [(found, kept)] = people.execute("SELECT original_message, data FROM failed_messages")
    assert kept == data
    assert found == expected or (len(data) == 3000 and "base64" in found)


async def test_the_guide_works_as_it_is_written(store: PostgresDeskStore, people: PostgresDatabase) -> None:
    await recorded(store, "FIRMS_20250104_00142", data=b'{"latitude": 192.58}')
    assert people.execute("SELECT status, COUNT(*) as count FROM failed_messages GROUP BY status") == [
        ("permanent_failure", 1)
    ]
    [(original,)] = people.execute(
        "SELECT original_message FROM failed_messages WHERE message_id = 'FIRMS_20250104_00142'"
    )
    assert original["latitude"] == 192.58
    people.execute(
        "UPDATE failed_messages SET status = 'replayed', retry_success_at = NOW() "
        "WHERE message_id = 'FIRMS_20250104_00142'"
    )
    [row] = await all_rows(store)
    assert (row.status, row.retry_success_at_ns is not None, row.version) == (REPLAYED, True, 2)
    people.execute("SELECT * FROM v_dlq_statistics WHERE hour > NOW() - INTERVAL '24 hours'")
    people.execute("SELECT * FROM v_active_retry_queue LIMIT 5")
    assert people.execute("SELECT cleanup_old_dlq_messages(30)") == [(0,)]


async def test_the_views_show_what_they_should(store: PostgresDeskStore, people: PostgresDatabase) -> None:
    people.execute(
        "INSERT INTO failed_messages (message_id, source_topic, failure_reason, retry_count, status, original_message,"
        " retry_at) VALUES ('m', 'firms', 'API_RATE_LIMIT', 1, 'queued_for_retry', '{\"a\": 1}',"
        " NOW() + INTERVAL '60 seconds'), ('n', 'firms', 'API_RATE_LIMIT', 2, 'queued_for_retry', '{}', NULL)"
    )
    [(reason, count, average)] = people.execute(
        "SELECT failure_reason, message_count, avg_retry_count FROM v_dlq_statistics"
    )
    assert (reason, count, average) == ("API_RATE_LIMIT", 2, 1.5)
    [(message_id, seconds)] = people.execute("SELECT message_id, seconds_until_retry FROM v_active_retry_queue")
    assert (message_id, 50 < seconds <= 60) == ("m", True)
    [_, row] = await all_rows(store)
    assert (row.message_id, row.data, row.attributes) == ("m", b'{"a": 1}', {})


async def test_cleanup_spares_the_young_the_held_and_the_failed(
    store: PostgresDeskStore, people: PostgresDatabase
) -> None:
    await store.record(
        [
            a_failure("old", status=REPLAYED, retry_success_at_ns=1_000),
            a_failure("success", status=SUCCESS, retry_success_at_ns=1_000),
            a_failure("held", status=REPLAYED, retry_success_at_ns=1_000, legal_hold=True),
            a_failure("failed"),
        ]
    )
    await recorded(store, "young")
    people.execute("UPDATE failed_messages SET status = 'replayed' WHERE message_id = 'young'")
    # Somebody whose search path is another.
    with psycopg.connect(people.url) as connection:
        deleted = connection.execute("SELECT holdfast_desk.cleanup_old_dlq_messages(30)").fetchone()
    assert deleted == (2,)
    assert await message_ids(store) == ["young", "failed", "held"]
    assert sum((await store.count_by_status()).values()) == 3


async def test_truncate_leaves_no_counters(store: PostgresDeskStore, people: PostgresDatabase) -> None:
    await recorded(store, attributes={"k": "v"})
    people.execute("TRUNCATE failed_messages")
    assert sum((await store.count_by_status()).values()) == 0
    assert await store.count(Selection(attributes={"k": "v"}), 10) == 0


async def test_truncate_gives_up_the_places_in_ordering_keys(
    store: PostgresDeskStore, people: PostgresDatabase
) -> None:
    await recorded(store, "1", ordering_key="k")
    await recorded(store, "2", ordering_key="k", sent_message_id="retry", retry_count=1)
    await recorded(store, "3")
    out = {"status": QUEUED, "retry_count": 1, "sent_at_ns": 5_000, "sent_message_id": "out"}
    await recorded(store, "4", ordering_key="k", **out)
    people.execute("TRUNCATE failed_messages")
    assert [(place.message_id, place.is_taken) for place in await store.freed_places(10)] == [
        ("1", False),
        ("retry", False),
    ]


# Several desks.


async def test_two_desks_never_claim_the_same_retry(store: PostgresDeskStore, database_url: str) -> None:
    await store.record([a_failure(str(n), status=QUEUED, retry_at_ns=1_000) for n in range(300)])

    async def claim_all(desk: PostgresDeskStore, chance: random.Random) -> list[int]:
        claimed = []
        while due := list(await desk.due_for_retry(2_000, 20)):
            chance.shuffle(due)
            kept = await desk.save([row.claim_retry(10**12) for row in due])
            claimed += [row.id for row, is_kept in zip(due, kept, strict=True) if is_kept]
        return claimed

    async with opened(database_url) as other:
        claims = await asyncio.gather(
            *(claim_all(desk, random.Random(n)) for n, desk in enumerate((store, other, store, other)))
        )
    everything = [failure_id for claimed in claims for failure_id in claimed]
    assert len(everything) == len(set(everything)) == 300


async def test_desks_that_record_the_same_agree_on_it(store: PostgresDeskStore, database_url: str) -> None:
    failures = [a_failure(str(n), fingerprint=f"f{n % 7}", attributes={"n": str(n % 3)}) for n in range(200)]

    async def record_all(desk: PostgresDeskStore, seed: int) -> Sequence[bool]:
        shuffled = random.Random(seed).sample(failures, len(failures))
        new: list[bool] = []
        for start in range(0, len(shuffled), 20):
            new += [row.is_new for row in await desk.record(shuffled[start : start + 20])]
        return new

    async with opened(database_url) as other:
        outcomes = await asyncio.gather(*(record_all(desk, n) for n, desk in enumerate((store, other) * 3)))
    assert sum(is_new for outcome in outcomes for is_new in outcome) == 200
    assert sum((await store.count_by_status()).values()) == 200
    groups = [await store.get_group(f"f{n}") for n in range(7)]
    assert sum(group.count for group in groups if group) == 200


async def test_one_chain_of_all_desks(store: PostgresDeskStore, database_url: str) -> None:
    async with opened(database_url) as other:
        rows = [await recorded(store, str(n)) for n in range(10)]
        await asyncio.gather(
            *(desk.append(an_action("append")) for desk in (store, other) * 10),
            *(other.save([row.hold(True)], an_action("save")) for row in rows),
        )
    verdict = await verify(store.read_entries())
    assert (verdict.number, verdict.problem) == (30, "")


async def test_desks_of_one_database_have_one_name(store: PostgresDeskStore, database_url: str) -> None:
    async with opened(database_url) as other:
        assert await store.store_id() == await other.store_id()
        assert await store.secret() == await other.secret()


# Looking only.


async def test_a_reader_sees_what_a_desk_writes_and_changes_nothing(
    store: PostgresDeskStore, database_url: str
) -> None:
    reader = await PostgresDeskStore.read_only(database_url)
    try:
        await recorded(store)
        assert await message_ids(reader) == ["1"]
        with pytest.raises(FailedPrecondition, match="reading only"):
            await reader.record([a_failure("2")])
    finally:
        await reader.close()


async def test_a_reader_of_nothing_is_told(database_url: str) -> None:
    with pytest.raises(NotFound, match="holdfast_desk"):
        await PostgresDeskStore.read_only(database_url)


async def test_more_rows_than_one_statement_takes(store: PostgresDeskStore) -> None:
    failures: list[FailedMessage] = [a_failure(str(n), attributes={"n": str(n)}) for n in range(2500)]
    recorded_rows = await store.record(failures)
    assert [row.id for row in recorded_rows] == sorted(row.id for row in recorded_rows)
    assert await store.count(Selection(), 10_000) == 2500
    assert await message_ids(store, Selection(attributes={"n": "2222"})) == ["2222"]
