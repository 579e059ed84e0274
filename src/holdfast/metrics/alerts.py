"""Alerts, and whether people hear of them."""

from __future__ import annotations

from holdfast.metrics.metric import Kind, Metric

FIRING = Metric("holdfast_alerts_firing", Kind.GAUGE, ("severity",), "Alerts that fire now.")
NOTIFICATIONS = Metric(
    "holdfast_alerts_notifications_total",
    Kind.COUNTER,
    ("receiver", "result"),
    "Notifications, by result: sent, retried, refused, silenced, or given_up.",
)
WAITING = Metric(
    "holdfast_alerts_notifications_waiting",
    Kind.GAUGE,
    ("receiver",),
    "Groups of alerts of which the receiver has yet to be told, although it is time.",
)
LAST_EVALUATION = Metric(
    "holdfast_alerts_last_evaluation_timestamp_seconds",
    Kind.GAUGE,
    (),
    "When the rules were last judged, in seconds since 1970.",
)
