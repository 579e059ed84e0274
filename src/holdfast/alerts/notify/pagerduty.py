"""PagerDuty, by its Events API v2: a group of alerts is one incident, from its first alert to its last one's end."""

from __future__ import annotations

from typing import Any

from holdfast.alerts.notify.channel import NotSent
from holdfast.alerts.notify.notification import TEST, Notification, value_text
from holdfast.alerts.notify.posting import Poster, as_body
from holdfast.alerts.notify.secret import Secret
from holdfast.alerts.notify.wording import moment
from holdfast.model.timestamps import format_rfc3339

ENQUEUE = "https://events.pagerduty.com/v2/enqueue"

LONGEST_SUMMARY = 1024
MOST_DETAILED = 20


class PagerDuty:
    """`source` tells which Holdfast it is."""

    def __init__(self, poster: Poster, routing_key: Secret, source: str) -> None:
        self._poster = poster
        self._routing_key = routing_key
        self._source = source

    @property
    def where(self) -> str:
        return self._poster.where

    async def send(self, notification: Notification) -> NotSent | None:
        """A trigger while something fires, else a resolve, and for what it has never heard of both. Sent twice, either
        changes nothing: the dedup key is the group's."""
        actions = ["trigger"] if notification.firing else ["resolve"]
        if not notification.firing and (notification.opens or notification.kind == TEST):
            actions = ["trigger", "resolve"]
        for action in actions:
            result = await self._poster.post(as_body(self.event(notification, action)))
            if result is not None:
                return result
        return None

    def event(self, notification: Notification, action: str) -> dict[str, Any]:
        event: dict[str, Any] = {
            "routing_key": self._routing_key.value,
            "event_action": action,
            "dedup_key": notification.key,
        }
        if action == "trigger":
            event |= {"client": "Holdfast", "payload": self._payload(notification), "links": _links(notification)}
        return event

    def _payload(self, notification: Notification) -> dict[str, Any]:
        first = min((alert.started_at_ns for alert in notification.alerts), default=notification.created_ns)
        return {
            "summary": notification.title[:LONGEST_SUMMARY],
            "source": self._source,
            "severity": str(notification.severity),
            "timestamp": format_rfc3339(first),
            "component": "holdfast",
            "group": ", ".join(notification.group.values()),
            "class": notification.alerts[0].rule if notification.alerts else "",
            "custom_details": _details(notification),
        }


def _details(notification: Notification) -> dict[str, Any]:
    listed = notification.alerts[:MOST_DETAILED]
    return {
        "notification": notification.id,
        "firing": notification.firing,
        "resolved": notification.resolved,
        "alerts": [
            {
                "summary": alert.summary,
                "since": moment(alert.started_at_ns),
                "value": value_text(alert),
                **alert.labels,
                "runbook": alert.details.get("runbook", ""),
                "next": alert.details.get("next", ""),
            }
            for alert in listed
        ],
    }


def _links(notification: Notification) -> list[dict[str, str]]:
    """PagerDuty takes whole URLs only."""
    found = {alert.details.get("runbook", ""): alert.rule for alert in notification.alerts[:MOST_DETAILED]}
    whole = [(url, rule) for url, rule in found.items() if url.startswith(("https://", "http://"))]
    return [{"href": url, "text": f"Runbook: {rule}"} for url, rule in whole]
