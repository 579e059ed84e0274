"""Writes the results: a JSON file and a plot for each part, and one Markdown page over all parts measured so far."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.figures import Comparison, Part, Series, Usage

HEAD = """# Benchmark results

Written by `make bench`; do not edit. Every peer was started in the same run and measured in turn with Holdfast. A
figure is the median of its rounds, with the smallest and the largest behind it. A ratio says how many times as good as
the peer Holdfast is, so more is better for rates and times alike; where both are near nothing, the difference stands
there. Where Holdfast is its own peer, the cell says in which state. CPU and memory are the server's; a generator that
uses about as many cores as the machine has would be what was measured, and the notes then say so. "On a busy machine"
means that other programs took cores away meanwhile: measure again before believing it. Messages have 256 bytes of data
and two attributes, and one subscription waits for them where the measure does not say otherwise.
"""


def write_part(results: Path, part: Part, picture: str) -> None:
    results.mkdir(parents=True, exist_ok=True)
    text = json.dumps(part.to_json(), indent=2, ensure_ascii=False)
    (results / f"{part.name}.json").write_text(f"{text}\n")
    (results / f"{part.name}.svg").write_text(picture)


def read_parts(results: Path, order: Sequence[str]) -> list[Part]:
    """Of those that were ever measured. A part that is no more is not read."""
    paths = [results / f"{name}.json" for name in order]
    return [Part.from_json(json.loads(path.read_text())) for path in paths if path.exists()]


def write_markdown(results: Path, order: Sequence[str]) -> None:
    sections = [HEAD, *(_section(part) for part in read_parts(results, order))]
    (results / "results.md").write_text("\n".join(sections))


def summary(parts: Sequence[Part]) -> str:
    """For the terminal: the tables alone."""
    return "\n\n".join(comparison_table(part.comparisons) for part in parts)


def _section(part: Part) -> str:
    return "\n".join(
        [
            f"## {part.name}",
            "",
            comparison_table(part.comparisons),
            "",
            f"![{part.name}]({part.name}.svg)",
            "",
            _cost_table(part.comparisons),
            "",
            measured(part),
            "",
        ]
    )


def measured(part: Part) -> str:
    return f"Measured in {part.seconds:.0f} s. {environment_text(part.environment)}"


def environment_text(environment: Mapping[str, str]) -> str:
    words = "; ".join(f"{name} {value}" for name, value in environment.items() if value)
    return f"{words[:1].upper()}{words[1:]}."


def comparison_table(comparisons: Sequence[Comparison]) -> str:
    peers = {comparison.peer.contestant for comparison in comparisons if comparison.peer}
    only = peers.pop() if len(peers) == 1 else ""
    rows = [
        [
            one.title,
            _values(one.ours, one.unit),
            _peer(one, name_it=not only),
            _ratio(one),
            one.bar.text(one.unit),
            verdict(one),
        ]
        for one in comparisons
    ]
    return table(["measure", "Holdfast", only or "peer", "ratio", "bar", ""], rows)


def verdict(one: Comparison) -> str:
    return one.verdict if one.met else f"**{one.verdict}**"


def _cost_table(comparisons: Sequence[Comparison]) -> str:
    rows: dict[tuple[str, Usage], list[str]] = {}
    for comparison in comparisons:
        for series in (comparison.ours, comparison.peer):
            if series is not None:  # one run can give two figures, or be the peer of two: its costs are told once
                rows.setdefault((series.contestant, series.usage), [comparison.title, *_costs(series)])
    head = ["measure", "server", "CPU s", "cores", "CPU µs/msg", "peak RSS MB", "generator cores", "notes"]
    return table(head, list(rows.values()))


def _costs(series: Series) -> list[str]:
    usage = series.usage
    return [
        series.contestant,
        f"{usage.server_cpu_seconds:.2f}",
        f"{usage.server_cores:.2f}",
        f"{usage.server_cpu_us_per_message:.1f}" if usage.server_cpu_us_per_message else "",
        f"{usage.server_peak_rss_mb:.0f}",
        f"{usage.generator_cores:.2f}",
        "; ".join(series.notes),
    ]


def _values(series: Series, unit: str) -> str:
    low, high = number(min(series.values)), number(max(series.values))
    return f"{number(series.median)} {unit}".rstrip() + f" ({low} to {high})"


def _peer(comparison: Comparison, *, name_it: bool) -> str:
    if comparison.peer is None:
        return ""
    values = _values(comparison.peer, comparison.unit)
    return f"{comparison.peer.contestant}: {values}" if name_it else values


def _ratio(comparison: Comparison) -> str:
    if comparison.difference is not None:
        return f"{comparison.difference:+.2f} {comparison.unit}"
    if comparison.ratio is None:
        return ""
    low, high = min(comparison.ratios_by_round), max(comparison.ratios_by_round)
    return f"{number(comparison.ratio)}x ({number(low)} to {number(high)})"


def number(value: float) -> str:
    """Three figures are more than a benchmark knows."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
