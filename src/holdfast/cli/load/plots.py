"""Plots as SVG, written by hand. Colours are the page's, by CSS classes, so that light and dark both work."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 720, 240
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 12, 40
_INNER_WIDTH, _INNER_HEIGHT = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
_DIGIT_WIDTH = 8  # at most

_TICKS = 5


@dataclass(frozen=True, slots=True)
class Line:
    """`name` is also the CSS class that colours it. With `dots`, points that are no line."""

    name: str
    points: Sequence[tuple[float, float]]
    dots: bool = False


@dataclass(frozen=True, slots=True)
class Scale:
    """From values to pixels."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    def __call__(self, value: float) -> float:
        if self.logarithmic:
            share = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[float]:
        if not self.logarithmic:
            step = _round_step((self.high - self.low) / _TICKS)
            first = math.ceil(self.low / step - 1e-9)
            return [place * step for place in range(first, math.floor(self.high / step + 1e-9) + 1)]
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        found = [digit * 10.0**decade for decade in decades for digit in (1, 2, 5)]
        shown = [tick for tick in found if self.low * 0.999 <= tick <= self.high * 1.001]
        whole = [tick for tick in shown if math.isclose(math.log10(tick) % 1, 0, abs_tol=1e-9)]
        return whole if len(shown) > 2 * _TICKS else shown


def lines(
    title: str,
    shown: Sequence[Line],
    *,
    x_title: str,
    y_title: str,
    log_x: bool = False,
    log_y: bool = False,
    bound: float | None = None,
    x_end: float | None = None,
) -> str:
    """`bound` is drawn as a dashed line across. `x_end` is where the plot ends, instead of at a round number."""
    points = [point for line in shown for point in line.points]
    if not points:
        return ""
    x = _scale([at for at, _ in points], LEFT, WIDTH - RIGHT, logarithmic=log_x)
    if x_end is not None:
        x = Scale(0.0, x_end, LEFT, WIDTH - RIGHT)
    heights = [value for _, value in points] + ([] if bound is None else [bound])
    y = _scale(heights, HEIGHT - BOTTOM, TOP, logarithmic=log_y)
    parts = [_grid(x, y, x_title, y_title)]
    if bound is not None:
        parts.append(f'<line class="bound" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(bound):.1f}" y2="{y(bound):.1f}"/>')
    parts += [_dots(line, x, y) if line.dots else _path(line, x, y) for line in shown]
    return _figure(title, [line.name for line in shown], "".join(parts))


def stacked(title: str, names: Sequence[str], columns: Sequence[tuple[float, float, Sequence[float]]]) -> str:
    """A column has a start, a width and a height for each name."""
    if not columns:
        return ""
    x = Scale(0.0, max(start + width for start, width, _ in columns), LEFT, WIDTH - RIGHT)
    y = _scale([sum(heights) for _, _, heights in columns], HEIGHT - BOTTOM, TOP, logarithmic=False)
    parts = [_grid(x, y, "seconds since the start", "requests a second")]
    for start, width, heights in columns:
        top = 0.0
        for name, height in zip(names, heights, strict=True):
            if height:
                parts.append(_rectangle(name, x(start), x(start + width), y(top + height), y(top)))
                top += height
    return _figure(title, names, "".join(parts))


def histogram(title: str, labels: Sequence[str], counts: Sequence[int], x_title: str) -> str:
    """Labels stand at the left edges of the bars, and the last one at the end: one more than counts."""
    if not counts:
        return ""
    y = _scale([float(count) for count in counts], HEIGHT - BOTTOM, TOP, logarithmic=False)
    each = _INNER_WIDTH / len(counts)
    every = math.ceil(len(labels) / 14)
    parts = [_rows(y, "requests"), _x_title(x_title)]
    for place, count in enumerate(counts):
        left = LEFT + place * each
        parts.append(_rectangle("bar", left + 1, left + each - 1, y(count), y(0), title=f"{count:,}"))
    parts += [_x_label(LEFT + place * each, label) for place, label in enumerate(labels) if place % every == 0]
    return _figure(title, [], "".join(parts))


# Parts of a plot.


def _figure(title: str, names: Sequence[str], inside: str) -> str:
    legend = "".join(f'<span><i class="{css_class(name)}"></i>{escape(name)}</span>' for name in names)
    return (
        f"<figure><figcaption>{escape(title)}<small>{legend}</small></figcaption>"
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title, quote=True)}">{inside}</svg>'
        "</figure>"
    )


def css_class(name: str) -> str:
    return "c-" + "".join(char if char.isascii() and char.isalnum() else "-" for char in name.lower())


def _grid(x: Scale, y: Scale, x_title: str, y_title: str) -> str:
    columns = "".join(_x_label(x(tick), _number(tick)) for tick in x.ticks())
    return _rows(y, y_title) + columns + _x_title(x_title)


def _rows(y: Scale, title: str) -> str:
    rows = "".join(
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(tick):.1f}" y2="{y(tick):.1f}"/>'
        f'<text x="{LEFT - 6}" y="{y(tick) + 4:.1f}" text-anchor="end">{_number(tick)}</text>'
        for tick in y.ticks()
    )
    middle = TOP + _INNER_HEIGHT / 2
    return f'{rows}<text transform="rotate(-90)" x="{-middle:.0f}" y="13" text-anchor="middle">{escape(title)}</text>'


def _x_label(at: float, text: str) -> str:
    """Below its place, but no further right than the plot: a long number at the end of the axis would be cut."""
    at = min(at, WIDTH - len(text) * _DIGIT_WIDTH / 2)
    return f'<text x="{at:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{escape(text)}</text>'


def _x_title(text: str) -> str:
    return f'<text x="{LEFT + _INNER_WIDTH / 2:.0f}" y="{HEIGHT - 5}" text-anchor="middle">{escape(text)}</text>'


def _rectangle(name: str, left: float, right: float, top: float, bottom: float, *, title: str = "") -> str:
    told = f"<title>{escape(title)}</title>" if title else ""
    width, height = max(right - left, 0.5), max(bottom - top, 0.0)
    place = f'x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}"'
    return f'<rect class="{css_class(name)}" {place}>{told}</rect>'


def _path(line: Line, x: Scale, y: Scale) -> str:
    places = " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in line.points)
    if len(line.points) == 1:
        return _dots(line, x, y)
    return f'<polyline class="line {css_class(line.name)}" points="{places}"/>'


def _dots(line: Line, x: Scale, y: Scale) -> str:
    return "".join(
        f'<circle class="{css_class(line.name)}" cx="{x(at):.1f}" cy="{y(value):.1f}" r="5">'
        f"<title>{_number(at)}: {_number(value)}</title></circle>"
        for at, value in line.points
    )


# Scales.


def _scale(values: Sequence[float], start: float, end: float, *, logarithmic: bool) -> Scale:
    most = max(values)
    if not logarithmic:
        return Scale(0.0, _above(most), start, end)
    positive = [value for value in values if value > 0] or [1.0]
    low = 10.0 ** math.floor(math.log10(min(positive)))
    high = max(positive)
    # At least a decade, and a little room above the highest point.
    return Scale(low, max(high * 1.25, low * 10), start, end, logarithmic=True)


def _above(most: float) -> float:
    """The first round number that is not below."""
    if most <= 0:
        return 1.0
    step = _round_step(most / _TICKS)
    return math.ceil(most / step - 1e-9) * step


def _round_step(rough: float) -> float:
    decade = 10.0 ** math.floor(math.log10(rough))
    return next(step * decade for step in (1, 2, 2.5, 5, 10) if step * decade >= rough * (1 - 1e-9))


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
