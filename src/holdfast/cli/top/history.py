"""What one process has said lately, and the rates that this makes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from holdfast.cli.top.asking import Look
from holdfast.metrics.metric import Metric

# Rates are over the last few seconds: over one alone they would jump.
WINDOW_SECONDS = 5.0


class History:
    """After a restart of the process it begins anew, so that no rate is of a counter that fell to 0."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.error = ""
        self._looks: deque[Look] = deque()

    def saw(self, look: Look) -> None:
        if self._looks and look.started != self._looks[-1].started:
            self._looks.clear()
        self.error = ""
        self._looks.append(look)
        while len(self._looks) > 2 and self._looks[1].at <= look.at - WINDOW_SECONDS:
            self._looks.popleft()

    def lost(self, error: str) -> None:
        """What it said last says nothing of now."""
        self.error = error
        self._looks.clear()

    @property
    def now(self) -> Look | None:
        return self._looks[-1] if self._looks else None

    # Values. None where it does not tell, or has not told long enough.

    def labels(self, metric: Metric) -> Iterator[tuple[str, ...]]:
        yield from self.now.of(metric.name) if self.now else ()

    def value(self, metric: Metric, labels: tuple[str, ...] = ()) -> float | None:
        return self.now.of(metric.name).get(labels) if self.now else None

    def rate(self, metric: Metric, labels: tuple[str, ...] = ()) -> float | None:
        """Of a counter, a second."""
        return self._a_second(self.increase(metric.name, labels))

    def growth(self, metric: Metric, labels: tuple[str, ...]) -> float | None:
        """Of a gauge, a second."""
        first, last = self._ends(metric.name, labels)
        return self._a_second(None if first is None or last is None else last - first)

    def increase(self, name: str, labels: tuple[str, ...]) -> float | None:
        """Of a counter. One that has fallen is of something that was made anew; one that has appeared began at 0."""
        if len(self._looks) < 2:
            return None
        first, last = self._ends(name, labels)
        if last is None:
            return None
        return last if first is None or last < first else last - first

    def buckets(self, metric: Metric, labels: tuple[str, ...]) -> list[tuple[float, float]]:
        """Of a histogram: each upper bound, and how many lately were not above it."""
        name = f"{metric.name}_bucket"
        found = self.now.of(name) if self.now else {}
        bounds = sorted(float(one[-1]) for one in found if one[:-1] == labels)
        written = {float(one[-1]): one for one in found if one[:-1] == labels}
        return [(bound, self.increase(name, written[bound]) or 0.0) for bound in bounds]

    def _ends(self, name: str, labels: tuple[str, ...]) -> tuple[float | None, float | None]:
        if len(self._looks) < 2:
            return None, None
        return self._looks[0].of(name).get(labels), self._looks[-1].of(name).get(labels)

    def _a_second(self, value: float | None) -> float | None:
        if value is None or len(self._looks) < 2:
            return None
        return value / max(self._looks[-1].at - self._looks[0].at, 0.001)


def quantile(share: float, buckets: Sequence[tuple[float, float]]) -> float | None:
    """Inside a bucket values are taken to be spread evenly. What is above all bounds counts as the last."""
    if not buckets or not buckets[-1][1]:
        return None
    rank = share * buckets[-1][1]
    lower, below = 0.0, 0.0
    for upper, up_to in buckets:
        if up_to >= rank and up_to > below:
            return lower if upper == float("inf") else lower + (upper - lower) * (rank - below) / (up_to - below)
        lower, below = upper, up_to
    return None
