"""Whether a new revision may stand beside an older one, by Cloud Pub/Sub's documented rules.

Avro: each must be able to read what the other wrote (Avro's schema resolution, both ways). Protocol Buffers: fields
that are not required may come and go, and a field that stays, stays as it is. Work is kept in lists and not in
recursion, since a definition may chain thousands of types.
"""

from __future__ import annotations

from collections.abc import Iterator

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto

from holdfast.broker.schemas.avro_types import Array, AvroType, Enum, Field, Fixed, Map, Record, Union
from holdfast.broker.schemas.definitions import Compiled
from holdfast.broker.schemas.proto_messages import ProtoType

# What else reads a type, besides the type itself.
_PROMOTIONS = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}


def incompatibility(new: Compiled, old: Compiled) -> str:
    """What is wrong, or "". Both are of the same kind."""
    if isinstance(new, ProtoType):
        assert isinstance(old, ProtoType)
        return next(_proto_problems(new.descriptor, old.descriptor), "")
    assert not isinstance(old, ProtoType)
    if problem := next(_Reading(new, old).problems(), ""):
        return f"the new revision cannot read the older one's messages: {problem}"
    if problem := next(_Reading(old, new).problems(), ""):
        return f"the older revision cannot read the new one's messages: {problem}"
    return ""


# Avro.


class _Reading:
    """Whether one type reads whatever another wrote. In each pair the reader comes first."""

    def __init__(self, reader: AvroType, writer: AvroType) -> None:
        self._waiting: list[tuple[str, AvroType, AvroType]] = [("", reader, writer)]
        self._seen: set[tuple[int, int]] = set()
        self._branches: dict[int, dict[_Key, AvroType]] = {}  # of each union that reads; a union may have thousands

    def problems(self) -> Iterator[str]:
        while self._waiting:
            path, reader, writer = self._waiting.pop()
            if (id(reader), id(writer)) not in self._seen:
                self._seen.add((id(reader), id(writer)))
                yield from self._compare(path, reader, writer)

    def _compare(self, path: str, reader: AvroType, writer: AvroType) -> Iterator[str]:
        """Gives what is wrong with the two themselves, and lets what is inside them wait."""
        if isinstance(writer, Union):
            self._waiting += [(path, reader, branch) for branch in writer.branches]
        elif isinstance(reader, Union):
            branch = self._branch(reader, writer)
            if branch is None:
                yield f"{path or 'the schema'}: no branch of the union reads {writer.name}"
            else:
                self._waiting.append((path, branch, writer))
        elif _key(reader) not in _readers(writer):
            yield f"{path or 'the schema'} of type {reader.name} is not compatible with type {writer.name}"
        elif isinstance(reader, Record) and isinstance(writer, Record):
            yield from self._compare_records(path, reader, writer)
        elif isinstance(reader, Array) and isinstance(writer, Array):
            self._waiting.append((f"{path}[]", reader.items, writer.items))
        elif isinstance(reader, Map) and isinstance(writer, Map):
            self._waiting.append((f"{path}{{}}", reader.values, writer.values))
        elif isinstance(reader, Enum) and isinstance(writer, Enum) and reader.default is None:
            for symbol in writer.symbols:
                if symbol not in reader.symbols:
                    yield f"{path or 'the schema'}: enum {reader.name} has no symbol {symbol} and no default"

    def _branch(self, reader: Union, writer: AvroType) -> AvroType | None:
        """Avro chooses it by kind and name alone."""
        if id(reader) not in self._branches:
            # Reversed, so that of two that are alike the first stays.
            self._branches[id(reader)] = {_key(branch): branch for branch in reversed(reader.branches)}
        branches = self._branches[id(reader)]
        return next((branches[key] for key in _readers(writer) if key in branches), None)

    def _compare_records(self, path: str, reader: Record, writer: Record) -> Iterator[str]:
        for field in reader.fields.values():
            inner = f"{path}.{field.name}".lstrip(".")
            written = _written(field, writer)
            if written is not None:
                self._waiting.append((inner, field.type, written.type))
            elif not field.has_default:
                yield f"{inner} has no default and is not in the other revision"


_Key = tuple[str, ...]


def _written(field: Field, writer: Record) -> Field | None:
    return next((writer.fields[name] for name in (field.name, *field.aliases) if name in writer.fields), None)


def _key(kind: AvroType) -> _Key:
    """What Avro matches types by: of named ones the kind and the name without its namespace."""
    if not isinstance(kind, (Record, Enum, Fixed)):
        return (kind.name,)
    size = str(kind.size) if isinstance(kind, Fixed) else ""
    return (type(kind).__name__, kind.name.rpartition(".")[2], size)


def _readers(writer: AvroType) -> list[_Key]:
    return [_key(writer), *((name,) for name in _PROMOTIONS.get(writer.name, ()))]


# Protocol Buffers.


def _proto_problems(new: Descriptor, old: Descriptor) -> Iterator[str]:
    waiting = [(new, old)]
    seen: set[tuple[str, str]] = set()
    while waiting:
        new, old = waiting.pop()
        if (new.full_name, old.full_name) in seen:
            continue
        seen.add((new.full_name, old.full_name))
        yield from _changed_fields(new, old)
        for number, field in new.fields_by_number.items():
            before = old.fields_by_number.get(number)
            if before is not None and field.message_type is not None and before.message_type is not None:
                waiting.append((field.message_type, before.message_type))


def _changed_fields(new: Descriptor, old: Descriptor) -> Iterator[str]:
    for number in sorted({*new.fields_by_number, *old.fields_by_number}):
        field, before = new.fields_by_number.get(number), old.fields_by_number.get(number)
        if field is None or before is None:
            yield from _came_or_went(field or before, new, old)
        elif field.name != before.name:
            yield f"field number {number} is called {field.name} and was called {before.name}"
        elif _described(field) != _described(before):
            yield f"{field.name} of type {_described(field)} is not compatible with type {_described(before)}"
        elif field.enum_type is not None and before.enum_type is not None:
            yield from _changed_values(field.enum_type, before.enum_type)


def _came_or_went(field: FieldDescriptor | None, new: Descriptor, old: Descriptor) -> Iterator[str]:
    assert field is not None
    if field.is_required:
        yield f"{field.name} is required, and only one of the revisions has it"
    elif field.name in new.fields_by_name and field.name in old.fields_by_name:
        yield f"{field.name} has another number than before"


def _described(field: FieldDescriptor) -> str:
    """The type without the names of messages and enums, which may change: what is inside them is compared."""
    label = "repeated " if field.is_repeated else "required " if field.is_required else ""
    return label + FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()  # type: ignore[arg-type]


def _changed_values(new: EnumDescriptor, old: EnumDescriptor) -> Iterator[str]:
    for name, value in new.values_by_name.items():
        before = old.values_by_name.get(name)
        if before is not None and before.number != value.number:
            yield f"{new.name}.{name} is {value.number} and was {before.number}"
