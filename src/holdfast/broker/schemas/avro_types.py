"""Avro types, and whether a value fits them: in Avro's JSON encoding, and in its binary one.

The binary encoding is walked here and not by fastavro, whose reader follows a recursive type as deeply as the bytes say
(that ends the process), believes any count (an array of 2^60 nulls takes ten bytes) and takes negative lengths. It is
the tests' judge for what is right.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.broker.schemas.json_text import DEEPEST
from holdfast.broker.schemas.problems import DoesNotFit

_LONGEST_VARINT = 10  # bytes of 7 bits for 64 bits


class AvroType(ABC):
    name: str  # as it is called in a union
    empty = False  # True: takes no bytes in binary. Nothing bounds how often, so nobody may loop over it

    @abstractmethod
    def check_json(self, value: Any) -> None:
        """Raises DoesNotFit."""

    @abstractmethod
    def check_binary(self, data: Bytes) -> None:
        """Moves past one value. Raises DoesNotFit."""


class Bytes:
    """A message's bytes and how far they are read."""

    __slots__ = ("_at", "_data", "_depth")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._depth = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    @property
    def at(self) -> int:
        return self._at

    def take(self, count: int) -> bytes:
        if count < 0:
            raise DoesNotFit(f"has a negative length ({count}) at byte {self._at}")
        if count > self.left:
            raise DoesNotFit(f"needs {count} bytes at byte {self._at}, and {self.left} are left")
        self._at += count
        return self._data[self._at - count : self._at]

    def number(self) -> int:
        """A zigzag varint, as Avro writes int, long, lengths and indexes."""
        result = shift = 0
        for at in range(self._at, min(self._at + _LONGEST_VARINT, len(self._data))):
            byte = self._data[at]
            result |= (byte & 0x7F) << shift
            if byte < 0x80:
                if result >= 1 << 64:
                    break
                self._at = at + 1
                return (result >> 1) ^ -(result & 1)
            shift += 7
        raise DoesNotFit(f"has no whole number of at most 64 bits at byte {self._at}")

    def enter(self) -> None:
        self._depth += 1
        if self._depth > DEEPEST:
            raise DoesNotFit(f"is nested deeper than {DEEPEST} levels")

    def leave(self) -> None:
        self._depth -= 1


class Null(AvroType):
    name = "null"
    empty = True

    def check_json(self, value: Any) -> None:
        if value is not None:
            raise _expected("null", value)

    def check_binary(self, data: Bytes) -> None:
        pass


class Boolean(AvroType):
    name = "boolean"

    def check_json(self, value: Any) -> None:
        if not isinstance(value, bool):
            raise _expected("true or false", value)

    def check_binary(self, data: Bytes) -> None:
        byte = data.take(1)[0]
        if byte > 1:
            raise DoesNotFit(f"expected a boolean (0 or 1), not the byte {byte}")


class Whole(AvroType):
    """int and long."""

    def __init__(self, name: str, bits: int) -> None:
        self.name = name
        self._bits = bits
        self._bound = 1 << (bits - 1)

    def check_json(self, value: Any) -> None:
        if not isinstance(value, int) or isinstance(value, bool):
            raise _expected(f"a whole number ({self.name})", value)
        self._check_range(value)

    def check_binary(self, data: Bytes) -> None:
        self._check_range(data.number())

    def _check_range(self, value: int) -> None:
        if not -self._bound <= value < self._bound:
            raise DoesNotFit(f"is beyond the {self._bits} bits of {self.name}")


class Real(AvroType):
    """float and double. JSON has no NaN and no infinity, so those go in binary only."""

    def __init__(self, name: str, size: int) -> None:
        self.name = name
        self._size = size

    def check_json(self, value: Any) -> None:
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise _expected(f"a number ({self.name})", value)

    def check_binary(self, data: Bytes) -> None:
        data.take(self._size)


