"""The report as one HTML page: styles and plots are in it, nothing is loaded from elsewhere, and no script runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

import holdfast
from holdfast.cli.load import plots
from holdfast.cli.load.latencies import PERCENTILES, Latencies
from holdfast.cli.load.limit import Limit
from holdfast.cli.load.result import (
    STEP_TITLES,
    cells,
    latency_rows,
    milliseconds,
    per_second,
    points,
    rows,
)
from holdfast.cli.load.run import Run
from holdfast.cli.load.tally import Kind
from holdfast.cli.load.text import generator_line, hints, how, limit_verdict, percent
from holdfast.cli.load.verdicts import generator_of
from holdfast.model.timestamps import format_rfc3339

_STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1f2933; --faint: #616e7c; --rule: #d9dfe5; --card: #f5f7fa;
  --accepted: #1769aa; --backpressure: #d98e04; --failed: #c0392b; --refused: #8e44ad; --none: #616e7c;
  --low: #2a9d8f; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #14181d; --ink: #e4e9ee; --faint: #9aa5b1; --rule: #323b45; --card: #1d232a;
    --accepted: #5aa9e6; --backpressure: #f2b544; --failed: #ef6f61; --refused: #c58be0; --none: #9aa5b1;
    --low: #5cc8ba; }
}
body { margin: 0 auto; max-width: 60rem; padding: 2rem 1rem; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1.15rem; margin: 2.5rem 0 .75rem; }
p { margin: .4rem 0; } .faint { color: var(--faint); }
.warn { border-left: 4px solid var(--failed); padding-left: .75rem; }
.verdict { font-size: 1.15rem; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)); gap: .75rem; margin: 1.25rem 0; }
.cards div { background: var(--card); border-radius: .5rem; padding: .75rem 1rem; }
.cards b { display: block; font-size: 1.4rem; } .cards span { color: var(--faint); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .3rem .6rem; border-bottom: 1px solid var(--rule); white-space: nowrap; }
th { color: var(--faint); font-weight: 600; } .w { text-align: left; white-space: normal; overflow-wrap: anywhere; }
figure { margin: 1rem 0; } figcaption { font-weight: 600; } figcaption small { font-weight: 400; color: var(--faint); }
figcaption span { margin-left: 1rem; }
figcaption i { display: inline-block; width: .7em; height: .7em; margin-right: .35em; }
svg { display: block; width: 100%; height: auto; } svg text { fill: var(--faint); font-size: 11px; }
.grid { stroke: var(--rule); } .bound { stroke: var(--failed); stroke-dasharray: 5 4; }
.line { fill: none !important; stroke-width: 2; }
"""

# Name of a series -> its colour. A series colours shapes, lines and its mark in the legend alike.
_COLOURS = {
    Kind.ACCEPTED: "accepted",
    Kind.BACKPRESSURE: "backpressure",
    Kind.FAILED: "failed",
    Kind.REFUSED: "refused",
    Kind.NO_ANSWER: "none",
    "p50": "low",
    "p99": "accepted",
    "latency": "accepted",
    "bar": "accepted",
    "passed": "low",
    "too much": "failed",
    "offered": "none",
}


def run_page(run: Run, url: str, settings: Mapping[str, object]) -> str:
    title = f"{run.sent:,} requests to {url}"
    interrupted = ["<p class=warn>It was interrupted.</p>"] if run.interrupted else []
    return _page(title, run, [*interrupted, *_run_sections(run), _settings(settings)])


def limit_page(limit: Limit, url: str, settings: Mapping[str, object]) -> str:
    verdict = [f"<p class=verdict>{escape(line)}</p>" for line in limit_verdict(limit) if line]
    sections = [*verdict, *_limit_plots(limit), "<h2>Steps</h2>", _steps(limit)]
    if limit.safe is not None:
        sections += [f"<h2>At the safe limit, {limit.safe.rate:,g} a second</h2>", *_run_sections(limit.safe.run)]
    first = limit.steps[0].run if limit.steps else None
    return _page(f"How much {url} bears", first, [*sections, _settings(settings)])


def _page(title: str, run: Run | None, sections: Sequence[str]) -> str:
    when = f"{format_rfc3339(run.started_at_ns // 10**9 * 10**9)}, " if run else ""
    colours = "".join(
        f".{plots.css_class(name)} {{ fill: var(--{colour}); stroke: none; background: var(--{colour}); }} "
        f".line.{plots.css_class(name)} {{ stroke: var(--{colour}); background: none; }}\n"
        for name, colour in _COLOURS.items()
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}{colours}</style>\n</head>\n<body>\n"
        f"<h1>{escape(title)}</h1>\n<p class=faint>{when}holdfast load {escape(holdfast.__version__)}</p>\n"
        + "\n".join(sections)
        + "\n</body>\n</html>\n"
    )


# A run.


def _run_sections(run: Run) -> list[str]:
    warn = " class=warn" if generator_of(run).is_the_limit else ""
    return [
        _cards(run),
        *(f"<p class=warn>{escape(line)}</p>" for line in hints(run) if line),
        f"<p{warn}>{escape(generator_line(run))}</p>",
        "<h2>Answers</h2>",
        _answers(run),
        _outcomes(run),
        "<h2>Over time</h2>",
        _throughput(run),
        _latency_over_time(run),
        "<h2>Latency</h2>",
        _latency_table(run),
        _histogram(run.tally.all_latencies()),
        _percentiles(run.tally.all_latencies()),
    ]


