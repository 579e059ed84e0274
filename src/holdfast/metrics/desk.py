"""The dead-letter desk. The first four have the names that source code and dashboards of other systems know."""

from __future__ import annotations

from holdfast.metrics.metric import Kind, Metric

DLQ_MESSAGES = Metric(
    "dlq_messages_total",
    Kind.COUNTER,
    ("reason",),
    "Failed messages recorded, by reason, since the desk has its store.",
)
DLQ_RETRY_SUCCESS_RATE = Metric(
    "dlq_retry_success_rate",
    Kind.GAUGE,
    (),
    "Share of the failed messages whose retries have ended that a retry has mended, from 0 to 1, over the last 7 days.",
)
DLQ_AVG_RETRY_COUNT = Metric(
    "dlq_avg_retry_count", Kind.GAUGE, (), "Retries of a message before one succeeded, on average over the last 7 days."
)
DLQ_PERMANENT_FAILURES = Metric(
    "dlq_permanent_failures_total",
    Kind.COUNTER,
    (),
    "Failed messages that became permanent failures, for a person to see to.",
)
RECORDED = Metric(
    "holdfast_desk_recorded_total",
    Kind.COUNTER,
    ("subscription",),
    "Failed messages recorded, by the subscription that they failed at.",
)
SETTLED = Metric(
    "holdfast_desk_settled_total",
    Kind.COUNTER,
    ("subscription",),
    "Failed messages that were mended: by a retry, or by being replayed.",
)
FAILURES = Metric("holdfast_desk_failures", Kind.GAUGE, ("status",), "Failed messages that the desk has, by status.")
OPEN = Metric(
    "holdfast_desk_open_failures",
    Kind.GAUGE,
    ("subscription",),
    "Failed messages that are in nobody's hands yet: waiting for a retry, or permanent failures of a group that"
    " nobody has acknowledged or resolved.",
)
GROUPS = Metric(
    "holdfast_desk_groups",
    Kind.GAUGE,
    ("state",),
    "Groups of failures with one cause, by state: open, acknowledged, resolved or reopened.",
)
REPLAYS = Metric("holdfast_desk_replays", Kind.GAUGE, ("state",), "Replay jobs, by state.")
REPLAYED = Metric(
    "holdfast_desk_replayed_total",
    Kind.COUNTER,
    ("result",),
    "Messages that replays of this process have dealt with, by result.",
)
