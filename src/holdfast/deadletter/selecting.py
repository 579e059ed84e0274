"""Reads a selection of failures from a query string or from JSON, and writes it as JSON.

In JSON it looks like {"status": ["permanent_failure"], "since": "24h"}: its form. A query string and the options of a
command are brought into that form first, so that there is one reader.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.clock import NANOSECONDS
from holdfast.deadletter.dead_letter import UNKNOWN_TOPIC
from holdfast.deadletter.selection import Selection, path_parts
from holdfast.errors import BadInput
from holdfast.model.failed_message import FailureStatus
from holdfast.model.names import check_subscription, check_topic, subscription_path, topic_path
from holdfast.model.timestamps import format_rfc3339, parse_rfc3339

# Each id is a parameter of a statement, and each of the others a condition. SQLite takes 32,766 parameters.
MOST_IDS = 1000
MOST_CONDITIONS = 20
LONGEST_TEXT = 1024

# Stores keep ids, counts and times as 64-bit numbers.
LARGEST_NUMBER = 2**63 - 1
MOST_ATTEMPTS = 10**9

_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_DURATION = re.compile(r"(\d{1,9})([smhdw])", re.ASCII)
_RANGE = re.compile(r"(\d{0,9})(\.\.)?(\d{0,9})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Reading:
    """What a reader must know besides: relative times are before `now_ns`, short ids are in `project`."""

    now_ns: int
    project: str


# Names in JSON and queries. Those that may be repeated in a query become a list or an object.
LISTED = ("id", "status")
NAMED = ("attribute", "payload")
SINGLE = (
    "reason",
    "subscription",
    "topic",
    "group",
    "messageId",
    "since",
    "until",
    "attempts",
    "text",
    "hold",
    "replay",
)
NAMES = frozenset((*LISTED, *NAMED, *SINGLE))


# From a query string.


def selection_from_query(pairs: Iterable[tuple[str, str]], reading: Reading) -> Selection:
    """The pairs of a query string, without those that are not of the selection (pageSize …)."""
    return selection_from_json(form_from_query(pairs), reading)


def form_from_query(pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    form: dict[str, Any] = {}
    for name, value in pairs:
        if name in LISTED:
            form.setdefault(name, []).extend(value.split(","))
        elif name in NAMED:
            key, colon, wanted = value.partition(":")
            if not colon:
                raise BadInput(name, f"must look like NAME:VALUE, not {value[:64]!r}")
            _set_once(form.setdefault(name, {}), key, wanted, name)
        else:
            _set_once(form, name, value, name)
    return form


def _set_once(into: dict[str, Any], key: str, value: str, name: str) -> None:
    if key in into:
        raise BadInput(name[:64], f"{key[:64]!r} is given twice, and only one can hold")
    into[key] = value


def query_from_form(form: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The other way: what a client of ours asks with."""
    pairs: list[tuple[str, str]] = []
    for name, value in form.items():
        if isinstance(value, Mapping):
            pairs += [(name, f"{key}:{_json_text(wanted)}") for key, wanted in value.items()]
        elif isinstance(value, list | tuple):
            pairs += [(name, str(one)) for one in value]
        else:
            pairs.append((name, _json_text(value)))
    return pairs


# From JSON.


def selection_from_json(form: Any, reading: Reading) -> Selection:
    """Raises BadInput with the name of what is unknown or has a bad value. Nothing at all means every failure."""
    if not isinstance(form, Mapping):
        raise BadInput("selection", "must be a JSON object")
    for name in form:
        if name not in NAMES:
            raise BadInput(str(name)[:64], f"is not known here: failures are selected by {', '.join(sorted(NAMES))}")
    fewest, most = _read(form, "attempts", _attempts, (None, None))
    return Selection(
        ids=_read(form, "id", _ids, ()),
        statuses=_read(form, "status", _statuses, ()),
        reason=_read(form, "reason", _text, ""),
        subscription=_read(form, "subscription", lambda name, value: _subscription(name, value, reading), ""),
        topic=_read(form, "topic", lambda name, value: _topic(name, value, reading), ""),
        fingerprint=_read(form, "group", _text, ""),
        message_id=_read(form, "messageId", _text, ""),
        since_ns=_read(form, "since", lambda name, value: read_time(name, value, reading.now_ns), None),
        until_ns=_read(form, "until", lambda name, value: read_time(name, value, reading.now_ns), None),
        fewest_attempts=fewest,
        most_attempts=most,
        attributes=_read(form, "attribute", _attributes, {}),
        payload=_read(form, "payload", _payload, {}),
        text=_read(form, "text", _text, ""),
        legal_hold=_read(form, "hold", _bool, None),
        replay_id=_read(form, "replay", _id, None),
    )


def selection_to_json(selection: Selection) -> dict[str, Any]:
    """What `selection_from_json` reads as the same one, whenever it does."""
    told = {
        "id": list(selection.ids),
        "status": [str(status) for status in selection.statuses],
        "reason": selection.reason,
        "subscription": selection.subscription,
        "topic": selection.topic,
        "group": selection.fingerprint,
        "messageId": selection.message_id,
        "since": None if selection.since_ns is None else format_rfc3339(selection.since_ns),
        "until": None if selection.until_ns is None else format_rfc3339(selection.until_ns),
        "attempts": _range_text(selection.fewest_attempts, selection.most_attempts),
        "attribute": dict(selection.attributes),
        "payload": dict(selection.payload),
        "text": selection.text,
        "hold": selection.legal_hold,
        "replay": selection.replay_id,
    }
    return {name: value for name, value in told.items() if value not in (None, "", [], {})}


