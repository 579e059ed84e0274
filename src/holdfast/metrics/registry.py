"""The sources of a process, which are asked only when somebody scrapes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from holdfast.metrics.metric import Family, Histogram, Kind, Metric, Sample
from holdfast.metrics.table import METRICS

log = logging.getLogger("holdfast.metrics")

# One that has to ask somebody for its values is a coroutine function.
Source = Callable[[], Iterable[Family] | Awaitable[Iterable[Family]]]

# Longest wait for one source: a part that hangs must not hide how the others do. Prometheus waits 10 seconds.
LONGEST_WAIT_SECONDS = 3.0


class MetricsRegistry:
    """The sources of one process. Two parts must not report the same metric with the same labels."""

    def __init__(self) -> None:
        self._sources: list[Source] = []

    def register(self, source: Source) -> None:
        self._sources.append(source)

    async def collect(self) -> list[Family]:
        """The values of now, in the order of the table. What a source that fails or hangs would have told is left out.
        ValueError for what the table does not have."""
        found: dict[Metric, list[Sample]] = {}
        for families in await asyncio.gather(*map(_asked, self._sources)):
            for family in families:
                _check(family)
                found.setdefault(family.metric, []).extend(family.samples)
        return [Family(metric, found[metric]) for metric in METRICS if metric in found]


async def _asked(source: Source) -> Iterable[Family]:
    try:
        async with asyncio.timeout(LONGEST_WAIT_SECONDS):
            found = source()
            return await found if isinstance(found, Awaitable) else found
    except Exception as error:  # noqa: BLE001 - whatever it is, the other sources are told all the same
        log.warning("metrics are not complete", extra={"fields": {"error": str(error) or type(error).__name__}})
        return []


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
