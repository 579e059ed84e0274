"""The times of the week at which nobody is told, of the settings.

[[alerts.quiet]]
days = ["sat", "sun"]
from = "00:00"
to = "24:00"
timezone = "Europe/Berlin"
match = ['severity="warning"']
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, time, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

from holdfast.alerts.notify.matching import parse_matchers
from holdfast.alerts.notify.silences import QuietTime
from holdfast.alerts.tables import Table
from holdfast.errors import SettingError

KEY = "alerts.quiet"

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_KEYS = ("days", "from", "to", "timezone", "match", "comment")


def quiet_times(tables: Sequence[Mapping[str, Any]]) -> list[QuietTime]:
    return [_quiet_time(Table(f"{KEY}[{number}]", raw)) for number, raw in enumerate(tables)]


def _quiet_time(table: Table) -> QuietTime:
    table.only(_KEYS)
    days = table.texts("days", f"must be a list of {', '.join(DAYS)}") if "days" in table.raw else DAYS
    for day in days:
        if day not in DAYS:
            raise SettingError(table.key("days"), day, f"must be one of {', '.join(DAYS)}")
    try:
        wanted = table.texts("match", "must be a list of conditions") if table.raw.get("match", []) else []
        matchers = parse_matchers(wanted)
    except ValueError as error:
        raise SettingError(table.key("match"), table.raw["match"], str(error)) from error
    return QuietTime(
        matchers,
        frozenset(DAYS.index(day) for day in days),
        _time(table, "from"),
        _time(table, "to"),
        _zone(table),
        table.text("comment") if "comment" in table.raw else "",
    )


def _time(table: Table, name: str) -> time:
    text = table.text(name)
    found = re.fullmatch(r"([01][0-9]|2[0-4]):([0-5][0-9])", text)
    if not found or (found[1] == "24" and (name == "from" or found[2] != "00")):
        raise SettingError(table.key(name), text, "must be a time of the day, such as 08:00")
    return time(int(found[1]) % 24, int(found[2]))  # 24:00 is the next day's 00:00, as an end always is


def _zone(table: Table) -> tzinfo:
    name = table.text("timezone", "UTC")
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, LookupError) as error:
        allowed = "must be a time zone that this machine knows, such as Europe/Berlin"
        raise SettingError(table.key("timezone"), name, allowed) from error
