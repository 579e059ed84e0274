"""What people can read in a payload of bytes: text, or JSON, or neither. Never raises for any bytes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

# Deeper JSON stays text: writing it out again could exhaust the stack, and nobody reads a hundred levels.
DEEPEST_JSON = 100


@dataclass(frozen=True, slots=True)
class Readable:
    """`text` is None when the bytes are not UTF-8. `json` counts only with `is_json`: null is JSON too."""

    text: str | None = None
    is_json: bool = False
    json: Any = None


def read_payload(data: bytes) -> Readable:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return Readable()
    try:
        value = json.loads(text)
        if not _shallow(value):
            return Readable(text)
        # NaN, 1e999 and lone surrogates parse in Python but are not JSON that an answer in UTF-8 could carry.
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return Readable(text)
    return Readable(text, is_json=True, json=value)


def _shallow(value: Any) -> bool:
    """Level by level, not by recursion, because too deep is what it looks for."""
    level = [value]
    for _ in range(DEEPEST_JSON):
        level = [child for item in level for child in _children(item)]
        if not level:
            return True
    return False


def _children(item: Any) -> Iterable[Any]:
    if isinstance(item, dict):
        return item.values()
    return item if isinstance(item, list) else ()
