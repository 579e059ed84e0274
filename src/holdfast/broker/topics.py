"""One topic's part of the log: gives out sequences, makes commits visible in order, reads from memory or disk."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from holdfast.broker.log import Append, MessageLog, StoredMessage
from holdfast.broker.tail_cache import TailCache
from holdfast.broker.wire import encoded_publish_time, stored_body
from holdfast.model.resources import Topic

# A message id is the topic's key and the sequence in one number: unique in the whole broker, and a key into the log.
SEQUENCE_BITS = 40


def message_number(topic_key: int, sequence: int) -> int:
    return topic_key << SEQUENCE_BITS | sequence


@dataclass(slots=True)
class _Publishing:
    end: int
    finished: bool = False


class TopicLog:
    def __init__(self, key: int, topic: Topic, next_sequence: int, log: MessageLog, cache: TailCache) -> None:
        self.key = key
        self.topic = topic
        self.listeners: list[Callable[[], None]] = []  # called when new messages can be read
        # Below this sequence every publish has been decided: the message is readable, or it never will be.
        self.visible_end = next_sequence
        self._next_sequence = next_sequence
        self._publishing: deque[_Publishing] = deque()
        self._log = log
        self._cache = cache

    async def publish(self, messages: Sequence[object], now_ns: int) -> list[str]:
        """Gives the message ids once all of them are on disk; they become deliverable at that moment."""
        first = self._next_sequence
        self._next_sequence += len(messages)
        mine = _Publishing(self._next_sequence)
        self._publishing.append(mine)
        publish_time = encoded_publish_time(now_ns)
        ids = [str(message_number(self.key, sequence)) for sequence in range(first, mine.end)]
        stored = [
            StoredMessage(first + index, now_ns, stored_body(message, ids[index], publish_time))
            for index, message in enumerate(messages)
        ]
        try:
            await self._log.commit([Append(self.key, stored)])
            self._cache.add(self.key, stored)
        finally:
            # Also after a failure: the sequences stay unused, and what comes after must not wait for them.
            mine.finished = True
            self._show_finished()
        return ids

    def _show_finished(self) -> None:
        """Publishes finish in any order but show in the order of their sequences, so that no reader skips one."""
        before = self.visible_end
        while self._publishing and self._publishing[0].finished:
            self.visible_end = self._publishing.popleft().end
        if self.visible_end != before:
            for tell in self.listeners:
                tell()

    async def read(self, first: int, limit: int) -> tuple[Sequence[StoredMessage], int]:
        """Visible messages from `first` on, and the sequence that the answer reaches to (not included): what is
        missing below that is not in the log."""
        end = self.visible_end
        cached = self._cache.run(self.key, first, end, limit)
        if cached:
            return cached, cached[-1].sequence + 1
        messages = await self._log.read_from(self.key, first, end - 1, limit)
        return messages, (messages[-1].sequence + 1 if len(messages) == limit else end)

    async def read_one(self, sequence: int) -> StoredMessage | None:
        return self._cache.one(self.key, sequence) or await self._log.read_one(self.key, sequence)
