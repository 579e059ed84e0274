"""How the failures of a time did: rates, the breakdown by reason, and what was promised against what happened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from holdfast.clock import Clock
from holdfast.deadletter.selecting import read_time
from holdfast.deadletter.selection import Selection
from holdfast.deadletter.statistics import Statistics
from holdfast.deadletter.store import DeskStore
from holdfast.model.failed_message import FailureStatus

DEFAULT_SINCE = "7d"

# What is promised: shares of 1, seconds, and messages that wait for a person.
MOST_LOST = 0.001
FEWEST_RETRIES_SUCCEED = 0.95
LONGEST_DETECTION_SECONDS = 60.0
LONGEST_REVIEW_QUEUE = 50

# For the failure rate of a process's lifetime; beyond this it is a lower bound, and no rate that anybody runs with.
FAILURES_COUNTED = 10_000_000


@dataclass(frozen=True, slots=True)
class Processing:
    """Who counts the messages that succeeded, and since when: a count begins with its process."""

    by: str
    since_ns: int
    succeeded: Callable[[], int]


@dataclass(frozen=True, slots=True)
class Processed:
    """What was processed since then, and of it what failed and what was lost."""

    by: str
    since_ns: int
    succeeded: int
    failed: int
    lost: int

    @property
    def total(self) -> int:
        return self.succeeded + self.failed

    @property
    def failure_rate(self) -> float | None:
        return _share(self.failed, self.total)


@dataclass(frozen=True, slots=True)
class Promise:
    """`actual` is None where nobody knows."""

    name: str
    target: float
    unit: str
    actual: float | None
    more_is_better: bool = False

    @property
    def is_kept(self) -> bool | None:
        if self.actual is None:
            return None
        return self.actual > self.target if self.more_is_better else self.actual < self.target


@dataclass(frozen=True, slots=True)
class Report:
    """`lost` is since the time of the report, to the hour; `processed` has a time of its own."""

    since_ns: int
    until_ns: int
    statistics: Statistics
    review_queue: int
    lost: int
    processed: Processed | None

    @property
    def failed(self) -> int:
        return sum(self.statistics.by_status.values())

    @property
    def retry_success_rate(self) -> float | None:
        return _share(self.statistics.retry_succeeded, self.statistics.retried)

    @property
    def average_retries_before_success(self) -> float | None:
        return _share(self.statistics.retries_before_success, self.statistics.retry_succeeded)

    @property
    def loss_rate(self) -> float | None:
        """Nothing lost is 0, of however many."""
        lost = self.lost if self.processed is None else self.processed.lost
        if not lost:
            return 0.0
        return None if self.processed is None else _share(lost, self.processed.total)

    @property
    def promises(self) -> list[Promise]:
        detection, retries = self.statistics.p95_detection_seconds, self.retry_success_rate
        return [
            Promise("message loss rate", MOST_LOST, "share", self.loss_rate),
            Promise("retry success rate", FEWEST_RETRIES_SUCCEED, "share", retries, more_is_better=True),
            Promise("time to detection", LONGEST_DETECTION_SECONDS, "seconds", detection),
            Promise("manual review queue", LONGEST_REVIEW_QUEUE, "messages", self.review_queue),
        ]


class Reporting:
    """Without `processing`, nobody in this process knows how many messages there were."""

    def __init__(self, store: DeskStore, clock: Clock, processing: Processing | None = None) -> None:
        self._store = store
        self._clock = clock
        self._processing = processing

    async def report(self, since: str = DEFAULT_SINCE) -> Report:
        now_ns = self._clock.now_ns()
        since_ns = read_time("since", since, now_ns)
        now_stored = await self._store.count_by_status()
        return Report(
            since_ns=since_ns,
            until_ns=now_ns,
            statistics=await self._store.statistics(since_ns),
            review_queue=now_stored[FailureStatus.PERMANENT_FAILURE],
            lost=await self._store.lost(since_ns),
            processed=await self._processed(),
        )

    async def _processed(self) -> Processed | None:
        if self._processing is None:
            return None
        since_ns = self._processing.since_ns
        failed = await self._store.count(Selection(since_ns=since_ns), FAILURES_COUNTED)
        return Processed(
            self._processing.by, since_ns, self._processing.succeeded(), failed, await self._store.lost(since_ns)
        )


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
