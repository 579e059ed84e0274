"""Push delivery."""

from __future__ import annotations

from holdfast.metrics.metric import Kind, Metric

_SUBSCRIPTION = ("subscription",)

ATTEMPTS = Metric(
    "holdfast_push_attempts_total",
    Kind.COUNTER,
    (*_SUBSCRIPTION, "result"),
    "Requests to the endpoint that have ended, by result: acknowledged, status_4xx, timeout and so on.",
)
LATENCY = Metric(
    "holdfast_push_latency_seconds",
    Kind.HISTOGRAM,
    _SUBSCRIPTION,
    "Time from a request to its answer or failure, in seconds.",
)
IN_FLIGHT = Metric("holdfast_push_in_flight", Kind.GAUGE, _SUBSCRIPTION, "Requests that wait for their answer now.")
WINDOW = Metric(
    "holdfast_push_window",
    Kind.GAUGE,
    _SUBSCRIPTION,
    "Requests that may be under way at once. It grows with successes and shrinks with failures.",
)
DUE = Metric("holdfast_push_due", Kind.GAUGE, _SUBSCRIPTION, "Messages that could be sent now.")
OLDEST_DUE = Metric(
    "holdfast_push_oldest_due_seconds",
    Kind.GAUGE,
    _SUBSCRIPTION,
    "How long the oldest message that could be sent now has been due, in seconds. 0 when nothing is due.",
)
WAITING = Metric(
    "holdfast_push_waiting", Kind.GAUGE, _SUBSCRIPTION, "Failed messages that wait for the time of their next attempt."
)
DROPPED = Metric(
    "holdfast_push_dropped_total",
    Kind.COUNTER,
    _SUBSCRIPTION,
    "Messages given up after their attempts, as broker.push.drop_after_attempts asks.",
)
