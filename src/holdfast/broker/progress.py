"""Which messages of a topic one subscription has settled: a floor and ranges above it. Knows no clock and no disk."""

from __future__ import annotations

import bisect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from holdfast.broker.log import FailedAttempts, Progress, Settle

Value = TypeVar("Value")


@dataclass(slots=True)
class _Unsaved:
    gone: set[int] = field(default_factory=set)
    put: dict[int, int] = field(default_factory=dict)
    failed_gone: set[int] = field(default_factory=set)
    failed_put: dict[int, FailedAttempts] = field(default_factory=dict)


class SettledMessages:
    """Sequences that are done, and failed attempts of those that are not. Collects its own changes for the log."""

    def __init__(self, progress: Progress) -> None:
        self.floor = progress.floor
        self._firsts = sorted(progress.acked)
        self._last_of = dict(progress.acked)
        self._in_ranges = sum(last - first + 1 for first, last in progress.acked.items())
        self.failed = {sequence: failed for sequence, failed in progress.failed.items() if sequence not in self}
        self._highest_failed = max(self.failed, default=-1)
        self._saved_floor = progress.floor
        self._unsaved = _Unsaved()

    @property
    def saved_floor(self) -> int | None:
        """As the log has it, or will have once what was handed to it is done. None after it refused something."""
        return self._saved_floor if self._saved_floor >= 0 else None

    def __contains__(self, sequence: int) -> bool:
        if sequence < self.floor:
            return True
        at = bisect.bisect_right(self._firsts, sequence) - 1
        return at >= 0 and sequence <= self._last_of[self._firsts[at]]

    def knows_from(self, sequence: int) -> bool:
        """Whether anything at or after `sequence` may have been settled or failed already."""
        if self._firsts and self._last_of[self._firsts[-1]] >= sequence:
            return True
        return self._highest_failed >= sequence

    def open_below(self, end: int) -> int:
        """How many are not settled. Nothing at or above `end` is."""
        return end - self.floor - self._in_ranges

    def first_open(self, sequence: int) -> int:
        """The lowest at or after `sequence` that is not settled."""
        sequence = max(sequence, self.floor)
        at = bisect.bisect_right(self._firsts, sequence) - 1
        return max(sequence, self._last_of[self._firsts[at]] + 1) if at >= 0 else sequence

    def settled_between(self, first: int, last: int) -> int:
        """How many of first..last, which all lie at or above the floor."""
        at = max(bisect.bisect_right(self._firsts, first) - 1, 0)
        count = 0
        while at < len(self._firsts) and self._firsts[at] <= last:
            start = self._firsts[at]
            count += max(min(self._last_of[start], last) - max(start, first) + 1, 0)
            at += 1
        return count

    def known_from(self, sequence: int) -> int:
        """How many at or after `sequence` are settled or have failed."""
        first = max(sequence, self.floor)
        settled = sum(last - max(start, first) + 1 for start, last in self._last_of.items() if last >= first)
        return settled + (first - sequence) + sum(1 for failed in self.failed if failed >= sequence)

    def settle(self, first: int, last: int) -> None:
        """Marks first..last as done. Doing it twice is harmless."""
        self._forget_failures(first, last)
        if last < self.floor:
            return
        first = max(first, self.floor)
        if first == self.floor:
            self._raise_floor(last + 1)
        else:
            self._add_range(first, last)

    def fail(self, sequence: int, attempts: FailedAttempts) -> None:
        self.failed[sequence] = attempts
        self._highest_failed = max(self._highest_failed, sequence)
        self._unsaved.failed_put[sequence] = attempts
        self._unsaved.failed_gone.discard(sequence)

    def from_sequence(self, first: int) -> Progress:
        """Everything before `first` is done, and what is done after it stays so."""
        floor = max(first, self.floor)
        return Progress(floor, {start: end for start, end in self._last_of.items() if end >= floor})

    @property
    def ranges(self) -> Mapping[int, int]:
        return self._last_of

    @property
    def has_unsaved(self) -> bool:
        unsaved = self._unsaved
        return bool(
            self.floor != self._saved_floor or unsaved.gone or unsaved.put or unsaved.failed_gone or unsaved.failed_put
        )

    def take_unsaved(self, subscription_key: int) -> Settle:
        """What changed since the last call. If the log refuses it, hand it to `put_back`."""
        unsaved, self._unsaved = self._unsaved, _Unsaved()
        self._saved_floor = self.floor
        return Settle(
            subscription_key,
            self.floor,
            tuple(unsaved.gone),
            unsaved.put,
            tuple(unsaved.failed_gone),
            unsaved.failed_put,
        )

    def put_back(self, change: Settle) -> None:
        """The log did not take `change`: it goes with the next one. What happened since then wins."""
        newer, self._unsaved = self._unsaved, _Unsaved()
        older = self._unsaved
        older.gone = set(change.ranges_gone)
        older.put = dict(change.ranges_set)
        older.failed_gone = set(change.failed_gone)
        older.failed_put = dict(change.failed_set)
        _merge(older.gone, older.put, newer.gone, newer.put)
        _merge(older.failed_gone, older.failed_put, newer.failed_gone, newer.failed_put)
        self._saved_floor = -1

    # Ranges.

    def _raise_floor(self, floor: int) -> None:
        self.floor = max(self.floor, floor)
        while self._firsts and self._firsts[0] <= self.floor:
            first = self._firsts[0]
            self.floor = max(self.floor, self._last_of[first] + 1)
            self._drop_range(0)

    def _add_range(self, first: int, last: int) -> None:
        """Swallows every range that overlaps or touches first..last."""
        at = bisect.bisect_right(self._firsts, first) - 1
        if at >= 0 and self._last_of[self._firsts[at]] >= first - 1:
            first = self._firsts[at]
            last = max(last, self._last_of[first])
            self._in_ranges -= self._last_of[first] - first + 1
        else:
            at += 1
            self._firsts.insert(at, first)
        while at + 1 < len(self._firsts) and self._firsts[at + 1] <= last + 1:
            last = max(last, self._last_of[self._firsts[at + 1]])
            self._drop_range(at + 1)
        self._last_of[first] = last
        self._in_ranges += last - first + 1
        self._unsaved.put[first] = last
        self._unsaved.gone.discard(first)

    def _drop_range(self, at: int) -> None:
        first = self._firsts.pop(at)
        self._in_ranges -= self._last_of.pop(first) - first + 1
        self._unsaved.put.pop(first, None)
        self._unsaved.gone.add(first)

    def _forget_failures(self, first: int, last: int) -> None:
        if not self.failed:
            return
        if last - first < len(self.failed):
            gone = [sequence for sequence in range(first, last + 1) if sequence in self.failed]
        else:
            gone = [sequence for sequence in self.failed if first <= sequence <= last]
        for sequence in gone:
            del self.failed[sequence]
            self._unsaved.failed_put.pop(sequence, None)
            self._unsaved.failed_gone.add(sequence)


def _merge(gone: set[int], put: dict[int, Value], newer_gone: set[int], newer_put: dict[int, Value]) -> None:
    """Lays the newer changes over the older ones, in place."""
    for first in newer_gone:
        put.pop(first, None)
        gone.add(first)
    for first, value in newer_put.items():
        put[first] = value
        gone.discard(first)
