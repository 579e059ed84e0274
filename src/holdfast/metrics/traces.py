"""Traces: whether spans reach their collector."""

from __future__ import annotations

from holdfast.metrics.metric import Kind, Metric

SPANS = Metric(
    "holdfast_traces_spans_total",
    Kind.COUNTER,
    ("result",),
    "Spans that have ended, by result: exported, failed where the collector did not take them, or dropped where there "
    "was no room or time.",
)
WAITING = Metric("holdfast_traces_spans_waiting", Kind.GAUGE, (), "Spans that wait to be sent.")
