"""PORT and values: whether content would pass where it is to be sent, found out without sending it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from holdfast.deadletter.edits.document import document_of
from holdfast.model.exact_json import dump_exact_json
from holdfast.model.failed_message import Content, FailedMessage
from holdfast.model.json_pointer import ABSENT, Path, child, format_pointer

LONGEST_ACTUAL = 100


@dataclass(frozen=True, slots=True)
class Complaint:
    """`path` is a JSON Pointer into the document of the message, "" where it is about all of it. `actual` is "" where
    nobody told."""

    path: str
    expected: str
    actual: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """Of one check, by its name. `skipped` says why it could not be made; then there are no complaints."""

    check: str
    complaints: Sequence[Complaint] = ()
    skipped: str = ""


class ContentCheck(Protocol):
    """Changes nothing. What is unreachable is a check that was skipped, not an error."""

    async def check(self, failure: FailedMessage, content: Content) -> Finding: ...


# What is wrong is told as text by those who know: "order.lines[0].total: expected a number, not a string".
_STEP = re.compile(r"\.?([^.\[\]\s]+)|\[(\d+)\]|\['([^']*)'\]")
_NOT = re.compile(r"expected (?P<expected>.+), not (?P<actual>.+)", re.DOTALL)


def complaint_about(content: Content, text: str) -> Complaint:
    """Its path and what is there, as far as the text names a place in the payload."""
    document = document_of(content)
    where, colon, why = text.partition(": ")
    place = _place(document.get("json"), _steps(where)) if colon else None
    if place is None:
        return _told("", text, "")
    path, value = place
    actual = "nothing" if value is ABSENT else dump_exact_json(value)[:LONGEST_ACTUAL]
    return _told(format_pointer(("json", *path)), why, actual)


def _told(path: str, why: str, actual: str) -> Complaint:
    found = _NOT.fullmatch(why)
    if found is None:
        return Complaint(path, why, actual)
    return Complaint(path, found["expected"], actual or found["actual"])


def _steps(where: str) -> Path | None:
    steps, at = [], 0
    while at < len(where):
        step = _STEP.match(where, at)
        if step is None:
            return None
        steps.append(next(part for part in step.groups() if part is not None))
        at = step.end()
    return tuple(steps)


def _place(payload: Any, steps: Path | None) -> tuple[Path, Any] | None:
    """What is there, or ABSENT where only the last step is missing. None: no such place, so it was no path."""
    if not steps:
        return None
    parent = payload
    for step in steps[:-1]:
        parent = child(parent, step)
    return (steps, child(parent, steps[-1])) if isinstance(parent, dict | list) else None
