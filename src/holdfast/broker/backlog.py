"""What a subscription has yet to deliver, and which message of it comes next.

New messages are read in pages from the topic; failed ones wait in a heap for their time; messages of a busy ordering
key wait behind its head. Whatever needs no delivery (filtered out, too old, not in the log) is settled on the way.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from holdfast.broker.filters import compile_filter
from holdfast.broker.held import NEVER_NS, HeldMessages, Replacement
from holdfast.broker.log import FailedAttempts, StoredMessage
from holdfast.broker.open_messages import OpenMessages
from holdfast.broker.ordering import OrderingKeys
from holdfast.broker.progress import SettledMessages
from holdfast.broker.topics import TopicLog
from holdfast.broker.wire import PubsubMessage, is_addressed, is_for
from holdfast.clock import NANOSECONDS, Clock
from holdfast.model.resources import Subscription

# Messages read ahead of delivery. Small enough to bound memory, large enough that reading costs little per message.
PAGE_MESSAGES = 500
PAGE_BYTES = 4_000_000

# Messages remembered behind busy ordering keys. Beyond that no more are read until some of these can go.
MOST_BEHIND = 100_000

Accepts = Callable[[Mapping[str, str]], bool]


@dataclass(frozen=True, slots=True)
class Outlook:
    """What there is to deliver now, since when, and what comes later."""

    due: int
    oldest_due_ns: int | None
    waiting: int
    next_due_ns: int | None


class Backlog:
    """`is_under_way` tells which messages are leased or on their way to the dead-letter topic."""

    def __init__(
        self,
        key: int,
        config: Subscription,
        topic: TopicLog,
        settled: SettledMessages,
        clock: Clock,
        is_under_way: Callable[[int], bool],
        replacements: Sequence[Replacement] = (),
    ) -> None:
        self.settled = settled
        self._key = key
        self._topic = topic
        self._clock = clock
        self._is_under_way = is_under_way
        self._accepts: Accepts | None = compile_filter(config.filter) if config.filter else None
        self._keys = OrderingKeys() if config.ordered else None
        self._open = OpenMessages(key, topic, settled, self.is_mine if self._accepts else None)
        self._retention_ns = 0
        self.configure(config)
        # Not yet looked at: everything from _cursor on, of which _page is read already.
        self._cursor = settled.floor
        self._page: deque[StoredMessage] = deque()
        # Their key's turn has come.
        self._freed: deque[int] = deque()
        # Failed and waiting for their time, earliest first. Entries that no longer match settled.failed are stale.
        self._waiting: list[tuple[int, int]] = []
        self.is_saved(settled.failed)
        self.held = HeldMessages(settled, self._keys or OrderingKeys(), self._freed, replacements)

    def configure(self, config: Subscription) -> None:
        """Filter and ordering cannot change after creation."""
        self._retention_ns = round(config.message_retention_seconds * NANOSECONDS)

    # What comes next.

    def has_ready(self) -> bool:
        """May be wrong in one direction: True, and then nothing needs delivery after all."""
        return bool(self._freed) or self._first_due() is not None or (self._has_new() and not self._is_full())

    def next_due_ns(self) -> int | None:
        """When the next failed message may be delivered again."""
        self._drop_stale()
        return self._waiting[0][0] if self._waiting else None

    def outlook(self) -> Outlook:
        """Counts every new message, whether or not a filter lets it through: that is known once it is read."""
        now_ns = self._clock.now_ns()
        times = [
            failed.due_ns
            for sequence, failed in self.settled.failed.items()
            if failed.due_ns != NEVER_NS and not self._is_under_way(sequence)
        ]
        due = [due_ns for due_ns in times if due_ns <= now_ns]
        first = self._page[0].sequence if self._page else self._cursor
        new = self._topic.visible_end - first - self.settled.known_from(first)
        first_new = self._page[0] if self._page else self._topic.cached(self._cursor)
        known = [*due, first_new.publish_time_ns] if first_new is not None else due
        return Outlook(new + len(due), min(known, default=None), len(times) - len(due), min(times, default=None))

    # For who watches.

    async def look_ahead(self) -> None:
        """So that `open_count` and `first_open` know, where there is a filter."""
        await self._open.look_ahead(self._cursor)

    def open_count(self) -> int | None:
        """How many messages are not settled, those under way included. None where it is not known."""
        return self._open.count(self._cursor)

    def first_open(self) -> int | None:
        """The first of them, where there is one and it is known."""
        return self._open.first(self._cursor)

    # Delivering.

    async def next(self, *, new_first: bool = False) -> StoredMessage | None:
        """Whatever was due first; a new message counts from its publish time and goes before a retry of that time, or
        before all of them."""
        while True:
            if self._freed:
                message = await self._read_again(self._freed[0])
                self._freed.popleft()
                if message is not None:
                    return message
                continue
            new = await self._peek_new()
            due = self._first_due()
            if due is not None and (new is None or (not new_first and due[0] < new.publish_time_ns)):
                message = await self._read_again(due[1])
                if message is not None:
                    return message
            elif new is not None:
                self._page.popleft()
                return new
            else:
                return None

    def next_run(self, max_messages: int, max_bytes: int) -> list[StoredMessage]:
        """The usual case, quickly: new messages that have been read already, when there is nothing to choose. Empty
        when there might be; `next` then looks at each message."""
        page = self._page
        if not page or self._keys or self.settled.knows_from(page[0].sequence):
            return []
        if self._first_due() is not None:
            return []
        if page[0].sequence < self.settled.floor or self._is_too_old(page[0]):  # what follows is younger
            return []
        run: list[StoredMessage] = []
        while page and len(run) < max_messages and max_bytes > 0:
            message = page.popleft()
            run.append(message)
            max_bytes -= len(message.body)
        return run

    async def _peek_new(self) -> StoredMessage | None:
        while not self._is_full():
            while self._page:
                if self._is_deliverable(self._page[0]):
                    return self._page[0]
                self._page.popleft()
            if not self._has_new():
                return None
            await self._read_page()
            await asyncio.sleep(0)  # there may be many pages without anything to deliver
        return None

    def _has_new(self) -> bool:
        return bool(self._page) or self._cursor < self._topic.visible_end

    def _is_full(self) -> bool:
        return self._keys is not None and self._keys.behind_count >= MOST_BEHIND

    async def _read_page(self) -> None:
        messages, end = await self._topic.read(self._cursor, PAGE_MESSAGES, PAGE_BYTES)
        mine = [message for message in messages if self.is_mine(message)]
        if len(mine) != end - self._cursor:
            self._settle_gaps(mine, end)
        self._page.extend(mine)
        self._cursor = end

    def _settle_gaps(self, messages: Sequence[StoredMessage], end: int) -> None:
        """What was never committed, was trimmed, is for another subscription alone, or does not pass the filter."""
        expected = self._cursor
        for message in messages:
            if message.sequence > expected:
                self.settle(expected, message.sequence - 1)
            expected = message.sequence + 1
        if expected < end:
            self.settle(expected, end - 1)

    def _is_deliverable(self, message: StoredMessage) -> bool:
        """For a message that is looked at for the first time, in the order of sequences."""
        sequence = message.sequence
        if sequence in self.settled or self._is_too_old(message) or self.held.came_before(sequence):
            return False
        if self._keys is None:
            return sequence not in self.settled.failed
        key = PubsubMessage.FromString(message.body).ordering_key
        first = not key or self._keys.admit(key, sequence)
        # A failed one has just become the head of its key, and comes when it is due.
        return first and sequence not in self.settled.failed

    def is_mine(self, message: StoredMessage) -> bool:
        """Who addressed a message to this subscription meant it, whatever its filter is for."""
        body = message.body
        if not is_for(body, self._key):
            return False
        if self._accepts is None or is_addressed(body):
            return True
        return self._accepts(PubsubMessage.FromString(body).attributes)

    async def _read_again(self, sequence: int) -> StoredMessage | None:
        """None when it need not be delivered any more. Once it is leased or settled the heap forgets it."""
        message = await self._topic.read_one(sequence)
        if message is None or sequence in self.settled:  # trimmed, or settled while it waited
            self.settle(sequence, sequence)
            return None
        return None if self._is_too_old(message) else message

    def _is_too_old(self, message: StoredMessage) -> bool:
        if self._clock.now_ns() - message.publish_time_ns <= self._retention_ns:
            return False
        self.settle(message.sequence, message.sequence)
        return True

    def _first_due(self) -> tuple[int, int] | None:
        self._drop_stale()
        if self._waiting and self._waiting[0][0] <= self._clock.now_ns():
            return self._waiting[0]
        return None

    def _drop_stale(self) -> None:
        while self._waiting:
            due_ns, sequence = self._waiting[0]
            failed = self.settled.failed.get(sequence)
            if failed is not None and failed.due_ns == due_ns and not self._is_under_way(sequence):
                return
            heapq.heappop(self._waiting)

    # What happened to messages.

    def fail(self, sequence: int, attempts: int, due_ns: int) -> None:
        """It comes again, at due_ns or later and once `is_saved` says so; unless it outlived its retention while it
        was under way."""
        if sequence not in self.settled:
            self.settled.fail(sequence, FailedAttempts(attempts, due_ns))

    def is_saved(self, failed: Mapping[int, FailedAttempts]) -> None:
        """These counts are on disk. A message does not go out again before that: after a crash it would come with an
        attempt number that is lower than the last one."""
        for sequence, attempts in failed.items():
            if attempts.due_ns != NEVER_NS:
                heapq.heappush(self._waiting, (attempts.due_ns, sequence))

    def waiting_behind(self, key: str) -> int:
        return self._keys.waiting_behind(key) if self._keys is not None else 0

    def settle(self, first: int, last: int) -> None:
        """first..last need no delivery any more."""
        self.settled.settle(first, last)
        if self._keys is not None:
            self._freed.extend(self._keys.free(first, last))

    async def _is_first_young(self) -> bool:
        """The usual case, by reading one message and not a page."""
        floor = self.settled.floor
        if floor >= self._topic.visible_end:
            return True
        first = await self._topic.read_one(floor)
        return first is not None and not self._is_too_old(first)

    async def drop_expired(self) -> None:
        """Settles what is past the retention, whether or not anybody asks for messages."""
        if await self._is_first_young():
            return
        before = -1
        while before < self.settled.floor < self._topic.visible_end:
            before = self.settled.floor
            messages, end = await self._topic.read(before, PAGE_MESSAGES, PAGE_BYTES)
            young = next((message.sequence for message in messages if not self._is_too_old(message)), end)
            present = {message.sequence for message in messages}
            for sequence in range(before, young):
                if sequence not in present:  # never committed, or trimmed
                    self.settle(sequence, sequence)
