"""Every message log keeps the contract; below it, what is SQLite's own."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import sqlite3
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from holdfast.broker.facts import Fact, Mark, Marked, What
from holdfast.broker.log import (
    AddFacts,
    Append,
    Change,
    DeleteRecord,
    DeleteSubscription,
    DeleteTopic,
    FailedAttempts,
    MessageLog,
    PutMarks,
    PutRecord,
    PutSubscription,
    PutTopic,
    Settle,
    StoredMessage,
)
from holdfast.errors import StorageUnavailable
from holdfast.model.resources import Topic
from holdfast.stores.memory.log import MemoryMessageLog
from holdfast.stores.sqlite import log as sqlite_log
from holdfast.stores.sqlite.database import Database
from holdfast.stores.sqlite.log import SCHEMA, SqliteMessageLog
from holdfast.testing.contracts.log import (
    NOW,
    DurableMessageLogContract,
    MessageLogContract,
    a_subscription,
    a_topic,
    messages,
    new_keys,
    progress_of,
    sequences_in,
    with_subscription,
    with_topic,
)
from holdfast.testing.contracts.log_model import Reopen


class TestMemory(MessageLogContract):
    @pytest.fixture
    def log(self) -> MessageLog:
        return MemoryMessageLog()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "broker.db"


class TestSqlite(DurableMessageLogContract):
    @pytest.fixture
    async def log(self, path: Path) -> AsyncIterator[MessageLog]:
        log = await SqliteMessageLog.open(path)
        yield log
        await log.close()

    @pytest.fixture
    async def reopen(self, path: Path, log: MessageLog) -> AsyncIterator[Reopen]:
        opened: list[MessageLog] = [log]

        async def close_and_open() -> MessageLog:
            await opened[-1].close()
            opened.append(await SqliteMessageLog.open(path))
            return opened[-1]

        yield close_and_open
        await opened[-1].close()


@pytest.fixture
async def log(path: Path) -> AsyncIterator[SqliteMessageLog]:
    log = await SqliteMessageLog.open(path)
    yield log
    await log.close()


@pytest.fixture
def people(path: Path, log: SqliteMessageLog) -> Iterator[sqlite3.Connection]:
    """Someone else's connection to the same file: it sees what is committed, and nothing else."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


async def test_what_was_committed_is_on_disk_at_return(log: SqliteMessageLog, people: sqlite3.Connection) -> None:
    topic = await with_topic(log, 1, 2)
    assert people.execute("SELECT sum(count) FROM messages").fetchone() == (2,)
    await log.trim(topic, 2, 10)
    assert people.execute("SELECT sum(count) FROM messages").fetchone() == (1,)


async def test_deleting_leaves_no_row_behind(log: SqliteMessageLog, people: sqlite3.Connection) -> None:
    topic, key = await new_keys(log, 2)
    await log.commit([PutTopic(topic, a_topic()), Append(topic, messages(1, 2)), PutRecord("a", "b", b"c")])
    await log.commit([PutSubscription(key, topic, a_subscription(), 1)])
    await log.commit([Settle(key, 1, ranges_set={2: 2}, failed_set={1: FailedAttempts(1, NOW)})])
    assert rows_by_table(people) == dict.fromkeys(TABLES, 1)
    await log.commit([DeleteSubscription(key), DeleteTopic(topic), DeleteRecord("a", "b")])
    assert rows_by_table(people) == dict.fromkeys(TABLES, 0)


async def test_what_is_published_while_its_topic_is_deleted_leaves_no_row_behind(
    log: SqliteMessageLog, people: sqlite3.Connection
) -> None:
    topic = await with_topic(log, 1)
    key = await with_subscription(log)
    late: list[Change] = [Append(topic, messages(2)), Settle(key, 1, ranges_set={2: 2})]
    outcomes = await asyncio.gather(
        log.commit([DeleteTopic(topic), DeleteSubscription(key)]),
        *(log.commit([change]) for change in late),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes] == [type(None), StorageUnavailable, StorageUnavailable]
    assert rows_by_table(people) == dict.fromkeys(TABLES, 0) | {"topics": 1}


@pytest.mark.parametrize("table", ["messages", "acked", "failed", "subscriptions"])
async def test_a_fault_in_the_middle_of_a_commit_leaves_nothing(
    log: SqliteMessageLog, people: sqlite3.Connection, table: str
) -> None:
    topic = await with_topic(log, 1)
    [key] = await new_keys(log, 1)
    before = rows_by_table(people)
    everything: list[Change] = [
        Append(topic, messages(2)),
        PutSubscription(key, topic, a_subscription(), 1),
        Settle(key, 1, ranges_set={2: 2}, failed_set={1: FailedAttempts(1, NOW)}),
    ]
    with failing_inserts(people, table), pytest.raises(StorageUnavailable, match="disk on fire"):
        await log.commit(everything)
    assert rows_by_table(people) == before
    await log.commit(everything)
    assert await sequences_in(log, topic) == [1, 2]


