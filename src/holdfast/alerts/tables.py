"""Reading one table of `[[alerts.rules]]`: what is wrong is told by its key."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.alerts.durations import seconds_of
from holdfast.errors import SettingError

# Values are remembered for no longer than this, and nothing need be pending for more than a day.
LONGEST_FOR = 24 * 3600


@dataclass(frozen=True, slots=True)
class Table:
    """`where` is what the user sees before the key."""

    where: str
    raw: Mapping[str, Any]

    def key(self, name: str) -> str:
        return f"{self.where}.{name}"

    def only(self, known: Sequence[str], because: str = "") -> None:
        for name in self.raw:
            if name not in known:
                allowed = f"there is no such key; {because}these are: {', '.join(known)}"
                raise SettingError(self.key(name), self.raw[name], allowed)

    def text(self, name: str, default: str | None = None) -> str:
        value = self.raw.get(name, default)
        if not isinstance(value, str) or not value.strip():
            raise SettingError(self.key(name), value, "must be text that is not empty")
        return value

    def texts(self, name: str, allowed: str) -> list[str]:
        value = self.raw.get(name)
        if not isinstance(value, list) or not value or not all(isinstance(one, str) and one for one in value):
            raise SettingError(self.key(name), value, allowed)
        return value

    def choice(self, name: str, choices: Sequence[str], default: str | None = None) -> str:
        value = self.raw.get(name, default)
        if value not in choices:
            raise SettingError(self.key(name), value, f"must be one of {', '.join(choices)}")
        return str(value)

    def flag(self, name: str, *, default: bool) -> bool:
        value = self.raw.get(name, default)
        if not isinstance(value, bool):
            raise SettingError(self.key(name), value, "must be true or false")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        value = self.raw.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise SettingError(self.key(name), value, "must be a number")
        return value

    def whole(self, name: str, default: int) -> int:
        value = self.number(name, default)
        if value != int(value) or value < 0:
            raise SettingError(self.key(name), value, "must be a whole number, 0 or more")
        return int(value)

    def duration(self, name: str, default: int, low: int = 0, high: int = LONGEST_FOR) -> int:
        """Text such as 5m, or seconds."""
        value = self.raw.get(name, default)
        seconds = seconds_of(value) if isinstance(value, str) else value
        if isinstance(seconds, bool) or not isinstance(seconds, int) or not low <= seconds <= high:
            raise SettingError(self.key(name), value, f"must be from {low} to {high} seconds, such as 90s, 5m or 1h")
        return seconds


def close_to(name: str, names: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(names), 1)
    return f"; did you mean {close[0]}?" if close else ""
