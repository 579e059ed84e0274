"""An answer without what may differ: times, generated ids, the project's name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from google.protobuf import json_format

# Times, and what the service makes up.
_VOLATILE = {"expire_time", "revision_create_time", "publish_time", "message_id", "etag", "next_page_token"}

_KINDS = ("snapshot", "subscription", "schema", "topic")


def plain(message: Any) -> Any:
    return json_format.MessageToDict(message, preserving_proto_field_name=True)


def normalised(value: Any, words: Mapping[str, str]) -> Any:
    """`words` is what to write in place of texts: the project's name, ids of revisions."""
    if isinstance(value, dict):
        return {
            normalised(key, words): "set" if key in _VOLATILE else normalised(item, words)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [normalised(item, words) for item in value]
    if isinstance(value, str):
        for word, symbol in words.items():
            value = value.replace(word, symbol)
    return value


def kind_of(text: str) -> str:
    """Of what an error says that it is missing, or there already: the kind that is named first."""
    if "revision" in text.lower():  # of a schema, which is named too
        return "revision"
    found = re.search("|".join(_KINDS), text.lower().replace("subscription topic", "topic"))
    return found[0] if found else ""


def paths(ours: Any, theirs: Any, where: str = "") -> list[tuple[str, Any, Any]]:
    """Where two plain values differ."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        found = []
        for key in sorted({*ours, *theirs}):
            found += paths(ours.get(key), theirs.get(key), f"{where}.{key}" if where else str(key))
        return found
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        found = []
        for index, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            found += paths(one, other, f"{where}[{index}]")
        return found
    return [] if ours == theirs else [(where, ours, theirs)]
