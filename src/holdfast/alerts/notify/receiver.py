"""One receiver: which alerts it hears of, how they are gathered, and how often it may be told."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from holdfast.alerts.alert import Alert
from holdfast.alerts.notify.channel import Channel
from holdfast.alerts.notify.matching import all_hold, labels_of
from holdfast.alerts.selector import Matcher
from holdfast.clock import NANOSECONDS


@dataclass(frozen=True, slots=True)
class Receiver:
    """Times are in seconds. Where it `joins`, groups that would be more than `per_minute` become one notification."""

    name: str
    kind: str
    channel: Channel
    match: tuple[Matcher, ...]
    group_by: Sequence[str]
    group_wait: int
    group_interval: int
    repeat: int
    per_minute: int
    resolved: bool
    give_up: int
    joins: bool

    def wants(self, alert: Alert) -> bool:
        return all_hold(self.match, labels_of(alert))

    def group_of(self, alert: Alert) -> dict[str, str]:
        labels = labels_of(alert)
        return {name: labels[name] for name in self.group_by if name in labels}


def group_key(labels: Mapping[str, str]) -> str:
    """The same in every process and after a restart."""
    named = "\n".join(f"{name}={labels[name]}" for name in sorted(labels))
    return "holdfast-" + hashlib.sha256(named.encode()).hexdigest()[:32]


class Rate:
    """So many within any minute; the next one then waits."""

    def __init__(self, per_minute: int) -> None:
        self._per_minute = per_minute
        self._taken: list[int] = []

    def room(self, now_ns: int) -> int:
        self._taken = [taken for taken in self._taken if now_ns - 60 * NANOSECONDS < taken <= now_ns]
        return self._per_minute - len(self._taken)

    def take(self, now_ns: int) -> None:
        self._taken.append(now_ns)

    @property
    def next_ns(self) -> int:
        """When there is room again, where there is none."""
        return min(self._taken, default=0) + 60 * NANOSECONDS
