"""How long something is, as people write it: 90s, 5m, 1h, 7d. Prometheus reads the same."""

from __future__ import annotations

import re

_UNITS = {"h": 3600, "m": 60, "s": 1}
_READ = {"d": 86_400, **_UNITS}


def seconds_of(text: str) -> int | None:
    """None for what is no duration."""
    found = re.fullmatch(r"([0-9]{1,4}(?=d)|[0-9]{1,6}(?=[smh]))(.)", text)
    return int(found[1]) * _READ[found[2]] if found else None


def written(seconds: int) -> str:
    """In the largest unit up to hours that it is a whole number of."""
    unit = next(unit for unit, size in _UNITS.items() if seconds % size == 0)
    return f"{seconds // _UNITS[unit]}{unit}" if seconds else "0s"
