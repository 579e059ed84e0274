"""One subscription's queue: which message comes next, who holds it until when, and how each delivery ends.

    new ──take──▶ leased ──ack──▶ settled
                  │    ▲
     nack, expiry │    │ take, once due
                  ▼    │
                 waiting ──attempts spent, or told so──▶ dead letter committed ──▶ settled

Everything here runs on the event loop; the log is told of changes in groups. A message's attempt number never goes
back: it is one more than the failed attempts that the log keeps.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable

from holdfast.backoff import backoff_seconds
from holdfast.broker.leases import LEASE_RAN_OUT, NACKED, Failure, Holder, Lease, format_ack_id, parse_ack_id
from holdfast.broker.log import FailedAttempts, MessageLog, Progress, StoredMessage
from holdfast.broker.progress import SettledMessages
from holdfast.broker.signals import Signal, Timers
from holdfast.broker.topics import TopicLog
from holdfast.clock import NANOSECONDS, Clock
from holdfast.errors import BadInput, HoldfastError, StorageUnavailable
from holdfast.model.resources import Subscription

log = logging.getLogger("holdfast.broker")

# Messages read ahead of delivery. Small enough to bound memory, large enough that reading costs little per message.
PAGE_MESSAGES = 500

# Leases are looked at no more often than this: a deadline is a promise not to redeliver earlier, not an alarm clock.
EXPIRY_STEP_NS = NANOSECONDS // 10

# After the log refused our progress, it is offered again after this time.
SAVE_AGAIN_NS = NANOSECONDS

DeadLetter = Callable[[Subscription, Lease, Failure], Awaitable[None]]


class SubscriptionQueue:
    def __init__(
        self,
        key: int,
        config: Subscription,
        topic: TopicLog,
        progress: Progress,
        log: MessageLog,
        clock: Clock,
        timers: Timers,
        dead_letter: DeadLetter,
    ) -> None:
        self.key = key
        self.config = config
        self.topic = topic
        self.changed = Signal()
        self.deleted = False
        self.settled = SettledMessages(progress)
        self._log = log
        self._clock = clock
        self._timers = timers
        self._dead_letter = dead_letter
        # Not yet delivered: everything from _cursor on, of which _page is read already.
        self._cursor = progress.floor
        self._page: deque[StoredMessage] = deque()
        self._taking = asyncio.Lock()
        # Under way, by sequence; and those whose dead letter is being committed, which nobody may take meanwhile.
        self._leases: dict[int, Lease] = {}
        self._leaving: set[int] = set()
        # Failed and waiting for their time, earliest first. Entries that no longer match settled.failed are stale.
        self._waiting = [(failed.due_ns, sequence) for sequence, failed in self.settled.failed.items()]
        heapq.heapify(self._waiting)
        # Ack ids of an earlier process must not equal new ones, so the count starts from the time.
        self._nonces = itertools.count(clock.now_ns())
        self._armed_ns: int | None = None
        self._next_save: asyncio.Future[None] | None = None
        self._saving = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._arm_for_waiting()

    # Taking.

    def has_ready(self) -> bool:
        return bool(self._page) or self._cursor < self.topic.visible_end or self._first_due() is not None

    async def wait_ready(self) -> None:
        """Also returns when the subscription was deleted."""
        while not self.has_ready() and not self.deleted:
            await self.changed.wait_beyond(self.changed.version)

    async def take(
        self, max_messages: int, max_bytes: int, holder: Holder, deadline_seconds: float | None = None
    ) -> list[Lease]:
        """Leases what can be delivered now, perhaps nothing. At least one message is given whatever max_bytes says,
        or a message larger than a stream's allowance would never be delivered."""
        deadline_ns = self._clock.now_ns() + round((deadline_seconds or self.config.ack_deadline_seconds) * NANOSECONDS)
        taken: list[Lease] = []
        try:
            async with self._taking:  # reading may wait for the disk: one at a time, or the order would be lost
                while len(taken) < max_messages and max_bytes > 0 and not self.deleted:
                    message = await self._next_message()
                    if message is None:
                        break
                    taken.append(self._lease(message, deadline_ns, holder))
                    max_bytes -= len(message.body)
        except StorageUnavailable:
            if not taken:
                raise
        except asyncio.CancelledError:
            self.give_back(taken)
            raise
        if taken:
            self._arm(deadline_ns)
            self._arm_for_waiting()
        return taken

    async def take_or_wait(
        self, max_messages: int, max_bytes: int, holder: Holder, deadline_seconds: float | None = None
    ) -> list[Lease]:
        """As `take`, but waits until there is at least one. Empty only when the subscription was deleted."""
        while not self.deleted:
            seen = self.changed.version
            taken = await self.take(max_messages, max_bytes, holder, deadline_seconds)
            if taken:
                return taken
            await self.changed.wait_beyond(seen)
        return []

    async def _next_message(self) -> StoredMessage | None:
        """Whatever was due first; a new message counts from its publish time and goes before a retry of that time."""
        while True:
            new = await self._peek_new()
            due = self._first_due()
            if due is not None and (new is None or due[0] < new.publish_time_ns):
                message = await self._read_due(due[1])
                if message is not None:
                    return message
            elif new is not None:
                self._page.popleft()
                return new
            else:
                return None

    async def _peek_new(self) -> StoredMessage | None:
        while True:
            while self._page:
                head = self._page[0]
                if self._is_new(head.sequence) and not self._is_too_old(head):
                    return head
                self._page.popleft()
            if self._cursor >= self.topic.visible_end:
                return None
            await self._read_page()

    async def _read_due(self, sequence: int) -> StoredMessage | None:
        """None when it need not be delivered any more. The heap forgets it once it is leased or settled."""
        message = await self.topic.read_one(sequence)
        if message is None:  # trimmed
            self._settle(sequence, sequence)
            return None
        if sequence in self.settled or self._is_too_old(message):
            return None
        return message

    async def _read_page(self) -> None:
        messages, end = await self.topic.read(self._cursor, PAGE_MESSAGES)
        expected = self._cursor
        for message in messages:
            if message.sequence > expected:  # never committed, or trimmed
                self._settle(expected, message.sequence - 1)
            expected = message.sequence + 1
        if expected < end:
            self._settle(expected, end - 1)
        self._page.extend(messages)
        self._cursor = end

    def _is_new(self, sequence: int) -> bool:
        return sequence not in self.settled and sequence not in self.settled.failed

    def _is_too_old(self, message: StoredMessage) -> bool:
        age_ns = self._clock.now_ns() - message.publish_time_ns
        if age_ns <= self.config.message_retention_seconds * NANOSECONDS:
            return False
        self._settle(message.sequence, message.sequence)
        return True

    async def drop_expired(self) -> None:
        """Settles what is past the subscription's retention, whether or not anybody asks for messages."""
        while self.settled.floor < self.topic.visible_end:
            messages, _ = await self.topic.read(self.settled.floor, PAGE_MESSAGES)
            expired = sum(self._is_too_old(message) for message in messages)
            if expired < PAGE_MESSAGES:
                break
        if self.settled.has_unsaved:
            self._save()

    def _first_due(self) -> tuple[int, int] | None:
        while self._waiting:
            due_ns, sequence = self._waiting[0]
            failed = self.settled.failed.get(sequence)
            if failed is None or failed.due_ns != due_ns or sequence in self._leases or sequence in self._leaving:
                heapq.heappop(self._waiting)
                continue
            return (due_ns, sequence) if due_ns <= self._clock.now_ns() else None
        return None

    def _lease(self, message: StoredMessage, deadline_ns: int, holder: Holder) -> Lease:
        failed = self.settled.failed.get(message.sequence)
        attempt = failed.attempts + 1 if failed else 1
        ack_id = format_ack_id(self.key, message.sequence, attempt, next(self._nonces))
        lease = Lease(message.sequence, attempt, ack_id, message.body, deadline_ns, holder)
        self._leases[message.sequence] = lease
        return lease

    # Ending a delivery.

    def ack(self, ack_ids: Iterable[str]) -> asyncio.Future[None]:
        """The future is done once the acks are on disk. Late and double acks are fine, as in Pub/Sub."""
        for sequence in self._sequences_of(ack_ids):
            if sequence not in self._leaving:
                self._settle(sequence, sequence)
        return self._save()

    def nack(self, ack_ids: Iterable[str]) -> None:
        for lease in self._leases_of(ack_ids):
            self.fail(lease, NACKED)

    def extend(self, ack_ids: Iterable[str], seconds: float) -> None:
        deadline_ns = self._clock.now_ns() + round(seconds * NANOSECONDS)
        for lease in self._leases_of(ack_ids):
            lease.deadline_ns = deadline_ns
            lease.confirmed = True
        self._arm(deadline_ns)

    def hurry(self, leases: Iterable[Lease], seconds: float) -> None:
        """Makes them end within `seconds`: whoever held them is gone."""
        deadline_ns = self._clock.now_ns() + round(seconds * NANOSECONDS)
        for lease in leases:
            lease.deadline_ns = min(lease.deadline_ns, deadline_ns)
        self._arm(deadline_ns)

    def fail(self, lease: Lease, failure: Failure) -> None:
        """Counts the attempt and decides: again later, or the dead-letter topic."""
        if self._leases.get(lease.sequence) is not lease:
            return  # it ended already, by an ack or an expiry
        self._end_lease(lease)
        policy = self.config.dead_letter
        if policy and (failure.dead_letter_now or lease.attempt >= policy.max_delivery_attempts):
            self._leaving.add(lease.sequence)
            self._spawn(self._give_up(lease, failure))
        else:
            self._try_again_later(lease, failure)

    def give_back(self, leases: Iterable[Lease]) -> None:
        """They never reached a consumer: deliverable again at once, and not counted as an attempt."""
        for lease in leases:
            if self._leases.get(lease.sequence) is lease:
                self._end_lease(lease)
                self._wait_until(lease.sequence, lease.attempt - 1, self._clock.now_ns())

    async def _give_up(self, lease: Lease, failure: Failure) -> None:
        """The copy on the dead-letter topic is committed before the original is settled: a crash in between can
        double the dead letter, which the desk notices, but never lose it."""
        try:
            await self._dead_letter(self.config, lease, failure)
        except HoldfastError as error:
            log.warning(
                "a message could not be dead-lettered and will be tried again",
                extra={"fields": {"subscription": self.config.name, "error": str(error)}},
            )
            self._leaving.discard(lease.sequence)
            self._try_again_later(lease, failure)
            return
        self._leaving.discard(lease.sequence)
        self._settle(lease.sequence, lease.sequence)
        await self._save()

    def _try_again_later(self, lease: Lease, failure: Failure) -> None:
        due_ns = self._clock.now_ns() + round(self._delay_seconds(lease.attempt, failure) * NANOSECONDS)
        self._wait_until(lease.sequence, lease.attempt, due_ns)

    def _wait_until(self, sequence: int, attempts: int, due_ns: int) -> None:
        self.settled.fail(sequence, FailedAttempts(attempts, due_ns))
        heapq.heappush(self._waiting, (due_ns, sequence))
        self._save()
        self._arm_for_waiting()

    def _delay_seconds(self, failures: int, failure: Failure) -> float:
        policy = self.config.retry
        delay = (
            backoff_seconds(policy.minimum_backoff_seconds, policy.maximum_backoff_seconds, failures)
            if policy
            else 0.0  # as Pub/Sub: without a retry policy, at once
        )
        return max(delay, failure.retry_after_seconds or 0.0)

    def _end_lease(self, lease: Lease) -> None:
        del self._leases[lease.sequence]
        lease.holder.released(lease)

    def _settle(self, first: int, last: int) -> None:
        self.settled.settle(first, last)
        if first == last and (lease := self._leases.get(first)) is not None:
            self._end_lease(lease)

    def _sequences_of(self, ack_ids: Iterable[str]) -> list[int]:
        parsed = [parse_ack_id(ack_id) for ack_id in ack_ids]
        for ack_id in parsed:
            if ack_id.subscription_key != self.key or ack_id.sequence >= self.topic.visible_end:
                raise BadInput("ack_ids", "an ack id belongs to another subscription")
        return [ack_id.sequence for ack_id in parsed]

    def _leases_of(self, ack_ids: Iterable[str]) -> list[Lease]:
        """Those still held under exactly these ids: an old id must not end a newer delivery."""
        ids = list(ack_ids)
        leases = zip(ids, (self._leases.get(sequence) for sequence in self._sequences_of(ids)), strict=True)
        return [lease for ack_id, lease in leases if lease is not None and lease.ack_id == ack_id]

    # Time.

    def _arm(self, when_ns: int) -> None:
        if self._armed_ns is None or when_ns < self._armed_ns:
            self._armed_ns = when_ns
            self._timers.at(when_ns, self._on_time)

    def _arm_for_waiting(self) -> None:
        self._first_due()  # drops stale entries, so that the first one counts
        if self._waiting:
            self._arm(max(self._waiting[0][0], self._clock.now_ns()))

    def _on_time(self) -> None:
        if self.deleted:
            return
        self._armed_ns = None
        now_ns = self._clock.now_ns()
        for lease in [lease for lease in self._leases.values() if lease.deadline_ns <= now_ns]:
            self.fail(lease, LEASE_RAN_OUT)
        if self._leases:
            self._arm(max(min(lease.deadline_ns for lease in self._leases.values()), now_ns + EXPIRY_STEP_NS))
        if self._first_due() is not None:
            self.changed.fire()
        elif self._waiting:
            self._arm(self._waiting[0][0])

    # Waiting and saving.

    def reconfigure(self, config: Subscription) -> None:
        self.config = config
        self.changed.fire()

    async def delete(self) -> None:
        self.deleted = True
        for lease in list(self._leases.values()):
            self._end_lease(lease)
        self.changed.fire()
        await self._finish_tasks()

    async def close(self) -> None:
        """Everything decided so far is on disk at return."""
        await self._finish_tasks()
        if self.settled.has_unsaved:
            await self._save()

    def _save(self) -> asyncio.Future[None]:
        """Done when every change up to now is durable. While one save is under way the next ones gather, so that
        thousands of acks become one row."""
        if self._next_save is None:
            self._next_save = asyncio.get_running_loop().create_future()
            self._next_save.add_done_callback(_retrieved)
            if not self._saving:
                self._saving = True
                self._spawn(self._save_until_saved())
        return self._next_save

    async def _save_until_saved(self) -> None:
        try:
            while (saved := self._next_save) is not None:
                self._next_save = None
                await self._save_once(saved)
        finally:
            self._saving = False

    async def _save_once(self, saved: asyncio.Future[None]) -> None:
        if self.deleted or not self.settled.has_unsaved:
            saved.set_result(None)
            return
        change = self.settled.take_unsaved(self.key)
        try:
            await self._log.commit([change])
        except StorageUnavailable as error:
            self.settled.put_back(change)
            saved.set_exception(error)
            self._timers.at(self._clock.now_ns() + SAVE_AGAIN_NS, self._save_again)
        else:
            saved.set_result(None)

    def _save_again(self) -> None:
        if not self.deleted:
            self._save()

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _finish_tasks(self) -> None:
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)


def _retrieved(future: asyncio.Future[None]) -> None:
    """Nobody has to wait for a save; without this, asyncio would complain about the error that was not looked at."""
    if not future.cancelled():
        future.exception()
