"""Whether bytes are a message of a Protocol Buffers type: JSON by protobuf's own reader, binary by its C parser.

The C parser says only that something is wrong, so what it refuses is walked once more, to say which field and why.
"""

from __future__ import annotations

import re
from typing import Any

from google.protobuf import descriptor_pb2, json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from holdfast.broker.schemas.json_text import DEEPEST
from holdfast.broker.schemas.problems import BadDefinition, DoesNotFit, shortened

_VARINT, _EIGHT_BYTES, _LENGTH, _GROUP, _GROUP_END, _FOUR_BYTES = range(6)

_WIRE_TYPES = {
    FieldDescriptor.TYPE_DOUBLE: _EIGHT_BYTES,
    FieldDescriptor.TYPE_FIXED64: _EIGHT_BYTES,
    FieldDescriptor.TYPE_SFIXED64: _EIGHT_BYTES,
    FieldDescriptor.TYPE_FLOAT: _FOUR_BYTES,
    FieldDescriptor.TYPE_FIXED32: _FOUR_BYTES,
    FieldDescriptor.TYPE_SFIXED32: _FOUR_BYTES,
    FieldDescriptor.TYPE_STRING: _LENGTH,
    FieldDescriptor.TYPE_BYTES: _LENGTH,
    FieldDescriptor.TYPE_MESSAGE: _LENGTH,
    FieldDescriptor.TYPE_GROUP: _GROUP,
}  # everything else is a varint

_LONGEST_VARINT = 10

_FAILED_FIELD = re.compile(r"Failed to parse (\S{1,200}) field: ")


class ProtoType:
    def __init__(self, file: bytes) -> None:
        """`file` is a serialized FileDescriptorProto with one top-level message. Its names are its own: every
        definition has a pool to itself. Raises BadDefinition."""
        parsed = descriptor_pb2.FileDescriptorProto.FromString(file)
        self._pool = DescriptorPool()
        name = parsed.message_type[0].name
        try:
            self._pool.AddSerializedFile(file)
            self.descriptor: Descriptor = self._pool.FindMessageTypeByName(
                f"{parsed.package}.{name}" if parsed.package else name
            )
            self._class: type[Message] = GetMessageClass(self.descriptor)
        except (TypeError, KeyError) as error:
            raise BadDefinition(shortened(str(error))) from error

    def check_json(self, value: Any) -> None:
        if not isinstance(value, dict):
            raise DoesNotFit("expected an object")
        message = self._class()
        try:
            json_format.ParseDict(value, message, descriptor_pool=self._pool, max_recursion_depth=DEEPEST)
        except Exception as error:
            raise _json_problem(str(error) or type(error).__name__) from error
        _check_required(message)

    def check_binary(self, data: bytes) -> None:
        try:
            message = self._class.FromString(data)
        except DecodeError as error:
            raise self._explained(data) from error
        _check_required(message)
        size = message.ByteSize()
        message.DiscardUnknownFields()
        # As Cloud Pub/Sub, and unlike Protocol Buffers: what the schema does not know does not fit.
        if message.ByteSize() != size:
            raise self._explained(data)

    def _explained(self, data: bytes) -> DoesNotFit:
        try:
            _Walk(data).message(self.descriptor, len(data), 0)
        except DoesNotFit as problem:
            return problem
        return DoesNotFit(f"is not a message of type {self.descriptor.full_name}")


def _json_problem(said: str) -> DoesNotFit:
    """json_format says the path as `Failed to parse a field: Failed to parse b field: why`."""
    path = []
    while found := _FAILED_FIELD.match(said):
        path.append(f".{found[1]}")
        said = said[found.end() :]
    why = said.partition("Available Fields")[0].strip().rstrip(".")
    return DoesNotFit(shortened(why), *reversed(path))


def _check_required(message: Message) -> None:
    if not message.IsInitialized():
        missing = message.FindInitializationErrors()  # type: ignore[attr-defined]
        raise DoesNotFit("is missing", missing[0])


class _Walk:
    """Through the wire format, to the first thing that is wrong."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def message(self, descriptor: Descriptor, end: int, depth: int, group: int = 0) -> None:
        if depth > DEEPEST:
            raise DoesNotFit(f"is nested deeper than {DEEPEST} levels")
        while self._at < end:
            number, wire_type = divmod(self._varint(end), 8)
            if wire_type == _GROUP_END and number == group:
                return
            field = descriptor.fields_by_number.get(number)
            if field is None:
                raise DoesNotFit(f"{descriptor.full_name} has no field number {number}")
            try:
                self._field(field, wire_type, end, depth)
            except DoesNotFit as problem:
                problem.inside(f".{field.name}")
                raise
        if group:
            raise DoesNotFit("its end is missing")

    def _field(self, field: FieldDescriptor, wire_type: int, end: int, depth: int) -> None:
        expected = _WIRE_TYPES.get(field.type, _VARINT)
        packed = field.is_repeated and wire_type == _LENGTH and expected not in (_LENGTH, _GROUP)
        if wire_type != expected and not packed:
            raise DoesNotFit(f"has wire type {wire_type}, and its type is written as {expected}")
        if wire_type == _GROUP:
            assert field.message_type is not None
            self.message(field.message_type, end, depth + 1, field.number)
        elif wire_type == _LENGTH:
            stop = self._at_after(self._varint(end), end)
            if packed:
                self._packed(field, expected, stop)
            else:
                self._of_length(field, stop, depth)
        else:
            self._scalar(field, expected, end)

    def _at_after(self, length: int, end: int) -> int:
        if length > end - self._at:
            raise DoesNotFit(f"needs {length} bytes at byte {self._at}, and {end - self._at} are left")
        return self._at + length

    def _of_length(self, field: FieldDescriptor, stop: int, depth: int) -> None:
        if field.message_type is not None:
            self.message(field.message_type, stop, depth + 1)
            return
        raw, self._at = self._data[self._at : stop], stop
        if field.type == FieldDescriptor.TYPE_STRING:
            try:
                raw.decode()
            except UnicodeDecodeError as error:
                raise DoesNotFit("expected a string, and it is not UTF-8") from error

    def _packed(self, field: FieldDescriptor, expected: int, stop: int) -> None:
        while self._at < stop:
            self._scalar(field, expected, stop)

    def _scalar(self, field: FieldDescriptor, expected: int, end: int) -> None:
        if expected == _VARINT:
            value = self._varint(end)
            known = field.enum_type
            if known is not None and known.is_closed and value not in known.values_by_number:
                raise DoesNotFit(f"{known.full_name} has no value {value}")
        else:
            self._at = self._at_after(8 if expected == _EIGHT_BYTES else 4, end)

    def _varint(self, end: int) -> int:
        result = 0
        for index in range(min(_LONGEST_VARINT, end - self._at)):
            byte = self._data[self._at + index]
            result |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                self._at += index + 1
                return result
        raise DoesNotFit(f"has no whole number of at most 64 bits at byte {self._at}")
