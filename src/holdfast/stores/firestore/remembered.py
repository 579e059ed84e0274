"""What this process wrote last, so that it need not be read before it is written again. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from holdfast.consumer.guard import Path
from holdfast.model.document import EventOrder

# About 5 MB.
MOST_REMEMBERED = 10_000


class Version(NamedTuple):
    order: EventOrder
    update_time: Any


class Remembered:
    """A guess of what is there: others may have written since. Whoever uses it must find that out by the commit."""

    def __init__(self) -> None:
        self._versions: dict[Path, Version] = {}  # that was written longest ago comes first

    def of(self, paths: Iterable[Path]) -> dict[Path, Version]:
        return {path: version for path in paths if (version := self._versions.get(path))}

    def note(self, versions: Mapping[Path, Version]) -> None:
        for path, version in versions.items():
            self._versions.pop(path, None)
            self._versions[path] = version
        while len(self._versions) > MOST_REMEMBERED:
            del self._versions[next(iter(self._versions))]
