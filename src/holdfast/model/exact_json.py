"""JSON that comes out as it went in: numbers keep their text, objects their order. Pure.

Python's own reader makes 1.10 a 1.1 and rounds what a double cannot hold. An edit must leave
alone what it is not about.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from holdfast.model.strict_json import parse_strict_json


@dataclass(frozen=True, slots=True)
class Number:
    """A JSON number as it was written. Equal to another one with the same text only: see `same_value`."""

    text: str

    def equals(self, other: Number) -> bool:
        """As numbers: 1, 1.0 and 10e-1 are one."""
        try:
            return Decimal(self.text) == Decimal(other.text)
        except InvalidOperation:  # an exponent beyond all reason
            return self.text == other.text


def parse_exact_json(text: bytes) -> Any:
    """Numbers become Number. Raises ValueError, as parse_strict_json does, for what two readers could understand
    differently."""
    parse_strict_json(text, any_number=True)
    return json.loads(text.decode(), parse_int=Number, parse_float=Number)


def load_exact_json(text: str | bytes) -> Any:
    """The same of what one of our own processes wrote, however deep it is."""
    return json.loads(text, parse_int=Number, parse_float=Number)


def plain(value: Any) -> Any:
    """For readers that know only Python's numbers: what a double cannot hold is rounded."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return json.loads(value.text) if isinstance(value, Number) else value


def dump_exact_json(value: Any) -> str:
    """Without spaces, in any script's own letters."""
    return "".join(_pieces(value))


def _pieces(value: Any) -> Iterator[str]:
    match value:
        case Number():
            yield value.text
        case dict():
            for position, (key, item) in enumerate(value.items()):
                yield f"{',' if position else '{'}{_text(key)}:"
                yield from _pieces(item)
            yield "}" if value else "{}"
        case list():
            for position, item in enumerate(value):
                yield "," if position else "["
                yield from _pieces(item)
            yield "]" if value else "[]"
        case _:
            yield _text(value)


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def same_value(one: Any, other: Any) -> bool:
    """As RFC 6902 compares: numbers by value, objects whatever their order, and true is not 1."""
    match one, other:
        case Number(), Number():
            return one.equals(other)
        case dict(), dict():
            return one.keys() == other.keys() and all(same_value(item, other[key]) for key, item in one.items())
        case list(), list():
            return len(one) == len(other) and all(map(same_value, one, other))
        case _:
            return type(one) is type(other) and bool(one == other)
