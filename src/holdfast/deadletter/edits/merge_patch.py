"""JSON Merge Patch (RFC 7396): objects are merged, null removes, everything else replaces. Pure."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from holdfast.model.json_pointer import Path


def apply_merge(document: Any, patch: Any) -> Any:
    """The RFC's own function, on a copy."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    merged = dict(document) if isinstance(document, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = apply_merge(merged.get(key), value)
    return merged


def touched_by_merge(patch: Any, path: Path = ()) -> Iterator[Path]:
    """What it may replace or remove, whatever the document is."""
    if not isinstance(patch, dict) or not patch:
        yield path
        return
    for key, value in patch.items():
        yield from touched_by_merge(value, (*path, key))
