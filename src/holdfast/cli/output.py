"""Tables for people, JSON for programs."""

from __future__ import annotations

import json
import os
import sys
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

# A cell is cut here: a table that wraps cannot be read.
LONGEST_CELL = 60


def print_json(value: Any) -> None:
    """Letters of every script stay readable; what could steer a terminal is escaped, as JSON can."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    click.echo("".join(char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in text))


def print_table(titles: Sequence[str], rows: Sequence[Sequence[object]], *, whole: bool = False) -> None:
    """With `whole`, no cell is cut: for tables whose last column must be read to its end."""
    cells = [[_line(value) if whole else _cut(_line(value)) for value in row] for row in rows]
    widths = [max(width_of(line[column]) for line in [list(titles), *cells]) for column in range(len(titles))]
    for line in [[title.upper() for title in titles], *cells]:
        padded = (value + " " * (width - width_of(value)) for value, width in zip(line, widths, strict=True))
        click.echo("  ".join(padded).rstrip())


def print_fields(fields: Sequence[tuple[str, object]]) -> None:
    shown = [(printable(name), printable(str(value))) for name, value in fields]
    width = max(len(name) for name, _ in shown)
    for name, value in shown:
        click.echo(f"{name.ljust(width)}  {value}")


def _line(value: object) -> str:
    return printable(" ".join(str(value).split()))


def _cut(text: str) -> str:
    """To as many columns of a terminal."""
    if width_of(text) <= LONGEST_CELL:
        return text
    while width_of(text) >= LONGEST_CELL:
        text = text[:-1]
    return text + "…"


def width_of(text: str) -> int:
    """In columns of a terminal: a Chinese letter or an emoji takes two, and an accent of its own takes none."""
    if text.isascii():
        return len(text)
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else not unicodedata.combining(char) for char in text)


def printable(text: str) -> str:
    """Control characters of a hostile message must not reach a terminal."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def myself() -> str:
    """As the user can type it: a virtual environment that is not active needs the path."""
    program = Path(sys.argv[0])
    if program.name != "holdfast":
        return "holdfast"
    on_path = [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep)]
    if program.parent.absolute() in on_path:
        return "holdfast"
    return os.path.relpath(program)
