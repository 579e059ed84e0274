"""Automatic retries: sends what is due to the subscription that failed, and finds out how it ended. What ingest
refused goes to its topic, which is the end of it (resubmission.py).

A row is claimed, then sent, then marked as sent. Whoever dies in between leaves a claim that runs out; the row is sent
again under the same REPLAY_ID, which our broker takes once. A second desk on the same store can win no claim.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from holdfast.backoff import backoff_seconds
from holdfast.clock import NANOSECONDS, Clock
from holdfast.deadletter.failures import FailureStore
from holdfast.deadletter.intake import tell_if_given_up
from holdfast.deadletter.outlet import Outlet
from holdfast.deadletter.pace import Pace
from holdfast.deadletter.resubmission import Ending, Resubmission
from holdfast.deadletter.retry_ends import RetryEnds
from holdfast.deadletter.sending import Sending
from holdfast.errors import BadInput, FailedPrecondition, HoldfastError, NotFound, Unsupported
from holdfast.model.failed_message import FailedMessage
from holdfast.model.message import Message

log = logging.getLogger("holdfast.deadletter")

# How long the others leave a claimed row alone. A call to a broker gives up in a third of that.
CLAIM_SECONDS = 60.0

# Somebody who changes a row more often than this while it is sent leaves it to the end of the claim.
MOST_TRIES = 10

# A broker or store that is not there is asked again after so long.
SHORTEST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0

# Rows that another process has recorded, or another desk left behind, give no signal.
LOOK_AGAIN_SECONDS = 5.0

# What will be refused again.
_REFUSALS = (NotFound, BadInput, FailedPrecondition, Unsupported)


@dataclass(slots=True)
class Batch:
    """Claimed rows of one subscription, and what is sent for each."""

    rows: list[FailedMessage] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)


class RetryScheduler:
    """Runs once. `pace` bounds how many are sent."""

    def __init__(
        self,
        store: FailureStore,
        outlet: Outlet,
        sending: Sending,
        ends: RetryEnds,
        resubmission: Resubmission,
        clock: Clock,
        pace: Pace,
    ) -> None:
        self._store = store
        self._outlet = outlet
        self._sending = sending
        self._ends = ends
        self._resubmission = resubmission
        self._clock = clock
        self._pace = pace
        self._stopping = False
        self._awake = asyncio.Event()
        self._unreachable = 0  # sends in a row that did not reach the broker

    def wake(self) -> None:
        """There is something new to retry."""
        self._awake.set()

    def stop(self) -> None:
        """Makes `run` return, once what is being sent is sent."""
        self._stopping = True
        self._awake.set()

    async def run(self) -> None:
        failures = 0
        while not self._stopping:
            self._awake.clear()
            try:
                next_ns = await self.turn()
                failures = 0
            except Exception as error:
                failures += 1
                next_ns = self._in(backoff_seconds(SHORTEST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, failures))
                trace = None if isinstance(error, HoldfastError) else error
                log.warning("cannot retry failed messages now: %s", error, exc_info=trace)
            await self._sleep_until(next_ns)

    async def turn(self) -> int:
        """Sends what is due and looks what became of what is out. Gives the time of the next turn."""
        next_look_ns = await self._ends.look()
        while not self._stopping and (room := self._pace.room(self._clock.now_ns())):
            if not await self._send_due(room):
                return min(next_look_ns, await self._next_due_ns())
            next_look_ns = min(next_look_ns, self._ends.soon_ns())
        return min(next_look_ns, self._pace.next_ns())

    async def _send_due(self, room: int) -> int:
        """Gives how many it found."""
        now_ns = self._clock.now_ns()
        due = await self._store.due_for_retry(now_ns, room)
        ids = {row.id for row in due}
        self._sending.retrying |= ids
        try:
            if due:
                self._pace.took(now_ns, len(due))
                await self._send_all(await self._kept([row.claim_retry(self._in(CLAIM_SECONDS)) for row in due]))
        finally:
            self._sending.retrying -= ids
        return len(due)

    async def _send_all(self, claimed: Sequence[FailedMessage]) -> None:
        batches = await self._batches([row for row in claimed if not row.is_of_ingest])
        await asyncio.gather(
            *(self._send(name, batch) for name, batch in batches.items()),
            *(self._resubmit(row) for row in claimed if row.is_of_ingest),
        )

    async def _batches(self, claimed: Sequence[FailedMessage]) -> Mapping[str, Batch]:
        batches: dict[str, Batch] = defaultdict(Batch)
        for row in claimed:
            try:
                message = await self._sending.message_for(row)
            except BadInput as error:
                await self._give_up(row, error)
            else:
                batches[row.subscription].rows.append(row)
                batches[row.subscription].messages.append(message)
        return batches

    async def _send(self, subscription: str, batch: Batch) -> None:
        try:
            message_ids = await self._outlet.publish_to(subscription, batch.messages)
        except _REFUSALS as error:
            await self._send_one_by_one(subscription, batch, error)
        except HoldfastError as error:
            await self._postpone(subscription, batch.rows, error)
        else:
            self._unreachable = 0
            await self._mark_sent(batch.rows, message_ids)

    async def _mark_sent(self, rows: Sequence[FailedMessage], message_ids: Sequence[str]) -> None:
        now_ns = self._clock.now_ns()
        sent = [row.mark_sent(now_ns, message_id) for row, message_id in zip(rows, message_ids, strict=True)]
        for row, kept in zip(sent, await self._store.save(sent), strict=True):
            if not kept:
                await self._mark_again(row)

    async def _mark_again(self, sent: FailedMessage) -> None:
        """Somebody has changed it meanwhile: edited it, put it under legal hold, or its end is known already."""
        for _ in range(MOST_TRIES):
            row = await self._store.get(sent.id)
            if row is None or not row.waits_for_retry(sent.retry_count):
                return
            if (await self._store.save([row.mark_sent(sent.sent_at_ns or 0, sent.sent_message_id)]))[0]:
                return

    async def _send_one_by_one(self, subscription: str, batch: Batch, error: HoldfastError) -> None:
        """A message that is refused must not keep the others back."""
        if len(batch.rows) == 1 or isinstance(error, NotFound):
            for row in batch.rows:
                await self._give_up(row, error)
            return
        for row, message in zip(batch.rows, batch.messages, strict=True):
            await self._send(subscription, Batch([row], [message]))

    async def _give_up(self, row: FailedMessage, error: HoldfastError) -> None:
        given_up = row.give_up(f"cannot be sent again: {error}; before: {row.error_details}")
        if (await self._store.save([given_up]))[0]:
            tell_if_given_up(given_up)

    async def _postpone(self, subscription: str, rows: Sequence[FailedMessage], error: HoldfastError) -> None:
        """Nothing was tried, so nothing counts."""
        self._unreachable += 1
        seconds = backoff_seconds(SHORTEST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, self._unreachable)
        log.warning("cannot send %d retries to %s, again in %.0f s: %s", len(rows), subscription, seconds, error)
        await self._store.save([row.claim_retry(self._in(seconds)) for row in rows])

    async def _kept(self, changed: Sequence[FailedMessage]) -> list[FailedMessage]:
        """Those that nobody else had changed, as they are stored now."""
        saved = await self._store.save(changed)
        return [replace(row, version=row.version + 1) for row, kept in zip(changed, saved, strict=True) if kept]

    # What ingest refused.

    async def _resubmit(self, row: FailedMessage) -> None:
        try:
            ending = await self._resubmission.resubmit(row)
        except _REFUSALS as error:
            await self._give_up(row, error)
        except HoldfastError as error:
            await self._postpone(row.source_topic, [row], error)
        else:
            self._unreachable = 0
            await self._mark_ended(row, ending)

    async def _mark_ended(self, row: FailedMessage, ending: Ending) -> None:
        """Whatever somebody has changed meanwhile: it is out, or its retry has failed."""
        number = row.retry_count + 1
        found: FailedMessage | None = row
        for _ in range(MOST_TRIES):
            if found is None or not found.waits_for_retry(number):
                return
            ended = ending(found)
            if (await self._store.save([ended]))[0]:
                tell_if_given_up(ended)
                return
            found = await self._store.get(row.id)

    # Waiting.

    async def _next_due_ns(self) -> int:
        look_again_ns = self._in(LOOK_AGAIN_SECONDS)
        first = await self._store.due_for_retry(look_again_ns, 1)
        return min([look_again_ns, *(row.retry_at_ns for row in first if row.retry_at_ns is not None)])

    async def _sleep_until(self, when_ns: int) -> None:
        timer = asyncio.create_task(self._clock.sleep_until(when_ns))
        awake = asyncio.create_task(self._awake.wait())
        try:
            await asyncio.wait({timer, awake}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
            awake.cancel()

    def _in(self, seconds: float) -> int:
        return self._clock.now_ns() + round(seconds * NANOSECONDS)
