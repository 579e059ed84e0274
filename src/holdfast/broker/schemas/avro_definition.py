"""Avro definitions: strict, and every refusal says where in the definition.

Not by fastavro: it lets missing and repeated parts pass, says nothing of where, and refuses things that Avro allows
(a name in an object, a decimal that is to be ignored). A logical type is taken as the type under it.
"""

from __future__ import annotations

import re
from typing import Any

from holdfast.broker.schemas.avro_types import (
    PRIMITIVES,
    Array,
    AvroType,
    Enum,
    Field,
    Fixed,
    Map,
    Record,
    Union,
)
from holdfast.broker.schemas.json_text import parse_json
from holdfast.broker.schemas.problems import BadDefinition, DoesNotFit

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_ORDERS = ("ascending", "descending", "ignore")


def parse_avro(text: str) -> AvroType:
    """Raises BadDefinition."""
    try:
        value = parse_json(text.encode())
    except ValueError as error:
        raise BadDefinition(str(error)) from error
    if isinstance(value, list):
        raise BadDefinition("a schema has one top-level type, and this is a union of several")
    return _Parser().parse(value)


class _Parser:
    def __init__(self) -> None:
        self._named: dict[str, AvroType] = {}
        # Looked at last: until then a type may be known by name only.
        self._defaults: list[tuple[str, AvroType, Any]] = []

    def parse(self, value: Any) -> AvroType:
        found = self._type(value, "")
        for path, kind, default in self._defaults:
            try:
                _check_default(kind, default)
            except DoesNotFit as problem:
                raise BadDefinition(f"the default does not fit: {problem}", path) from problem
        return found

    def _type(self, value: Any, namespace: str) -> AvroType:
        if isinstance(value, str):
            return self._reference(value, namespace)
        if isinstance(value, list):
            return self._union(value, namespace)
        if not isinstance(value, dict):
            raise BadDefinition("a type is a name, an object or an array (union)")
        match _required(value, "type"):
            case "record" | "error":
                return self._record(value, namespace)
            case "enum":
                return self._enum(value, namespace)
            case "fixed":
                return self._fixed(value, namespace)
            case "array":
                return Array(self._part(value, "items", namespace))
            case "map":
                return Map(self._part(value, "values", namespace))
            case _:  # a name with attributes (a logical type), or a type inside a type
                return self._part(value, "type", namespace)

    def _reference(self, name: str, namespace: str) -> AvroType:
        if name in PRIMITIVES:
            return PRIMITIVES[name]
        found = self._named.get(f"{namespace}.{name}" if namespace and "." not in name else name)
        if found is None:
            raise BadDefinition(f"there is no type {name[:64]!r}, or it is defined only later")
        return found

    def _union(self, value: list[Any], namespace: str) -> Union:
        branches: list[AvroType] = []
        names: set[str] = set()
        for index, item in enumerate(value):
            branch = self._within(f"[{index}]", item, namespace)
            if isinstance(branch, Union):
                raise BadDefinition("a union may not have a union as a branch", f"[{index}]")
            if branch.name in names:
                raise BadDefinition(f"the union has {branch.name} twice", f"[{index}]")
            names.add(branch.name)
            branches.append(branch)
        if not branches:
            raise BadDefinition("a union needs at least one branch")
        return Union(branches)

    def _record(self, value: dict[str, Any], namespace: str) -> Record:
        name, inner = self._new_name(value, namespace)
        record = Record(name)
        self._named[name] = record
        fields = _required(value, "fields")
        if not isinstance(fields, list):
            raise BadDefinition("must be an array", ".fields")
        made: dict[str, Field] = {}
        for index, item in enumerate(fields):
            try:
                field = self._field(item, inner)
                if field.name in made:
                    raise BadDefinition(f"the field {field.name!r} is there twice")
            except BadDefinition as problem:
                problem.inside(f".fields[{index}]")
                raise
            made[field.name] = field
        record.define(list(made.values()))
        return record

    def _field(self, value: Any, namespace: str) -> Field:
        if not isinstance(value, dict):
            raise BadDefinition("a field is an object")
        name = _required(value, "name")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise BadDefinition("a name is letters, digits and _, not a digit first", ".name")
        if value.get("order", "ascending") not in _ORDERS:
            raise BadDefinition(f"must be one of {', '.join(_ORDERS)}", ".order")
        kind = self._part(value, "type", namespace)
        if "default" in value:
            self._defaults.append((f"field {name!r}", kind, value["default"]))
        return Field(name, kind, "default" in value, _aliases(value))

    def _enum(self, value: dict[str, Any], namespace: str) -> Enum:
        name, _ = self._new_name(value, namespace)
        symbols = _required(value, "symbols")
        if not isinstance(symbols, list) or not symbols:
            raise BadDefinition("must be an array of at least one symbol", ".symbols")
        for index, symbol in enumerate(symbols):
            if not isinstance(symbol, str) or not _NAME.fullmatch(symbol):
                raise BadDefinition("a symbol is letters, digits and _, not a digit first", f".symbols[{index}]")
        if len(set(symbols)) != len(symbols):
            raise BadDefinition("a symbol is there twice", ".symbols")
        default = value.get("default")
        if default is not None and default not in symbols:
            raise BadDefinition("must be one of the symbols", ".default")
        enum = self._named[name] = Enum(name, symbols, default)
        return enum

    def _fixed(self, value: dict[str, Any], namespace: str) -> Fixed:
        name, _ = self._new_name(value, namespace)
        size = _required(value, "size")
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            raise BadDefinition("must be a whole number, 0 or more", ".size")
        fixed = self._named[name] = Fixed(name, size)
        return fixed

    def _new_name(self, value: dict[str, Any], namespace: str) -> tuple[str, str]:
        """The full name, and the namespace of what is inside."""
        name = _required(value, "name")
        own = value.get("namespace", namespace)
        for key, part in (("name", name), ("namespace", own or "none")):
            if not isinstance(part, str) or not all(_NAME.fullmatch(step) for step in part.split(".")):
                raise BadDefinition("a name is letters, digits and _, not a digit first, with dots between", f".{key}")
        full = name if "." in name or not own else f"{own}.{name}"
        if full in self._named or full in PRIMITIVES:
            raise BadDefinition(f"the type {full[:64]!r} is there already", ".name")
        _aliases(value)
        return full, full.rpartition(".")[0]

    def _part(self, value: dict[str, Any], key: str, namespace: str) -> AvroType:
        return self._within(f".{key}", _required(value, key), namespace)

    def _within(self, step: str, value: Any, namespace: str) -> AvroType:
        try:
            return self._type(value, namespace)
        except BadDefinition as problem:
            problem.inside(step)
            raise


def _required(value: dict[str, Any], key: str) -> Any:
    if key not in value:
        raise BadDefinition(f"{key!r} is missing")
    return value[key]


def _aliases(value: dict[str, Any]) -> tuple[str, ...]:
    aliases = value.get("aliases", [])
    if not isinstance(aliases, list) or not all(isinstance(alias, str) for alias in aliases):
        raise BadDefinition("must be an array of names", ".aliases")
    return tuple(aliases)


def _check_default(kind: AvroType, value: Any) -> None:
    """A default is written like the JSON encoding, but a union's is of its first branch, without the branch's name."""
    if isinstance(kind, Union):
        _check_default(kind.branches[0], value)
    elif isinstance(kind, Array) and isinstance(value, list):
        for item in value:
            _check_default(kind.items, item)
    elif isinstance(kind, Map) and isinstance(value, dict):
        for item in value.values():
            _check_default(kind.values, item)
    elif isinstance(kind, Record) and isinstance(value, dict):
        for name, field in kind.fields.items():
            if name in value:
                _check_default(field.type, value[name])
            elif not field.has_default:
                raise DoesNotFit("is missing", f".{name}")
    else:
        kind.check_json(value)
