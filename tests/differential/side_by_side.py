"""The same sequence on both sides, one operation after the other, and where what is seen differs.

A delivery may take a moment, so both sides are asked until they have given the same, or PATIENCE_SECONDS are over.
"""

from __future__ import annotations

import itertools
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from tests.differential.known import Known, known_for
from tests.differential.normal import paths
from tests.differential.operations import Operation
from tests.differential.side import OK, Observation, Received, Side

PATIENCE_SECONDS = 3.0

# The shortest ack deadline is 10 seconds. A sequence that takes longer than this (a busy machine) is left where it is:
# leases that run out would be a difference of speed.
SEQUENCE_SECONDS = 8.0

# How often Exhaust nacks: more than the smallest number of attempts before a dead letter.
MOST_NACKS = 7

Pair: TypeAlias = tuple[Observation, Observation]
Look: TypeAlias = Callable[[], tuple[Observation, list[Received]]]


@dataclass(frozen=True, slots=True)
class Difference:
    """One place where two answers differ. `known` is why, where that is known."""

    operation: Operation
    path: str
    ours: Any
    theirs: Any
    answers: Pair
    before: Sequence[Operation]
    known: Known | None = None

    @property
    def signature(self) -> tuple[str, ...]:
        """The same for what is probably the same difference."""
        place = re.sub(r"\[\d+\]|\bm\d+\b", "", self.path)
        codes = [answer.code for answer in self.answers]
        said = [" ".join(re.findall(r"\b[a-z_]{3,}\b", answer.text)[:4]) for answer in self.answers]
        return self.operation.do, place, *codes, *said

    def __str__(self) -> str:
        texts = [f"  {name}: {value!r}" for name, value in (("Holdfast", self.ours), ("emulator", self.theirs))]
        said = [f"  it says: {answer.text[:200]}" if answer.text else "" for answer in self.answers]
        lines = [f"{self.operation}", f"  at {self.path}", texts[0], said[0], texts[1], said[1]]
        return "\n".join(filter(None, lines))


@dataclass(slots=True)
class Comparison:
    differences: list[Difference] = field(default_factory=list)
    operations: int = 0  # that were compared
    codes: Counter[str] = field(default_factory=Counter)  # how ours were answered
    cut_short: bool = False

    @property
    def unexplained(self) -> list[Difference]:
        return [difference for difference in self.differences if difference.known is None]


