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
    offset = "+00:00" if offset in "Zz" else offset
    whole = datetime.fromisoformat(f"{date}T{clock}{offset}")
    return round(whole.timestamp()) * NANOSECONDS + int((fraction or "0").ljust(9, "0"))


def format_rfc3339(when_ns: int) -> str:
    """UTC with a Z, and as many digits of a second as are needed: none, 3, 6 or 9."""
    seconds, nanos = divmod(when_ns, NANOSECONDS)
    text = _whole_seconds(seconds)
    if nanos == 0:
        return text + "Z"
    digits = f"{nanos:09d}"
    while digits.endswith("000"):
        digits = digits[:-3]
    return f"{text}.{digits}Z"


@lru_cache(maxsize=64)  # many messages are published in one second, and strftime is slow
def _whole_seconds(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