class ByteString(AvroType):
    name = "bytes"

    def check_json(self, value: Any) -> None:
        _check_latin(value, "bytes")

    def check_binary(self, data: Bytes) -> None:
        data.take(data.number())


class Text(AvroType):
    name = "string"

    def check_json(self, value: Any) -> None:
        if not isinstance(value, str):
            raise _expected("a string", value)

    def check_binary(self, data: Bytes) -> None:
        _take_text(data)


class Fixed(AvroType):
    def __init__(self, name: str, size: int) -> None:
        self.name = name
        self.size = size
        self.empty = size == 0

    def check_json(self, value: Any) -> None:
        if _check_latin(value, f"fixed {self.name}") != self.size:
            raise DoesNotFit(f"expected exactly {self.size} bytes (fixed {self.name})")

    def check_binary(self, data: Bytes) -> None:
        data.take(self.size)


class Enum(AvroType):
    def __init__(self, name: str, symbols: Sequence[str], default: str | None = None) -> None:
        self.name = name
        self.symbols = dict.fromkeys(symbols)  # a set that keeps the order
        self.default = default

    def check_json(self, value: Any) -> None:
        if not isinstance(value, str):
            raise _expected(f"a symbol of {self.name}", value)
        if value not in self.symbols:
            raise DoesNotFit(f"{value[:64]!r} is not a symbol of {self.name}: {', '.join(self.symbols)}")

    def check_binary(self, data: Bytes) -> None:
        index = data.number()
        if not 0 <= index < len(self.symbols):
            raise DoesNotFit(f"{self.name} has {len(self.symbols)} symbols, and none at {index}")


class Array(AvroType):
    name = "array"

    def __init__(self, items: AvroType) -> None:
        self.items = items

    def check_json(self, value: Any) -> None:
        if not isinstance(value, list):
            raise _expected("an array", value)
        for index, item in enumerate(value):
            try:
                self.items.check_json(item)
            except DoesNotFit as problem:
                problem.inside(f"[{index}]")
                raise

    def check_binary(self, data: Bytes) -> None:
        for index in _positions(data, self.items.empty):
            try:
                self.items.check_binary(data)
            except DoesNotFit as problem:
                problem.inside(f"[{index}]")
                raise


class Map(AvroType):
    name = "map"

    def __init__(self, values: AvroType) -> None:
        self.values = values

    def check_json(self, value: Any) -> None:
        if not isinstance(value, dict):
            raise _expected("an object (map)", value)
        for key, item in value.items():
            try:
                self.values.check_json(item)
            except DoesNotFit as problem:
                problem.inside(f"[{key[:64]!r}]")
                raise

    def check_binary(self, data: Bytes) -> None:
        for index in _positions(data, False):
            try:
                key = _take_text(data)
            except DoesNotFit as problem:
                problem.inside(f"[key {index}]")
                raise
            try:
                self.values.check_binary(data)
            except DoesNotFit as problem:
                problem.inside(f"[{key[:64]!r}]")
                raise


class Union(AvroType):
    """In JSON, null is null and everything else says which branch it is: {"string": "a"}."""

    name = "union"

    def __init__(self, branches: Sequence[AvroType]) -> None:
        self.branches = branches
        self._by_name: Mapping[str, AvroType] = {branch.name: branch for branch in branches}

    def check_json(self, value: Any) -> None:
        if value is None:
            if "null" not in self._by_name:
                raise self._no_branch("null")
        elif not isinstance(value, dict) or len(value) != 1:
            raise self._no_branch(_kind(value))
        else:
            ((name, inner),) = value.items()
            branch = self._by_name.get(name)
            if branch is None or name == "null":
                raise self._no_branch(repr(name[:64]))
            try:
                branch.check_json(inner)
            except DoesNotFit as problem:
                problem.inside(f".{name}")
                raise

    def check_binary(self, data: Bytes) -> None:
        index = data.number()
        if not 0 <= index < len(self.branches):
            raise DoesNotFit(f"the union has {len(self.branches)} branches, and none at {index}")
        self.branches[index].check_binary(data)

    def _no_branch(self, found: str) -> DoesNotFit:
        forms = ["null" if name == "null" else f'{{"{name}": …}}' for name in self._by_name]
        return DoesNotFit(f"expected {' or '.join(forms)}, as Avro writes a union in JSON, not {found}")


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    type: AvroType
    has_default: bool = False
    aliases: Sequence[str] = ()