class SideBySide:
    def __init__(self, ours: Side, theirs: Side, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._sides = (ours, theirs)
        self._patience_seconds = patience_seconds
        # Nobody else may have used these projects: the emulator may serve several runs.
        run = f"{random.SystemRandom().randrange(16**6):06x}"
        self._projects = (f"differ-{run}-{number}" for number in itertools.count())

    def run(self, sequence: Sequence[Operation]) -> Comparison:
        """Ends at the first difference that is not known, and at one that leaves the two sides in different states."""
        project = next(self._projects)
        for side in self._sides:
            side.begin(project)
        compared = Comparison()
        start = time.monotonic()
        for operation in sequence:
            ours, theirs = self._both(operation)
            if time.monotonic() - start > SEQUENCE_SECONDS:
                compared.cut_short = True
                break
            compared.operations += 1
            compared.codes[ours.code] += 1
            found = list(_differences(operation, ours, theirs, sequence[: compared.operations]))
            compared.differences += found
            if any(one.known is None or one.known.parts for one in found):
                break
        self._clean_up(project)
        return compared

    def _clean_up(self, project: str) -> None:
        """The emulator keeps everything in memory."""
        for side in self._sides:
            for kind in ("Subscription", "Snapshot", "Topic"):
                listing = {"project": f"projects/{project}"}
                for one in side.send(f"List{kind}s", listing):
                    side.send(f"Delete{kind}", {kind.lower(): one.name})

    def _both(self, operation: Operation) -> Pair:
        match operation.do:
            case "Mark":
                for side in self._sides:
                    side.mark(operation.request["mark"])
                return Observation(OK), Observation(OK)
            case "Publish":
                return self._each(lambda side: side.publish(operation))
            case "Walk":
                return self._each(lambda side: side.walk(operation))
            case "Acknowledge" | "ModifyAckDeadline":
                return self._each(lambda side: side.settle(operation))
            case "Take":
                return self._take(operation)
            case "Stream":
                return self._stream(operation)
            case "Drain":
                return self._drain(operation)
            case "Exhaust":
                return self._exhaust(operation)
            case _:
                return self._each(lambda side: side.call(operation))

    def _each(self, call: Callable[[Side], Observation]) -> Pair:
        ours, theirs = self._sides
        return call(ours), call(theirs)

    def _looks(self, operation: Operation) -> list[Look]:
        name = operation.request["subscription"]
        return [lambda side=side: side.look(name, rest=operation.rest) for side in self._sides]  # type: ignore[misc]

    def _take(self, operation: Operation) -> Pair:
        return self._until_same(self._looks(operation), lambda _, received: None, _by_symbol)

    def _stream(self, operation: Operation) -> Pair:
        """What comes on a stream; acked on it, where the operation says so."""
        name = operation.request.get("subscription", "")
        first = {key: value for key, value in operation.request.items() if key != "ack"}
        with ExitStack() as stack:
            streams = [stack.enter_context(side.stream(first)) for side in self._sides]
            looks: list[Look] = [lambda stream=stream: stream.look(name) for stream in streams]  # type: ignore[misc]

            def answer(at: int, received: list[Received]) -> None:
                if operation.request.get("ack"):
                    streams[at].send(ack_ids=[one.ack_id for one in received])

            return self._until_same(looks, answer, _by_symbol, rounds=2)

    def _drain(self, operation: Operation) -> Pair:
        """Which messages of each ordering key were acked first, in their order. Those under `nack` are given back the
        first time, and what came of their key with them, as the official clients do."""
        name, first_time = operation.request["subscription"], [set(operation.request.get("nack", ())) for _ in range(2)]
        acked: list[list[Received]] = [[], []]

        def answer(at: int, received: list[Received]) -> None:
            held_keys: set[str] = set()
            back = []
            for one in received:
                key = one.seen["message"].get("ordering_key", "")
                if one.symbol in first_time[at] or (key and key in held_keys):
                    first_time[at].discard(one.symbol)
                    held_keys.add(key)
                    back.append(one)
            good = [one for one in received if one not in back]
            self._sides[at].acknowledge(name, good)
            self._sides[at].nack(name, back)
            acked[at] += good

        return self._until_same(self._looks(operation), answer, lambda at, _: _by_key(acked[at]), quiet=True)

    def _exhaust(self, operation: Operation) -> Pair:
        name, rounds = operation.request["subscription"], [0, 0]
        attempts: list[dict[str, list[int]]] = [{}, {}]

        def answer(at: int, received: list[Received]) -> None:
            if rounds[at] < MOST_NACKS:
                for one in received:
                    attempts[at].setdefault(one.symbol, []).append(one.seen["attempt"])
                self._sides[at].nack(name, received)
            rounds[at] += bool(received)

        return self._until_same(self._looks(operation), answer, lambda at, _: attempts[at], quiet=True)

    def _until_same(
        self,
        looks: Sequence[Look],
        answer: Callable[[int, list[Received]], None],
        tell: Callable[[int, list[Received]], Any],
        *,
        rounds: int = 1,
        quiet: bool = False,
    ) -> Pair:
        """`quiet`: nothing may have come in the last round either."""
        got: list[list[Received]] = [[], []]
        end = time.monotonic() + self._patience_seconds
        for number in itertools.count(1):
            came = 0
            observed = []
            for at, look in enumerate(looks):
                observation, received = look()
                observed.append(observation)
                came += len(received)
                got[at] += received
                if received:
                    answer(at, received)
            if any(one.code != OK for one in observed) and (observed[0] == observed[1] or number > rounds + 10):
                return observed[0], observed[1]
            ours, theirs = (Observation(one.code, value=tell(at, got[at])) for at, one in enumerate(observed))
            same = ours == theirs and number >= rounds and not (quiet and came)
            if same or time.monotonic() >= end:
                return ours, theirs
            if number > 1:
                time.sleep(0.01)
        raise AssertionError("unreachable")


def _by_symbol(_: int, received: Sequence[Received]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for one in received:
        found.setdefault(one.symbol, []).append(one.seen)
    return found


def _by_key(received: Sequence[Received]) -> dict[str, list[str]]:
    """Symbols in the order of their first ack; without an ordering key the order says nothing."""
    found: dict[str, list[str]] = {}
    for one in received:
        symbols = found.setdefault(one.seen["message"].get("ordering_key", ""), [])
        if one.symbol not in symbols:
            symbols.append(one.symbol)
    return {key: symbols if key else sorted(symbols) for key, symbols in found.items()}


def _differences(
    operation: Operation, ours: Observation, theirs: Observation, before: Sequence[Operation]
) -> Iterator[Difference]:
    places = paths(ours.compared(), theirs.compared())
    if ours.code != theirs.code:
        places = [("code", ours.code, theirs.code)]  # what is in the answers differs all the more
    for path, one, other in places:
        found = Difference(operation, path, one, other, (ours, theirs), before)
        yield replace(found, known=known_for(found))