def _cards(run: Run) -> str:
    latencies = run.tally.latencies_of(Kind.ACCEPTED)
    shown = [
        (f"{per_second(run, run.tally.answered):,.0f}/s", "answered"),
        (f"{per_second(run, run.tally.kinds[Kind.ACCEPTED]):,.0f}/s", "accepted"),
        (f"{milliseconds(latencies.percentile_ms(0.5))} ms", "p50 of accepted"),
        (f"{milliseconds(latencies.percentile_ms(0.99))} ms", "p99 of accepted"),
        (f"{run.seconds:.2f} s", how(run.plan)),
    ]
    return (
        '<div class="cards">' + "".join(f"<div><b>{b}</b><span>{escape(s)}</span></div>" for b, s in shown) + "</div>"
    )


def _answers(run: Run) -> str:
    shown = [
        (
            f"no answer, {row.name}" if row.kind is Kind.NO_ANSWER else row.name,
            f"{row.count:,}",
            percent(row.share),
            row.meaning + (f" ({row.example})" if row.example else ""),
        )
        for row in rows(run)
    ]
    return _table(("answer", "count", "share", "what it means"), shown, words={0, 3})


def _outcomes(run: Run) -> str:
    shown = [(name, f"{count:,}") for name, count in run.tally.outcomes.most_common()]
    return "<h2>Outcomes</h2>" + _table(("outcome", "count"), shown, words={0}) if shown else ""


def _throughput(run: Run) -> str:
    kinds = [kind for kind in Kind if run.tally.kinds[kind]]
    columns = [(point.at_seconds, point.seconds, [point.per_second(kind) for kind in kinds]) for point in points(run)]
    return plots.stacked("Requests that ended, a second", kinds, columns)


def _latency_over_time(run: Run) -> str:
    answered = [point for point in points(run) if point.p99_ms]
    middle = [(point.at_seconds + point.seconds / 2, point) for point in answered]
    return plots.lines(
        "Latency of the answers",
        [
            plots.Line("p99", [(at, point.p99_ms) for at, point in middle]),
            plots.Line("p50", [(at, point.p50_ms) for at, point in middle]),
        ],
        x_title="seconds since the start",
        y_title="ms",
        x_end=run.seconds,
    )


def _latency_table(run: Run) -> str:
    titles = ["ms", "count", *Latencies().summary_ms()]
    shown = [
        (name, f"{latencies.count:,}", *(milliseconds(value) for value in latencies.summary_ms().values()))
        for name, latencies in latency_rows(run)
    ]
    return _table(titles, shown, words={0})


def _histogram(latencies: Latencies) -> str:
    bars = latencies.bars()
    labels = [f"{bar.from_ms:g}" for bar in bars] + [f"{bars[-1].to_ms:g}" if bars else ""]
    return plots.histogram("How many answers took how long", labels, [bar.count for bar in bars], "ms")


def _percentiles(latencies: Latencies) -> str:
    """Across: 1 in 2, 1 in 10, 1 in 100 … are slower. That way the slow end has as much room as the rest."""
    if not latencies.count:
        return ""
    slower = [2.0 ** (step / 2) for step in range(1, math.ceil(math.log2(max(latencies.count, 2)) * 2) + 1)]
    curve = [(one_in, latencies.percentile_ms(1 - 1 / one_in)) for one_in in slower]
    return plots.lines(
        "One request in so many took longer",
        [plots.Line("latency", curve)],
        x_title=f"one in … ({', '.join(f'{name} is one in {1 / (1 - share):,.0f}' for name, share in _NAMED)})",
        y_title="ms",
        log_x=True,
    )


_NAMED = [(name, share) for name, share in PERCENTILES.items() if name in ("p90", "p99", "p99.9")]


# A limit.


def _limit_plots(limit: Limit) -> list[str]:
    def dots(passed: bool) -> list[tuple[float, float]]:
        return [
            (step.rate, step.run.tally.latencies_of(Kind.ACCEPTED).percentile_ms(0.99))
            for step in limit.steps
            if step.passed == passed and step.run.tally.kinds[Kind.ACCEPTED]
        ]

    in_order = sorted(limit.steps, key=lambda step: step.rate)
    accepted = [(step.rate, per_second(step.run, step.run.tally.kinds[Kind.ACCEPTED])) for step in in_order]
    across = "offered requests a second"
    return [
        plots.lines(
            f"p99 of accepted messages; the dashed line is the bound, {limit.bounds.max_p99_ms:g} ms",
            [plots.Line("passed", dots(True), dots=True), plots.Line("too much", dots(False), dots=True)],
            x_title=across,
            y_title="ms",
            log_x=True,
            log_y=True,
            bound=limit.bounds.max_p99_ms,
        ),
        plots.lines(
            "What was offered, and what was accepted",
            [
                plots.Line("offered", [(rate, rate) for rate, _ in accepted]),
                plots.Line(Kind.ACCEPTED, accepted, dots=True),
            ],
            x_title=across,
            y_title="requests a second",
        ),
    ]


def _steps(limit: Limit) -> str:
    return _table(STEP_TITLES, [cells(step) for step in limit.steps], words={len(STEP_TITLES) - 1})


# Tables.


def _settings(settings: Mapping[str, object]) -> str:
    shown = [(name, str(value)) for name, value in settings.items() if value is not None]
    return "<h2>Settings</h2>" + _table(("option", "value"), shown, words={0, 1})


def _table(titles: Sequence[str], shown: Sequence[Sequence[str]], *, words: set[int]) -> str:
    def line(tag: str, values: Sequence[str]) -> str:
        return "".join(
            f"<{tag}{' class=w' if place in words else ''}>{escape(value)}</{tag}>"
            for place, value in enumerate(values)
        )

    body = "".join(f"<tr>{line('td', values)}</tr>" for values in shown)
    return f'<div class="wide"><table><tr>{line("th", titles)}</tr>{body}</table></div>'
