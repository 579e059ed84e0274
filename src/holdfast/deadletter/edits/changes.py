"""What people ask to change of a message, in the forms that the API takes: exactly one of them.

{"patch": [{"op": "replace", "path": "/json/total", "value": 17}]}     RFC 6902
{"merge": {"json": {"total": 17}, "attributes": {"kind": null}}}       RFC 7396
{"set": {"/json/total": 17}}                                           replaces what is there, adds what is not
{"content": {"text": "…", "orderingKey": "k"}}                         these parts anew; the others stay
{"undo": 1}                                                            as revision 1 was; 0 is the original
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from holdfast.deadletter.edits.document import FIELDS, PAYLOAD_FORMS, content_of, document_of
from holdfast.deadletter.edits.json_patch import (
    MOST_OPERATIONS,
    DoesNotApply,
    Guard,
    Operation,
    apply_patch,
    parse_patch,
    set_operation,
)
from holdfast.deadletter.edits.merge_patch import apply_merge, touched_by_merge
from holdfast.errors import BadInput
from holdfast.model.failed_message import Content
from holdfast.model.json_pointer import Path, parse_pointer

FORMS = ("patch", "merge", "set", "content", "undo")
# Of a selection: what one message was, or is to be as a whole, says nothing of others.
BULK_FORMS = ("patch", "merge", "set")


class Change(Protocol):
    def of(self, document: dict[str, Any], guard: Guard) -> Any:
        """A changed document; the given one stays. `guard` is asked before anything is read or changed. Raises
        DoesNotApply."""
        ...


@dataclass(frozen=True, slots=True)
class Operations:
    """Of RFC 6902, and `set`."""

    operations: tuple[Operation, ...]

    def of(self, document: dict[str, Any], guard: Guard) -> Any:
        return apply_patch(document, self.operations, guard)


@dataclass(frozen=True, slots=True)
class Merge:
    patch: Mapping[str, Any]

    def of(self, document: dict[str, Any], guard: Guard) -> Any:
        _ask(guard, document, touched_by_merge(self.patch))
        return apply_merge(document, self.patch)


@dataclass(frozen=True, slots=True)
class Parts:
    parts: Mapping[str, Any]

    def of(self, document: dict[str, Any], guard: Guard) -> Any:
        replaced = set(self.parts)
        if replaced & set(PAYLOAD_FORMS):
            replaced |= set(PAYLOAD_FORMS)
        _ask(guard, document, ((name,) for name in sorted(replaced)))
        return {name: value for name, value in document.items() if name not in replaced} | dict(self.parts)


@dataclass(frozen=True, slots=True)
class Undo:
    """Not a change of the document: whoever has the revisions takes it from there."""

    revision: int

    def of(self, document: dict[str, Any], guard: Guard) -> Any:
        raise DoesNotApply("only one message at a time can be undone")


def parse_change(given: Mapping[str, Any], forms: Iterable[str] = FORMS) -> Change:
    """`given` may have other fields too. Numbers in it are exact (model/exact_json.py). Raises BadInput."""
    found = [form for form in forms if form in given]
    if len(found) != 1:
        raise BadInput(" | ".join(forms), "exactly one of them must be there")
    (form,) = found
    return _PARSERS[form](given[form])


def change_content(change: Change, content: Content, guard: Guard) -> Content:
    """Raises DoesNotApply."""
    return content_of(change.of(document_of(content), guard), content)


def _patch(value: Any) -> Change:
    return Operations(parse_patch("patch", value))


def _merge(value: Any) -> Change:
    if not isinstance(value, dict):
        raise BadInput("merge", f"must be an object with some of {', '.join(FIELDS)}")
    return Merge(value)


def _set(value: Any) -> Change:
    if not isinstance(value, dict) or not 1 <= len(value) <= MOST_OPERATIONS:
        raise BadInput("set", f"must map 1 to {MOST_OPERATIONS} JSON Pointers, such as /json/order/total, to values")
    return Operations(tuple(set_operation(_pointer(pointer), item) for pointer, item in value.items()))


def _content(value: Any) -> Change:
    if not isinstance(value, dict) or not value or not value.keys() <= set(FIELDS):
        raise BadInput("content", f"must be an object with some of {', '.join(FIELDS)}, and nothing else")
    if len(value.keys() & set(PAYLOAD_FORMS)) > 1:
        raise BadInput("content", f"must have the payload in one form: {', '.join(PAYLOAD_FORMS)}")
    return Parts(value)


def _undo(value: Any) -> Change:
    text = getattr(value, "text", "")
    if not (text.isascii() and text.isdecimal() and len(text) <= 9):
        raise BadInput("undo", "must be the number of a revision; 0 is the original")
    return Undo(int(text))


_PARSERS = {"patch": _patch, "merge": _merge, "set": _set, "content": _content, "undo": _undo}


def _pointer(text: str) -> Path:
    try:
        return parse_pointer(text)
    except ValueError as error:
        raise BadInput("set", f"{text[:64]!r} {error}") from None


def _ask(guard: Guard, document: dict[str, Any], paths: Iterable[Path]) -> None:
    for path in paths:
        guard(document, _within_objects(document, path))


def _within_objects(document: Any, path: Path) -> Path:
    """As far as there are objects to merge into: what is in the place of one is replaced whole."""
    for depth, step in enumerate(path):
        if not isinstance(document, dict):
            return path[:depth]
        document = document.get(step)
    return path
