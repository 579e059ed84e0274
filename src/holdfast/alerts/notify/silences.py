"""When nobody is told: silences that people make for a time, and times of the week that the settings name.

A silence holds beginnings and reminders back. The end of what somebody was told of is told all the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta, tzinfo
from typing import Protocol

from holdfast.alerts.notify.matching import all_hold
from holdfast.alerts.selector import Matcher
from holdfast.clock import NANOSECONDS


class Quiet(Protocol):
    """What silences alerts."""

    def until_ns(self, labels: Mapping[str, str], now_ns: int) -> int | None:
        """None where it does not silence such an alert now, else when that is over."""
        ...


@dataclass(frozen=True, slots=True)
class Silence:
    """Made by a person, from `starts_ns` until `ends_ns`. Lifting it moves its end."""

    id: int
    matchers: tuple[Matcher, ...]
    starts_ns: int
    ends_ns: int
    author: str
    comment: str
    created_ns: int

    def until_ns(self, labels: Mapping[str, str], now_ns: int) -> int | None:
        is_on = self.starts_ns <= now_ns < self.ends_ns and all_hold(self.matchers, labels)
        return self.ends_ns if is_on else None

    def state(self, now_ns: int) -> str:
        if now_ns < self.starts_ns:
            return "pending"
        return "active" if now_ns < self.ends_ns else "over"


@dataclass(frozen=True, slots=True)
class QuietTime:
    """Again and again: on these days (Monday is 0) from `begin` on, until the next `end` in that zone."""

    matchers: tuple[Matcher, ...]
    days: frozenset[int]
    begin: time
    end: time
    zone: tzinfo
    comment: str = ""

    def until_ns(self, labels: Mapping[str, str], now_ns: int) -> int | None:
        if not all_hold(self.matchers, labels):
            return None
        now = datetime.fromtimestamp(now_ns / NANOSECONDS, UTC)
        today = now.astimezone(self.zone).date()
        for day in (today - timedelta(days=1), today):
            if day.weekday() not in self.days:
                continue
            last = day if self.begin < self.end else day + timedelta(days=1)
            begin = datetime.combine(day, self.begin, self.zone).astimezone(UTC)
            end = datetime.combine(last, self.end, self.zone).astimezone(UTC)
            if begin <= now < end:
                return round(end.timestamp()) * NANOSECONDS
        return None
