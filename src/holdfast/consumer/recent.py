"""What happened lately: a count per outcome and the last of them, so that people can ask about one message.

In memory and bounded; a restart forgets it. The log has the rest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.model.outcome import Applied, Duplicate, Outcome, Poisoned, Retry, Stale

# Some minutes of a busy consumer, at a few hundred bytes each.
KEPT = 1000

NAMES = (Applied.name, Duplicate.name, Stale.name, Poisoned.name, Retry.name)


@dataclass(frozen=True, slots=True)
class RecentOutcome:
    """`document` or `error` is "" where the outcome has none."""

    message_id: str
    topic: str
    subscription: str
    outcome: str
    document: str
    error: str
    time_ns: int


class RecentOutcomes:
    def __init__(self, kept: int = KEPT) -> None:
        self._totals = dict.fromkeys(NAMES, 0)
        self._recent: deque[RecentOutcome] = deque(maxlen=kept)

    def add(self, outcome: Outcome, recent: RecentOutcome) -> None:
        self._totals[outcome.name] += 1
        self._recent.append(recent)

    @property
    def totals(self) -> Mapping[str, int]:
        """Since the start of the process; every outcome is there, also at 0."""
        return dict(self._totals)

    def latest(self, message_id: str = "") -> list[RecentOutcome]:
        """Newest first; of one message when its id is given."""
        return [recent for recent in reversed(self._recent) if message_id in ("", recent.message_id)]
