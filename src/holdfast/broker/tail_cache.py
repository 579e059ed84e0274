"""The newest messages of all topics, in memory up to a budget. Whatever is not here is read from the log."""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Sequence

from holdfast.broker.log import StoredMessage

# What Python adds to a body: the tuple, the bytes header, the list entry. Measured, rounded up.
OVERHEAD_BYTES = 200

# Forgotten publishes are cut off a topic's list in pieces of this many: cutting each alone would move the whole list.
CUT = 256


class _Topic:
    """Whole publishes, oldest first: `firsts` holds the first sequence of each. Those before `start` are forgotten."""

    def __init__(self) -> None:
        self.firsts: list[int] = []
        self.publishes: list[Sequence[StoredMessage]] = []
        self.start = 0

    def forget_oldest(self) -> None:
        self.publishes[self.start] = ()
        self.start += 1
        if self.start == CUT:
            del self.firsts[:CUT], self.publishes[:CUT]
            self.start = 0


class TailCache:
    def __init__(self, budget_bytes: int) -> None:
        self._budget = budget_bytes
        self._size = 0
        self._topics: dict[int, _Topic] = {}
        self._added: deque[tuple[_Topic, int]] = deque()  # of all topics, oldest first, with their sizes

    def add(self, topic_key: int, messages: Sequence[StoredMessage], body_bytes: int) -> None:
        """What was published together: consecutive sequences, above all that the topic had before. `body_bytes` is the
        size of all their bodies."""
        size = body_bytes + OVERHEAD_BYTES * len(messages)
        if not messages or size > self._budget:
            return
        topic = self._topics.setdefault(topic_key, _Topic())
        topic.firsts.append(messages[0].sequence)
        topic.publishes.append(messages)
        self._added.append((topic, size))
        self._size += size
        while self._size > self._budget:
            oldest, gone = self._added.popleft()
            oldest.forget_oldest()
            self._size -= gone

    def run(self, topic_key: int, first: int, end: int, limit: int) -> list[StoredMessage]:
        """Consecutive messages from `first` on, up to `end`; empty when `first` is not here."""
        topic = self._topics.get(topic_key)
        found: list[StoredMessage] = []
        if topic is None:
            return found
        at = bisect.bisect_right(topic.firsts, first) - 1
        while at >= topic.start and at < len(topic.firsts) and len(found) < limit and first < end:
            publish = topic.publishes[at]
            begin = first - topic.firsts[at]
            piece = publish[begin : begin + min(limit - len(found), end - first)] if begin >= 0 else ()
            if not piece:  # a gap: the sequences between two publishes were never committed
                break
            found += piece
            first += len(piece)
            at += 1
        return found

    def one(self, topic_key: int, sequence: int) -> StoredMessage | None:
        found = self.run(topic_key, sequence, sequence + 1, 1)
        return found[0] if found else None

    def forget_topic(self, topic_key: int) -> None:
        """Its room is given back as it comes to be the oldest."""
        self._topics.pop(topic_key, None)
