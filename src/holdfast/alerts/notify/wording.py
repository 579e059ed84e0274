"""An alert in lines, for channels that people read."""

from __future__ import annotations

from holdfast.alerts.alert import Alert
from holdfast.alerts.notify.notification import Notification, value_text
from holdfast.model.timestamps import format_rfc3339


def moment(time_ns: int) -> str:
    """To the second."""
    return format_rfc3339(time_ns // 1_000_000_000 * 1_000_000_000).replace("T", " ").replace("Z", " UTC")


def about(alert: Alert) -> list[tuple[str, str]]:
    """Titles and texts. What is not known is left out."""
    ended = alert.ended_at_ns
    found = [
        ("Rule", f"{alert.rule} ({alert.severity})"),
        ("Since", moment(alert.started_at_ns)),
        ("Over at", "" if ended is None else moment(ended)),
        ("Value", value_text(alert)),
        *((name.capitalize(), text) for name, text in alert.labels.items()),
        ("Runbook", alert.details.get("runbook", "")),
        ("Next", alert.details.get("next", "") if ended is None else ""),
    ]
    return [(title, text) for title, text in found if text]


def headline(alert: Alert) -> str:
    return alert.summary if alert.ended_at_ns is None else f"Over: {alert.summary}"


def plain(notification: Notification) -> str:
    """All of it as text."""
    parts = []
    for alert in notification.alerts:
        lines = [headline(alert), *(f"  {title}: {text}" for title, text in about(alert))]
        parts.append("\n".join(lines))
    if notification.not_listed:
        parts.append(rest(notification))
    return "\n\n".join(parts) + "\n"


def rest(notification: Notification) -> str:
    return f"and {notification.not_listed} more: holdfast alerts list"
