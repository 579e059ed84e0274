"""How failures come in, from dead-letter topics and straight from a consumer: one way for all.

A message that the desk itself has sent again carries its lineage. When a retry of a row failed, that row goes on: to
the next retry, or it is given up. In all other cases there is a new row. An arrival that is there already changes
nothing, however often it comes.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from holdfast.clock import Clock
from holdfast.deadletter.dead_letter import Arrival
from holdfast.deadletter.failures import Recorded
from holdfast.deadletter.fingerprints import in_group
from holdfast.deadletter.lineage import Lineage
from holdfast.deadletter.retry_policy import RetryPolicy
from holdfast.deadletter.sending import Sending
from holdfast.deadletter.store import DeskStore
from holdfast.errors import BadInput
from holdfast.model.failed_message import FailedMessage, FailureStatus

log = logging.getLogger("holdfast.deadletter")


class Intake:
    """`on_queued` is called when there is something new to retry, `on_permanent` when there is for a person."""

    def __init__(
        self,
        store: DeskStore,
        sending: Sending,
        policy: RetryPolicy,
        clock: Clock,
        on_queued: Callable[[], None] = lambda: None,
        on_permanent: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._sending = sending
        self._policy = policy
        self._clock = clock
        self._on_queued = on_queued
        self._on_permanent = on_permanent

    async def check(self) -> None:
        await self._store.check()

    async def record(self, arrivals: Sequence[Arrival]) -> None:
        """All are durable at return. When it raises, some may be; all of them may come again."""
        new: list[FailedMessage] = []
        returned: list[tuple[Arrival, Lineage]] = []
        for arrival in arrivals:
            lineage = self._sending.lineages.read(arrival.replay_id)
            if lineage is None:
                new.append(arrival.failure)
            else:
                returned.append((arrival, lineage))
        new += await self._take_back(returned)
        if new:
            await self.record_new(new)

    async def record_new(self, new: Sequence[FailedMessage]) -> Sequence[Recorded]:
        """Of what the desk has not sent. All are durable at return."""
        now_ns = self._clock.now_ns()
        begun = [self._policy.begin(in_group(failure), now_ns) for failure in new]
        recorded = await self._store.record(begun)
        for failure, row in zip(begun, recorded, strict=True):
            if row.is_new and failure.retry_count:
                tell_if_given_up(replace(failure, id=row.id))
        self._told(begun)
        return recorded

    # What the desk has sent again.

    async def _take_back(self, returned: Sequence[tuple[Arrival, Lineage]]) -> list[FailedMessage]:
        """Gives those that are failures of their own. What somebody changes meanwhile is looked at again."""
        # One of each row at a time: the next copy must find what the one before has changed.
        waiting: dict[int, deque[tuple[Arrival, Lineage]]] = defaultdict(deque)
        for arrival, lineage in returned:
            waiting[lineage.failure_id].append((arrival, lineage))
        new: list[FailedMessage] = []
        while waiting:
            decisions = await asyncio.gather(*(self._decide(*copies[0]) for copies in waiting.values()))
            new += [decision for decision in decisions if decision is not None and not decision.id]
            refused = await self._save([decision for decision in decisions if decision is not None and decision.id])
            for failure_id in waiting.keys() - refused:
                waiting[failure_id].popleft()
            waiting = {failure_id: copies for failure_id, copies in waiting.items() if copies}
        return new

    async def _save(self, changed: Sequence[FailedMessage]) -> set[int]:
        """Gives those that somebody else has changed."""
        saved = await self._store.save(changed) if changed else []
        kept = [row for row, was_kept in zip(changed, saved, strict=True) if was_kept]
        for row in kept:
            tell_if_given_up(row)
        self._told(kept)
        return {row.id for row in changed} - {row.id for row in kept}

    async def _decide(self, arrival: Arrival, lineage: Lineage) -> FailedMessage | None:
        """The changed row, or a new failure, which has no id, or None: it is known already."""
        row = await self._store.get(lineage.failure_id)
        if row is None:  # erased
            return replace(arrival.failure, generation=1, origin_id=lineage.failure_id)
        if not await self._is_same_message(arrival.failure, row, lineage):
            return descendant(arrival.failure, row)
        if row.status is FailureStatus.QUEUED_FOR_RETRY and lineage.number == row.retry_count + 1 and not row.is_out:
            # It has failed before anybody could note that it was sent.
            row = row.mark_sent(self._clock.now_ns(), arrival.told_id)
        if lineage.number > row.retry_count:
            return descendant(arrival.failure, row)  # of a replay, which is not counted
        if row.is_out and lineage.number == row.retry_count and row.status is FailureStatus.QUEUED_FOR_RETRY:
            return self._policy.retry_failed(row, self._clock.now_ns(), arrival.failure.error_details)
        return self._came_late(arrival, row, lineage)

    async def _is_same_message(self, failure: FailedMessage, row: FailedMessage, lineage: Lineage) -> bool:
        """Whoever has seen a lineage can write it onto another message, and consumers that forward attributes do."""
        try:
            sent = await self._sending.content_of(row, lineage.revision)
        except BadInput:
            return False
        same_content = (failure.data, failure.ordering_key) == (sent.data, sent.ordering_key)
        return same_content and failure.subscription == row.subscription

    def _came_late(self, arrival: Arrival, row: FailedMessage, lineage: Lineage) -> FailedMessage | None:
        """A retry whose end is known. While the row waits for something, this is a second copy of the dead letter."""
        is_over = row.status in (FailureStatus.RETRY_SUCCESS, FailureStatus.REPLAYED)
        is_copy = arrival.told_id in ("", row.sent_message_id)
        if lineage.number == row.retry_count and row.status is FailureStatus.RETRY_SUCCESS:
            # It was taken for a success, because no broker told. Its retries still count, or there would be no end.
            return replace(descendant(arrival.failure, row), retry_count=row.retry_count)
        return descendant(arrival.failure, row) if is_over and not is_copy else None

    def _told(self, rows: Sequence[FailedMessage]) -> None:
        if any(row.status is FailureStatus.QUEUED_FOR_RETRY for row in rows):
            self._on_queued()
        if any(row.status is FailureStatus.PERMANENT_FAILURE for row in rows):
            self._on_permanent()


def descendant(failure: FailedMessage, row: FailedMessage) -> FailedMessage:
    return replace(failure, generation=row.generation + 1, origin_id=row.origin_id or row.id)


def tell_if_given_up(row: FailedMessage) -> None:
    """The line that an alert hangs on. What the message carries is not in it."""
    if row.status is not FailureStatus.PERMANENT_FAILURE:
        return
    fields = {
        "failure": row.id,
        "messageId": row.message_id,
        "subscription": row.subscription,
        "topic": row.source_topic,
        "failure_reason": row.failure_reason,
        "failure_class": str(row.failure_class),
        "group": row.fingerprint,
        "retries": row.retry_count,
    }
    log.critical("a message failed for good", extra={"fields": fields})
