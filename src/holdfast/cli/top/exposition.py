"""Reads Prometheus' text format, as a Holdfast process writes it."""

from __future__ import annotations

import re
from collections.abc import Mapping

# Of one metric: values of its labels, in the order in which they are written, and the number.
Samples = Mapping[tuple[str, ...], float]

_LINE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'[a-zA-Z_][a-zA-Z0-9_]*="((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")


def read(text: str) -> Mapping[str, Samples]:
    """By the name of the metric. ValueError for what is not in this format."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for line in text.split("\n"):
        if not line or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if not match:
            raise ValueError(f"{line[:80]!r} is no sample of a metric")
        labels = tuple(_unescaped(value) for value in _LABEL.findall(match[2] or ""))
        found.setdefault(match[1], {})[labels] = float(match[3])
    return found


def _unescaped(value: str) -> str:
    if "\\" not in value:
        return value
    return _ESCAPED.sub(lambda found: "\n" if found[1] == "n" else found[1], value)
