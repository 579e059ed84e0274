"""What came back: statuses, outcomes, latencies, and how all of it went over time. No clock of its own."""

from __future__ import annotations

import json
from collections import Counter
from enum import StrEnum

from holdfast.cli.load.latencies import Latencies
from holdfast.outgoing.answers import Answer, NoAnswer, printable

# Of an error that an endpoint tells: enough to know it by.
_LONGEST_EXAMPLE = 200
_LONGEST_OUTCOME = 40

FIRST_SLICE_NS = 100_000_000
# More than a screen has columns. Then two slices become one, so that a run of days fits as well.
MOST_SLICES = 240


class Kind(StrEnum):
    """How a request ended, as far as Pub/Sub would care."""

    ACCEPTED = "accepted"
    BACKPRESSURE = "backpressure"
    FAILED = "failed"
    REFUSED = "refused"
    NO_ANSWER = "no answer"


def kind_of(status: int) -> Kind:
    # 102 is among the statuses that Pub/Sub takes for an ack.
    if 200 <= status < 300 or status == 102:
        return Kind.ACCEPTED
    if status == 429:
        return Kind.BACKPRESSURE
    return Kind.FAILED if status >= 500 else Kind.REFUSED


class Slice:
    """What ended within one stretch of time."""

    __slots__ = ("kinds", "latencies")

    def __init__(self) -> None:
        self.kinds: Counter[Kind] = Counter()
        self.latencies = Latencies()

    def add_all(self, other: Slice) -> None:
        self.kinds.update(other.kinds)
        self.latencies.add_all(other.latencies)


class Timeline:
    """Slices of equal width from the start on; the width doubles when there would be too many."""

    def __init__(self) -> None:
        self.width_ns = FIRST_SLICE_NS
        self.slices: list[Slice] = []

    def at(self, since_start_ns: int) -> Slice:
        while since_start_ns // self.width_ns >= MOST_SLICES:
            self._halve()
        place = since_start_ns // self.width_ns
        while len(self.slices) <= place:
            self.slices.append(Slice())
        return self.slices[place]

    def _halve(self) -> None:
        self.width_ns *= 2
        for first, second in zip(self.slices[::2], self.slices[1::2], strict=False):
            first.add_all(second)
        self.slices = self.slices[::2]


class Tally:
    def __init__(self) -> None:
        self.statuses: Counter[int] = Counter()
        self.no_answers: Counter[str] = Counter()
        self.outcomes: Counter[str] = Counter()
        self.kinds: Counter[Kind] = Counter()
        self.latencies: dict[Kind, Latencies] = {}
        """From when a request was due to when its answer was whole."""
        self.examples: dict[int | str, str] = {}
        """What the endpoint said for a status, or why there was no answer: the first of each."""
        self.timeline = Timeline()

    def answer(self, answer: Answer, since_start_ns: int, took_ns: int) -> None:
        status = answer.status
        kind = kind_of(status)
        self.statuses[status] += 1
        self._note_body(answer, kind)
        if kind not in self.latencies:
            self.latencies[kind] = Latencies()
        self.latencies[kind].add(took_ns)
        self._ended(kind, since_start_ns).latencies.add(took_ns)

    def no_answer(self, why: NoAnswer, since_start_ns: int) -> None:
        self.no_answers[why.kind] += 1
        self.examples.setdefault(why.kind, why.error)
        self._ended(Kind.NO_ANSWER, since_start_ns)

    @property
    def ended(self) -> int:
        return self.kinds.total()

    @property
    def answered(self) -> int:
        return self.statuses.total()

    def all_latencies(self) -> Latencies:
        together = Latencies()
        for latencies in self.latencies.values():
            together.add_all(latencies)
        return together

    def latencies_of(self, kind: Kind) -> Latencies:
        return self.latencies.get(kind) or Latencies()

    def _ended(self, kind: Kind, since_start_ns: int) -> Slice:
        self.kinds[kind] += 1
        slice_ = self.timeline.at(since_start_ns)
        slice_.kinds[kind] += 1
        return slice_

    def _note_body(self, answer: Answer, kind: Kind) -> None:
        body = _json_object(answer.body)
        outcome = body.get("outcome")
        if isinstance(outcome, str):
            known = outcome if outcome in self.outcomes else printable(outcome, _LONGEST_OUTCOME)
            self.outcomes[known] += 1
        if kind is not Kind.ACCEPTED and answer.status not in self.examples:
            self.examples[answer.status] = _error_in(body)


def _json_object(body: bytes) -> dict[str, object]:
    if not body.startswith(b"{"):
        return {}
    try:
        parsed: dict[str, object] = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return parsed


def _error_in(body: dict[str, object]) -> str:
    """Holdfast says `error` as text beside an outcome, and as an object with a message where there is none."""
    error = body.get("error")
    if isinstance(error, dict):
        error = error.get("message")
    return printable(error, _LONGEST_EXAMPLE) if isinstance(error, str) else ""
