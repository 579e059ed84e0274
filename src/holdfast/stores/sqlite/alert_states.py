"""What the alert evaluator must know again after a restart, in SQLite."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from typing import Any

from holdfast.alerts.alert import Severity
from holdfast.alerts.states import Kept, Series, Snapshot, State, Subject
from holdfast.stores.sqlite.database import Database

# All that is known.
LIST_SERIES = "SELECT id, metric, labels FROM alert_series"
LIST_SNAPSHOTS = "SELECT time_ns, sampled FROM alert_snapshots ORDER BY time_ns"
LIST_STATES = "SELECT rule, severity, labels, since_ns, firing_ns, value FROM alert_states"

# A series has a number, because its name is long and is said again every few seconds.
ADD_SERIES = "INSERT INTO alert_series (id, metric, labels) VALUES (?, ?, ?)"
FORGET_SERIES = "DELETE FROM alert_series WHERE id = ?"

# A clock that was set back may come to the same time again.
ADD_SNAPSHOT = "INSERT OR REPLACE INTO alert_snapshots (time_ns, sampled) VALUES (?, ?)"
FORGET_SNAPSHOTS = "DELETE FROM alert_snapshots WHERE time_ns < ? OR time_ns > ?"

CLEAR_STATES = "DELETE FROM alert_states"
ADD_STATE = """
INSERT INTO alert_states (rule, severity, labels, since_ns, firing_ns, value) VALUES (?, ?, ?, ?, ?, ?)
"""

# So many numbers may belong to series that are gone before they are looked for.
SPARE_SERIES = 1000


class SqliteAlertStates:
    """The database is its owner's to close: others keep tables in it too. `load` comes first."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._ids: dict[Series, int] = {}
        self._last_id = 0
        self._saved: Mapping[Subject, State] = {}

    async def load(self) -> Kept:
        numbered, kept = await self._database.read(_load)
        self._ids = {series: number for number, series in numbered.items()}
        self._last_id = max(numbered, default=0)
        self._saved = dict(kept.states)
        return kept

    async def save(self, snapshot: Snapshot, states: Mapping[Subject, State], forget_ns: int) -> None:
        new = self._numbered(snapshot)
        gone = self._gone(snapshot)
        ids = {**self._ids, **new}
        sampled = json.dumps({ids[series]: value for series, value in snapshot.values.items()})
        changed = list(map(_state_row, states, states.values())) if states != self._saved else None

        def work(connection: sqlite3.Connection) -> None:
            connection.executemany(FORGET_SERIES, [(number,) for number in gone.values()])
            connection.executemany(ADD_SERIES, [_series_row(number, series) for series, number in new.items()])
            connection.execute(ADD_SNAPSHOT, (snapshot.time_ns, sampled))
            connection.execute(FORGET_SNAPSHOTS, (forget_ns, snapshot.time_ns))
            if changed is not None:
                connection.execute(CLEAR_STATES)
                connection.executemany(ADD_STATE, changed)

        await self._database.submit(work)
        self._ids = {series: number for series, number in ids.items() if series not in gone}
        self._last_id += len(new)
        self._saved = dict(states)

    def _numbered(self, snapshot: Snapshot) -> dict[Series, int]:
        unknown = [series for series in snapshot.values if series not in self._ids]
        return {series: number for number, series in enumerate(unknown, self._last_id + 1)}

    def _gone(self, snapshot: Snapshot) -> dict[Series, int]:
        """Subscriptions come and go. Old snapshots may still name these; nobody will ask for them."""
        if len(self._ids) <= len(snapshot.values) + SPARE_SERIES:
            return {}
        return {series: number for series, number in self._ids.items() if series not in snapshot.values}


def _load(connection: sqlite3.Connection) -> tuple[dict[int, Series], Kept]:
    numbered = {
        number: Series(metric, tuple(json.loads(labels))) for number, metric, labels in connection.execute(LIST_SERIES)
    }
    snapshots = [
        Snapshot(time_ns, _values(sampled, numbered)) for time_ns, sampled in connection.execute(LIST_SNAPSHOTS)
    ]
    return numbered, Kept(snapshots, dict(map(_state, connection.execute(LIST_STATES))))


def _values(sampled: str, numbered: Mapping[int, Series]) -> dict[Series, float]:
    found = {int(number): value for number, value in json.loads(sampled).items()}
    return {numbered[number]: value for number, value in found.items() if number in numbered}


def _state(row: tuple[Any, ...]) -> tuple[Subject, State]:
    rule, severity, labels, since_ns, firing_ns, value = row
    pairs = tuple(sorted(json.loads(labels).items()))
    return Subject(rule, Severity(severity), pairs), State(since_ns, firing_ns, value)


def _state_row(subject: Subject, state: State) -> tuple[object, ...]:
    rule, severity, labels = subject
    return rule, str(severity), json.dumps(dict(labels)), state.since_ns, state.firing_ns, state.value


def _series_row(number: int, series: Series) -> tuple[object, ...]:
    return number, series.metric, json.dumps(series.labels)
