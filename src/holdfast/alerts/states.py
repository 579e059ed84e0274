"""What the evaluator must know again after a restart: the alerts that are pending or firing, and recent values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from holdfast.alerts.alert import Severity


class Series(NamedTuple):
    """`labels` are the values of the metric's labels, in their order."""

    metric: str
    labels: tuple[str, ...]


class Snapshot(NamedTuple):
    """What was read at one time."""

    time_ns: int
    values: Mapping[Series, float]


Labels = tuple[tuple[str, str], ...]  # name and value, in the order of the names


class Subject(NamedTuple):
    """What one alert is about. There is one alert of it at a time."""

    rule: str
    severity: Severity
    labels: Labels


@dataclass(frozen=True, slots=True)
class State:
    """Its condition has held since `since_ns`; it fires once `firing_ns` is known."""

    since_ns: int
    firing_ns: int | None = None
    value: float = 0.0


class Kept(NamedTuple):
    snapshots: Sequence[Snapshot]  # oldest first
    states: Mapping[Subject, State]


class AlertStates(Protocol):
    """PORT: where they are kept."""

    async def load(self) -> Kept: ...

    async def save(self, snapshot: Snapshot, states: Mapping[Subject, State], forget_ns: int) -> None:
        """In one transaction: adds the snapshot, replaces all states, forgets snapshots that are older."""
        ...
