"""Reads the fields of a JSON object, each with its type; whatever is wrong is told by the field's name."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, TypeVar

from holdfast.errors import BadInput
from holdfast.model.timestamps import parse_rfc3339

LONGEST_TEXT = 4096
LARGEST_NUMBER = 10**9
LATEST_TIME_NS = 2**63 - 1
MOST_ATTRIBUTES = 1000

Words = TypeVar("Words", bound=StrEnum)


class Fields:
    """`where` is what the object is in, such as "revisions[0]."."""

    def __init__(self, given: Mapping[str, Any], where: str = "") -> None:
        self._given = given
        self._where = where

    def name(self, name: str) -> str:
        return f"{self._where}{name}"

    def text(self, name: str, longest: int = LONGEST_TEXT) -> str:
        value = self._given.get(name)
        if not isinstance(value, str):
            raise self._bad(name, "must be text")
        return self._bounded(name, value, longest)

    def texts(self, name: str) -> dict[str, str]:
        value = self._given.get(name)
        if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
            raise self._bad(name, "must be an object of texts")
        if len(value) > MOST_ATTRIBUTES:
            raise self._bad(name, f"has {len(value)} members; at most {MOST_ATTRIBUTES} are allowed")
        for key, item in value.items():
            self._bounded(name, key, LONGEST_TEXT)
            self._bounded(name, item, LONGEST_TEXT)
        return value

    def number(self, name: str) -> int:
        value = self._given.get(name)
        if type(value) is not int or not 0 <= value <= LARGEST_NUMBER:
            raise self._bad(name, f"must be a whole number from 0 to {LARGEST_NUMBER}")
        return value

    def flag(self, name: str) -> bool:
        value = self._given.get(name)
        if not isinstance(value, bool):
            raise self._bad(name, "must be true or false")
        return value

    def time(self, name: str) -> int | None:
        value = self._given.get(name)
        if value is None:
            return None
        try:
            when_ns = parse_rfc3339(value) if isinstance(value, str) else -1
        except (ValueError, OverflowError):
            when_ns = -1
        if not 0 <= when_ns <= LATEST_TIME_NS:
            raise self._bad(name, "must be an RFC 3339 time from 1970 to 2262, or null")
        return when_ns

    def one_of(self, name: str, words: type[Words]) -> Words:
        try:
            return words(self.text(name))
        except ValueError:
            raise self._bad(name, f"must be one of {', '.join(words)}") from None

    def _bounded(self, name: str, value: str, longest: int) -> str:
        if len(value) > longest:
            raise self._bad(name, f"must not be longer than {longest} characters")
        return value

    def _bad(self, name: str, why: str) -> BadInput:
        return BadInput(self.name(name), why)
