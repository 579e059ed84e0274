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

# What a reader of one type also reads, besides the type itself.
_PROMOTIONS = {
    "long": ("int",),
    "float": ("int", "long"),
    "double": ("int", "long", "float"),
    "string": ("bytes",),
    "bytes": ("string",),
}


def incompatibility(new: Compiled, old: Compiled) -> str:
    """What is wrong, or "". Both are of the same kind."""
    if isinstance(new, ProtoType):
        assert isinstance(old, ProtoType)
        return next(_proto_problems(new.descriptor, old.descriptor), "")
    assert not isinstance(old, ProtoType)
    if problem := next(_unreadable(new, old), ""):
        return f"the new revision cannot read the older one's messages: {problem}"
    if problem := next(_unreadable(old, new), ""):
        return f"the older revision cannot read the new one's messages: {problem}"
    return ""


# Avro. In each pair the reader comes first.

_Pair = tuple[str, AvroType, AvroType]


def _unreadable(reader: AvroType, writer: AvroType) -> Iterator[str]:
    waiting: list[_Pair] = [("", reader, writer)]
    seen: set[tuple[int, int]] = set()
    while waiting:
        path, reader, writer = waiting.pop()
        if (id(reader), id(writer)) in seen:
            continue
        seen.add((id(reader), id(writer)))
        yield from _compare(path, reader, writer, waiting)


def _compare(path: str, reader: AvroType, writer: AvroType, waiting: list[_Pair]) -> Iterator[str]:
    """Yields what is wrong with the two themselves, and adds what is inside them to `waiting`."""
    if isinstance(writer, Union):
        waiting += [(path, reader, branch) for branch in writer.branches]
    elif isinstance(reader, Union):
        branch = next((branch for branch in reader.branches if _may_read(branch, writer)), None)
        if branch is None:
            yield f"{path or 'the schema'}: no branch of the union reads {writer.name}"
        else:
            waiting.append((path, branch, writer))
    elif not _may_read(reader, writer):
        yield f"{path or 'the schema'} of type {reader.name} is not compatible with type {writer.name}"
    elif isinstance(reader, Record) and isinstance(writer, Record):
        yield from _compare_records(path, reader, writer, waiting)
    elif isinstance(reader, Array) and isinstance(writer, Array):
        waiting.append((f"{path}[]", reader.items, writer.items))
    elif isinstance(reader, Map) and isinstance(writer, Map):
        waiting.append((f"{path}{{}}", reader.values, writer.values))
    elif isinstance(reader, Enum) and isinstance(writer, Enum) and reader.default is None:
        for symbol in writer.symbols:
            if symbol not in reader.symbols:
                yield f"{path or 'the schema'}: enum {reader.name} has no symbol {symbol} and no default"


def _compare_records(path: str, reader: Record, writer: Record, waiting: list[_Pair]) -> Iterator[str]:
    for field in reader.fields.values():
        inner = f"{path}.{field.name}".lstrip(".")
        written = _written(field, writer)
        if written is not None:
            waiting.append((inner, field.type, written.type))
        elif not field.has_default:
            yield f"{inner} has no default and is not in the other revision"


def _written(field: Field, writer: Record) -> Field | None:
    return next((writer.fields[name] for name in (field.name, *field.aliases) if name in writer.fields), None)


def _may_read(reader: AvroType, writer: AvroType) -> bool:
    """By kind and name alone, which is how Avro chooses the branch of a union."""
    if isinstance(reader, (Record, Enum, Fixed)):
        if type(reader) is not type(writer) or _short(reader.name) != _short(writer.name):
            return False
        return not (isinstance(reader, Fixed) and isinstance(writer, Fixed)) or reader.size == writer.size
    return reader.name == writer.name or writer.name in _PROMOTIONS.get(reader.name, ())


def _short(name: str) -> str:
    return name.rpartition(".")[2]


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
