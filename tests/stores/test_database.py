"""One file, one writer, many callers: what each is promised, also when the disk, the file or the process fails."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shutil
import sqlite3
import subprocess
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path

import pytest

from holdfast.errors import BadInput, CorruptData, DataDirectoryError, NewerData, NotFound, StorageUnavailable
from holdfast.stores.sqlite import database as database_module
from holdfast.stores.sqlite.database import Database, ReadOnlyDatabase, Schema, Work
from tests.stores.database_process import SCHEMA, TEXT, DatabaseProcess, insert, numbers_in
from tests.support.services import require

WAIT_SECONDS = 20.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "notes.db"


@pytest.fixture
async def database(path: Path) -> AsyncIterator[Database]:
    database = await Database.open(path, SCHEMA)
    yield database
    await database.close()


@pytest.fixture
def people(path: Path, database: Database) -> Iterator[sqlite3.Connection]:
    """Someone else's connection to the same file: it sees what is committed, and nothing else."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


# Group commit.


async def test_what_waits_is_committed_together(database: Database) -> None:
    statements = await traced(database)
    async with writer_held(database):
        statements.clear()
        submitted = [database.submit(insert(number)) for number in range(500)]
    assert await asyncio.gather(*submitted) == list(range(500))
    assert statements.count("BEGIN IMMEDIATE") == 1
    assert await database.read(numbers_in) == list(range(500))


async def test_many_callers_need_few_transactions(database: Database) -> None:
    """Without anybody holding the writer: while it commits one group, the next one gathers."""
    statements = await traced(database)
    statements.clear()
    await asyncio.gather(*(database.submit(insert(number)) for number in range(2000)))
    assert statements.count("BEGIN IMMEDIATE") < 200
    assert await database.read(numbers_in) == list(range(2000))


async def test_a_group_is_not_larger_than_allowed(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_module, "LARGEST_GROUP", 10)
    statements = await traced(database)
    async with writer_held(database):
        statements.clear()
        submitted = [database.submit(insert(number)) for number in range(25)]
    await asyncio.gather(*submitted)
    assert statements.count("BEGIN IMMEDIATE") == 3


async def test_a_caller_gets_the_result_of_its_own_work_once_it_is_committed(
    database: Database, people: sqlite3.Connection
) -> None:
    async with writer_held(database):
        submitted = [database.submit(insert(number)) for number in (7, 8, 9)]
        assert not any(future.done() for future in submitted)
        assert numbers_in(people) == []
    assert await submitted[0] == 7
    assert numbers_in(people) == [7, 8, 9]
    assert [await future for future in submitted] == [7, 8, 9]


async def test_works_run_in_the_order_they_were_submitted(database: Database) -> None:
    """Also over groups, and when a group is run again because one in it failed."""
    await database.submit(insert(1))
    in_order = "SELECT text FROM notes WHERE number > 1 ORDER BY number"
    submitted: list[asyncio.Future[int]] = []
    expected: list[str] = []
    for number in range(300):
        if number % 50 == 49:
            submitted.append(database.submit(insert(1)))  # it is there already
        else:
            expected.append(f"n{number}")
            submitted.append(database.submit(append(expected[-1])))
        if number % 70 == 0:
            await submitted[-1]
    await asyncio.gather(*submitted, return_exceptions=True)
    found = await database.read(lambda connection: connection.execute(in_order).fetchall())
    assert [text for (text,) in found] == expected


# Failing.


