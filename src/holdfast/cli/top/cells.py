"""Numbers, times and tables in the narrow columns of a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from holdfast.cli.output import printable, width_of

UNKNOWN = "-"
GAP = "  "


class Style(StrEnum):
    """What a terminal is sent to begin it."""

    PLAIN = ""
    BOLD = "\x1b[1m"
    DIM = "\x1b[2m"
    TITLE = "\x1b[7m"
    WARNING = "\x1b[33m"
    CRITICAL = "\x1b[1;31m"


@dataclass(frozen=True, slots=True)
class Cell:
    text: str
    style: Style = Style.PLAIN


# A line is its cells, one after the other.
Line = list[Cell]


@dataclass(frozen=True, slots=True)
class Column:
    """Of those that do not fit, the ones of the highest `rank` go first. One with a `least` width may be cut to it, in
    the middle where both ends tell something."""

    title: str
    rank: int = 0
    left: bool = False
    least: int = 0
    middle: bool = False


def table(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], width: int | None) -> list[Line]:
    """A title, then the rows. Without a width nothing is cut."""
    shown = _fitting(columns, rows, width)
    widths = _widths(columns, rows, shown, width)
    lines = [_line([Cell(column.title.upper(), Style.DIM) for column in columns], columns, shown, widths)]
    return lines + [_line(row, columns, shown, widths) for row in rows]


def _natural(number: int, columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> int:
    return max(len(columns[number].title), *(width_of(row[number].text) for row in rows), 0)


def _fitting(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], width: int | None) -> list[int]:
    shown = list(range(len(columns)))
    if width is None:
        return shown

    def needed() -> int:
        least = [
            min(columns[one].least, _natural(one, columns, rows))
            if columns[one].least
            else _natural(one, columns, rows)
            for one in shown
        ]
        return sum(least) + len(GAP) * (len(shown) - 1)

    while len(shown) > 1 and needed() > width:
        last = max(shown, key=lambda one: (columns[one].rank, one))
        if not columns[last].rank:
            break
        shown.remove(last)
    return shown


def _widths(
    columns: Sequence[Column], rows: Sequence[Sequence[Cell]], shown: Sequence[int], width: int | None
) -> dict[int, int]:
    """What there is too little of is taken from those that may be cut, the last one first."""
    widths = {one: _natural(one, columns, rows) for one in shown}
    if width is None:
        return widths
    over = sum(widths.values()) + len(GAP) * (len(shown) - 1) - width
    for one in reversed([one for one in shown if columns[one].least]):
        if over > 0:
            less = min(over, max(widths[one] - columns[one].least, 0))
            widths[one] -= less
            over -= less
    return widths


def _line(row: Sequence[Cell], columns: Sequence[Column], shown: Sequence[int], widths: dict[int, int]) -> Line:
    line: Line = []
    for one in shown:
        text = (cut_in_the_middle if columns[one].middle else cut)(row[one].text, widths[one])
        room = " " * (widths[one] - width_of(text))
        if line:
            line.append(Cell(GAP))
        line.append(Cell(text + room if columns[one].left else room + text, row[one].style))
    return line


def cut(text: str, most: int) -> str:
    """To as many columns of a terminal."""
    text = printable(" ".join(text.split()))
    if width_of(text) <= most:
        return text
    while text and width_of(text) > most - 1:
        text = text[:-1]
    return f"{text}…" if most > 0 else ""


def cut_in_the_middle(text: str, most: int) -> str:
    text = printable(" ".join(text.split()))
    if width_of(text) <= most or most < 4 or not text.isascii():
        return cut(text, most)
    end = most // 2
    return f"{text[: most - end - 1]}…{text[-end:]}"


# Numbers.


def count(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e5, "k")):
        if value >= size:
            return f"{value / (1e3 if unit == 'k' else size):.{0 if unit == 'k' else 1}f}{unit}"
    return f"{value:.0f}"


def rate(value: float | None) -> str:
    """A 0 is told from very little."""
    if value is None:
        return UNKNOWN
    if value == 0:
        return "0"
    if value < 10:
        return f"{value:.1f}" if value >= 0.05 else "<0.1"
    return count(value)


def size(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    for unit in ("B", "kB", "MB"):
        if value < 1000:
            return f"{value:.0f} {unit}"
        value /= 1000
    return f"{value:.1f} GB"


def lasting(seconds: float | None) -> str:
    if seconds is None:
        return UNKNOWN
    if seconds < 1:
        return "0s" if seconds < 0.05 else f"{seconds:.1f}s"
    for size_, unit in ((86_400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size_:
            return f"{seconds / size_:.0f}{unit}"
    return f"{seconds:.0f}s"


def quick(seconds: float | None) -> str:
    if seconds is None:
        return UNKNOWN
    if seconds >= 1:
        return f"{seconds:.1f}s"
    milliseconds = seconds * 1000
    return f"{milliseconds:.0f}ms" if milliseconds >= 10 else f"{milliseconds:.1f}ms"


def share(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value * 100:.0f}%"
