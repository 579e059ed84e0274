"""JSON Pointer (RFC 6901): `/order/lines/0` names a value within JSON. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

Path = tuple[str, ...]

# As the RFC writes it: no sign, no leading zero. The length keeps int() from meeting a huge number.
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")
_BAD_ESCAPE = re.compile(r"~(?![01])")

ABSENT = object()


def parse_pointer(text: str) -> Path:
    """Raises ValueError."""
    if not text:
        return ()
    if not text.startswith("/"):
        raise ValueError(f"must be empty or begin with /, not {text[:64]!r}")
    if _BAD_ESCAPE.search(text):
        raise ValueError("has a ~ that is neither ~0 nor ~1")
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in text[1:].split("/"))


def format_pointer(path: Sequence[str]) -> str:
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in path)


def array_index(part: str) -> int | None:
    return int(part) if _INDEX.fullmatch(part) else None


def child(value: Any, part: str) -> Any:
    """What is at one step of a path, or ABSENT."""
    if isinstance(value, dict):
        return value.get(part, ABSENT)
    if isinstance(value, list):
        index = array_index(part)
        return value[index] if index is not None and index < len(value) else ABSENT
    return ABSENT


def value_at(value: Any, path: Sequence[str]) -> Any:
    for part in path:
        value = child(value, part)
    return value
