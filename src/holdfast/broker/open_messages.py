"""How many messages a subscription has not settled, and which is the first of them. For who watches: what is delivered
does not depend on it.

Below the cursor every message has been looked at, and what is not for the subscription is settled. Of what lies above
it, the topic knows which messages are for others; which ones a filter will leave out is found by reading ahead.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from holdfast.broker.log import StoredMessage
from holdfast.broker.progress import SettledMessages
from holdfast.broker.topics import TopicLog

# Read at once. Judging so many takes one to two milliseconds, in which nothing else is served.
PAGE_MESSAGES = 500
PAGE_BYTES = 4_000_000

# Read ahead at most: one bit of memory for each, and a second for some hundred thousand.
MOST_AHEAD = 10_000_000

IsMine = Callable[[StoredMessage], bool]


class OpenMessages:
    """`is_mine` judges messages where the subscription has a filter."""

    def __init__(self, key: int, topic: TopicLog, settled: SettledMessages, is_mine: IsMine | None) -> None:
        self._key = key
        self._topic = topic
        self._settled = settled
        self._is_mine = is_mine
        self._ahead = _Ahead()

    async def look_ahead(self, cursor: int) -> None:
        """Without it, `count` and `first` may not know."""
        if self._is_mine is not None:
            first = max(cursor, self._settled.floor)
            await self._ahead.read(self._topic, first, self._settled, self._is_mine)

    def count(self, cursor: int) -> int | None:
        """None where it is not known."""
        first = max(cursor, self._settled.floor)
        if self._is_mine is not None:
            if not self._ahead.is_complete:
                return None
            return self._settled.open_below(max(first, self._ahead.end)) - self._ahead.others_from(first)
        if first < self._topic.odd.forgotten_below:
            return None
        others = self._topic.odd.not_for(self._key, first)
        left_out = sum(last - start + 1 - self._settled.settled_between(start, last) for start, last in others)
        return self._settled.open_below(self._topic.visible_end) - left_out

    def first(self, cursor: int) -> int | None:
        """The first one, where there is one and it is known."""
        sequence = self._settled.floor
        while cursor <= sequence < self._topic.visible_end:
            after = self._after_others(sequence)
            if after is None or after == sequence:
                return after
            sequence = self._settled.first_open(after)
        return sequence if sequence < cursor else None

    def _after_others(self, sequence: int) -> int | None:
        """`sequence` itself when it is for this subscription. None when nobody knows."""
        if self._is_mine is not None:
            return self._ahead.after_others(sequence)
        others = self._topic.odd.not_for(self._key, sequence)
        return others[0][1] + 1 if others and others[0][0] == sequence else sequence


class _Page(NamedTuple):
    """Of the sequences first..end-1, `others` has a bit for each that the subscription will settle unseen."""

    first: int
    end: int
    others: int


class _Ahead:
    """What was read ahead, page by page."""

    def __init__(self) -> None:
        self.end = 0
        self.is_complete = False  # `end` was the end of the topic, not long ago
        self._pages: deque[_Page] = deque()

    async def read(self, topic: TopicLog, first: int, settled: SettledMessages, is_mine: IsMine) -> None:
        while self._pages and self._pages[0].end <= first:
            self._pages.popleft()
        self.end = max(self.end, first)
        end = topic.visible_end
        while self.end < end:
            self.is_complete = False
            if self.end - first >= MOST_AHEAD:
                return
            messages, page_end = await topic.read(self.end, PAGE_MESSAGES, PAGE_BYTES)
            mine = {message.sequence for message in messages if is_mine(message)}
            others = 0
            for sequence in range(self.end, page_end):
                if sequence not in mine and sequence not in settled:
                    others |= 1 << (sequence - self.end)
            self._pages.append(_Page(self.end, page_end, others))
            self.end = page_end
            await asyncio.sleep(0)
        self.is_complete = True

    def others_from(self, first: int) -> int:
        return sum((page.others >> max(first - page.first, 0)).bit_count() for page in self._pages if page.end > first)

    def after_others(self, sequence: int) -> int | None:
        for page in self._pages:
            if page.first <= sequence < page.end:
                bits = page.others >> (sequence - page.first)
                return sequence + ((bits + 1) & ~bits).bit_length() - 1  # the run of ones that it begins with
        return None
