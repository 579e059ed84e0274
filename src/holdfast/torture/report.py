"""A result as a table of faults and checks, and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from holdfast.torture import schedule
from holdfast.torture.checker import CHECKS, Violation
from holdfast.torture.run import Result
from holdfast.torture.schedule import Fault

TITLES = ("fault", "times", *CHECKS)

# Where no fault has been at all.
NO_FAULT = "no fault"


def rows(result: Result) -> list[list[object]]:
    """What was found, by the fault that was nearest in time; then how much each check has looked at."""
    times = Counter(fault.kind for fault in result.schedule)
    found = Counter((nearest(violation, result.schedule), violation.check) for violation in result.verdict.violations)
    lines: list[list[object]] = []
    for kind in (*schedule.KINDS, NO_FAULT):
        if kind in result.not_run:
            lines.append([kind, f"not run: {result.not_run[kind]}", *[""] * len(CHECKS)])
        elif times[kind] or any(found[kind, check] for check in CHECKS):
            lines.append([kind, times[kind], *[found[kind, check] for check in CHECKS]])
    totals = Counter(violation.check for violation in result.verdict.violations)
    lines.append(["all", sum(times.values()), *[totals[check] for check in CHECKS]])
    lines.append(["looked at", "", *[f"{result.verdict.looked_at[check]:,}" for check in CHECKS]])
    return lines


def nearest(violation: Violation, faults: Sequence[Fault]) -> str:
    """A hint, no more: faults overlap."""

    def distance(fault: Fault) -> float:
        return max(fault.at - violation.at, violation.at - fault.at - fault.seconds, 0.0)

    return min(faults, key=distance).kind if faults else NO_FAULT


def to_json(result: Result) -> dict[str, Any]:
    return {
        "seed": result.asked.seed,
        "minutes": round(result.asked.seconds / 60, 3),
        "seconds": round(result.seconds, 1),
        "counts": dict(result.counts),
        "faults": dict(Counter(fault.kind for fault in result.schedule)),
        "notRun": dict(result.not_run),
        "lookedAt": dict(result.verdict.looked_at),
        "violations": [
            {
                "check": violation.check,
                "text": violation.text,
                "at": violation.at,
                "nearestFault": nearest(violation, result.schedule),
            }
            for violation in result.verdict.violations
        ],
        "history": str(result.history) if result.history.exists() else None,
    }


def plan_to_json(faults: Sequence[Fault]) -> list[dict[str, Any]]:
    return [
        {
            "number": fault.number,
            "at": fault.at,
            "seconds": fault.seconds,
            "fault": fault.kind,
            "target": fault.target,
            "details": dict(fault.details),
        }
        for fault in faults
    ]
