"""What the metrics said lately, as far as the rules look back.

Counters are kept as totals that only grow: a counter that starts anew, because its process did, goes on where it was.
So what a counter has gained between any two times is a subtraction.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from holdfast.alerts.states import Series, Snapshot
from holdfast.clock import NANOSECONDS
from holdfast.metrics.metric import Family, Histogram, Kind
from holdfast.metrics.table import METRICS

_COUNTERS = frozenset(metric.name for metric in METRICS if metric.kind is Kind.COUNTER)
_LABELLED = frozenset(metric.name for metric in METRICS if metric.labels)


class _Entry(NamedTuple):
    time_ns: int
    values: Mapping[Series, float]  # of a counter its total


def snapshot_of(families: Iterable[Family], time_ns: int, wanted: Collection[str]) -> Snapshot:
    """Of the metrics that are wanted. One with labels is in it once more without: it was reported, and a series that it
    has later, and has not now, will have begun at 0."""
    values: dict[Series, float] = {}
    for metric, samples in families:
        if metric.name not in wanted:
            continue
        for labels, value in samples:
            if not isinstance(value, Histogram):
                values[Series(metric.name, labels)] = value
        if metric.labels:
            values[Series(metric.name, ())] = len(samples)
    return Snapshot(time_ns, values)


class History:
    """`keep_seconds` is how far back the rules look, `slack_seconds` how far apart two snapshots may be."""

    def __init__(self, keep_seconds: float, slack_seconds: float) -> None:
        self._keep_ns = round(keep_seconds * NANOSECONDS)
        self._slack_ns = round(slack_seconds * NANOSECONDS)
        self._entries: deque[_Entry] = deque()
        self._names: dict[Series, Series] = {}  # one object for each, however often it is reported
        self._last: dict[Series, tuple[int, float]] = {}  # when each counter was last reported, and what it said

    @property
    def newest_ns(self) -> int | None:
        return self._entries[-1].time_ns if self._entries else None

    @property
    def forget_ns(self) -> int:
        """What is older will not be asked for again."""
        return (self.newest_ns or 0) - self._keep_ns - self._slack_ns

    def add(self, snapshot: Snapshot) -> None:
        now_ns = snapshot.time_ns
        while self._entries and self._entries[-1].time_ns >= now_ns:  # the clock was set back
            self._entries.pop()
        before = self._entries[-1].values if self._entries else {}
        forget_ns = now_ns - self._keep_ns - self._slack_ns
        values: dict[Series, float] = {}
        for series, (seen_ns, _) in list(self._last.items()):
            if seen_ns < forget_ns:
                del self._last[series]
            elif series in before:
                values[series] = before[series]
        for reported, value in snapshot.values.items():
            series = self._names.setdefault(reported, reported)
            if series.metric in _COUNTERS and not _is_mark(series):
                values[series] = values.get(series, 0.0) + self._gained(series, value, before)
                self._last[series] = (now_ns, value)
            else:
                values[series] = value
        self._entries.append(_Entry(now_ns, values))
        while self._entries[0].time_ns < forget_ns:
            self._entries.popleft()
        if len(self._names) > 2 * len(values) + 1000:
            self._names = {series: series for series in values}

    def _gained(self, series: Series, value: float, before: Mapping[Series, float]) -> float:
        if series in self._last:
            last = self._last[series][1]
            return value - last if value >= last else value
        # Whether one that is seen for the first time has just begun, nobody knows who has not looked before.
        return value if Series(series.metric, ()) in before else 0.0

    # Asking. What is not known is not told.

    def counters(self) -> Iterable[Series]:
        """Those of which a total is known, also of series that are gone since."""
        return self._last

    def increases(self, series: Iterable[Series], window_seconds: int) -> dict[Series, float]:
        now = self._entries[-1].values
        base = self._base(window_seconds, exact=False)
        return {one: now[one] - base.get(one, 0.0) for one in series if one in now} if base is not None else {}

    def growths(self, series: Iterable[Series], window_seconds: int) -> dict[Series, float]:
        now = self._entries[-1].values
        base = self._base(window_seconds, exact=True)
        return {one: now[one] - base[one] for one in series if one in now and one in base} if base is not None else {}

    def _base(self, window_seconds: int, *, exact: bool) -> Mapping[Series, float] | None:
        """What was known when the window began; where nobody looked then, the first that is known since, unless it must
        be exact. What happened before that is not told to have happened within the window."""
        begin_ns = self._entries[-1].time_ns - window_seconds * NANOSECONDS
        found: _Entry | None = None
        for entry in self._entries:
            if entry.time_ns > begin_ns:
                break
            found = entry
        if found is not None and found.time_ns >= begin_ns - self._slack_ns:
            return found.values
        if exact:
            return None
        return next(entry.values for entry in self._entries if entry.time_ns > begin_ns)


def _is_mark(series: Series) -> bool:
    return not series.labels and series.metric in _LABELLED
