"""The newest messages of all topics, in memory up to a budget. Whatever is not here is read from the log."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from holdfast.broker.log import StoredMessage

# What Python adds to a body: the tuple, the bytes header, the dict entry. Measured, rounded up.
OVERHEAD_BYTES = 250


class TailCache:
    def __init__(self, budget_bytes: int) -> None:
        self._budget = budget_bytes
        self._size = 0
        self._topics: dict[int, dict[int, StoredMessage]] = {}
        # Oldest first; eviction works by whole publishes, which is cheaper than by message.
        self._added: deque[tuple[int, int, int, int]] = deque()

    def add(self, topic_key: int, messages: Sequence[StoredMessage]) -> None:
        if not messages:
            return
        size = sum([len(message.body) for message in messages]) + OVERHEAD_BYTES * len(messages)
        if size > self._budget:
            return
        topic = self._topics.setdefault(topic_key, {})
        topic.update(zip(range(messages[0].sequence, messages[-1].sequence + 1), messages, strict=True))
        self._added.append((topic_key, messages[0].sequence, messages[-1].sequence, size))
        self._size += size
        while self._size > self._budget:
            self._evict_oldest()

    def run(self, topic_key: int, first: int, end: int, limit: int) -> list[StoredMessage]:
        """Consecutive messages from `first` on; empty when `first` is not here."""
        topic = self._topics.get(topic_key)
        if topic is None:
            return []
        found: list[StoredMessage] = []
        for sequence in range(first, min(end, first + limit)):
            message = topic.get(sequence)
            if message is None:
                break
            found.append(message)
        return found

    def one(self, topic_key: int, sequence: int) -> StoredMessage | None:
        return self._topics.get(topic_key, {}).get(sequence)

    def forget_topic(self, topic_key: int) -> None:
        self._topics.pop(topic_key, None)

    def _evict_oldest(self) -> None:
        topic_key, first, last, size = self._added.popleft()
        self._size -= size
        topic = self._topics.get(topic_key)
        if topic is None:
            return
        for sequence in range(first, last + 1):
            topic.pop(sequence, None)
