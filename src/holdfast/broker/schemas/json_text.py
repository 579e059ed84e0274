"""JSON read strictly, with limits. Raises ValueError, whose text quotes at most a key."""

from __future__ import annotations

import json
from typing import Any, NoReturn

# Protocol Buffers parsers stop at 100 levels too.
DEEPEST = 100


def parse_json(text: bytes) -> Any:
    try:
        decoded = text.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"is not UTF-8 (byte {error.start})") from error
    try:
        value = json.loads(decoded, object_pairs_hook=_object, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON: {error.msg} (line {error.lineno}, column {error.colno})") from error
    except RecursionError as error:
        raise _too_deep() from error
    # So few brackets cannot nest too deeply, which spares nearly every message the walk.
    if decoded.count("{") + decoded.count("[") > DEEPEST:
        _check_depth(value)
    if "\\u" in decoded:
        _check_surrogates(value)
    return value


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


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(DEEPEST):
        level = [child for parent in level for child in _children(parent)]
    if any(isinstance(child, (dict, list)) for child in level):
        raise _too_deep()


def _children(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _too_deep() -> ValueError:
    return ValueError(f"is nested deeper than {DEEPEST} levels")


def _check_surrogates(value: Any) -> None:
    """Only an escape can make half a character, and no answer that quotes it could be written as UTF-8."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise ValueError("has half of a surrogate pair (\\ud800 to \\udfff alone)") from error
