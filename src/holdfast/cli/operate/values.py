"""What the operator commands take on their command line: durations, pairs and files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import IO

import click

from holdfast.errors import BadInput

_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)([smhd]?)", re.ASCII)
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


class Duration(click.ParamType[timedelta]):
    """90, 90s, 10m, 1.5h or 7d."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        if isinstance(value, timedelta):
            return value
        match = _DURATION.fullmatch(str(value))
        if match is None:
            self.fail(f"{value!r} is not a duration such as 30s, 10m, 12h or 7d", param, ctx)
        return timedelta(seconds=float(match[1]) * _SECONDS[match[2]])


DURATION = Duration()


def pairs(option: str, values: Sequence[str]) -> dict[str, str]:
    """KEY=VALUE, as often as given. A value may hold further equals signs."""
    found: dict[str, str] = {}
    for value in values:
        key, equals, rest = value.partition("=")
        if not equals or not key:
            raise BadInput(option, f"must look like KEY=VALUE, not {value!r}")
        if key in found:
            raise BadInput(option, f"{key!r} is given twice")
        found[key] = rest
    return found


def contents(option: str, file: IO[bytes]) -> bytes:
    try:
        return file.read()
    except OSError as error:
        raise BadInput(option, f"{file.name}: {error.strerror}") from error
