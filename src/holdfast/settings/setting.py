"""One setting: a field with its default, its unit and reason, and what it may be."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from holdfast.settings.checks import Check


class Texts(tuple[str, ...]):
    """The default of a setting that is a list of texts; other tuples are lists of tables."""


def setting(default: Any, doc: str, *, check: Check | None = None, variable: str = "") -> Any:
    """`variable` is a second environment name, kept from the services that Holdfast replaces."""
    metadata = {"doc": doc, "check": check, "variable": variable}
    if isinstance(default, dict):
        return field(default_factory=lambda: dict(default), metadata=metadata)
    return field(default=default, metadata=metadata)
