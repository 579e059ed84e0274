"""A run as figures for programs: the object that `--json` prints, and the points that plots are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from holdfast.cli.load.latencies import Latencies
from holdfast.cli.load.limit import Limit, Step
from holdfast.cli.load.run import Run
from holdfast.cli.load.tally import Kind, Slice, kind_of
from holdfast.cli.load.verdicts import exit_code, generator_of, meaning_of_no_answer, meaning_of_status
from holdfast.clock import NANOSECONDS
from holdfast.model.timestamps import format_rfc3339

# A last slice that is shorter than this share of the others is added to the one before: its rate would be noise.
_SHORT = 0.5


@dataclass(frozen=True, slots=True)
class Point:
    """A stretch of time: what ended in it, and how long its answers took."""

    at_seconds: float
    seconds: float
    kinds: Mapping[Kind, int]
    p50_ms: float
    p99_ms: float

    def per_second(self, kind: Kind) -> float:
        return self.kinds.get(kind, 0) / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True)
class Row:
    """One status, or one way to get no answer."""

    name: str
    kind: Kind
    count: int
    share: float
    meaning: str
    example: str


def points(run: Run) -> list[Point]:
    width, slices = run.tally.timeline.width_ns / NANOSECONDS, list(run.tally.timeline.slices)
    last = run.seconds - width * (len(slices) - 1)
    if len(slices) > 1 and last < width * _SHORT:
        joined = Slice()
        for part in slices[-2:]:
            joined.add_all(part)
        slices[-2:] = [joined]
        last += width
    return [
        Point(
            at_seconds=place * width,
            seconds=last if place == len(slices) - 1 else width,
            kinds=one.kinds,
            p50_ms=one.latencies.percentile_ms(0.5),
            p99_ms=one.latencies.percentile_ms(0.99),
        )
        for place, one in enumerate(slices)
    ]


def rows(run: Run) -> list[Row]:
    """The most frequent first, and answers before those without."""
    tally = run.tally
    return [
        *(
            Row(
                str(status),
                kind_of(status),
                count,
                count / tally.ended,
                meaning_of_status(status, kind_of(status)),
                tally.examples.get(status, ""),
            )
            for status, count in tally.statuses.most_common()
        ),
        *(
            Row(
                kind,
                Kind.NO_ANSWER,
                count,
                count / tally.ended,
                meaning_of_no_answer(kind),
                tally.examples.get(kind, ""),
            )
            for kind, count in tally.no_answers.most_common()
        ),
    ]


def latency_rows(run: Run) -> list[tuple[str, Latencies]]:
    """All answers; and where there were several kinds, each."""
    kinds = [(str(kind), run.tally.latencies[kind]) for kind in Kind if kind in run.tally.latencies]
    if len(kinds) == 1:
        return kinds
    return [("all answers", run.tally.all_latencies()), *kinds]


def run_as_json(run: Run) -> dict[str, Any]:
    generator = generator_of(run)
    tally = run.tally
    return {
        "startedAt": format_rfc3339(run.started_at_ns),
        "seconds": round(run.seconds, 3),
        "interrupted": run.interrupted,
        "requests": {
            "sent": run.sent,
            "answered": tally.answered,
            "accepted": tally.kinds[Kind.ACCEPTED],
            "redelivered": run.redelivered,
            "unsent": run.unsent,
            "givenUp": run.given_up,
            "mostAtOnce": run.most_at_once,
        },
        "perSecond": {
            "answered": per_second(run, tally.answered),
            "accepted": per_second(run, tally.kinds[Kind.ACCEPTED]),
        },
        "latencyMs": {
            "all": _latencies(tally.all_latencies()),
            **{str(kind): _latencies(tally.latencies[kind]) for kind in Kind if kind in tally.latencies},
        },
        "histogram": [
            {"fromMs": bar.from_ms, "toMs": bar.to_ms, "count": bar.count} for bar in tally.all_latencies().bars()
        ],
        "answers": [asdict(row) for row in rows(run)],
        "outcomes": dict(tally.outcomes.most_common()),
        "timeline": [_point(point) for point in points(run)],
        "generator": {
            "cpuShare": round(generator.cpu_share, 4),
            "starvedShare": round(generator.starved_share, 4),
            "microsecondsPerRequest": round(generator.microseconds_per_request, 1),
            "lateP99Ms": round(generator.late_p99_ms, 3),
            "isTheLimit": generator.is_the_limit,
        },
        "exitCode": exit_code(run),
    }


def limit_as_json(limit: Limit) -> dict[str, Any]:
    safe, too_much = limit.safe, limit.too_much
    return {
        "ending": str(limit.ending),
        "bounds": {"maxP99Ms": limit.bounds.max_p99_ms, "maxErrorsPercent": limit.bounds.max_errors * 100},
        "safe": None if safe is None else _step(safe),
        "tooMuch": None if too_much is None else _step(too_much),
        "steps": [{**_step(step), "run": run_as_json(step.run)} for step in limit.steps],
        "exitCode": 0 if safe else 1,
    }


def per_second(run: Run, count: int) -> float:
    return round(count / run.seconds, 1) if run.seconds else 0.0


def _step(step: Step) -> dict[str, Any]:
    accepted = step.run.tally.latencies_of(Kind.ACCEPTED)
    return {
        "rate": step.rate,
        "mostAtOnce": step.run.most_at_once,
        "acceptedPerSecond": per_second(step.run, step.run.tally.kinds[Kind.ACCEPTED]),
        "p99Ms": round(accepted.percentile_ms(0.99), 3),
        "passed": step.passed,
        "why": step.why_not,
    }


def _latencies(latencies: Latencies) -> dict[str, float | int]:
    shown = {name.replace(".", "_"): round(value, 3) for name, value in latencies.summary_ms().items()}
    return {"count": latencies.count, **shown}


def _point(point: Point) -> dict[str, Any]:
    return {
        "atSeconds": round(point.at_seconds, 3),
        "seconds": round(point.seconds, 3),
        "ended": {str(kind): count for kind, count in point.kinds.items()},
        "p50Ms": round(point.p50_ms, 3),
        "p99Ms": round(point.p99_ms, 3),
    }


def cells(step: Step) -> Sequence[str]:
    """One row of the table of steps, as STEP_TITLES has it."""
    latencies = step.run.tally.latencies_of(Kind.ACCEPTED)
    return (
        f"{step.rate:,g}",
        f"{per_second(step.run, step.run.tally.kinds[Kind.ACCEPTED]):,.0f}",
        milliseconds(latencies.percentile_ms(0.5)),
        milliseconds(latencies.percentile_ms(0.99)),
        f"{step.run.most_at_once:,}",
        f"{generator_of(step.run).cpu_share:.0%}",
        "ok" if step.passed else f"too much: {step.why_not}",
    )


STEP_TITLES = ("rate/s", "accepted/s", "p50 ms", "p99 ms", "at once", "generator", "verdict")


def milliseconds(value: float) -> str:
    """As many digits as help."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"
