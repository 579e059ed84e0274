"""Where everything is kept, by the URLs of the settings."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

from holdfast.broker.log import MessageLog
from holdfast.consumer.documents import DocumentStore
from holdfast.deadletter.store import DeskStore
from holdfast.errors import SettingError
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
from holdfast.stores.sqlite.database import check
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


def check_files(settings: Settings) -> None:
    """All of them before any is opened: opening one may change it (an older format is brought up to date, what a
    killed process left is written back), and a start that is then refused must not have changed anything."""
    files = (
        (_default_place(settings, "broker.db"), log_schema),
        (documents_place(settings), documents_schema),
        (failures_place(settings), failures_schema),
    )
    for place, schema in files:
        if isinstance(place, SqlitePlace):
            check(place.path, schema)
