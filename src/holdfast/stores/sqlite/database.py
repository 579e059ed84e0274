"""One SQLite file with one writer thread. Every change waits in a queue; what waits is committed together, so that one
fsync pays for many callers (group commit). Knows nothing of what the tables mean.

Reads go through connections and threads of their own and see the last committed state.
"""

from __future__ import annotations

import asyncio
import os
import queue
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from holdfast.errors import (
    CorruptData,
    DataDirectoryError,
    FailedPrecondition,
    NewerData,
    NotFound,
    StorageUnavailable,
)
from holdfast.stores.sqlite.lock import FileLock

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]

# Above this size a full check at each start would cost seconds; damage is then reported by the read that meets it.
CHECKED_WHOLE_UP_TO_BYTES = 32 * 1024 * 1024

# A group is cut here so that no caller waits for thousands of others.
LARGEST_GROUP = 4096

_PROBE_BYTES = 64 * 1024

_HEADER_MAGIC = b"SQLite format 3\x00"


@dataclass(frozen=True, slots=True)
class Schema:
    """`application_id` marks the file as ours; migration n brings a file from version n to n + 1. Forward only.
    `page_bytes` is for a new file: larger where values are large. `readers` is how many reads may be under way at once,
    for who has slow ones. `functions` are at hand in its SQL, by name."""

    application_id: int
    migrations: Sequence[str]
    page_bytes: int = 4096
    cache_kibibytes: int = 2000
    readers: int = 1
    functions: Mapping[str, Callable[..., Any]] = field(default_factory=dict)

    @property
    def version(self) -> int:
        return len(self.migrations)


@dataclass(slots=True)
class _Waiting:
    work: Work[Any]
    done: asyncio.Future[Any]


