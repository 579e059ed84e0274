"""The process itself."""

from __future__ import annotations

from holdfast.metrics.metric import Kind, Metric

BUILD = Metric(
    "holdfast_build_info",
    Kind.GAUGE,
    ("version", "part"),
    "Always 1. Which version runs, and as what: up, broker, consume or desk.",
)
STARTED = Metric("holdfast_start_time_seconds", Kind.GAUGE, (), "When the process was started, in seconds since 1970.")
