"""The desk as metrics. What is told of its store is read at most every few seconds, whoever asks how often."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.clock import NANOSECONDS, Clock
from holdfast.deadletter.dead_letter import DEFAULT_REASON
from holdfast.deadletter.replay.jobs import ENDED, ItemState
from holdfast.deadletter.retry_policy import ANY_OTHER, DEFAULT_RULES
from holdfast.deadletter.statistics import Totals
from holdfast.deadletter.store import DeskStore
from holdfast.metrics import desk as table
from holdfast.metrics.metric import Family, Metric, Sample
from holdfast.model.failure_reasons import TRANSIENT_ERROR, UNCLASSIFIED_ERROR

READ_EVERY_NS = 3 * NANOSECONDS

# How far back rates look, as `holdfast failures stats` does by itself.
RATES_OVER_NS = 7 * 24 * 3600 * NANOSECONDS

# Those that Holdfast gives itself. Told from 0 on: of a counter that appears with 1, Prometheus does not see the first.
KNOWN_REASONS = sorted({*DEFAULT_RULES, DEFAULT_REASON, TRANSIENT_ERROR, UNCLASSIFIED_ERROR} - {ANY_OTHER})


class DeskMetrics:
    """`replayed` counts what replays of this process have come to."""

    def __init__(self, store: DeskStore, clock: Clock, replayed: Mapping[ItemState, int]) -> None:
        self._store = store
        self._clock = clock
        self._replayed = replayed
        self._totals: Totals | None = None
        self._read_ns = 0

    async def collect(self) -> list[Family]:
        now_ns = self._clock.now_ns()
        if self._totals is None or not 0 <= now_ns - self._read_ns < READ_EVERY_NS:
            self._totals = None  # what the store said long ago is not told, where it says nothing now
            self._totals = await self._store.totals(now_ns - RATES_OVER_NS)
            self._read_ns = now_ns
        return self._told(self._totals)

    def own(self) -> list[Family]:
        """What is known without the store."""
        samples = [Sample((state.value,), self._replayed.get(state, 0)) for state in ENDED]
        return [Family(table.REPLAYED, samples)]

    def _told(self, totals: Totals) -> list[Family]:
        nothing = dict.fromkeys(totals.recorded, 0)  # else a rate would not see the first that is mended
        return [
            _by_label(table.DLQ_MESSAGES, {**dict.fromkeys(KNOWN_REASONS, 0), **totals.recorded_by_reason}),
            _share(table.DLQ_RETRY_SUCCESS_RATE, totals.retry_succeeded, totals.retried),
            _share(table.DLQ_AVG_RETRY_COUNT, totals.retries_before_success, totals.retry_succeeded),
            Family(table.DLQ_PERMANENT_FAILURES, [Sample((), totals.permanent)]),
            _by_label(table.RECORDED, totals.recorded),
            _by_label(table.SETTLED, {**nothing, **totals.settled}),
            _by_label(table.FAILURES, {status.value: count for status, count in totals.by_status.items()}),
            _by_label(table.OPEN, {**nothing, **totals.open}),
            _by_label(table.GROUPS, totals.groups),
            _by_label(table.REPLAYS, totals.replays),
        ]


def _by_label(metric: Metric, counts: Mapping[str, int]) -> Family:
    return Family(metric, [Sample((name,), count) for name, count in sorted(counts.items())])


def _share(metric: Metric, part: int, whole: int) -> Family:
    """Of nothing there is no share, and no sample."""
    return Family(metric, [Sample((), part / whole)] if whole else [])