class Record(AvroType):
    def __init__(self, name: str) -> None:
        self.name = name
        self.fields: Mapping[str, Field] = {}
        self._in_binary: Sequence[Field] = ()

    def define(self, fields: Sequence[Field]) -> None:
        """Apart from __init__, because a field may be of this very type, which is known by name before."""
        self.fields = {field.name: field for field in fields}
        self._in_binary = [field for field in fields if not field.type.empty]
        self.empty = not self._in_binary

    def check_json(self, value: Any) -> None:
        if not isinstance(value, dict):
            raise _expected(f"an object (record {self.name})", value)
        for name, field in self.fields.items():
            try:
                if name not in value:
                    # Also with a default: Avro gives those to readers, and the encoding has every field.
                    raise DoesNotFit("is missing")
                field.type.check_json(value[name])
            except DoesNotFit as problem:
                problem.inside(f".{name}")
                raise
        if len(value) > len(self.fields):
            unknown = next(key for key in value if key not in self.fields)
            raise DoesNotFit(f"record {self.name} has no field {unknown[:64]!r}")

    def check_binary(self, data: Bytes) -> None:
        data.enter()
        for field in self._in_binary:
            try:
                field.type.check_binary(data)
            except DoesNotFit as problem:
                problem.inside(f".{field.name}")
                raise
        data.leave()


PRIMITIVES: Mapping[str, AvroType] = {
    "null": Null(),
    "boolean": Boolean(),
    "int": Whole("int", 32),
    "long": Whole("long", 64),
    "float": Real("float", 4),
    "double": Real("double", 8),
    "bytes": ByteString(),
    "string": Text(),
}


def _positions(data: Bytes, empty: bool) -> Iterator[int]:
    """The indexes of a block-wise array or map; the caller reads an item at each. Checks the blocks' own sizes."""
    data.enter()
    index = 0
    while count := data.number():
        end = None
        if count < 0:
            size = data.number()
            if not 0 <= size <= data.left:
                raise DoesNotFit(f"has a block of {size} bytes at byte {data.at}, and {data.left} are left")
            count, end = -count, data.at + size
        if not empty:
            if count > data.left:
                raise DoesNotFit(f"has {count} items at byte {data.at}, and only {data.left} bytes are left")
            yield from range(index, index + count)
        index += count
        if end is not None and data.at != end:
            raise DoesNotFit(f"has a block that ends at byte {data.at} and says that it ends at {end}")
    data.leave()


def _take_text(data: Bytes) -> str:
    raw = data.take(data.number())
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise DoesNotFit("expected a string, and it is not UTF-8") from error


def _check_latin(value: Any, what: str) -> int:
    """Avro writes bytes in JSON as a string whose characters are the bytes. Gives how many."""
    if not isinstance(value, str):
        raise _expected(f"a string ({what})", value)
    if not value.isascii() and max(value) > "\xff":
        raise DoesNotFit(f"a character above U+00FF is not a byte ({what})")
    return len(value)


def _expected(what: str, value: Any) -> DoesNotFit:
    return DoesNotFit(f"expected {what}, not {_kind(value)}")


def _kind(value: Any) -> str:
    """Says what it is without quoting it: errors end in logs, where payloads do not belong."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    kinds = {dict: "an object", list: "an array", str: "a string", int: "a whole number", float: "a number"}
    return kinds[type(value)]
