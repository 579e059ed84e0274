"""Where everything is kept, by the URLs of the settings."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

from holdfast.broker.log import MessageLog
from holdfast.consumer.documents import DocumentStore
from holdfast.deadletter.store import DeskStore
from holdfast.errors import DataDirectoryError, SettingError
from holdfast.settings import Settings
from holdfast.stores.locate import (
    DeskPlace,
    FilePlace,
    FirestorePlace,
    MemoryPlace,
    Place,
    PostgresPlace,
    SqlitePlace,
    locate,
    locate_desk,
)
from holdfast.stores.memory.documents import MemoryDocumentStore
from holdfast.stores.memory.log import MemoryMessageLog
from holdfast.stores.sqlite.alerts_schema import SCHEMA as alerts_schema
from holdfast.stores.sqlite.database import Database, check
from holdfast.stores.sqlite.desk import SqliteDeskStore
from holdfast.stores.sqlite.desk_schema import SCHEMA as failures_schema
from holdfast.stores.sqlite.documents import SCHEMA as documents_schema
from holdfast.stores.sqlite.documents import SqliteDocumentStore
from holdfast.stores.sqlite.log import SCHEMA as log_schema
from holdfast.stores.sqlite.log import SqliteMessageLog

if TYPE_CHECKING:
    from holdfast.stores.firestore.documents import FirestoreDocumentStore
    from holdfast.stores.postgres.desk import PostgresDeskStore
    from holdfast.stores.postgres.documents import PostgresDocumentStore

log = logging.getLogger("holdfast.wiring")

# Each process watches itself. A desk has the file that `up` has: both never run on the same failures.
ALERTS_FILES = {
    "up": "alerts.db",
    "desk": "alerts.db",
    "broker": "alerts-broker.db",
    "consume": "alerts-consume.db",
}


async def open_documents(settings: Settings) -> DocumentStore:
    place = documents_place(settings)
    match place:
        case MemoryPlace():
            return MemoryDocumentStore()
        case SqlitePlace(path):
            return await SqliteDocumentStore.open(path)
        case PostgresPlace(url):
            return await _postgres_documents().open(url)
        case FirestorePlace(project, database):
            return await _firestore_documents().open(project, database or settings.consumer.firestore_database)
        case _:
            assert_never(place)


async def open_failures(settings: Settings) -> DeskStore:
    place = failures_place(settings)
    match place:
        case MemoryPlace():
            return await SqliteDeskStore.in_memory()
        case SqlitePlace(path):
            return await SqliteDeskStore.open(path)
        case PostgresPlace(url):
            return await _postgres_desk().open(url)
        case _:
            assert_never(place)


async def open_failures_beside_desk(settings: Settings) -> DeskStore:
    place = failures_place(settings)
    match place:
        case MemoryPlace():
            return await SqliteDeskStore.in_memory()  # lost with the process, as everything of it
        case SqlitePlace(path):
            return await SqliteDeskStore.open_shared(path)
        case PostgresPlace(url):
            return await _postgres_desk().open(url)
        case _:
            assert_never(place)


async def read_documents(settings: Settings) -> DocumentStore:
    """For looking only: works beside a running process, and changes nothing."""
    place = documents_place(settings)
    match place:
        case MemoryPlace():
            raise SettingError("consumer.store", "memory:", _ONLY_BY_URL)
        case SqlitePlace(path):
            return SqliteDocumentStore.read_only(path)
        case PostgresPlace(url):
            return await _postgres_documents().read_only(url)
        case FirestorePlace(project, database):
            return await _firestore_documents().open(project, database or settings.consumer.firestore_database)
        case _:
            assert_never(place)


def _postgres_documents() -> type[PostgresDocumentStore]:
    """Imported only when asked for: what it needs is an extra."""
    with _extra("postgres", "consumer.store"):
        from holdfast.stores.postgres.documents import PostgresDocumentStore  # noqa: PLC0415
    return PostgresDocumentStore


def _postgres_desk() -> type[PostgresDeskStore]:
    with _extra("postgres", "desk.failures"):
        from holdfast.stores.postgres.desk import PostgresDeskStore  # noqa: PLC0415
    return PostgresDeskStore


def _firestore_documents() -> type[FirestoreDocumentStore]:
    with _extra("firestore", "consumer.store"):
        from holdfast.stores.firestore.documents import FirestoreDocumentStore  # noqa: PLC0415
    return FirestoreDocumentStore


@contextlib.contextmanager
def _extra(name: str, key: str) -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise SettingError(key, f"{name} …", f"needs more packages: pip install 'holdfast[{name}]'") from error


async def read_failures(settings: Settings) -> DeskStore:
    place = failures_place(settings)
    match place:
        case MemoryPlace():
            raise SettingError("desk.failures", "memory:", _ONLY_BY_URL)
        case SqlitePlace(path):
            return SqliteDeskStore.read_only(path)
        case PostgresPlace(url):
            return await _postgres_desk().read_only(url)
        case _:
            assert_never(place)


def documents_place(settings: Settings) -> Place:
    url = settings.consumer.store
    return locate("consumer.store", url) if url else _default_place(settings, "documents.db")


def failures_place(settings: Settings) -> DeskPlace:
    url = settings.desk.failures
    return locate_desk("desk.failures", url) if url else _default_place(settings, "failures.db")


def _default_place(settings: Settings, file_name: str) -> FilePlace:
    return MemoryPlace() if settings.general.memory else SqlitePlace(Path(settings.general.data, file_name))


_ONLY_BY_URL = "a store in memory can be read only through its process: use --url"


async def open_log(settings: Settings) -> MessageLog:
    place = _default_place(settings, "broker.db")
    match place:
        case MemoryPlace():
            return MemoryMessageLog()
        case SqlitePlace(path):
            return await SqliteMessageLog.open(path)
        case _:
            assert_never(place)


async def open_alerts(settings: Settings, part: str) -> Database:
    """`part` is the command. Where no file can be had, as in a container that may write nothing, or for the second
    consumer in a directory, alerts live as long as the process: that is no reason not to start."""
    place = alerts_place(settings, part)
    match place:
        case MemoryPlace():
            return await Database.in_memory(alerts_schema)
        case SqlitePlace(path):
            try:
                return await Database.open(path, alerts_schema)
            except DataDirectoryError as error:
                log.warning("alerts are kept in memory only", extra={"fields": {"error": str(error)}})
                return await Database.in_memory(alerts_schema)
        case _:
            assert_never(place)


def alerts_place(settings: Settings, part: str) -> FilePlace:
    return _default_place(settings, ALERTS_FILES[part])


def check_files(settings: Settings) -> None:
    """All of them before any is opened: opening one may change it (an older format is brought up to date, what a
    killed process left is written back), and a start that is then refused must not have changed anything."""
    files = (
        (_default_place(settings, "broker.db"), log_schema),
        (documents_place(settings), documents_schema),
        (failures_place(settings), failures_schema),
        (alerts_place(settings, "up"), alerts_schema),
    )
    for place, schema in files:
        if isinstance(place, SqlitePlace):
            check(place.path, schema)
