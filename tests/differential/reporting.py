"""Many sequences, one seed after the other, and what they showed."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.differential.generator import generate
from tests.differential.operations import Operation, to_json
from tests.differential.shrink import shrunk
from tests.differential.side_by_side import Difference, SideBySide


@dataclass(slots=True)
class Report:
    seed: int
    sequences: int = 0
    operations: int = 0
    cut_short: int = 0
    seconds: float = 0.0
    calls: Counter[str] = field(default_factory=Counter)
    codes: Counter[str] = field(default_factory=Counter)
    known: Counter[str] = field(default_factory=Counter)  # by name
    found: Counter[tuple[str, ...]] = field(default_factory=Counter)  # unexplained, by signature
    told: list[str] = field(default_factory=list)  # each signature once, with the shortest sequence that shows it

    def __str__(self) -> str:
        last = self.seed + self.sequences - 1
        lines = [
            *self.told,
            f"seeds {self.seed} to {last}: {self.sequences} sequences, {self.operations} operations",
            f"{self.seconds:.0f} seconds; {self.cut_short} sequences were cut short",
            "operations: " + ", ".join(f"{name} {number}" for name, number in self.calls.most_common()),
            "answers: " + ", ".join(f"{code} {number}" for code, number in self.codes.most_common()),
            "known differences met:",
            *(f"  {number:6} {name}" for name, number in self.known.most_common()),
            f"unexplained differences: {len(self.found)}",
            *(f"  {number:6} {' '.join(signature)}" for signature, number in self.found.items()),
        ]
        return "\n".join(lines)


def compare(
    sides: SideBySide,
    seed: int,
    *,
    seconds: float = float("inf"),
    sequences: int | None = None,
    keep_going: bool = False,
    tell: Callable[[str], None] = lambda _: None,
) -> Report:
    """`tell` hears of each difference when it is found."""
    report, start = Report(seed), time.monotonic()
    while report.sequences != sequences and time.monotonic() - start < seconds and (keep_going or not report.found):
        this = seed + report.sequences
        sequence = generate(this)
        compared = sides.run(sequence)
        report.sequences += 1
        report.operations += compared.operations
        report.cut_short += compared.cut_short
        report.calls.update(operation.do for operation in sequence[: compared.operations])
        report.codes.update(compared.codes)
        report.known.update(one.known.name for one in compared.differences if one.known)
        for difference in compared.unexplained[:1]:
            if difference.signature not in report.found:
                report.told.append(f"seed {this}: {_minimal(sides, sequence, difference)}\n")
                tell(report.told[-1])
            report.found[difference.signature] += 1
    report.seconds = time.monotonic() - start
    return report


def _minimal(sides: SideBySide, sequence: Sequence[Operation], difference: Difference) -> str:
    def shows(shorter: Sequence[Operation]) -> bool:
        return any(one.signature == difference.signature for one in sides.run(shorter).unexplained)

    if not shows(sequence):
        return f"{difference}\nwhich was not seen when it was done again"
    minimal = shrunk(sequence, shows)
    again = next((one for one in sides.run(minimal).unexplained), difference)
    steps = [str(again), "the shortest sequence that shows it:", *(f"  {operation}" for operation in minimal)]
    return "\n".join([*steps, f"as JSON: {to_json(minimal)}"])
