"""JSON read strictly: whatever two readers could understand differently is refused. Pure."""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn

# Deeper nesting is a mistake or an attack; Firestore stops at 20 levels, Pub/Sub's own JSON at 100.
DEEPEST = 64

# Each costs a microsecond or two, in which nothing else happens in this process. A document has thousands at most.
MOST_VALUES = 200_000
# One that is not closed counts to the end, so that every byte is read once.
_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*+"?', re.DOTALL)

# What every store can hold as an integer.
SMALLEST_INTEGER = -(2**63)
LARGEST_INTEGER = 2**63 - 1
_MOST_DIGITS = 20  # a sign and 19 digits


def parse_strict_json(
    text: bytes, *, deepest: int = DEEPEST, most_values: int = MOST_VALUES, any_number: bool = False
) -> Any:
    """Raises ValueError, whose text says what is wrong and quotes at most a key, never a value. `any_number` is for
    callers that know the type of each field and check it themselves."""
    if _separators(text) > most_values and _separators(_TEXT.sub(b"", text)) > most_values:
        raise ValueError(f"has more than {most_values} values")
    try:
        decoded = text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"is not UTF-8 (byte {error.start})") from error
    try:
        value = (_ANY_NUMBER if any_number else _STRICT).decode(decoded)
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON: {error.msg} (line {error.lineno}, column {error.colno})") from error
    except RecursionError as error:
        raise _too_deep(deepest) from error
    _check_depth(decoded, value, deepest)
    _check_surrogates(decoded, value)
    return value


def _separators(text: bytes) -> int:
    """About as many as there are values, and quick to count."""
    return text.count(b",") + text.count(b":")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError(f"has the key {_repeated(pairs)[:64]!r} twice in one object")
    return result


def _repeated(pairs: list[tuple[str, Any]]) -> str:
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            return key
        seen.add(key)
    return ""


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"has {name}, which is not a JSON number")


def _integer(digits: str) -> int:
    # The length first: int() of a very long text is slow, and refused by Python with an error of its own.
    if len(digits) > _MOST_DIGITS or not SMALLEST_INTEGER <= int(digits) <= LARGEST_INTEGER:
        raise ValueError("has a whole number beyond 64 bits")
    return int(digits)


def _float(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise ValueError("has a number beyond what a double can hold")
    return value


def _check_depth(text: str, value: Any, deepest: int) -> None:
    # So few brackets cannot nest too deeply, which spares nearly every message the walk.
    if text.count("{") + text.count("[") <= deepest:
        return
    level = [value]
    for _ in range(deepest):
        level = [child for parent in level for child in _children(parent)]
    if any(isinstance(child, (dict, list)) for child in level):
        raise _too_deep(deepest)


def _too_deep(deepest: int) -> ValueError:
    return ValueError(f"is nested deeper than {deepest} levels")


def _children(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _check_surrogates(text: str, value: Any) -> None:
    # Only an escape can make half a character; such text cannot be written as UTF-8 by any store or answer.
    if "\\u" not in text:
        return
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError("has half of a surrogate pair (\\ud800 to \\udfff alone)") from error


# Made once: json.loads would make one for each text.
_STRICT = json.JSONDecoder(
    object_pairs_hook=_object, parse_constant=_refuse_constant, parse_int=_integer, parse_float=_float
)
_ANY_NUMBER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_refuse_constant)
