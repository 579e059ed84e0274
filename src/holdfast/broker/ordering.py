"""Ordering keys of one subscription: one message of a key is under way at a time, the others wait behind it."""

from __future__ import annotations

from collections import deque


class OrderingKeys:
    """The head of a key is the message that is leased, or failed and waiting for its next attempt. Only when it is
    settled (acked, dead-lettered, or past its retention) does the next one become the head."""

    def __init__(self) -> None:
        self._head: dict[str, int] = {}
        self._key_of_head: dict[int, str] = {}
        self._behind: dict[str, deque[int]] = {}
        self.behind_count = 0

    def admit(self, key: str, sequence: int) -> bool:
        """May it be delivered now? If not, it is remembered and `free` gives it when its turn comes."""
        if self._head.setdefault(key, sequence) == sequence:
            self._key_of_head[sequence] = key
            return True
        self._behind.setdefault(key, deque()).append(sequence)
        self.behind_count += 1
        return False

    def head(self, key: str) -> int | None:
        return self._head.get(key)

    def waiting_behind(self, key: str) -> int:
        return len(self._behind.get(key, ()))

    def take_place(self, key: str, head: int, sequence: int) -> None:
        """`sequence` is the head of the key from now on, and not `head`, which need not have been seen yet."""
        self._key_of_head.pop(head, None)
        self._head[key] = sequence
        self._key_of_head[sequence] = key

    def free(self, first: int, last: int) -> list[int]:
        """These messages are settled. Gives those that are now the heads of their keys."""
        if last - first < len(self._key_of_head):
            heads = [sequence for sequence in range(first, last + 1) if sequence in self._key_of_head]
        else:
            heads = [sequence for sequence in self._key_of_head if first <= sequence <= last]
        return [following for head in heads if (following := self._free_head(head)) is not None]

    def _free_head(self, sequence: int) -> int | None:
        key = self._key_of_head.pop(sequence)
        behind = self._behind.get(key)
        if not behind:
            del self._head[key]
            return None
        following = behind.popleft()
        self.behind_count -= 1
        if not behind:
            del self._behind[key]
        self._head[key] = following
        self._key_of_head[following] = key
        return following
