"""Bars as SVG, written by hand: a pair for each measure, on its own scale, with the bar to reach as a dashed line."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from bench.figures import Comparison, Series

WIDTH = 760
LEFT = 150
PLOT = 440  # pixels of the longest bar
ROW = 20
HEAD = 26
GAP = 16
OURS, PEER, MISSED, INK, FAINT = "#1769aa", "#9aa5b1", "#c0392b", "#1f2933", "#616e7c"


def bars(comparisons: Sequence[Comparison]) -> str:
    blocks: list[str] = []
    top = 10
    for comparison in comparisons:
        blocks.append(_block(comparison, top))
        top += HEAD + ROW * len(_series_of(comparison)) + GAP
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top}" width="{WIDTH}" height="{top}" '
        f'font-family="system-ui, sans-serif" font-size="12" role="img">\n'
        f'<rect width="{WIDTH}" height="{top}" fill="white"/>\n' + "\n".join(blocks) + "\n</svg>\n"
    )


def _block(comparison: Comparison, top: int) -> str:
    shown = _series_of(comparison)
    largest = max([max(series.values) for series in shown] + [comparison.target or 0.0])
    scale = PLOT / largest if largest else 0.0
    parts = [_title(comparison, top + 14)]
    rows = [(series, top + HEAD + ROW * index) for index, series in enumerate(shown)]
    parts += [_bar(series, y, scale, OURS if series is comparison.ours else PEER) for series, y in rows]
    if comparison.target is not None:
        parts.append(_target(LEFT + comparison.target * scale, top + HEAD - 3, ROW * len(shown) + 2))
    parts += [_labels(series, comparison.unit, y, scale) for series, y in rows]  # last, to stay readable over lines
    return "\n".join(parts)


def _series_of(comparison: Comparison) -> list[Series]:
    return [series for series in (comparison.ours, comparison.peer) if series is not None]


def _title(comparison: Comparison, y: int) -> str:
    colour = FAINT if comparison.met else MISSED
    better = "more" if comparison.better == "higher" else "less"
    return (
        f'<text x="10" y="{y}" fill="{INK}" font-weight="600">{escape(comparison.title)}'
        f'<tspan dx="6" fill="{FAINT}" font-weight="400">'
        f"({better} is better; bar {comparison.bar.text(comparison.unit)}: "
        f'</tspan><tspan fill="{colour}">{comparison.verdict}</tspan>'
        f'<tspan fill="{FAINT}" font-weight="400">)</tspan></text>'
    )


def _bar(series: Series, y: int, scale: float, colour: str) -> str:
    """With the spread of the rounds as a thin line over its end."""
    middle = y + ROW / 2 - 2
    low, high = LEFT + min(series.values) * scale, LEFT + max(series.values) * scale
    return (
        f'<rect x="{LEFT}" y="{y}" width="{max(series.median * scale, 1.0):.1f}" height="{ROW - 4}" fill="{colour}"/>'
        f'<line x1="{low:.1f}" x2="{high:.1f}" y1="{middle}" y2="{middle}" stroke="{INK}"/>'
    )


def _labels(series: Series, unit: str, y: int, scale: float) -> str:
    value = f"{series.median:,.0f}" if series.median >= 100 else f"{series.median:.2f}"
    return (
        f'<text x="{LEFT - 8}" y="{y + 12}" fill="{INK}" text-anchor="end">{escape(series.contestant)}</text>'
        f'<text x="{LEFT + max(series.values) * scale + 6:.1f}" y="{y + 12}" fill="{INK}" stroke="white" '
        f'stroke-width="3" paint-order="stroke">{value} {escape(unit)}</text>'
    )


def _target(x: float, y: int, height: int) -> str:
    return (
        f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{y}" y2="{y + height}" stroke="{MISSED}" stroke-width="1.5" '
        f'stroke-dasharray="4 3"/>'
    )
