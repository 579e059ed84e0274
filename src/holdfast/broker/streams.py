"""One streaming pull: hands out messages as they come, never more than the client allows to be outstanding."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from holdfast.broker.leases import Lease
from holdfast.broker.subscriptions import SubscriptionQueue
from holdfast.errors import HoldfastError, NotFound

# Messages in one response. More would save little and delay the first of them.
BATCH_MESSAGES = 500
# Bytes in one response: clients commonly refuse more than 4 MB.
BATCH_BYTES = 3_500_000

NO_LIMIT = 1 << 62

# A confirmation may still be on its way, on another connection, when its stream ends.
UNCONFIRMED_SECONDS = 1.0


class PullStream:
    def __init__(self, queue: SubscriptionQueue, deadline_seconds: float, max_messages: int, max_bytes: int) -> None:
        """A maximum of 0 or below means no limit, as in Pub/Sub."""
        self._queue = queue
        self._deadline_seconds = deadline_seconds
        self._messages_left = max_messages if max_messages > 0 else NO_LIMIT
        self._bytes_left = max_bytes if max_bytes > 0 else NO_LIMIT
        self._waits_for_room = False
        self._held: set[Lease] = set()
        self._pings = 0
        self._ended = False
        self._error: HoldfastError | None = None

    async def next_batch(self) -> Sequence[Lease] | None:
        """Waits for something to send: messages, or an empty batch that answers a ping. None at the end of the
        stream; raises when it ended in an error."""
        while True:
            seen = self._queue.changed.version
            if self._error is not None:
                raise self._error
            if self._ended:
                return None
            if self._queue.deleted:
                raise NotFound(f"subscription {self._queue.config.name} was deleted")
            if self._pings:
                self._pings -= 1
                return []
            taken = await self._take()
            if taken:
                return taken
            await self._queue.changed.wait_beyond(seen)

    async def _take(self) -> Sequence[Lease]:
        self._waits_for_room = self._messages_left <= 0 or self._bytes_left <= 0
        if self._waits_for_room:
            return []
        taken = await self._queue.take(
            min(self._messages_left, BATCH_MESSAGES),
            min(self._bytes_left, BATCH_BYTES),
            self,
            self._deadline_seconds,
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

    def ack(self, ack_ids: Sequence[str]) -> asyncio.Future[None]:
        return self._queue.ack(ack_ids)

    def modify_deadline(self, ack_id: str, seconds: int) -> None:
        if seconds == 0:
            self._queue.nack([ack_id])
        else:
            self._queue.extend([ack_id], seconds)

    def set_deadline(self, seconds: float) -> None:
        self._deadline_seconds = seconds

    def ping(self) -> None:
        self._pings += 1
        self._queue.changed.fire()

    def end(self, error: HoldfastError | None = None) -> None:
        self._ended = True
        self._error = self._error or error
        self._queue.changed.fire()

    def close(self) -> None:
        """What the client has confirmed stays leased until its deadline: it may still ack it another way. The rest
        probably never reached it (official clients confirm what they receive) and goes to others soon."""
        self._queue.hurry([lease for lease in self._held if not lease.confirmed], UNCONFIRMED_SECONDS)