def selection_in_audit(selection: Selection) -> dict[str, Any]:
    """The same without what was searched for: values of payloads and attributes do not belong into an audit trail."""
    told = selection_to_json(selection)
    for name in NAMED:
        if name in told:
            told[name] = sorted(told[name])
    return told | ({"text": True} if selection.text else {})


# One value each. An empty one is refused: whoever meant "any" leaves it out, and a script's empty variable must not
# turn "erase those" into "erase all".


def _read(form: Mapping[str, Any], name: str, read: Callable[[str, Any], Any], absent: Any) -> Any:
    return read(name, form[name]) if name in form else absent


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise BadInput(name, "must be a text that is not empty")
    return _storable(name, value)


def _storable(name: str, value: str) -> str:
    if len(value) > LONGEST_TEXT:
        raise BadInput(name, f"must not be longer than {LONGEST_TEXT} characters")
    if "\0" in value or any("\ud800" <= char <= "\udfff" for char in value):
        raise BadInput(name, "must be text in UTF-8, without NUL")
    return value


def _ids(name: str, value: Any) -> tuple[int, ...]:
    return tuple(_id(name, one) for one in _several(name, value, MOST_IDS))


def _statuses(name: str, value: Any) -> tuple[FailureStatus, ...]:
    return tuple(_status(name, one) for one in _several(name, value, len(FailureStatus)))


def _several(name: str, value: Any, most: int) -> list[Any]:
    values = list(value) if isinstance(value, list | tuple) else [value]
    if not 1 <= len(values) <= most:
        raise BadInput(name, f"must be 1 to {most} values, not {len(values)}")
    return values


def _id(name: str, value: Any) -> int:
    """Also as text, from a query. The length keeps int() from meeting a huge number."""
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= 19:
        value = int(value)
    if isinstance(value, float) and value.is_integer():  # JSON knows no difference
        value = int(value)
    if type(value) is not int or not 1 <= value <= LARGEST_NUMBER:
        raise BadInput(name, f"must be a whole number above 0, not {str(value)[:64]!r}")
    return value


def _status(name: str, value: Any) -> FailureStatus:
    try:
        return FailureStatus(value)
    except ValueError:
        raise BadInput(name, f"must be one of {', '.join(FailureStatus)}, not {str(value)[:64]!r}") from None


def _subscription(name: str, value: Any, reading: Reading) -> str:
    path = subscription_path(reading.project, _text(name, value))
    check_subscription(name, path)
    return path


def _topic(name: str, value: Any, reading: Reading) -> str:
    if value == UNKNOWN_TOPIC:
        return UNKNOWN_TOPIC
    path = topic_path(reading.project, _text(name, value))
    check_topic(name, path)
    return path


def read_time(name: str, value: Any, now_ns: int) -> int:
    """RFC 3339, or so long ago. Cut to what stores can hold, which begins in 1970 and ends in 2262."""
    text = _text(name, value)
    ago = _DURATION.fullmatch(text)
    try:
        when = now_ns - int(ago[1]) * _UNIT_SECONDS[ago[2]] * NANOSECONDS if ago else parse_rfc3339(text)
    except (ValueError, OverflowError):
        raise BadInput(
            name,
            f"must be a time such as 2026-01-31T09:00:00Z, or so long ago, such as 90s, 24h or 7d, not {text[:64]!r}",
        ) from None
    return min(max(when, 0), LARGEST_NUMBER)


def _attempts(name: str, value: Any) -> tuple[int | None, int | None]:
    """N, N.., ..M or N..M."""
    found = _RANGE.fullmatch(str(value)) if isinstance(value, str | int) and not isinstance(value, bool) else None
    if found is None or not (found[1] or found[3]) or (not found[2] and found[3]):
        raise BadInput(name, f"must look like 3, 3.., ..5 or 3..5, not {str(value)[:64]!r}")
    fewest = int(found[1]) if found[1] else None
    most = (int(found[3]) if found[3] else None) if found[2] else fewest
    if fewest is not None and most is not None and fewest > most:
        raise BadInput(name, f"must not end before it begins: {value}")
    return fewest, most


def _range_text(fewest: int | None, most: int | None) -> str:
    if fewest is None and most is None:
        return ""
    return f"{'' if fewest is None else fewest}..{'' if most is None else most}"


def _attributes(name: str, value: Any) -> dict[str, str]:
    """An attribute's value may be empty."""
    return {key: _storable(name, _string(name, wanted)) for key, wanted in _conditions(name, value).items()}


def _payload(name: str, value: Any) -> dict[str, str]:
    """In JSON, the value itself may be given: 17 and "17" mean the same."""
    return {_path(name, key): _storable(name, _json_text(wanted)) for key, wanted in _conditions(name, value).items()}


def _conditions(name: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping) or not 1 <= len(value) <= MOST_CONDITIONS:
        raise BadInput(name, f"must be 1 to {MOST_CONDITIONS} names with their values")
    for key, wanted in value.items():
        _text(name, key)
        if not isinstance(wanted, str | int | float | None):
            raise BadInput(name, f"{key[:64]!r} must be compared with a text, a number, true, false or null")
    return value


def _string(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise BadInput(name, "must be compared with a text")
    return value


def _path(name: str, path: str) -> str:
    if not all(path_parts(path)):
        raise BadInput(name, f"must begin with a path such as order.lines.0.sku, not {path[:64]!r}")
    return path


def _json_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _bool(name: str, value: Any) -> bool:
    known = {True: True, False: False, "true": True, "false": False}
    if not isinstance(value, bool | str) or value not in known:
        raise BadInput(name, f"must be true or false, not {str(value)[:64]!r}")
    return known[value]
