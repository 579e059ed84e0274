"""Store URLs: `memory:`, `sqlite:///path/file.db`. Says what a URL means; opening it is the wiring's."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from holdfast.errors import SettingError

_ALLOWED = "must be memory: or sqlite:///path/to/file.db (four slashes for an absolute path)"


@dataclass(frozen=True, slots=True)
class MemoryPlace:
    pass


@dataclass(frozen=True, slots=True)
class SqlitePlace:
    path: Path


Place = MemoryPlace | SqlitePlace


def locate(key: str, url: str) -> Place:
    """`key` is the setting that holds the URL, for the error."""
    if url == "memory:":
        return MemoryPlace()
    parts = urlsplit(url)
    # sqlite:///a.db is relative and sqlite:////a.db absolute, as everywhere else that has such URLs.
    if parts.scheme != "sqlite" or parts.netloc or len(parts.path) < 2 or parts.query or parts.fragment:
        raise SettingError(key, url, _ALLOWED)
    return SqlitePlace(Path(unquote(parts.path[1:])))