async def test_a_failing_work_fails_only_itself(database: Database) -> None:
    await database.submit(insert(3))
    async with writer_held(database):
        submitted = [database.submit(work) for work in (insert(1), insert(2), insert(3), fail, insert(4))]
    outcomes = await asyncio.gather(*submitted, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [int, int, StorageUnavailable, BadInput, int]
    assert await database.read(numbers_in) == [1, 2, 3, 4]


async def test_of_a_failing_work_nothing_is_left(database: Database) -> None:
    def half(connection: sqlite3.Connection) -> None:
        insert(1)(connection)
        fail(connection)

    async with writer_held(database):
        alone, neighbour = database.submit(half), database.submit(insert(2))
    with pytest.raises(BadInput):
        await alone
    assert await neighbour == 2
    assert await database.read(numbers_in) == [2]


@pytest.mark.parametrize("error", [ValueError("mine"), BadInput("mine", "wrong"), AssertionError("mine")])
async def test_an_error_that_is_not_sqlites_reaches_its_caller_as_it_is(database: Database, error: Exception) -> None:
    def fail_with(connection: sqlite3.Connection) -> None:
        raise error

    with pytest.raises(type(error), match="mine") as raised:
        await database.submit(fail_with)
    assert raised.value is error
    assert await database.submit(insert(1)) == 1


@pytest.mark.parametrize(
    "sql", ["SELECT * FROM absent", "nonsense", "INSERT INTO notes (number, text) VALUES (1, NULL)"]
)
async def test_an_error_of_sqlite_is_storage_unavailable(database: Database, sql: str) -> None:
    with pytest.raises(StorageUnavailable, match=r"notes\.db: "):
        await database.submit(lambda connection: connection.execute(sql))
    assert await database.submit(insert(1)) == 1


async def test_the_change_of_a_cancelled_caller_stands(database: Database) -> None:
    async with writer_held(database):
        cancelled, patient = database.submit(insert(1)), database.submit(insert(2))
        cancelled.cancel()
    assert await patient == 2
    assert cancelled.cancelled()
    assert await database.read(numbers_in) == [1, 2]


# Reading.


async def test_a_read_sees_nothing_of_a_transaction_under_way(database: Database) -> None:
    inserted, may_commit = Signal(), threading.Event()

    def insert_and_hold(connection: sqlite3.Connection) -> None:
        insert(1)(connection)
        inserted.set()
        assert may_commit.wait(WAIT_SECONDS)

    writing = database.submit(insert_and_hold)
    await inserted.wait()
    assert await database.read(numbers_in) == []
    may_commit.set()
    await writing
    assert await database.read(numbers_in) == [1]


async def test_a_read_changes_nothing(database: Database) -> None:
    with pytest.raises(StorageUnavailable, match="readonly"):
        await database.read(insert(1))
    assert await database.read(numbers_in) == []


async def test_an_error_in_a_read_reaches_its_caller(database: Database) -> None:
    with pytest.raises(StorageUnavailable, match=r"notes\.db: no such table"):
        await database.read(lambda connection: connection.execute("SELECT * FROM absent"))
    with pytest.raises(BadInput):
        await database.read(fail)
    assert await database.read(numbers_in) == []


# Closing.


async def test_closing_finishes_what_was_submitted(path: Path) -> None:
    database = await Database.open(path, SCHEMA)
    async with writer_held(database):
        submitted = [database.submit(insert(number)) for number in range(100)]
        closing = asyncio.create_task(database.close())
        await asyncio.sleep(0)
        late = database.submit(insert(100))
    await closing
    assert [future.result() for future in submitted] == list(range(100))
    with pytest.raises(StorageUnavailable, match="closed"):
        await late
    assert numbers_on_disk(path) == list(range(100))


async def test_a_closed_database_says_so(database: Database) -> None:
    await database.close()
    await database.close()
    with pytest.raises(StorageUnavailable, match="closed"):
        await database.submit(insert(1))
    with pytest.raises(StorageUnavailable, match="closed"):
        await database.read(numbers_in)


async def test_after_closing_one_file_holds_everything(path: Path, database: Database) -> None:
    await database.submit(insert(1))
    await database.close()
    assert sorted(file.name for file in path.parent.iterdir()) == ["notes.db", "notes.lock"]


# The lock.


async def test_a_second_one_in_this_process_is_refused(path: Path, database: Database) -> None:
    with pytest.raises(DataDirectoryError, match=rf"notes\.db is in use .*process {os.getpid()}\)"):
        await Database.open(path, SCHEMA)
    assert await database.submit(insert(1)) == 1
    await database.close()
    again = await Database.open(path, SCHEMA)
    assert await again.read(numbers_in) == [1]
    await again.close()


async def test_a_second_one_in_another_process_is_refused(path: Path, database: Database) -> None:
    with DatabaseProcess(path) as other:
        assert f"is in use by another Holdfast (process {os.getpid()})" in other.ask("open")
        await database.close()
        assert other.ask("open") == "ok"
        other.end()


async def test_the_lock_falls_with_its_process(path: Path) -> None:
    with DatabaseProcess(path) as other:
        assert other.ask("open") == "ok"
        with pytest.raises(DataDirectoryError, match=rf"process {other.process.pid}\)"):
            await Database.open(path, SCHEMA)
        assert other.ask_numbers("insert 1 3") == [1, 2, 3]
        other.kill()
    database = await Database.open(path, SCHEMA)
    assert await database.read(numbers_in) == [1, 2, 3]
    await database.close()


async def test_an_open_that_failed_holds_no_lock(path: Path) -> None:
    write(path, b"not a database")
    for _ in range(2):
        with pytest.raises(CorruptData):
            await Database.open(path, SCHEMA)
    write(path, b"")
    await (await Database.open(path, SCHEMA)).close()


async def test_a_disk_without_room_for_the_name_of_the_holder_does_not_keep_the_lock_from_everybody(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        database = await Database.open(path, SCHEMA)
        with pytest.raises(DataDirectoryError, match=r"in use .*process unknown"):
            await Database.open(path, SCHEMA)
        await database.close()
    await (await Database.open(path, SCHEMA)).close()


async def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataDirectoryError, match="file"):
        await Database.open(tmp_path / "file" / "notes.db", SCHEMA)


# Versions.


async def test_a_new_file_says_what_it_is_and_is_safe(path: Path, database: Database) -> None:
    settings = {
        "application_id": SCHEMA.application_id,
        "user_version": 1,
        "journal_mode": "wal",
        "synchronous": 2,  # FULL
    }
    found = await database.submit(lambda connection: {name: pragma(connection, name) for name in settings})
    assert found == settings


async def test_migrations_lead_forward_and_run_once(path: Path) -> None:
    await make(path, SCHEMA, insert(1, "kept"))
    for _ in range(2):
        database = await Database.open(path, NEWER)
        rows = await database.read(lambda connection: connection.execute("SELECT * FROM notes").fetchall())
        assert rows == [(1, "kept", "blue")]
        assert await database.read(lambda connection: pragma(connection, "user_version")) == 3
        await database.close()


async def test_a_migration_that_fails_leaves_the_file_as_it_was(path: Path) -> None:
    await make(path, SCHEMA, insert(1))
    failing = Schema(SCHEMA.application_id, [*SCHEMA.migrations, "CREATE TABLE half (x); SELECT * FROM absent"])
    with pytest.raises(DataDirectoryError):
        await Database.open(path, failing)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert pragma(connection, "user_version") == 1
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("notes",)]
    await make(path, SCHEMA, insert(2))


