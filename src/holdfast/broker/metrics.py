"""Topics and subscriptions as metrics. Counters are kept where things happen; here is what a scrape makes of them.

Where memory does not know how old the first open message is, or how many of those ahead a filter leaves out, the log is
read when somebody scrapes: in the background, so that no scrape waits long for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from holdfast.broker.counts import DeliveryCounts
from holdfast.broker.service import Broker
from holdfast.broker.subscriptions import SubscriptionQueue
from holdfast.clock import NANOSECONDS, Clock
from holdfast.errors import StorageUnavailable
from holdfast.metrics import broker as table
from holdfast.metrics.bounded import bounded
from holdfast.metrics.metric import Family, Sample

log = logging.getLogger("holdfast.broker")

# A scrape waits for reading this long; what is not known then is left out of it.
LONGEST_WAIT_SECONDS = 0.5

# For one subscription the log is asked for the age of a message no more often than this.
READ_EVERY_NS = 5 * NANOSECONDS


class _Topic(NamedTuple):
    published: int
    published_bytes: int


@dataclass(frozen=True, slots=True)
class _Subscription:
    """None where it is not known."""

    counts: DeliveryCounts
    backlog: int | None
    outstanding: int
    oldest_ns: int | None
    paused: bool


class _Read(NamedTuple):
    """The time of the first message from `sequence` on."""

    sequence: int
    publish_time_ns: int
    read_ns: int


class BrokerMetrics:
    def __init__(self, broker: Broker, clock: Clock) -> None:
        self._broker = broker
        self._clock = clock
        self._reading: asyncio.Task[None] | None = None
        self._read: dict[SubscriptionQueue, _Read] = {}

    async def collect(self) -> list[Family]:
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read_what_is_missing())
        await asyncio.wait({self._reading}, timeout=LONGEST_WAIT_SECONDS)
        return [*self._topics(), *self._subscriptions()]

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reading

    # Reading the log.

    async def _read_what_is_missing(self) -> None:
        queues = self._broker.queues
        self._read = {queue: self._read[queue] for queue in queues if queue in self._read}
        try:
            for queue in sorted(queues, key=lambda queue: bool(queue.config.filter)):  # reading ahead may take long
                await queue.look_ahead()
                await self._read_oldest(queue)
        except StorageUnavailable as error:
            log.warning("metrics are not complete", extra={"fields": {"error": str(error)}})

    async def _read_oldest(self, queue: SubscriptionQueue) -> None:
        sequence, now_ns = queue.first_open(), self._clock.now_ns()
        if sequence is None or queue.topic.cached(sequence) is not None:
            return
        before = self._read.get(queue)
        if before is not None and (before.sequence == sequence or now_ns - before.read_ns < READ_EVERY_NS):
            return
        found, _ = await queue.topic.read(sequence, 1, 1)
        if found:
            self._read[queue] = _Read(sequence, found[0].publish_time_ns, now_ns)

    def _oldest_ns(self, queue: SubscriptionQueue) -> int | None:
        sequence = queue.first_open()
        if sequence is None:
            return None
        message = queue.topic.cached(sequence)
        if message is not None:
            return message.publish_time_ns
        read = self._read.get(queue)
        is_recent = read is not None and self._clock.now_ns() - read.read_ns < 2 * READ_EVERY_NS
        return read.publish_time_ns if read is not None and (read.sequence == sequence or is_recent) else None

    # What is told.

    def _topics(self) -> list[Family]:
        found = {topic.topic.name: _Topic(topic.published, topic.published_bytes) for topic in self._broker.topics}
        rows = bounded(found, _topics_together)
        return [
            Family(table.PUBLISHED, [Sample((name,), row.published) for name, row in rows]),
            Family(table.PUBLISHED_BYTES, [Sample((name,), row.published_bytes) for name, row in rows]),
        ]

    def _subscriptions(self) -> list[Family]:
        found = {queue.config.name: self._subscription(queue) for queue in self._broker.queues}
        rows = bounded(found, _together)
        return [
            Family(table.DELIVERED, [Sample((name,), row.counts.delivered) for name, row in rows]),
            Family(table.ACKED, [Sample((name,), row.counts.acked) for name, row in rows]),
            Family(table.NACKED, [Sample((name,), row.counts.nacked) for name, row in rows]),
            Family(table.EXPIRED, [Sample((name,), row.counts.expired) for name, row in rows]),
            Family(table.DEAD_LETTERED, [Sample((name,), row.counts.dead_lettered) for name, row in rows]),
            Family(table.BACKLOG, [Sample((name,), row.backlog) for name, row in rows if row.backlog is not None]),
            Family(table.OUTSTANDING, [Sample((name,), row.outstanding) for name, row in rows]),
            Family(table.OLDEST_UNACKED, [sample for name, row in rows for sample in self._age(name, row)]),
            Family(table.PAUSED, [Sample((name,), int(row.paused)) for name, row in rows]),
        ]

    def _subscription(self, queue: SubscriptionQueue) -> _Subscription:
        backlog = queue.open_count()
        oldest_ns = self._oldest_ns(queue) if backlog != 0 else None
        return _Subscription(queue.counts, backlog, queue.outstanding, oldest_ns, queue.pause is not None)

    def _age(self, name: str, row: _Subscription) -> list[Sample]:
        if row.oldest_ns is not None:
            return [Sample((name,), max(self._clock.now_ns() - row.oldest_ns, 0) / NANOSECONDS)]
        return [Sample((name,), 0)] if row.backlog == 0 else []


def _topics_together(rows: Sequence[_Topic]) -> _Topic:
    return _Topic(sum(row.published for row in rows), sum(row.published_bytes for row in rows))


def _together(rows: Sequence[_Subscription]) -> _Subscription:
    """What one of them does not know, all of them together do not."""
    backlogs = [row.backlog for row in rows if row.backlog is not None]
    oldest = [row.oldest_ns for row in rows if row.oldest_ns is not None]
    knows_all = all(row.oldest_ns is not None or row.backlog == 0 for row in rows)
    return _Subscription(
        counts=DeliveryCounts(
            delivered=sum(row.counts.delivered for row in rows),
            acked=sum(row.counts.acked for row in rows),
            nacked=sum(row.counts.nacked for row in rows),
            expired=sum(row.counts.expired for row in rows),
            dead_lettered=sum(row.counts.dead_lettered for row in rows),
        ),
        backlog=sum(backlogs) if len(backlogs) == len(rows) else None,
        outstanding=sum(row.outstanding for row in rows),
        oldest_ns=min(oldest, default=None) if knows_all else None,
        paused=any(row.paused for row in rows),
    )
