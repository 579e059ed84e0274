"""JSON Patch (RFC 6902): operations that are applied to a copy, all of them or none. Pure.

What is patched is never changed in place, and a value that is copied is never shared.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.errors import BadInput
from holdfast.model import strict_json
from holdfast.model.exact_json import same_value
from holdfast.model.json_pointer import ABSENT, Path, array_index, child, format_pointer, parse_pointer, value_at

MOST_OPERATIONS = 1000
DEEPEST = strict_json.DEEPEST + 1  # a payload's own levels, and the object that it is in
# A copy can double what is there; ten of them are enough for a thousandfold.
MOST_COPIED = 200_000

_WITH_VALUE = frozenset({"add", "replace", "test"})
_WITH_FROM = frozenset({"move", "copy"})
_NAMES = ("add", "remove", "replace", "move", "copy", "test")


class DoesNotApply(ValueError):
    """The patch is well formed, and this document is not one that it can be applied to. Quotes no value."""


@dataclass(frozen=True, slots=True)
class Operation:
    name: str
    path: Path
    origin: Path = ()  # of move and copy: its `from`
    value: Any = ABSENT

    @property
    def paths(self) -> tuple[Path, ...]:
        return (self.origin, self.path) if self.name in _WITH_FROM else (self.path,)


def set_operation(path: Path, value: Any) -> Operation:
    """Not one of the RFC's: replaces what is there, and adds what is not."""
    return Operation("set", path, value=value)


# Called with the document and the path before anything there is read or changed; raises to refuse.
Guard = Callable[[Any, Path], None]


def parse_patch(field: str, patch: Any) -> tuple[Operation, ...]:
    """Raises BadInput that names the operation by its place."""
    if not isinstance(patch, list):
        raise BadInput(field, "must be a list of operations, as in RFC 6902")
    if len(patch) > MOST_OPERATIONS:
        raise BadInput(field, f"has {len(patch)} operations; at most {MOST_OPERATIONS} are allowed")
    return tuple(_operation(f"{field}[{place}]", raw) for place, raw in enumerate(patch))


def apply_patch(document: Any, operations: Sequence[Operation], guard: Guard = lambda document, path: None) -> Any:
    """Raises DoesNotApply."""
    changed, copied = copy.deepcopy(document), 0
    for place, operation in enumerate(operations):
        for path in operation.paths:
            guard(changed, path)
        try:
            if operation.name == "copy":
                copied += _size(_existing(changed, operation.origin))
                _check_growth(copied)
            changed = _applied(changed, operation)
        except DoesNotApply as error:
            raise DoesNotApply(f"operation {place} ({operation.name}): {error}") from None
    return changed


def _check_growth(copied: int) -> None:
    if copied > MOST_COPIED:
        raise DoesNotApply(f"more than {MOST_COPIED} values would be copied")


# Reading a patch.


def _operation(where: str, raw: Any) -> Operation:
    if not isinstance(raw, Mapping):
        raise BadInput(where, "must be an object")
    name = raw.get("op")
    if not isinstance(name, str) or name not in _NAMES:
        raise BadInput(f"{where}.op", f"must be one of {', '.join(_NAMES)}")
    if name in _WITH_VALUE and "value" not in raw:
        raise BadInput(f"{where}.value", "is missing")
    origin = _pointer(where, raw, "from") if name in _WITH_FROM else ()
    path = _pointer(where, raw, "path")
    if name == "move" and len(path) > len(origin) and path[: len(origin)] == origin:
        raise BadInput(f"{where}.path", "is inside of what is moved")
    return Operation(name, path, origin, raw["value"] if name in _WITH_VALUE else ABSENT)


def _pointer(where: str, raw: Mapping[str, Any], key: str) -> Path:
    text = raw.get(key)
    if not isinstance(text, str):
        raise BadInput(f"{where}.{key}", "must be a JSON Pointer, such as /json/order/total")
    try:
        return parse_pointer(text)
    except ValueError as error:
        raise BadInput(f"{where}.{key}", str(error)) from None


# Applying one.


def _applied(document: Any, operation: Operation) -> Any:
    path, origin = operation.path, operation.origin
    match operation.name:
        case "add":
            return _add(document, path, copy.deepcopy(operation.value))
        case "remove":
            return _remove(document, path)
        case "replace":
            return _replace(document, path, copy.deepcopy(operation.value))
        case "move":
            value = _existing(document, origin)
            return document if path == origin else _add(_remove(document, origin), path, value)
        case "copy":
            return _add(document, path, copy.deepcopy(_existing(document, origin)))
        case "set":
            there = value_at(document, path) is not ABSENT
            return (_replace if there else _add)(document, path, copy.deepcopy(operation.value))
        case _:
            if not same_value(_existing(document, path), operation.value):
                raise DoesNotApply(f"{_shown(path)} is not the value that is asked for")
            return document


def _add(document: Any, path: Path, value: Any) -> Any:
    _check_depth(path, value)
    if not path:
        return value
    parent, last = _existing(document, path[:-1]), path[-1]
    if isinstance(parent, dict):
        parent[last] = value
    elif isinstance(parent, list):
        index = len(parent) if last == "-" else array_index(last)
        if index is None or index > len(parent):
            raise DoesNotApply(f"{_shown(path)} is no place in the array, which has {len(parent)} items")
        parent.insert(index, value)
    else:
        raise DoesNotApply(f"{_shown(path[:-1])} is neither an object nor an array")
    return document


def _remove(document: Any, path: Path) -> Any:
    _existing(document, path)
    if not path:
        return None
    parent, last = _existing(document, path[:-1]), path[-1]
    del parent[last if isinstance(parent, dict) else int(last)]
    return document


def _replace(document: Any, path: Path, value: Any) -> Any:
    _existing(document, path)
    _check_depth(path, value)
    if not path:
        return value
    parent, last = _existing(document, path[:-1]), path[-1]
    parent[last if isinstance(parent, dict) else int(last)] = value
    return document


def _existing(document: Any, path: Path) -> Any:
    for depth, part in enumerate(path):
        document = child(document, part)
        if document is ABSENT:
            raise DoesNotApply(f"there is no {_shown(path[: depth + 1])}")
    return document


def _shown(path: Path) -> str:
    return format_pointer(path)[:200] or "the whole document"


def _check_depth(path: Path, value: Any) -> None:
    """A few copies into itself nest a document deeper than anybody can walk."""
    if len(path) + _depth(value) > DEEPEST:
        raise DoesNotApply(f"the document would be nested deeper than {DEEPEST} levels")


def _depth(value: Any) -> int:
    return 1 + max(map(_depth, _children(value)), default=0) if isinstance(value, dict | list) else 0


def _size(value: Any) -> int:
    return 1 + sum(map(_size, _children(value)))


def _children(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
