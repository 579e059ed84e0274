"""What a metric is, and the values of one."""

from __future__ import annotations

from collections.abc import Sequence
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
