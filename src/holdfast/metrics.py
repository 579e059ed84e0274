"""Every metric there is, in one table, and where a scrape gets their values from.

Nothing is counted here. A part of the process keeps plain counters of its own and registers a source, which is asked
only when somebody scrapes. How the values are written for Prometheus is api/http/metrics.py's business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class Kind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """`name` is what Prometheus stores, so a counter's ends with _total. `doc` has the unit if the name has none."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    doc: str


# The table. docs/metrics.md has the same rows, and a test compares them.

_SUBSCRIPTION = ("subscription",)

PUSH_ATTEMPTS = Metric(
    "holdfast_push_attempts_total",
    Kind.COUNTER,
    (*_SUBSCRIPTION, "result"),
    "Requests to the endpoint that have ended, by result: acknowledged, status_4xx, timeout and so on.",
)
PUSH_LATENCY = Metric(
    "holdfast_push_latency_seconds",
    Kind.HISTOGRAM,
    _SUBSCRIPTION,
    "Time from a request to its answer or failure, in seconds.",
)
PUSH_IN_FLIGHT = Metric(
    "holdfast_push_in_flight", Kind.GAUGE, _SUBSCRIPTION, "Requests that wait for their answer now."
)
PUSH_WINDOW = Metric(
    "holdfast_push_window",
    Kind.GAUGE,
    _SUBSCRIPTION,
    "Requests that may be under way at once. It grows with successes and shrinks with failures.",
)
PUSH_DUE = Metric("holdfast_push_due", Kind.GAUGE, _SUBSCRIPTION, "Messages that could be sent now.")
PUSH_OLDEST_DUE = Metric(
    "holdfast_push_oldest_due_seconds",
    Kind.GAUGE,
    _SUBSCRIPTION,
    "How long the oldest message that could be sent now has been due, in seconds. 0 when nothing is due.",
)
PUSH_WAITING = Metric(
    "holdfast_push_waiting", Kind.GAUGE, _SUBSCRIPTION, "Failed messages that wait for the time of their next attempt."
)
PUSH_DROPPED = Metric(
    "holdfast_push_dropped_total",
    Kind.COUNTER,
    _SUBSCRIPTION,
    "Messages given up after their attempts, as broker.push.drop_after_attempts asks.",
)

METRICS = (
    PUSH_ATTEMPTS,
    PUSH_LATENCY,
    PUSH_IN_FLIGHT,
    PUSH_WINDOW,
    PUSH_DUE,
    PUSH_OLDEST_DUE,
    PUSH_WAITING,
    PUSH_DROPPED,
)


# Values.


class Histogram(NamedTuple):
    """`counts` has one number for each of `bounds`, upper ones in rising order, and a last one for what lies above."""

    bounds: Sequence[float]
    counts: Sequence[int]
    total: float  # of all values


class Sample(NamedTuple):
    """`labels` are the values of the metric's labels, in their order."""

    labels: tuple[str, ...]
    value: float | Histogram


class Family(NamedTuple):
    metric: Metric
    samples: list[Sample]


Source = Callable[[], Iterable[Family]]


class MetricsRegistry:
    """The sources of one process. Two parts must not report the same metric with the same labels."""

    def __init__(self) -> None:
        self._sources: list[Source] = []

    def register(self, source: Source) -> None:
        self._sources.append(source)

    def collect(self) -> list[Family]:
        """The values of now, in the order of the table. ValueError for what the table does not have."""
        found: dict[Metric, list[Sample]] = {}
        for source in self._sources:
            for family in source():
                _check(family)
                found.setdefault(family.metric, []).extend(family.samples)
        return [Family(metric, found[metric]) for metric in METRICS if metric in found]


def _check(family: Family) -> None:
    """Only the first sample is looked at: a source makes all samples of a family in the same way."""
    metric = family.metric
    if metric not in METRICS:
        raise ValueError(f"{metric.name} is not in the table of metrics")
    if family.samples:
        labels, value = family.samples[0]
        if len(labels) != len(metric.labels):
            raise ValueError(f"{metric.name} has the labels {metric.labels}, not {len(labels)} of them")
        if isinstance(value, Histogram) != (metric.kind is Kind.HISTOGRAM):
            raise ValueError(f"{metric.name} is a {metric.kind}")