async def test_a_newer_file_is_refused_and_left_alone(path: Path) -> None:
    await make(path, NEWER, insert(1))
    with refused(path, NewerData, r"format 3, this one knows 1"):
        await Database.open(path, SCHEMA)
    with refused(path, NewerData, r"format 3, this one knows 1"):
        ReadOnlyDatabase(path, SCHEMA)


OTHERS = {
    "with an id": "PRAGMA application_id = 7; CREATE TABLE theirs (x)",
    "with an id and empty": "PRAGMA application_id = 7; CREATE TABLE t (x); DROP TABLE t",
    "without an id": "CREATE TABLE theirs (x)",
    "without an id but a version": "CREATE TABLE theirs (x); PRAGMA user_version = 1",
}


@pytest.mark.parametrize("script", OTHERS.values(), ids=OTHERS.keys())
async def test_the_file_of_another_program_is_refused_and_left_alone(path: Path, script: str) -> None:
    path.parent.mkdir()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)
    with refused(path, CorruptData, "another program"):
        await Database.open(path, SCHEMA)


async def test_an_empty_file_is_as_good_as_none(path: Path) -> None:
    write(path, b"")
    await make(path, SCHEMA, insert(1))
    assert numbers_on_disk(path) == [1]


# Damage.

PAGE = 4096

