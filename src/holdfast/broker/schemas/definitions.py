"""Definitions: checked when they arrive, and made into types that messages are checked against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from holdfast.broker.schemas.avro_definition import parse_avro
from holdfast.broker.schemas.avro_types import AvroType
from holdfast.broker.schemas.problems import BadDefinition
from holdfast.broker.schemas.proto_messages import ProtoType
from holdfast.broker.schemas.protoc import compile_proto

AVRO = "AVRO"
PROTOCOL_BUFFER = "PROTOCOL_BUFFER"

LARGEST_BYTES = 300 * 1024  # Cloud Pub/Sub's

Compiled: TypeAlias = AvroType | ProtoType


@dataclass(frozen=True, slots=True)
class Definition:
    """Found to be right. `descriptor` is what protoc made of it, kept so that no later use needs protoc again."""

    type: str
    text: str
    descriptor: bytes = b""


def check_definition(kind: str, text: str) -> Definition:
    """Blocks: protoc is another process. Raises BadDefinition."""
    if not text.strip():
        raise BadDefinition("is empty")
    size = len(text.encode())
    if size > LARGEST_BYTES:
        raise BadDefinition(f"has {size} bytes; at most {LARGEST_BYTES} are allowed")
    definition = Definition(kind, text, compile_proto(text) if kind == PROTOCOL_BUFFER else b"")
    load(definition)
    return definition


def load(definition: Definition) -> Compiled:
    """Quick, and in this process."""
    return parse_avro(definition.text) if definition.type == AVRO else ProtoType(definition.descriptor)
