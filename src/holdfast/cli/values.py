"""JSON values for people."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def flat(fields: Mapping[str, Any], prefix: str = "") -> list[tuple[str, object]]:
    """source: {topic: x} is shown as source.topic x."""
    shown: list[tuple[str, object]] = []
    for name, value in fields.items():
        if isinstance(value, dict) and value:
            shown += flat(value, f"{prefix}{name}.")
        else:
            shown.append((f"{prefix}{name}", value if isinstance(value, str) else json.dumps(value)))
    return shown
