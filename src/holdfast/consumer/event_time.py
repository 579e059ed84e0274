"""When an event happened, as its payload tells it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from holdfast.clock import NANOSECONDS
from holdfast.errors import Poison
from holdfast.model.strict_json import LARGEST_INTEGER, SMALLEST_INTEGER
from holdfast.model.timestamps import parse_rfc3339

# The first of these that is there tells the event's time; without any it is the Pub/Sub publish time.
EVENT_TIME_FIELDS = ("producedAt", "publishedAt", "timestamp", "ts", "time")

# An epoch number says its unit by its size: seconds stay below 1e11 until the year 5138, milliseconds are
# above it since 1973, and so on by thousands.
_UNITS = ((10**11, NANOSECONDS), (10**14, 1_000_000), (10**17, 1_000))


def event_time_ns(data: Mapping[str, Any], publish_time_ns: int, *, strict: bool) -> int:
    """`strict` raises Poison for a field that cannot be read. Without it that is no time: a field called "time" may be
    about something else."""
    for name in EVENT_TIME_FIELDS:
        try:
            told = read_time(data, name)
        except Poison:
            if strict:
                raise
            continue
        if told is not None:
            return told
    return publish_time_ns


def read_time(data: Mapping[str, Any], name: str) -> int | None:
    """Nanoseconds since 1970, or None when the field is absent, null or empty. Raises Poison naming it."""
    value = data.get(name)
    if value is None or value == "":
        return None
    try:
        return to_nanoseconds(value)
    except ValueError as error:
        raise Poison(f"{name}: {error}") from error


def to_nanoseconds(value: object) -> int:
    if isinstance(value, str):
        when = _from_text(value)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        when = _from_number(value)
    else:
        raise ValueError("must be RFC 3339 text or an epoch number")
    # Stores keep 64 bits: the years 1677 to 2262.
    if not SMALLEST_INTEGER <= when <= LARGEST_INTEGER:
        raise ValueError("must lie between the years 1677 and 2262")
    return when


def _from_text(text: str) -> int:
    try:
        return parse_rfc3339(text)
    except (ValueError, OverflowError) as error:
        # Not the parser's own words: they quote the value, and payloads stay out of logs.
        raise ValueError("is not an RFC 3339 timestamp such as 2026-01-08T12:34:56Z") from error


def _from_number(value: float) -> int:
    factor = next((factor for bound, factor in _UNITS if abs(value) < bound), 1)
    # By way of decimal text, so that 1700000000.1 is not 1700000000.099999904.
    return int(Decimal(repr(value)) * factor)
