"""Times counted in logarithmic buckets: percentiles to within 1 %, in the same little memory for any number of them.

Pure: no clock and no input or output.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

MILLISECOND = 1_000_000  # nanoseconds

# Two buckets next to each other differ by less than 1 in 128.
_BITS = 8

# Which percentiles are told, by their names.
PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}

# Edges of the bars of a histogram within a decade, the finer first; wide ranges take the coarser, to fit on a screen.
_FINE = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)
_COARSE = (1.0, 2.0, 5.0)
_MOST_BARS = 24


@dataclass(frozen=True, slots=True)
class Bar:
    """Of a histogram: how many took `from_ms` or more, and less than `to_ms`; to within 1 % at the edges."""

    from_ms: float
    to_ms: float
    count: int


class Latencies:
    __slots__ = ("_buckets", "count", "least_ns", "most_ns")

    def __init__(self) -> None:
        self._buckets: dict[int, int] = {}
        self.count = 0
        self.least_ns = 0
        self.most_ns = 0

    def add(self, nanoseconds: int) -> None:
        bucket = _bucket_of(nanoseconds)
        self._buckets[bucket] = self._buckets.get(bucket, 0) + 1
        if not self.count or nanoseconds < self.least_ns:
            self.least_ns = nanoseconds
        self.most_ns = max(self.most_ns, nanoseconds)
        self.count += 1

    def add_all(self, other: Latencies) -> None:
        if not other.count:
            return
        for bucket, count in other._buckets.items():
            self._buckets[bucket] = self._buckets.get(bucket, 0) + count
        self.least_ns = min(self.least_ns, other.least_ns) if self.count else other.least_ns
        self.most_ns = max(self.most_ns, other.most_ns)
        self.count += other.count

    def percentile(self, share: float) -> int:
        """By the nearest rank, in nanoseconds: so many took no longer. 0 when there are none."""
        rank = max(math.ceil(share * self.count - 1e-9), 1)
        seen = 0
        for bucket in sorted(self._buckets):
            seen += self._buckets[bucket]
            if seen >= rank:
                return max(min(_end_of(bucket) - 1, self.most_ns), self.least_ns)
        return 0

    def percentile_ms(self, share: float) -> float:
        return self.percentile(share) / MILLISECOND

    def summary_ms(self) -> dict[str, float]:
        """From the least to the most, by name."""
        return {
            "min": self.least_ns / MILLISECOND,
            **{name: self.percentile_ms(share) for name, share in PERCENTILES.items()},
            "max": self.most_ns / MILLISECOND,
        }

    def bars(self) -> list[Bar]:
        """A histogram from the first bar that is not empty to the last."""
        if not self.count:
            return []
        fine = self._bars(_FINE)
        return fine if len(fine) <= _MOST_BARS else self._bars(_COARSE)

    def _bars(self, steps: Sequence[float]) -> list[Bar]:
        edges = _edges(self.least_ns, self.most_ns, steps)
        counts = [0] * (len(edges) - 1)
        place = 0
        for bucket in sorted(self._buckets):
            middle = (_start_of(bucket) + _end_of(bucket)) // 2
            while middle >= edges[place + 1] and place + 2 < len(edges):
                place += 1
            counts[place] += self._buckets[bucket]
        bars = [
            Bar(low / MILLISECOND, high / MILLISECOND, count)
            for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True)
        ]
        return _trimmed(bars)


def _bucket_of(nanoseconds: int) -> int:
    shift = max(nanoseconds.bit_length() - _BITS, 0)
    return (shift << _BITS) + (nanoseconds >> shift)


def _start_of(bucket: int) -> int:
    shift, mantissa = bucket >> _BITS, bucket & ((1 << _BITS) - 1)
    return mantissa << shift


def _end_of(bucket: int) -> int:
    shift, mantissa = bucket >> _BITS, bucket & ((1 << _BITS) - 1)
    return (mantissa + 1) << shift


def _edges(least: int, most: int, steps: Sequence[float]) -> list[int]:
    """Round numbers of nanoseconds, from one that is not above `least` to the first that is above `most`."""
    lowest, highest = (math.floor(math.log10(max(bound, 1))) for bound in (least, most))
    # The step below and the one above may lie in the neighbouring decades.
    decades = range(max(lowest - 1, 0), highest + 2)
    edges = [0, *sorted({round(step * 10**decade) for decade in decades for step in steps})]
    first = max(place for place, edge in enumerate(edges) if edge <= least)
    last = min(place for place, edge in enumerate(edges) if edge > most)
    return edges[first : last + 1]


def _trimmed(bars: list[Bar]) -> list[Bar]:
    filled = [place for place, bar in enumerate(bars) if bar.count]
    return bars[filled[0] : filled[-1] + 1]
