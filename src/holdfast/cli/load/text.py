"""The summary for a terminal."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from holdfast.cli.load.latencies import Latencies
from holdfast.cli.load.limit import Ending, Limit
from holdfast.cli.load.result import STEP_TITLES, Row, cells, latency_rows, milliseconds, per_second, rows
from holdfast.cli.load.run import Plan, Run
from holdfast.cli.load.tally import Kind
from holdfast.cli.load.verdicts import ABOUT_401, generator_of

_BAR_WIDTH = 40


def run_lines(run: Run, url: str) -> list[str]:
    return [
        _headline(run, url),
        *_rates(run),
        *_latency_table(run),
        *_histogram(run.tally.all_latencies()),
        *_answers(run),
        *_outcomes(run),
        "",
        generator_line(run),
        *hints(run),
    ]


def limit_lines(limit: Limit, url: str) -> list[str]:
    return [
        f"How much {url} bears: {_bounds(limit)}",
        "",
        *table(STEP_TITLES, [cells(step) for step in limit.steps], words={len(STEP_TITLES) - 1}),
        "",
        *limit_verdict(limit),
    ]


# A run.


def _headline(run: Run, url: str) -> str:
    start = "interrupted: " if run.interrupted else ""
    return f"{start}{run.sent:,} requests to {url} in {run.seconds:.2f} s, {how(run.plan)}"


def how(plan: Plan) -> str:
    at_once = f"{plan.concurrency:,} at once" if plan.rate is None else f"at most {plan.concurrency:,} at once"
    return at_once if plan.rate is None else f"{plan.rate:,g} a second, {at_once}"


def _rates(run: Run) -> list[str]:
    tally = run.tally
    lines = [
        f"answered  {per_second(run, tally.answered):>10,.0f}/s",
        f"accepted  {per_second(run, tally.kinds[Kind.ACCEPTED]):>10,.0f}/s",
    ]
    if run.redelivered:
        lines.append(f"redelivered  {run.redelivered:,} of them were sent before")
    if run.unsent:
        lines.append(f"not sent  {run.unsent:,} were due, and all connections were busy to the end")
    if run.given_up:
        lines.append(f"given up  {run.given_up:,} were still under way")
    return lines


def _latency_table(run: Run) -> list[str]:
    shown = [
        (name, f"{latencies.count:,}", *(milliseconds(value) for value in latencies.summary_ms().values()))
        for name, latencies in latency_rows(run)
    ]
    if not shown:
        return []
    titles = ["latency, ms", "count", *Latencies().summary_ms()]
    return ["", *table(titles, shown, words={0})]


def _histogram(latencies: Latencies) -> list[str]:
    bars = latencies.bars()
    if not bars:
        return []
    most = max(bar.count for bar in bars)
    labels = [f"{bar.from_ms:g} to {bar.to_ms:g} ms" for bar in bars]
    width, digits = max(map(len, labels)), max(len(f"{bar.count:,}") for bar in bars)
    return [
        "",
        *(
            f"{label:>{width}}  {bar.count:>{digits},}  {'█' * _bar_length(bar.count, most)}".rstrip()
            for label, bar in zip(labels, bars, strict=True)
        ),
    ]


def _bar_length(count: int, most: int) -> int:
    """One that is not empty shows."""
    return max(round(count / most * _BAR_WIDTH), 1 if count else 0)


def _answers(run: Run) -> list[str]:
    found = rows(run)
    if not found:
        return ["", "nothing has ended yet"]
    shown = [(_name(row), f"{row.count:,}", percent(row.share), row.meaning) for row in found]
    lines = ["", *table(("answer", "count", "share", "what it means"), shown, words={0, 3})]
    return [*lines, *(f"  {_name(row)}: {row.example}" for row in found if row.example)]


def _name(row: Row) -> str:
    return f"none, {row.name}" if row.kind is Kind.NO_ANSWER else row.name


def _outcomes(run: Run) -> list[str]:
    outcomes = run.tally.outcomes.most_common()
    return [f"outcomes: {', '.join(f'{name} {count:,}' for name, count in outcomes)}"] if outcomes else []


def generator_line(run: Run) -> str:
    generator = generator_of(run)
    own = f"generator: {generator.cpu_share:.0%} of a core, {generator.microseconds_per_request:.0f} µs a request"
    if not generator.can_tell:
        return f"{own}; the run was too short to tell whether it was the limit"
    if not generator.is_the_limit:
        return f"{own}; it was not the limit"
    late = f" and was {generator.late_p99_ms:.0f} ms late (p99)" if generator.late_p99_ms >= 1 else ""
    return (
        f"{own}. It waited for a processor {generator.starved_share:.0%} of the time{late}. IT WAS THE LIMIT, or part "
        "of it: the endpoint may bear more. Run it on another machine, or on several"
    )


def hints(run: Run) -> list[str]:
    lines = []
    if run.tally.statuses[401]:
        lines.append(ABOUT_401)
    if run.unsent:
        lines.append("Requests waited for a connection. Where that is not what you measure, raise --concurrency.")
    return ["", *lines] if lines else []


def percent(share: float) -> str:
    """Never 100 when something is missing, nor 0 when something is there."""
    if 0.9995 <= share < 1:
        return "99.9 %"
    return f"{share * 100:.1f} %" if share >= 0.001 else f"{share * 100:.3f} %"


# A limit.


def limit_verdict(limit: Limit) -> list[str]:
    safe, too_much = limit.safe, limit.too_much
    if safe is None:
        return [f"no safe limit: {_why_none(limit)}", *(hints(limit.steps[-1].run) if limit.steps else [])]
    p99 = milliseconds(safe.run.tally.latencies_of(Kind.ACCEPTED).percentile_ms(0.99))
    at_once = f"at most {safe.run.most_at_once:,} under way at once"
    lines = [f"safe limit: {safe.rate:,g} requests a second, which had {at_once} (p99 {p99} ms)"]
    if too_much is not None:
        lines.append(f"too much: {too_much.rate:,g} a second ({too_much.why_not})")
    return [*lines, *_endings(limit.ending)]


def _bounds(limit: Limit) -> str:
    bounds = limit.bounds
    errors = f"at most {bounds.max_errors * 100:g} % not accepted" if bounds.max_errors else "all accepted"
    return f"{errors}, with a p99 of at most {bounds.max_p99_ms:g} ms"


def _endings(ending: Ending) -> list[str]:
    match ending:
        case Ending.FOUND | Ending.HOPELESS:
            return []
        case Ending.GENERATOR:
            return ["The generator was the limit: the endpoint bears at least this. Use another machine for more."]
        case Ending.TIME:
            return ["The time was up: the limit may lie higher. Give more with --duration."]
        case Ending.INTERRUPTED:
            return ["It was interrupted: the limit may lie higher."]


def _why_none(limit: Limit) -> str:
    if not limit.steps:
        return "no step was finished"
    lowest = min(limit.steps, key=lambda step: step.rate)
    return f"{lowest.rate:,g} a second is too much already ({lowest.why_not})"


# Tables.


def table(titles: Sequence[str], shown: Sequence[Sequence[str]], *, words: Collection[int]) -> list[str]:
    """Numbers to the right; the columns of words, by their places, to the left."""
    lines = [[title.upper() for title in titles], *map(list, shown)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(titles))]
    return [
        "  ".join(
            value.ljust(width) if column in words else value.rjust(width)
            for column, (value, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