class Database:
    """Opened by `Database.open`; use from one event loop."""

    def __init__(
        self,
        path: Path,
        lock: FileLock | None,
        loop: asyncio.AbstractEventLoop,
        writer: sqlite3.Connection,
        readers: Sequence[sqlite3.Connection],
    ) -> None:
        self._path = path
        self._lock = lock
        self._loop = loop
        self._queue: queue.SimpleQueue[_Waiting | None] = queue.SimpleQueue()
        self._writer = writer
        self._readers = readers
        self._idle: queue.SimpleQueue[sqlite3.Connection] = queue.SimpleQueue()
        for reader in readers:
            self._idle.put(reader)
        self._read_threads = ThreadPoolExecutor(max(1, len(readers)), thread_name_prefix=f"read {path.name}")
        self._write_thread = threading.Thread(target=self._write_loop, name=f"write {path.name}", daemon=True)
        self._closed = False
        self._write_thread.start()

    @classmethod
    async def open(cls, path: Path, schema: Schema) -> Database:
        """Refuses, without touching it, a file that is damaged, not ours, newer than this program or in use."""
        loop = asyncio.get_running_loop()
        lock = FileLock(path)
        try:
            await loop.run_in_executor(None, _prepare, path, schema)
            return cls(path, lock, loop, _connect(path, schema), _connect_readers(path, schema))
        except BaseException:
            lock.release()
            raise

    @classmethod
    async def open_shared(cls, path: Path, schema: Schema) -> Database:
        """Beside a process that holds the file, for changes that need nothing of what it has in memory."""
        try:
            await (await cls.open(path, schema)).close()  # so that the tables are there
        except DataDirectoryError:
            if not check(path, schema):
                raise
        return cls(path, None, asyncio.get_running_loop(), _connect(path, schema), _connect_readers(path, schema))

    @classmethod
    async def in_memory(cls, schema: Schema) -> Database:
        """Gone when it is closed. It has one connection, so reads wait in the queue of the writes."""
        connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        _add_functions(connection, schema)
        _migrate(connection, schema)
        return cls(Path("memory"), None, asyncio.get_running_loop(), connection, ())

    def submit(self, work: Work[T]) -> asyncio.Future[T]:
        """Runs `work` inside the next group's transaction. The future is done once that is on disk.

        Calls take effect in the order they were made. `work` may run twice (when a neighbour in its group fails, each
        is run again alone), so it must do nothing but SQL.
        """
        done: asyncio.Future[T] = self._loop.create_future()
        if self._closed:
            done.set_exception(StorageUnavailable(f"{self._path} is closed"))
            return done
        self._queue.put(_Waiting(work, done))
        return done

    async def read(self, work: Work[T]) -> T:
        if self._closed:
            raise StorageUnavailable(f"{self._path} is closed")
        if not self._readers:
            return await self.submit(work)
        try:
            return await self._loop.run_in_executor(self._read_threads, self._on_a_reader, work)
        except sqlite3.Error as error:
            raise _storage_error(self._path, error) from error

    async def check_writing(self) -> None:
        """Raises when nothing can be written: the disk is full, broken or hangs. What is written, through the queue and
        to the disk as every change, is the number of the format that is there already."""
        await self.submit(_write_version_again)

    async def check_reading(self) -> None:
        """Does not wait for what is being written."""
        await self.read(_version)

    async def check_room(self) -> None:
        """Raises when the disk takes no more. It is not the file that is written, and so nothing waits for a long
        change that is under way in it."""
        if self._readers:
            await self._loop.run_in_executor(None, _write_beside, self._path)

    def damaged(self, what: str) -> CorruptData:
        """The error for contents that make no sense, although the file itself is sound."""
        return _corrupt(self._path, what)

    async def close(self) -> None:
        """Finishes what was submitted, then closes the file."""
        if self._closed:
            return
        self._closed = True
        self._queue.put(None)
        await self._loop.run_in_executor(None, self._write_thread.join)
        self._read_threads.shutdown(wait=True)
        for reader in self._readers:
            reader.close()
        self._writer.close()
        if self._lock is not None:
            self._lock.release()

    def _on_a_reader(self, work: Work[T]) -> T:
        reader = self._idle.get()  # there are as many as threads
        try:
            return work(reader)
        finally:
            self._idle.put(reader)

    # The writer thread.

    def _write_loop(self) -> None:
        while True:
            first = self._queue.get()
            if first is None:
                return
            group, ended = self._gather(first)
            outcomes = self._commit(group)
            self._answer(group, outcomes)
            if ended:
                return

    def _gather(self, first: _Waiting) -> tuple[list[_Waiting], bool]:
        group = [first]
        while len(group) < LARGEST_GROUP:
            try:
                waiting = self._queue.get_nowait()
            except queue.Empty:
                break
            if waiting is None:
                return group, True
            group.append(waiting)
        return group, False

    def _commit(self, group: list[_Waiting]) -> list[object]:
        try:
            return self._transaction([waiting.work for waiting in group])
        except Exception as error:  # noqa: BLE001 - whatever it is goes to the caller and never ends this thread
            if len(group) == 1:
                return [self._as_holdfast_error(error)]
        # One of them failed: each alone, so that it fails only itself.
        return [self._commit([waiting])[0] for waiting in group]

    def _transaction(self, works: list[Work[Any]]) -> list[object]:
        self._writer.execute("BEGIN IMMEDIATE")
        try:
            results = [work(self._writer) for work in works]
            self._writer.execute("COMMIT")
        except BaseException:
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")
            raise
        return results

    def _as_holdfast_error(self, error: Exception) -> Exception:
        return _storage_error(self._path, error) if isinstance(error, sqlite3.Error) else error

    def _answer(self, group: list[_Waiting], outcomes: list[object]) -> None:
        try:
            self._loop.call_soon_threadsafe(_resolve, group, outcomes)
        except RuntimeError:  # the loop is closed: nobody waits any more, and what was committed stays committed
            return


def _resolve(group: list[_Waiting], outcomes: list[object]) -> None:
    for waiting, outcome in zip(group, outcomes, strict=True):
        if waiting.done.done():  # the caller was cancelled; its change stands all the same
            continue
        if isinstance(outcome, Exception):
            waiting.done.set_exception(outcome)
        else:
            waiting.done.set_result(outcome)


class ReadOnlyDatabase:
    """For looking into a file that another process may be writing; changes nothing."""

    def __init__(self, path: Path, schema: Schema) -> None:
        if not check(path, schema):
            raise NotFound(f"there is no {path}: is this the right --data directory? `holdfast up` makes one")
        self._path = path
        self._connection = _connect(path, schema, mode="ro")
        if _version(self._connection) < schema.version:
            self._connection.close()
            raise FailedPrecondition(f"{path} was written by an older Holdfast: `holdfast up` brings it up to date")

    async def read(self, work: Work[T]) -> T:
        try:
            return work(self._connection)
        except sqlite3.Error as error:
            raise _storage_error(self._path, error) from error

    async def check_reading(self) -> None:
        await self.read(_version)

    async def close(self) -> None:
        self._connection.close()


# Opening.


