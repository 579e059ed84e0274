"""How a selection of failures is asked for over HTTP: as query parameters, or as the object `selection` of a body."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request

from holdfast.api.http.describing import (
    MOMENT,
    PAGING,
    Parameter,
    Schema,
    boolean,
    integer,
    list_of,
    map_of,
    one_of,
    record,
    text,
)
from holdfast.deadletter.selecting import (
    LARGEST_NUMBER,
    LONGEST_TEXT,
    MOST_CONDITIONS,
    MOST_IDS,
    NAMED,
)
from holdfast.model.failed_message import FailureStatus

_SHORT: Schema = text(minLength=1, maxLength=LONGEST_TEXT)
_ID: Schema = integer(minimum=1, maximum=LARGEST_NUMBER)
_STATUS = one_of([*FailureStatus])
_ATTEMPTS = text(pattern=r"^([0-9]{1,9}(\.\.[0-9]{0,9})?|\.\.[0-9]{1,9})$")

# Of each name: what it means, and the schema of one value.
_MEANINGS: dict[str, tuple[str, Schema]] = {
    "id": ("These alone", _ID),
    "status": ("With one of these", _STATUS),
    "reason": ("With this failure reason", _SHORT),
    "subscription": ("Of this subscription: an id, or a full path", _SHORT),
    "topic": ("From this topic: an id, a full path, or `unknown`", _SHORT),
    "group": ("Of the group with this fingerprint", _SHORT),
    "messageId": ("Of this message", _SHORT),
    "since": ("Recorded since then: RFC 3339, or so long ago, such as `24h` or `7d`", MOMENT),
    "until": ("Recorded before then", MOMENT),
    "attempts": ("Delivered so often: `3`, `3..`, `..5` or `3..5`", _ATTEMPTS),
    "attribute": ("With this attribute", text(maxLength=LONGEST_TEXT)),
    "payload": ("With this at a path of its JSON payload, such as `order.lines.0.sku`", text(maxLength=LONGEST_TEXT)),
    "text": ("With this text in the error or in the payload", _SHORT),
    "hold": ("Under legal hold, or not", boolean()),
    "replay": ("Sent by this replay", _ID),
}

_PAIR = text(pattern="^[^:]+:", maxLength=2 * LONGEST_TEXT)
_REPEATED = ("id", "status", *NAMED)


def _parameter(name: str) -> Parameter:
    meaning, schema = _MEANINGS[name]
    if name in NAMED:
        return Parameter(name, f"{meaning}, as `NAME:VALUE`", _PAIR, repeats=True)
    return Parameter(name, meaning, schema, repeats=name in _REPEATED)


SELECTION_PARAMETERS: Sequence[Parameter] = tuple(map(_parameter, _MEANINGS))


def _property(name: str) -> Schema:
    meaning, schema = _MEANINGS[name]
    if name in NAMED:
        return map_of(schema, meaning)
    if name in ("id", "status"):
        return list_of(schema, meaning, minItems=1, maxItems=MOST_IDS if name == "id" else len(FailureStatus))
    return {**schema, "description": meaning}


SELECTION: Schema = record(
    {name: _property(name) for name in _MEANINGS},
    title="Selection",
    optional=[*_MEANINGS],
    closed=True,
    description="All that is given must hold; an empty object means every failure. "
    f"At most {MOST_CONDITIONS} attributes and {MOST_CONDITIONS} paths.",
)


def selection_pairs(request: Request) -> list[tuple[str, str]]:
    """What a query says of the selection: all but the paging."""
    paging = {parameter.name for parameter in PAGING}
    return [(name, value) for name, value in request.query_params.multi_items() if name not in paging]