Damage = Callable[[bytes], bytes]


def overwritten(at: float, content: bytes) -> Damage:
    """The page at this part of the file."""

    def damage(good: bytes) -> bytes:
        start = int(len(good) // PAGE * at) * PAGE
        return good[:start] + (content * PAGE)[:PAGE] + good[start + PAGE :]

    return damage


DAMAGES: dict[str, Damage] = {
    "garbage": lambda good: b"garbage " * 1000,
    "a few bytes": lambda good: good[:50],
    "garbage in the header": lambda good: b"garbage " * 2 + good[16:],
    "garbage after the magic": lambda good: good[:16] + b"garbage " * 1000,
    "the header alone": lambda good: good[:100],
    "one page alone": lambda good: good[:PAGE],
    "cut in the middle": lambda good: good[: len(good) // 2 // PAGE * PAGE],
    "cut inside a page": lambda good: good[: len(good) // 2 // PAGE * PAGE + 777],
    "last page cut off": lambda good: good[:-PAGE],
    "tables overwritten": lambda good: good[:100] + b"\xff" * (PAGE - 100) + good[PAGE:],
    "middle page overwritten": overwritten(0.5, b"\xff"),
    "middle page zeroed": overwritten(0.5, b"\x00"),
    "middle page is text": overwritten(0.5, b"garbage "),
    "second page overwritten": overwritten(0.05, b"\xff"),
    "late page overwritten": overwritten(0.95, b"\xff"),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
async def test_a_damaged_file_is_refused_and_left_alone(path: Path, damage: Damage) -> None:
    await make(path, SCHEMA, *(insert(number, "x" * 500) for number in range(500)))
    write(path, damage(content(path)))
    with refused(path, CorruptData, r"notes\.db is damaged: .*Nothing was changed"):
        await Database.open(path, SCHEMA)
    with refused(path, CorruptData, r"notes\.db is damaged"):
        ReadOnlyDatabase(path, SCHEMA)


async def test_damage_in_a_file_too_large_to_check_is_told_by_the_read_that_meets_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make(path, SCHEMA, *(insert(number, "x" * 500) for number in range(500)))
    write(path, overwritten(0.5, b"\xff")(content(path)))
    monkeypatch.setattr(database_module, "CHECKED_WHOLE_UP_TO_BYTES", 0)
    database = await Database.open(path, SCHEMA)
    with pytest.raises(StorageUnavailable, match="malformed"):
        await database.read(lambda connection: connection.execute("SELECT sum(length(text)) FROM notes").fetchall())
    await database.close()


# Reading beside a writer.


async def test_another_process_reads_while_this_one_writes(path: Path, database: Database) -> None:
    await database.submit(insert(1))
    with DatabaseProcess(path) as other:
        assert other.ask("open-to-read") == "ok"
        assert other.ask_numbers("numbers") == [1]
        async with writer_held(database):  # neither waits for the other
            assert other.ask_numbers("numbers") == [1]
        await database.submit(insert(2))
        assert other.ask_numbers("numbers") == [1, 2]
        other.end()
    await database.submit(insert(3))
    assert await database.read(numbers_in) == [1, 2, 3]


async def test_a_reader_changes_nothing(path: Path) -> None:
    await make(path, SCHEMA, insert(1))
    before = content(path)
    reader = ReadOnlyDatabase(path, SCHEMA)
    with pytest.raises(StorageUnavailable, match="readonly"):
        await reader.read(insert(2))
    assert await reader.read(numbers_in) == [1]
    await reader.close()
    assert content(path) == before


def test_a_reader_makes_no_file(path: Path) -> None:
    with pytest.raises(NotFound, match=r"notes\.db"):
        ReadOnlyDatabase(path, SCHEMA)
    assert not path.parent.exists()


# A full disk, a broken disk, a killed process.


async def test_a_full_database_changes_nothing_and_goes_on_when_there_is_room(database: Database) -> None:
    await database.submit(insert(1, TEXT))

    def limit_pages(pages: int) -> Work[object]:
        return lambda connection: pragma(connection, f"max_page_count = {pages}")

    await database.submit(limit_pages(10))
    async with writer_held(database):
        submitted = [database.submit(insert(number, TEXT)) for number in range(2, 102)]
    outcomes = await asyncio.gather(*submitted, return_exceptions=True)
    written = [outcome for outcome in outcomes if isinstance(outcome, int)]
    failed = [outcome for outcome in outcomes if not isinstance(outcome, int)]
    assert failed
    assert all(isinstance(error, StorageUnavailable) and "full" in str(error) for error in failed)
    assert await database.read(numbers_in) == [1, *written]
    await database.submit(limit_pages(1_000_000))
    assert await database.submit(insert(1000, TEXT)) == 1000
    assert await database.read(numbers_in) == [1, *written, 1000]


async def test_a_file_that_may_not_grow_changes_nothing_and_goes_on_when_it_may(path: Path) -> None:
    with DatabaseProcess(path) as other:
        assert other.ask("open") == "ok"
        written = other.ask_numbers("insert 1 20")
        assert written == list(range(1, 21))
        assert other.ask("limit 200000") == "ok"
        for first in range(21, 141, 10):  # some in groups, some alone
            written += other.ask_numbers(f"insert {first} {first + 8}")
            written += other.ask_numbers(f"insert {first + 9} {first + 9}")
        assert len(written) < 140
        assert other.ask_numbers("numbers") == written
        assert other.ask("limit 0") == "ok"
        written += other.ask_numbers("insert 141 160")
        assert written[-20:] == list(range(141, 161))
        assert other.ask_numbers("numbers") == written
        other.end()
    assert numbers_on_disk(path) == written


FAULTS = {
    "every fourth sync fails": ["trace=fsync,fdatasync", "inject=fsync,fdatasync:error=EIO:when=3+4"],
    "every sync fails from one on": ["trace=fsync,fdatasync", "inject=fsync,fdatasync:error=EIO:when=10+"],
    "every seventh write finds a full disk": ["trace=pwrite64", "inject=pwrite64:error=ENOSPC:when=9+7"],
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
async def test_what_was_acknowledged_on_a_broken_disk_is_there_and_nothing_else(path: Path, fault: list[str]) -> None:
    await make(path, SCHEMA)
    with DatabaseProcess(path, strace(path, fault)) as other:
        acknowledged = insert_some(other)
        assert 0 < len(acknowledged) < 50
        assert other.ask_numbers("numbers") == acknowledged
        other.end()
    assert numbers_on_disk(path) == acknowledged


async def test_what_was_acknowledged_on_a_broken_disk_outlives_a_kill(path: Path) -> None:
    """The reverse does not hold: the last change that was refused may be there after a crash, for SQLite had written
    it when the sync failed, and had no time to take it back."""
    await make(path, SCHEMA)
    with DatabaseProcess(path, strace(path, FAULTS["every sync fails from one on"])) as other:
        acknowledged = insert_some(other)
        other.die()
    found = numbers_on_disk(path)
    assert 0 < len(acknowledged) < 50
    assert found[: len(acknowledged)] == acknowledged


async def test_what_was_acknowledged_outlives_a_kill_at_any_moment(path: Path) -> None:
    with DatabaseProcess(path) as other:
        assert other.ask("open") == "ok"
        for number in range(1, 400):
            other.tell(f"insert {number} {number}")
        acknowledged = [int(other.answer()) for _ in range(50)]
        other.kill()  # it is busy with the others
    found = numbers_on_disk(path)
    assert acknowledged == list(range(1, 51))
    assert found == list(range(1, len(found) + 1))
    assert len(found) >= 50


# Helpers.


class Signal:
    """Set in any thread, awaited in this one."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def set(self) -> None:
        self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self) -> None:
        await asyncio.wait_for(self._event.wait(), WAIT_SECONDS)


@contextlib.asynccontextmanager
async def writer_held(database: Database) -> AsyncIterator[None]:
    """The writer is busy meanwhile, so that everything submitted inside waits, and is one group afterwards."""
    busy, released = Signal(), threading.Event()

    def hold(connection: sqlite3.Connection) -> None:
        busy.set()
        assert released.wait(WAIT_SECONDS)

    holding = database.submit(hold)
    await busy.wait()
    try:
        yield
    finally:
        released.set()
        await holding


async def traced(database: Database) -> list[str]:
    """Every statement that the writer's connection runs from now on, as SQLite itself reports it."""
    statements: list[str] = []
    await database.submit(lambda connection: connection.set_trace_callback(statements.append))
    return statements


def append(text: str) -> Work[int]:
    """Takes the next free number, from 2 on."""
    statement = "INSERT INTO notes (number, text) SELECT 1 + coalesce(max(number), 1), ? FROM notes"
    return lambda connection: connection.execute(statement, (text,)).rowcount


def fail(connection: sqlite3.Connection) -> int:
    raise BadInput("number", "wrong")


def pragma(connection: sqlite3.Connection, name: str) -> object:
    return connection.execute(f"PRAGMA {name}").fetchone()[0]


async def make(path: Path, schema: Schema, *works: Work[object]) -> None:
    database = await Database.open(path, schema)
    await asyncio.gather(*(database.submit(work) for work in works))
    await database.close()


def write(path: Path, content: bytes) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)


def content(path: Path) -> bytes:
    return path.read_bytes()


def numbers_on_disk(path: Path) -> list[int]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert pragma(connection, "integrity_check") == "ok"
        return numbers_in(connection)


@contextlib.contextmanager
def refused(path: Path, error: type[Exception], words: str) -> Iterator[None]:
    before = content(path)
    with pytest.raises(error, match=words):
        yield
    assert content(path) == before


NEWER = Schema(
    SCHEMA.application_id,
    [*SCHEMA.migrations, "ALTER TABLE notes ADD COLUMN colour TEXT", "UPDATE notes SET colour = 'blue'"],
)


def strace(path: Path, fault: Sequence[str]) -> list[str]:
    """Makes system calls of the command after it fail. Writes are counted in SQLite's log alone."""
    program = shutil.which("strace")
    require("strace", program, "it is not installed")
    assert program
    allowed = subprocess.run([program, "-qq", "-e", "trace=none", "true"], capture_output=True, check=False)
    require("strace", allowed.returncode == 0, f"it may not trace here: {allowed.stderr.decode().strip()}")
    only = ["-P", f"{path}-wal"] if fault[0] == "trace=pwrite64" else []
    options = [part for expression in fault for part in ("-e", expression)]
    return [program, "-f", "-qq", "-o", str(path.parent / "strace.log"), *only, *options]


def insert_some(other: DatabaseProcess) -> list[int]:
    """50 numbers, some in groups and some alone; gives those that were acknowledged."""
    assert other.ask("open") == "ok"
    acknowledged: list[int] = []
    for first in range(1, 51, 10):
        acknowledged += other.ask_numbers(f"insert {first} {first + 5}")
        for number in range(first + 6, first + 10):
            acknowledged += other.ask_numbers(f"insert {number} {number}")
    return acknowledged


async def test_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    """Messages are in them, and keys."""
    database = await Database.open(tmp_path / "x.db", SCHEMA)
    try:
        await database.submit(lambda connection: connection.execute("SELECT 1").fetchone())
        modes = [os.stat(tmp_path / name).st_mode & 0o777 for name in ("x.db", "x.db-wal", "x.db-shm")]  # noqa: PTH116
    finally:
        await database.close()
    assert modes == [0o600] * 3
