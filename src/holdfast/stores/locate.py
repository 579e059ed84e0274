"""Store URLs: `memory:`, `sqlite:///path/file.db`, `postgresql://…`, `firestore://project/database`. Says what a URL
means; opening it is the wiring's."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from holdfast.errors import SettingError

_DESK = (
    "must be memory:, sqlite:///path/to/file.db (four slashes for an absolute path) or postgresql://user@host/database"
)
_ALL = (
    "must be memory: or sqlite:///path/to/file.db (four slashes for an absolute path), postgresql://user@host/database "
    "or firestore://project/database"
)

_POSTGRES = ("postgresql", "postgres")


@dataclass(frozen=True, slots=True)
class MemoryPlace:
    pass


@dataclass(frozen=True, slots=True)
class SqlitePlace:
    path: Path


@dataclass(frozen=True, slots=True)
class PostgresPlace:
    url: str = field(repr=False)  # it may hold a password


@dataclass(frozen=True, slots=True)
class FirestorePlace:
    """An empty database is the default one."""

    project: str
    database: str = ""


FilePlace = MemoryPlace | SqlitePlace
DeskPlace = FilePlace | PostgresPlace
Place = DeskPlace | FirestorePlace


def locate(key: str, url: str) -> Place:
    """`key` is the setting that holds the URL, for the error."""
    parts = urlsplit(url)
    if parts.scheme in _POSTGRES:
        return PostgresPlace(url)
    if parts.scheme == "firestore" and parts.netloc and parts.path.count("/") <= 1:
        return FirestorePlace(unquote(parts.netloc), unquote(parts.path[1:]))
    return _file(key, url, _ALL)


def locate_desk(key: str, url: str) -> DeskPlace:
    """For what the desk keeps."""
    if urlsplit(url).scheme in _POSTGRES:
        return PostgresPlace(url)
    return _file(key, url, _DESK)


def _file(key: str, url: str, allowed: str) -> FilePlace:
    if url == "memory:":
        return MemoryPlace()
    parts = urlsplit(url)
    # sqlite:///a.db is relative and sqlite:////a.db absolute, as everywhere else that has such URLs.
    if parts.scheme != "sqlite" or parts.netloc or len(parts.path) < 2 or parts.query or parts.fragment:
        raise SettingError(key, _without_password(url), allowed)
    return SqlitePlace(Path(unquote(parts.path[1:])))


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    return url.replace(f":{parts.password}@", ":…@") if parts.password else url
