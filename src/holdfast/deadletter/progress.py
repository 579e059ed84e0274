"""How far long work is: it is an async iterator that gives Progress between its steps, and its result at last."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

MOST_EXAMPLES = 5
MOST_REASONS = 50
OTHER_REASONS = "other reasons"


@dataclass(frozen=True, slots=True)
class Progress:
    done: int
    total: int


@dataclass(slots=True)
class Reasons:
    """Why some failures were left out: how many for each reason, and a few of them by id or line."""

    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[int]] = field(default_factory=dict)

    def add(self, reason: str, example: int) -> None:
        if reason not in self.counts and len(self.counts) >= MOST_REASONS:
            reason = OTHER_REASONS
        self.counts[reason] += 1
        examples = self.examples.setdefault(reason, [])
        if len(examples) < MOST_EXAMPLES:
            examples.append(example)

    @property
    def total(self) -> int:
        return self.counts.total()