async def test_a_load_sees_one_moment(log: SqliteMessageLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Progress that is committed while topics are being read must not come without the message it speaks of."""
    topic, key = await new_keys(log, 2)
    await log.commit([PutTopic(topic, a_topic()), PutSubscription(key, topic, a_subscription(), 1)])
    loop, load_topic = asyncio.get_running_loop(), sqlite_log._load_topic

    def load_topic_then_commit(connection: sqlite3.Connection, *row: object) -> object:
        found = load_topic(connection, *row)  # type: ignore[arg-type]
        meanwhile = log.commit([Append(topic, messages(1)), Settle(key, 2)])
        asyncio.run_coroutine_threadsafe(meanwhile, loop).result(10)
        return found

    monkeypatch.setattr(sqlite_log, "_load_topic", load_topic_then_commit)
    contents = await log.load()
    assert contents.topics[0].next_sequence == 1
    assert contents.subscriptions[0].progress.floor == 1
    monkeypatch.undo()
    assert (await progress_of(log, key)).floor == 2


async def test_reading_uses_the_primary_key_only(people: sqlite3.Connection) -> None:
    for query in (sqlite_log.READ_BLOCKS, sqlite_log.READ_TIME, sqlite_log.READ_LAST, sqlite_log.READ_OLDEST):
        values = (1, 2, 3)[: query.count("?")]
        [(_, _, _, plan)] = people.execute("EXPLAIN QUERY PLAN " + query, values)
        assert plan == "SEARCH messages USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"


async def test_a_closed_log_says_so(log: SqliteMessageLog) -> None:
    topic = await with_topic(log, 1)
    await log.close()
    for call in (log.commit([]), log.trim(topic, 2, 1), log.read_from(topic, 1, 1, 1), log.read_one(topic, 1)):
        with pytest.raises(StorageUnavailable, match="closed"):
            await call


TABLES = ("topics", "subscriptions", "messages", "acked", "failed", "records")


def rows_by_table(people: sqlite3.Connection) -> dict[str, int]:
    return {table: people.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in TABLES}


@contextlib.contextmanager
def failing_inserts(people: sqlite3.Connection, table: str) -> Iterator[None]:
    """A fault in the middle of the transaction, made by SQLite itself."""
    people.execute(f"CREATE TRIGGER fault AFTER INSERT ON {table} BEGIN SELECT RAISE(ABORT, 'disk on fire'); END")
    yield
    people.execute("DROP TRIGGER fault")


async def test_a_large_deleted_topic_goes_in_steps(tmp_path: Path) -> None:
    log = await SqliteMessageLog.open(tmp_path / "broker.db")
    key = (await log.load()).next_key
    await log.commit([PutTopic(key, Topic("projects/p/topics/large"))])
    await log.commit([Append(key, [StoredMessage(sequence, 1, b"x") for sequence in range(1, 5001)])])
    await log.commit([DeleteTopic(key)])
    steps = []
    while deleted := await log.purge(1000):
        steps.append(deleted)
    assert sum(steps) == 3000
    assert max(steps) == 1000
    assert await log.read_from(key, 1, 5000, 10) == []
    await log.close()


async def test_times_are_found_inside_a_block_and_blocks_are_cut(tmp_path: Path) -> None:
    log = await SqliteMessageLog.open(tmp_path / "broker.db")
    key = (await log.load()).next_key
    await log.commit([PutTopic(key, Topic("projects/p/topics/blocks"))])
    for begin in range(1, 1001, 100):
        block = [StoredMessage(sequence, sequence * 10, b"%d" % sequence) for sequence in range(begin, begin + 100)]
        await log.commit([Append(key, block)])
    for wanted, found in [
        (0, 1),
        (10, 1),
        (11, 2),
        (1000, 100),
        (1001, 101),
        (5555, 556),
        (10_000, 1000),
        (10_001, 1001),
    ]:
        assert await log.first_since(key, wanted) == found
    assert await log.trim(key, 251, 1000) == 250
    assert await log.trim(key, 1000, 30) == 30
    assert [message.body for message in await log.read_from(key, 1, 290, 1000)] == [b"%d" % n for n in range(281, 291)]
    assert (await log.read_one(key, 1000)) == StoredMessage(1000, 10_000, b"1000")
    assert await log.read_one(key, 280) is None
    await log.close()


async def test_a_file_from_before_facts_gets_them_and_keeps_all_else(path: Path) -> None:
    """Format 1, as it was written before a message's past was kept."""
    older = dataclasses.replace(SCHEMA, migrations=SCHEMA.migrations[:1])
    log = SqliteMessageLog(await Database.open(path, older))
    topic = await with_topic(log, 1, 2, 5)
    subscription = topic + 1
    await log.commit([PutSubscription(subscription, topic, a_subscription(), 1)])
    await log.commit([Settle(subscription, 2, ranges_set={4: 4}, failed_set={2: FailedAttempts(3, NOW)})])
    before = await log.load()
    await log.close()
    log = await SqliteMessageLog.open(path)
    try:
        assert await log.load() == before
        assert await sequences_in(log, topic) == [1, 2, 5]
        fact = Fact(7, NOW, What.FAILED, subscription, 4)
        await log.commit([AddFacts([fact]), PutMarks([Mark(subscription, NOW, 3)], 0)])
        assert list(await log.facts_of([7], 10)) == [fact]
        assert (await log.marked([subscription], 2))[subscription] == Marked(None, NOW, False)
    finally:
        await log.close()
