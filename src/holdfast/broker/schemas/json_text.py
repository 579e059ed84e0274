"""The JSON of definitions and messages. Their types are checked field by field, so any number passes here."""

from __future__ import annotations

from typing import Any

from holdfast.model.strict_json import parse_strict_json

# Protocol Buffers parsers stop at 100 levels too.
DEEPEST = 100
# Any that fit into a message: Cloud Pub/Sub refuses none.
MOST_VALUES = 10_000_000


def parse_json(text: bytes) -> Any:
    """Raises ValueError, whose text quotes at most a key."""
    return parse_strict_json(text, deepest=DEEPEST, most_values=MOST_VALUES, any_number=True)
