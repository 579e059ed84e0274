"""RFC 3339 text to and from nanoseconds since 1970: Pub/Sub carries nanoseconds, datetime only microseconds."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache

from holdfast.clock import NANOSECONDS

_RFC3339 = re.compile(r"(\d{4}-\d{2}-\d{2})[Tt ](\d{2}:\d{2}:\d{2})(?:\.(\d{1,9})\d*)?([Zz]|[+-]\d{2}:\d{2})", re.ASCII)


def parse_rfc3339(text: str) -> int:
    """Raises ValueError for anything that is not a full RFC 3339 timestamp with an offset."""
    match = _RFC3339.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"not an RFC 3339 timestamp: {text[:64]!r}")
    date, clock, fraction, offset = match.groups()
    whole = _seconds(date, clock, offset) * NANOSECONDS
    return whole + int(fraction.ljust(9, "0")) if fraction else whole


def format_rfc3339(when_ns: int) -> str:
    """UTC with a Z, and as many digits of a second as are needed: none, 3, 6 or 9."""
    seconds, nanos = divmod(when_ns, NANOSECONDS)
    text = _whole_seconds(seconds)
    if nanos == 0:
        return f"{text}Z"
    if nanos % 1_000:
        return f"{text}.{nanos:09d}Z"
    if nanos % 1_000_000:
        return f"{text}.{nanos // 1_000:06d}Z"
    return f"{text}.{nanos // 1_000_000:03d}Z"


# Many messages are of one second, and these two are slow.


@lru_cache(maxsize=64)
def _seconds(date: str, clock: str, offset: str) -> int:
    return round(datetime.fromisoformat(f"{date}T{clock}{'+00:00' if offset in 'Zz' else offset}").timestamp())


@lru_cache(maxsize=64)
def _whole_seconds(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
