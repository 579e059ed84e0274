"""Alerts and who was told of them, in SQLite."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any

from holdfast.alerts.alert import Alert, Severity
from holdfast.alerts.notify.ledger import Changes, Group, Kept, Notice, Sending
from holdfast.alerts.notify.matching import parse_matchers
from holdfast.alerts.notify.notification import from_json, to_json
from holdfast.alerts.notify.silences import Silence
from holdfast.stores.sqlite.database import Database

# Those that fire, or of whose end somebody has yet to hear.
LIST_LIVING = """
SELECT id, rule, severity, labels, summary, started_ns, ended_ns, value, details FROM alerts
WHERE ended_ns IS NULL OR id IN (SELECT alert_id FROM alert_notices)
"""
LIST_HISTORY = """
SELECT id, rule, severity, labels, summary, started_ns, ended_ns, value, details FROM alerts WHERE id < ?
ORDER BY id DESC LIMIT ?
"""
LAST_ALERT = "SELECT coalesce(max(id), 0) FROM alerts"
PUT_ALERT = """
INSERT OR REPLACE INTO alerts (id, rule, severity, labels, summary, started_ns, ended_ns, value, details)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
# The last one stays, so that no number is given twice.
FORGET_ALERTS = """
DELETE FROM alerts
WHERE ended_ns < ? AND id NOT IN (SELECT alert_id FROM alert_notices) AND id < (SELECT max(id) FROM alerts)
"""

LIST_NOTICES = "SELECT receiver, alert_id, group_key, told FROM alert_notices"
PUT_NOTICE = "INSERT OR REPLACE INTO alert_notices (receiver, alert_id, group_key, told) VALUES (?, ?, ?, ?)"
FORGET_NOTICE = "DELETE FROM alert_notices WHERE receiver = ? AND alert_id = ?"

LIST_GROUPS = "SELECT receiver, key, labels, due_ns, sent_ns FROM alert_groups"
PUT_GROUP = "INSERT OR REPLACE INTO alert_groups (receiver, key, labels, due_ns, sent_ns) VALUES (?, ?, ?, ?, ?)"
FORGET_GROUP = "DELETE FROM alert_groups WHERE receiver = ? AND key = ?"

LIST_SENDINGS = "SELECT id, notification, group_keys, begun, ended, next_try_ns, failures, error FROM alert_sendings"
PUT_SENDING = """
INSERT OR REPLACE INTO alert_sendings (id, notification, group_keys, begun, ended, next_try_ns, failures, error)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""
FORGET_SENDING = "DELETE FROM alert_sendings WHERE id = ?"

LIST_SILENCES = "SELECT id, matchers, starts_ns, ends_ns, author, comment, created_ns FROM alert_silences"
PUT_SILENCE = """
INSERT OR REPLACE INTO alert_silences (id, matchers, starts_ns, ends_ns, author, comment, created_ns)
VALUES (?, ?, ?, ?, ?, ?, ?)
"""
FORGET_SILENCE = "DELETE FROM alert_silences WHERE id = ?"
LAST_SILENCE = "SELECT coalesce(max(id), 0) FROM alert_silences"

_LARGEST_ID = 2**63 - 1


class SqliteAlertLedger:
    """The database is its owner's to close: the evaluator keeps tables in it too."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def load(self) -> Kept:
        return await self._database.read(_load)

    async def save(self, changes: Changes) -> None:
        alerts = [_alert_row(number, alert) for number, alert in changes.alerts.items()]
        notices = [
            (one.receiver, one.alert_id, one.group, one.told) for one in changes.notices.values() if one is not None
        ]
        groups = [_group_row(one) for one in changes.groups.values() if one is not None]
        sendings = [_sending_row(one) for one in changes.sendings.values() if one is not None]
        silences = [_silence_row(one) for one in changes.silences.values() if one is not None]

        def work(connection: sqlite3.Connection) -> None:
            connection.executemany(PUT_ALERT, alerts)
            connection.executemany(PUT_NOTICE, notices)
            connection.executemany(FORGET_NOTICE, _gone(changes.notices))
            connection.executemany(PUT_GROUP, groups)
            connection.executemany(FORGET_GROUP, _gone(changes.groups))
            connection.executemany(PUT_SENDING, sendings)
            connection.executemany(FORGET_SENDING, [(key,) for key in _gone(changes.sendings)])
            connection.executemany(PUT_SILENCE, silences)
            connection.executemany(FORGET_SILENCE, [(key,) for key in _gone(changes.silences)])

        await self._database.submit(work)

    async def history(self, most: int, before_id: int | None = None) -> list[tuple[int, Alert]]:
        before = _LARGEST_ID if before_id is None else before_id
        return await self._database.read(lambda connection: _alerts(connection.execute(LIST_HISTORY, (before, most))))

    async def forget(self, before_ns: int) -> None:
        await self._database.submit(lambda connection: connection.execute(FORGET_ALERTS, (before_ns,)).rowcount)


def _gone(changed: Mapping[Any, Any]) -> list[Any]:
    return [key for key, value in changed.items() if value is None]


def _load(connection: sqlite3.Connection) -> Kept:
    notices = [Notice(name, one, key, bool(told)) for name, one, key, told in connection.execute(LIST_NOTICES)]
    groups = [
        Group(name, key, json.loads(labels), due_ns, sent_ns)
        for name, key, labels, due_ns, sent_ns in connection.execute(LIST_GROUPS)
    ]
    return Kept(
        dict(_alerts(connection.execute(LIST_LIVING))),
        notices,
        groups,
        [_sending(row) for row in connection.execute(LIST_SENDINGS)],
        [_silence(row) for row in connection.execute(LIST_SILENCES)],
        connection.execute(LAST_ALERT).fetchone()[0],
        connection.execute(LAST_SILENCE).fetchone()[0],
    )


def _alerts(rows: Iterable[tuple[Any, ...]]) -> list[tuple[int, Alert]]:
    return [
        (number, Alert(rule, Severity(severity), json.loads(labels), said, began, ended, value, json.loads(details)))
        for number, rule, severity, labels, said, began, ended, value, details in rows
    ]


def _alert_row(number: int, alert: Alert) -> tuple[object, ...]:
    told = (alert.summary, alert.started_at_ns, alert.ended_at_ns, alert.value)
    return number, alert.rule, str(alert.severity), _json(alert.labels), *told, _json(alert.details)


def _group_row(one: Group) -> tuple[object, ...]:
    return one.receiver, one.key, _json(one.labels), one.due_ns, one.sent_ns


def _sending(row: tuple[Any, ...]) -> Sending:
    _, notification, groups, begun, ended, *rest = row
    lists = (json.loads(some) for some in (groups, begun, ended))
    return Sending(from_json(json.loads(notification)), *lists, *rest)


def _sending_row(one: Sending) -> tuple[object, ...]:
    lists = (json.dumps([*some]) for some in (one.groups, one.begun, one.ended))
    return one.id, json.dumps(to_json(one.notification)), *lists, one.next_try_ns, one.failures, one.error


def _silence(row: tuple[Any, ...]) -> Silence:
    number, matchers, *rest = row
    return Silence(number, parse_matchers(json.loads(matchers)), *rest)


def _silence_row(one: Silence) -> tuple[object, ...]:
    matchers = json.dumps([str(matcher) for matcher in one.matchers])
    return one.id, matchers, one.starts_ns, one.ends_ns, one.author, one.comment, one.created_ns


def _json(value: Mapping[str, str]) -> str:
    return json.dumps(dict(value))
