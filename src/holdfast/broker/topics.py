"""One topic's part of the log: gives out sequences, makes commits visible in order, reads from memory or disk."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat

from holdfast.broker.log import Append, Change, MessageLog, StoredMessage
from holdfast.broker.odd_messages import NOBODY, OddMessages
from holdfast.broker.tail_cache import TailCache
from holdfast.broker.wire import address_suffix, stored_bodies
from holdfast.errors import NotFound, StorageUnavailable
from holdfast.model.resources import Topic

# A message id is the topic's key and the sequence in one number: unique in the whole broker, and a key into the log.
SEQUENCE_BITS = 40
LONGEST_ID = 19  # digits, of a number of 63 bits


# StoredMessage(*fields) without a Python call for each message, which would be a fifth of what publishing costs.
_AS_STORED: Callable[[tuple[int, int, bytes]], StoredMessage] = partial(tuple.__new__, StoredMessage)


# Changes that go with a publish, made of the numbers of its messages.
Along = Callable[[range], Sequence[Change]]


def message_number(topic_key: int, sequence: int) -> int:
    return topic_key << SEQUENCE_BITS | sequence


def sequence_of(message_id: str, topic_key: int) -> int | None:
    """None where it is not the id of one of this topic's messages."""
    number = number_of(message_id)
    if number is None:
        return None
    key, sequence = divmod(number, 1 << SEQUENCE_BITS)
    return sequence if key == topic_key else None


def number_of(message_id: str) -> int | None:
    """None where it cannot be the id of a message of ours."""
    if not (message_id.isascii() and message_id.isdecimal() and len(message_id) <= LONGEST_ID):
        return None
    number = int(message_id)
    return number if number < 1 << 63 else None


@dataclass(slots=True)
class _Publishing:
    end: int
    finished: bool = False


class TopicLog:
    def __init__(self, key: int, topic: Topic, next_sequence: int, log: MessageLog, cache: TailCache) -> None:
        self.key = key
        self.topic = topic
        self.deleted = False
        self.odd = OddMessages()
        self.published = 0  # since the process started
        self.published_bytes = 0
        self.listeners: list[Callable[[], None]] = []  # called when new messages can be read
        # Below this sequence every publish has been decided: the message is readable, or it never will be.
        self.visible_end = next_sequence
        self._next_sequence = next_sequence
        self._publishing: deque[_Publishing] = deque()
        self._tasks: set[asyncio.Future[None]] = set()
        self._log = log
        self._cache = cache

    async def publish(
        self, messages: Sequence[bytes], now_ns: int, *, only_for: int = 0, along: Along | None = None
    ) -> list[bytes]:
        """`messages` are serialized PubsubMessages. Gives their ids once all of them are on disk; they become
        deliverable at that moment, to the subscription with the key `only_for` alone where there is one. What `along`
        makes of their numbers is committed with the messages."""
        first = self._next_sequence
        self._next_sequence = end = first + len(messages)
        mine = _Publishing(end)
        self._publishing.append(mine)
        numbers = range(message_number(self.key, first), message_number(self.key, end))
        ids = [b"%d" % number for number in numbers]
        bodies = stored_bodies(messages, ids, now_ns)
        if only_for:
            suffix = address_suffix(only_for)
            bodies = [body + suffix for body in bodies]
        stored = list(map(_AS_STORED, zip(range(first, end), repeat(now_ns), bodies, strict=False)))
        try:
            await self._log.commit([Append(self.key, stored), *(along(numbers) if along else ())])
        except asyncio.CancelledError:
            self._spawn(self._finish_undecided(mine, stored, only_for))
            raise
        except StorageUnavailable:
            self._finish_unused(mine, first)
            if self.deleted:
                raise NotFound(f"topic {self.topic.name} was deleted") from None
            raise
        except BaseException:
            self._finish_unused(mine, first)
            raise
        body_bytes = sum(map(len, bodies))
        self._cache.add(self.key, stored, body_bytes)
        self._count(stored, body_bytes, only_for)
        self._finish(mine)
        return ids

    def _count(self, stored: Sequence[StoredMessage], body_bytes: int, only_for: int) -> None:
        self.published += len(stored)
        self.published_bytes += body_bytes
        if only_for:
            self.odd.add(stored[0].sequence, stored[-1].sequence, only_for)

    def _finish_unused(self, mine: _Publishing, first: int) -> None:
        """The sequences stay without messages, and what comes after must not wait for them."""
        self.odd.add(first, mine.end - 1, NOBODY)
        self._finish(mine)

    async def _finish_undecided(self, mine: _Publishing, stored: Sequence[StoredMessage], only_for: int) -> None:
        """The publisher went away before its commit was decided. Commits keep their order: once a later one is
        through, the message is in the log or never will be."""
        with contextlib.suppress(StorageUnavailable):
            await self._log.commit([])
            if await self._log.read_one(self.key, stored[0].sequence) is None:
                self.odd.add(stored[0].sequence, mine.end - 1, NOBODY)
            else:
                self._count(stored, sum(len(message.body) for message in stored), only_for)
        self._finish(mine)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _finish(self, mine: _Publishing) -> None:
        mine.finished = True
        self._show_finished()

    def _show_finished(self) -> None:
        """Publishes finish in any order but show in the order of their sequences, so that no reader skips one."""
        before = self.visible_end
        while self._publishing and self._publishing[0].finished:
            self.visible_end = self._publishing.popleft().end
        if self.visible_end != before:
            for tell in self.listeners:
                tell()

    async def read(self, first: int, limit: int, max_bytes: int) -> tuple[Sequence[StoredMessage], int]:
        """Visible messages from `first` on, no more once they have max_bytes together; and the sequence that the
        answer reaches to (not included): what is missing below that is not in the log."""
        end = self.visible_end
        cached = _cut(self._cache.run(self.key, first, end, limit), max_bytes)
        if cached:
            return cached, cached[-1].sequence + 1
        messages = await self._log.read_from(self.key, first, end - 1, limit, max_bytes)
        was_cut = len(messages) == limit or sum(len(message.body) for message in messages) >= max_bytes
        return messages, (messages[-1].sequence + 1 if was_cut else end)

    def cached(self, sequence: int) -> StoredMessage | None:
        return self._cache.one(self.key, sequence)

    async def read_one(self, sequence: int) -> StoredMessage | None:
        return self._cache.one(self.key, sequence) or await self._log.read_one(self.key, sequence)


def _cut(messages: list[StoredMessage], max_bytes: int) -> list[StoredMessage]:
    for index, message in enumerate(messages):
        max_bytes -= len(message.body)
        if max_bytes <= 0:
            return messages[: index + 1]
    return messages
