"""Which sequences of a topic hold nothing for most of its subscriptions: their publish failed, or the message is for
one subscription alone.

Whoever reads the topic finds out without this. It is for counting what nobody has read yet.
"""

from __future__ import annotations

import bisect
from typing import NamedTuple

# In place of a subscription's key: there is no message.
NOBODY = 0

# Runs that are remembered. A full disk or a replay makes one run of many neighbours; more than this is no usual day.
MOST_RUNS = 10_000


class _Run(NamedTuple):
    first: int
    last: int
    key: int


class OddMessages:
    """Runs come in the order of their sequences, but for those whose publishes overlap."""

    def __init__(self) -> None:
        self.forgotten_below = 0  # nothing is known of lower sequences
        self._runs: list[_Run] = []

    def add(self, first: int, last: int, key: int) -> None:
        """The messages first..last are for the subscription with this key alone, or for NOBODY."""
        before = self._runs[-1] if self._runs else None
        if before and before.key == key and before.last + 1 == first:
            self._runs[-1] = _Run(before.first, last, key)
        else:
            bisect.insort(self._runs, _Run(first, last, key))
        if len(self._runs) > MOST_RUNS:
            gone = self._runs[: MOST_RUNS // 2]
            del self._runs[: MOST_RUNS // 2]
            self.forgotten_below = gone[-1].last + 1

    def not_for(self, key: int, first: int) -> list[tuple[int, int]]:
        """From `first` on, the runs that are not for this subscription: first and last of each, in their order."""
        at = max(bisect.bisect_left(self._runs, (first,)) - 1, 0)
        return [(max(run.first, first), run.last) for run in self._runs[at:] if run.key != key and run.last >= first]
