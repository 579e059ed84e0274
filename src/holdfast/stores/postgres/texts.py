"""Texts with a NUL, which PostgreSQL cannot keep: two other characters stand for it there."""

from __future__ import annotations

from typing import Any

# The last character of the private area of Unicode. Where a text has it, it is doubled.
_ESCAPE = "\uf8ff"
_NUL = _ESCAPE + "0"
_ITSELF = _ESCAPE + "1"


def to_text(text: str) -> str:
    if "\x00" not in text and _ESCAPE not in text:
        return text
    return text.replace(_ESCAPE, _ITSELF).replace("\x00", _NUL)


def to_texts(value: Any) -> Any:
    """The same in all of a JSON value."""
    if isinstance(value, str):
        return to_text(value)
    if isinstance(value, dict):
        return {to_text(name): to_texts(inner) for name, inner in value.items()}
    return [to_texts(inner) for inner in value] if isinstance(value, list | tuple) else value


def from_text(value: Any) -> Any:
    """Of whatever comes from a column."""
    if isinstance(value, str) and _ESCAPE in value:
        return value.replace(_NUL, "\x00").replace(_ITSELF, _ESCAPE)
    return value


def without_nul(value: Any) -> Any:
    """Of a text to look for, or a list of them: what it is looked for in has none."""
    if isinstance(value, list):
        return [without_nul(inner) for inner in value]
    return value.replace("\x00", _NUL)
