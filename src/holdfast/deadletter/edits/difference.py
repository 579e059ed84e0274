"""What an edit changed, place by place, as JSON Pointers with the old and the new value. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from holdfast.model.json_pointer import ABSENT, Path


@dataclass(frozen=True, slots=True)
class Difference:
    """`old` is ABSENT for what was added, `new` for what was removed. Numbers differ when their text does: a strict
    reader tells 1 from 1.0."""

    path: Path
    old: Any
    new: Any

    @property
    def kind(self) -> str:
        return "added" if self.old is ABSENT else "removed" if self.new is ABSENT else "changed"


def differences(old: Any, new: Any, path: Path = ()) -> Iterator[Difference]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in {**old, **new}:
            yield from differences(old.get(key, ABSENT), new.get(key, ABSENT), (*path, key))
    elif isinstance(old, list) and isinstance(new, list):
        yield from _of_arrays(old, new, path)
    elif type(old) is not type(new) or old != new:
        yield Difference(path, old, new)


def _of_arrays(old: list[Any], new: list[Any], path: Path) -> Iterator[Difference]:
    """What both have at the beginning and at the end is passed over, so that one item put in is one difference."""
    shorter = min(len(old), len(new))
    start = next((place for place in range(shorter) if not _same(old[place], new[place])), shorter)
    rest = shorter - start
    end = next((back for back in range(rest) if not _same(old[-1 - back], new[-1 - back])), rest)
    middle = max(len(old), len(new)) - end
    for place in range(start, middle):
        before = old[place] if place < len(old) - end else ABSENT
        after = new[place] if place < len(new) - end else ABSENT
        yield from differences(before, after, (*path, str(place)))


def _same(old: Any, new: Any) -> bool:
    return next(differences(old, new), None) is None