def _prepare(path: Path, schema: Schema) -> None:
    if check(path, schema):
        _require_writable(path)
    try:
        # For its owner alone: messages are in it, and keys. SQLite gives its other files the same rights.
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
        connection = _connect(path, schema)
    except OSError as error:
        raise DataDirectoryError(f"cannot open {path}: {error.strerror}. Check that it is a writable file") from error
    except sqlite3.OperationalError as error:
        raise DataDirectoryError(f"cannot open {path}: {error}. Check that it is a writable file") from error
    try:
        _migrate(connection, schema)
    except sqlite3.OperationalError as error:
        raise DataDirectoryError(f"cannot write {path}: {error}. Check its rights and the free space") from error
    finally:
        connection.close()


def _connect_readers(path: Path, schema: Schema) -> Sequence[sqlite3.Connection]:
    readers = [_connect(path, schema) for _ in range(schema.readers)]
    for reader in readers:
        reader.execute("PRAGMA query_only = 1")
    return readers


def _connect(path: Path, schema: Schema, mode: str = "rwc") -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        timeout=10,
    )
    try:
        if mode != "ro":
            connection.execute(f"PRAGMA page_size = {schema.page_bytes}")  # an existing file keeps its own
            connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")  # an acknowledged change survives a power cut
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute(f"PRAGMA cache_size = {-schema.cache_kibibytes}")
        _add_functions(connection, schema)
    except BaseException:
        connection.close()
        raise
    return connection


def _add_functions(connection: sqlite3.Connection, schema: Schema) -> None:
    for name, function in schema.functions.items():
        connection.create_function(name, -1, function, deterministic=True)


def _version(connection: sqlite3.Connection) -> int:
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version


def _write_version_again(connection: sqlite3.Connection) -> None:
    connection.execute(f"PRAGMA user_version = {_version(connection)}")


def _write_beside(path: Path) -> None:
    """A file without a name, gone when it is closed."""
    try:
        with tempfile.TemporaryFile(dir=path.parent) as file:
            file.write(bytes(_PROBE_BYTES))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise StorageUnavailable(f"{path.name}: the disk cannot be written: {error.strerror}") from error


def check(path: Path, schema: Schema) -> bool:
    """Raises when this program cannot use the file; False when there is none yet.

    Reads only. The first bytes are looked at before SQLite may open, and so change, anything.
    """
    try:
        with path.open("rb") as file:
            header = file.read(100)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise DataDirectoryError(
            f"cannot read {path}: {error.strerror}. Check its rights and those of its directory"
        ) from error
    if not header:  # made, but never written to: as good as absent
        return False
    if not header.startswith(_HEADER_MAGIC) or len(header) < 100:
        raise _corrupt(path, "it is not an SQLite database")
    try:
        connection = _connect(path, schema, mode="ro")
        try:
            application_id = connection.execute("PRAGMA application_id").fetchone()[0]
            version = _version(connection)
            tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            # Without an id it can be ours only while it is empty: the id is written together with the first tables.
            if application_id != schema.application_id and (application_id or tables):
                raise _corrupt(path, "it belongs to another program or another part of Holdfast")
            if version < 0:
                raise _corrupt(path, f"its format {version} never existed")
            if version > schema.version:
                raise NewerData(
                    f"{path} was written by a newer Holdfast (format {version}, this one knows {schema.version}). "
                    "Use that version, or another --data directory"
                )
            if path.stat().st_size <= CHECKED_WHOLE_UP_TO_BYTES:
                found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
                if found != "ok":
                    raise _corrupt(path, found.splitlines()[-1])
        finally:
            connection.close()
    except sqlite3.OperationalError as error:
        raise DataDirectoryError(f"cannot open {path}: {error}. Check its rights and those of its directory") from error
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # SQLite's own text may quote what is damaged
        raise _corrupt(path, str(error)) from error
    return True


def _require_writable(path: Path) -> None:
    """SQLite opens what it may not write without a word, and complains at the first change."""
    try:
        with path.open("r+b"):
            pass
    except OSError as error:
        raise DataDirectoryError(
            f"cannot write {path}: {error.strerror}. Check its rights and those of its directory"
        ) from error


def _migrate(connection: sqlite3.Connection, schema: Schema) -> None:
    version = _version(connection)
    for number in range(version, schema.version):
        connection.executescript(
            f"BEGIN IMMEDIATE; {schema.migrations[number]}; PRAGMA application_id = {schema.application_id}; "
            f"PRAGMA user_version = {number + 1}; COMMIT;"
        )


def _corrupt(path: Path, what: str) -> CorruptData:
    return CorruptData(
        f"{path} is damaged: {what}. Nothing was changed. Restore it from a backup, or move it away to start empty"
    )


def _storage_error(path: Path, error: Exception) -> StorageUnavailable:
    return StorageUnavailable(f"{path.name}: {error}")
