"""The sources of a process, which are asked only when somebody scrapes."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from holdfast.metrics.metric import Family, Histogram, Kind, Metric, Sample
from holdfast.metrics.table import METRICS

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
