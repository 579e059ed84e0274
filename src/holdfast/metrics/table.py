"""The table: every metric there is, part by part. docs/metrics.md has the same rows, and a test compares them."""

from __future__ import annotations

from types import ModuleType

from holdfast.metrics import alerts, broker, consumer, desk, process, push, traces
from holdfast.metrics.metric import Metric


def _of(part: ModuleType) -> list[Metric]:
    return [value for value in vars(part).values() if isinstance(value, Metric)]


METRICS = tuple(metric for part in (process, broker, push, consumer, desk, alerts, traces) for metric in _of(part))
