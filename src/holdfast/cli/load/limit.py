"""Which rate an endpoint bears: the next rate to try, and what a step says. Pure but for `find_limit`.

The rate is raised, not the number of connections. A fixed number of connections slows down with the endpoint, so the
pressure never passes what it bears; a rate does not care, and what cannot be taken shows as latency, as 429 or as
requests that could not leave. How many requests were under way at once at the safe rate is then a measurement.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from holdfast.cli.load.run import Run
from holdfast.cli.load.tally import Kind
from holdfast.cli.load.verdicts import generator_of

START_RATE = 200.0
LOWEST_RATE = 1.0
GROWTH = 2.0
# Where safe and too much are closer than this, another step would tell noise.
CLOSE_ENOUGH = 1.1


@dataclass(frozen=True, slots=True)
class Bounds:
    max_p99_ms: float
    max_errors: float
    """As a share of all that was due."""


def why_too_much(run: Run, bounds: Bounds) -> str:
    """Empty when the endpoint bears it."""
    tally = run.tally
    due = run.sent + run.unsent
    not_accepted = due - tally.kinds[Kind.ACCEPTED]
    if not due or not_accepted / due > bounds.max_errors:
        return _not_accepted(run)
    p99 = tally.latencies_of(Kind.ACCEPTED).percentile_ms(0.99)
    if p99 > bounds.max_p99_ms:
        return f"p99 {p99:,.0f} ms"
    return ""


def _not_accepted(run: Run) -> str:
    kinds, tally = run.tally.kinds, run.tally
    parts = [
        *(f"{tally.statuses[status]:,} times {status}" for status in sorted(tally.statuses) if not 200 <= status < 300),
        f"{kinds[Kind.NO_ANSWER]:,} without an answer" if kinds[Kind.NO_ANSWER] else "",
        f"{run.unsent:,} could not leave" if run.unsent else "",
    ]
    return ", ".join(part for part in parts if part) or "nothing was sent"


@dataclass(frozen=True, slots=True)
class Step:
    rate: float
    run: Run
    why_not: str
    """Why it was too much; empty when it was not."""

    @property
    def passed(self) -> bool:
        return not self.why_not

    @property
    def is_the_generators(self) -> bool:
        """Too much for who sends, so it says nothing of the endpoint."""
        return not self.passed and generator_of(self.run).is_the_limit

    @property
    def is_hopeless(self) -> bool:
        """No rate is low enough: the endpoint is not there, or does not want such requests."""
        kinds = self.run.tally.kinds
        return not kinds[Kind.ACCEPTED] and bool(kinds[Kind.REFUSED] or kinds[Kind.NO_ANSWER])


class Search:
    """Doubles the rate until it is too much (or halves it until it is not), then tries the middle of what lies between.
    What fails is tried once more: on a busy machine anything may fail once."""

    def __init__(self, first_rate: float = START_RATE) -> None:
        self._next: float | None = first_rate
        self._failed_once = False
        self.safe: float | None = None
        self.too_much: float | None = None

    @property
    def next_rate(self) -> float | None:
        """None when the answer is known."""
        return self._next

    def passed(self) -> None:
        assert self._next is not None
        self.safe, self._failed_once = self._next, False
        self._next = self._next * GROWTH if self.too_much is None else self._lower()

    def failed(self) -> bool:
        """Whether that settles it: the first time it does not."""
        assert self._next is not None
        self._failed_once = not self._failed_once
        if self._failed_once:
            return False
        self.too_much = self._next
        self._next = self._lower()
        return True

    def _lower(self) -> float | None:
        assert self.too_much is not None
        if self.safe is None:
            lower = self.too_much / GROWTH
            return lower if lower >= LOWEST_RATE else None
        if self.too_much / self.safe <= CLOSE_ENOUGH:
            return None
        return _rounded(math.sqrt(self.safe * self.too_much))


def _rounded(rate: float) -> float:
    """To three digits: more would not be true."""
    digits = 2 - math.floor(math.log10(rate))
    return round(rate, digits)


class Ending(StrEnum):
    """Why no further rate was tried."""

    FOUND = "found"
    GENERATOR = "generator"
    TIME = "time"
    HOPELESS = "hopeless"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class Limit:
    bounds: Bounds
    steps: Sequence[Step]
    ending: Ending

    @property
    def safe(self) -> Step | None:
        """The highest rate that passed."""
        return max((step for step in self.steps if step.passed), key=lambda step: step.rate, default=None)

    @property
    def too_much(self) -> Step | None:
        """The lowest rate above it that did not."""
        safe = self.safe.rate if self.safe else 0.0
        above = [step for step in self.steps if not step.passed and step.rate > safe]
        return min(above, key=lambda step: step.rate, default=None)


Try = Callable[[float], Awaitable[Run]]


async def find_limit(search: Search, bounds: Bounds, attempt: Try, time_is_up: Callable[[], bool]) -> Limit:
    """`attempt` runs one step at a rate."""
    steps: list[Step] = []
    ending = Ending.FOUND
    while (rate := search.next_rate) is not None:
        if time_is_up():
            ending = Ending.TIME
            break
        run = await attempt(rate)
        if run.interrupted:
            ending = Ending.INTERRUPTED
            break
        step = Step(rate, run, why_too_much(run, bounds))
        steps.append(step)
        if step.is_hopeless:
            ending = Ending.HOPELESS
            break
        if step.passed:
            search.passed()
        elif search.failed() and step.is_the_generators:
            ending = Ending.GENERATOR
            break
    return Limit(bounds, steps, ending)
