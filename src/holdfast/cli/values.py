"""JSON values for people."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def flat(fields: Mapping[str, Any], prefix: str = "") -> list[tuple[str, object]]:
    r"""source: {topic: x} is shown as source.topic x. A dot within a name is `\.`, as in a search."""
    shown: list[tuple[str, object]] = []
    for name, value in fields.items():
        path = prefix + name.replace("\\", "\\\\").replace(".", "\\.")
        if isinstance(value, dict) and value:
            shown += flat(value, f"{path}.")
        else:
            shown.append((path, value if isinstance(value, str) else json.dumps(value)))
    return shown
