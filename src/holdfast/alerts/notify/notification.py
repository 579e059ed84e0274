"""What one receiver is told at once: a group of alerts, those that fire first. Made once, and the same however often
it is sent. As a dictionary it is what a webhook gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.alerts.alert import Alert, Severity
from holdfast.model.timestamps import format_rfc3339, parse_rfc3339

# So many alerts are told one by one. The others are counted.
MOST_LISTED = 50

CHANGE, REMINDER, TEST = "change", "reminder", "test"


@dataclass(frozen=True, slots=True)
class Notification:
    """`key` names the group for as long as it exists. `alerts` are the first of `firing` and `resolved`. Where
    `opens`, it is the first that this receiver hears of some of them."""

    id: str
    receiver: str
    kind: str
    key: str
    group: Mapping[str, str]
    firing: int
    resolved: int
    alerts: Sequence[Alert]
    created_ns: int
    opens: bool = True

    @property
    def severity(self) -> Severity:
        return max((alert.severity for alert in self.alerts), key=[*Severity].index, default=Severity.WARNING)

    @property
    def title(self) -> str:
        """One line."""
        counts = [f"{self.firing} firing"] if self.firing else []
        counts += [f"{self.resolved} resolved"] if self.resolved else []
        state = "TEST" if self.kind == TEST else self.severity.upper() if self.firing else "RESOLVED"
        told = self.alerts[0].summary if len(self.alerts) == 1 else f"{self._about}: {', '.join(counts)}"
        still = "still: " if self.kind == REMINDER else ""
        return f"[{state}] {still}{told}"

    @property
    def _about(self) -> str:
        rules = sorted({alert.rule for alert in self.alerts})
        return ", ".join(rules[:3]) + (f" and {len(rules) - 3} more rules" if len(rules) > 3 else "")

    @property
    def not_listed(self) -> int:
        return self.firing + self.resolved - len(self.alerts)


def value_text(alert: Alert) -> str:
    """The value and its limit; empty where neither is known."""
    measured, limit = alert.details.get("measured", ""), alert.details.get("limit", "")
    return f"{measured} (limit {limit})" if measured and limit else measured


def alert_to_json(alert: Alert) -> dict[str, Any]:
    return {
        "key": alert.key,
        "rule": alert.rule,
        "severity": str(alert.severity),
        "state": "firing" if alert.ended_at_ns is None else "resolved",
        "labels": dict(alert.labels),
        "summary": alert.summary,
        "value": alert.value,
        "startedAt": format_rfc3339(alert.started_at_ns),
        "endedAt": None if alert.ended_at_ns is None else format_rfc3339(alert.ended_at_ns),
        "details": dict(alert.details),
    }


def alert_from_json(told: Mapping[str, Any]) -> Alert:
    ended = told["endedAt"]
    return Alert(
        told["rule"],
        Severity(told["severity"]),
        told["labels"],
        told["summary"],
        parse_rfc3339(told["startedAt"]),
        None if ended is None else parse_rfc3339(ended),
        told["value"],
        told["details"],
    )


def to_json(one: Notification) -> dict[str, Any]:
    return {
        "id": one.id,
        "kind": one.kind,
        "receiver": one.receiver,
        "state": "firing" if one.firing else "resolved",
        "severity": str(one.severity),
        "title": one.title,
        "groupKey": one.key,
        "group": dict(one.group),
        "firing": one.firing,
        "resolved": one.resolved,
        "notListed": one.not_listed,
        "createdAt": format_rfc3339(one.created_ns),
        "opens": one.opens,
        "alerts": [alert_to_json(alert) for alert in one.alerts],
    }


def from_json(told: Mapping[str, Any]) -> Notification:
    return Notification(
        told["id"],
        told["receiver"],
        told["kind"],
        told["groupKey"],
        told["group"],
        told["firing"],
        told["resolved"],
        [alert_from_json(alert) for alert in told["alerts"]],
        parse_rfc3339(told["createdAt"]),
        told["opens"],
    )
