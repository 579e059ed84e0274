"""One streaming pull: hands out messages as they come, never more than the client allows to be outstanding."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass

from holdfast.broker.leases import Lease
from holdfast.broker.subscriptions import SubscriptionQueue
from holdfast.errors import FailedPrecondition, HoldfastError, NotFound, StorageUnavailable
from holdfast.model.resources import Subscription

# Messages in one response. More would save little and delay the first of them.
BATCH_MESSAGES = 500
# Bytes in one response: clients commonly refuse more than 4 MB.
BATCH_BYTES = 3_500_000

NO_LIMIT = 1 << 62

# A confirmation may still be on its way, on another connection, when its stream ends.
UNCONFIRMED_SECONDS = 1.0


# What a stream sends.


@dataclass(frozen=True, slots=True)
class Properties:
    """Sent first, and again when they change."""

    exactly_once: bool
    ordered: bool


@dataclass(frozen=True, slots=True)
class Batch:
    """Messages; none at all answers a ping."""

    leases: Sequence[Lease]


@dataclass(frozen=True, slots=True)
class Confirmation:
    """Exactly-once: how acks, or changes of deadlines, ended. `of_acks` says which."""

    of_acks: bool
    good: Sequence[str]
    stale: Sequence[str]
    unavailable: Sequence[str] = ()


ToSend = Properties | Batch | Confirmation


class PullStream:
    def __init__(self, queue: SubscriptionQueue, deadline_seconds: float, max_messages: int, max_bytes: int) -> None:
        """A maximum of 0 or below means no limit, as in Pub/Sub."""
        self._queue = queue
        self._deadline_seconds = deadline_seconds
        self._messages_left = max_messages if max_messages > 0 else NO_LIMIT
        self._bytes_left = max_bytes if max_bytes > 0 else NO_LIMIT
        self._waits_for_room = False
        self._held: set[Lease] = set()
        self._told: Properties | None = None
        self._answers: deque[ToSend] = deque()
        self._unconfirmed = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended = False
        self._error: HoldfastError | None = None

    async def next(self) -> ToSend | None:
        """Waits for something to send. None at the end of the stream; raises when it ended in an error."""
        while True:
            seen = self._queue.changed.version
            self._raise_if_over()
            properties = Properties(self._queue.config.exactly_once, self._queue.config.ordered)
            if properties != self._told:
                self._told = properties
                return properties
            if self._answers:
                return self._answers.popleft()
            if self._ended and not self._unconfirmed:
                return None
            if not self._ended and (taken := await self._take()):
                return Batch(taken)
            await self._queue.changed.wait_beyond(seen)

    def _raise_if_over(self) -> None:
        if self._error is not None:
            raise self._error
        if self._queue.deleted:
            raise NotFound(f"subscription {self._queue.config.name} was deleted")
        require_pull(self._queue.config)

    async def _take(self) -> Sequence[Lease]:
        self._waits_for_room = self._messages_left <= 0 or self._bytes_left <= 0
        if self._waits_for_room:
            return []
        taken = await self._queue.take(
            min(self._messages_left, BATCH_MESSAGES), min(self._bytes_left, BATCH_BYTES), self, self._deadline_seconds
        )
        self._held.update(taken)
        self._messages_left -= len(taken)
        self._bytes_left -= sum(len(lease.body) for lease in taken)
        return taken

    def released(self, lease: Lease) -> None:
        self._held.discard(lease)
        self._messages_left += 1
        self._bytes_left += len(lease.body)
        if self._waits_for_room:
            self._waits_for_room = False
            self._queue.changed.fire()

    # What the client says.

    def ack(self, ack_ids: Sequence[str]) -> None:
        if not self._queue.config.exactly_once:
            self._queue.ack_later(ack_ids)
            return
        stale, saved = self._queue.ack(ack_ids)
        self._unconfirmed += 1
        task = asyncio.ensure_future(self._confirm_acks(ack_ids, stale, saved))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _confirm_acks(self, ack_ids: Sequence[str], stale: Sequence[str], saved: Awaitable[None]) -> None:
        good = _without(ack_ids, stale)
        try:
            await asyncio.shield(saved)
            confirmation = Confirmation(True, good, stale)
        except StorageUnavailable:
            confirmation = Confirmation(True, (), stale, good)
        self._unconfirmed -= 1
        self._answer(confirmation)

    def modify_deadlines(self, seconds_by_ack_id: Sequence[tuple[str, int]]) -> None:
        stale: list[str] = []
        for ack_id, seconds in seconds_by_ack_id:
            stale += self._queue.nack([ack_id]) if seconds == 0 else self._queue.extend([ack_id], seconds)
        if self._queue.config.exactly_once:
            good = _without([ack_id for ack_id, _ in seconds_by_ack_id], stale)
            self._answer(Confirmation(False, good, stale))

    def set_deadline(self, seconds: float) -> None:
        self._deadline_seconds = seconds

    def ping(self) -> None:
        self._answer(Batch(()))

    def _answer(self, answer: ToSend) -> None:
        self._answers.append(answer)
        self._queue.changed.fire()

    def end(self, error: HoldfastError | None = None) -> None:
        self._ended = True
        self._error = self._error or error
        self._queue.changed.fire()

    def close(self) -> None:
        """What the client has confirmed stays leased until its deadline: it may still ack it another way. The rest
        probably never reached it (official clients confirm what they receive) and goes to others soon."""
        self._queue.hurry([lease for lease in self._held if not lease.confirmed], UNCONFIRMED_SECONDS)


def require_pull(config: Subscription) -> None:
    """Who pulls from a push subscription would take from its endpoint what is meant for it."""
    if config.push is not None:
        raise FailedPrecondition(f"subscription {config.name} is a push subscription: nothing can be pulled from it")


def _without(ack_ids: Sequence[str], stale: Sequence[str]) -> list[str]:
    gone = set(stale)
    return [ack_id for ack_id in ack_ids if ack_id not in gone]
