"""Whether one message's bytes fit a compiled definition, in JSON or in binary."""

from __future__ import annotations

from typing import Any

from holdfast.broker.schemas.avro_types import AvroType, Bytes
from holdfast.broker.schemas.definitions import Compiled
from holdfast.broker.schemas.json_text import parse_json
from holdfast.broker.schemas.problems import DoesNotFit
from holdfast.broker.schemas.proto_messages import ProtoType

JSON = "JSON"
BINARY = "BINARY"

LARGEST_BYTES = 10_000_000  # Cloud Pub/Sub's, of a message


def check_message(compiled: Compiled, encoding: str, data: bytes) -> None:
    """Raises DoesNotFit."""
    check_decoded(compiled, encoding, decoded(encoding, data))


def decoded(encoding: str, data: bytes) -> Any:
    """What no schema is needed for, apart, since a message may be held against many revisions. Raises DoesNotFit."""
    if len(data) > LARGEST_BYTES:
        raise DoesNotFit(f"has {len(data)} bytes; at most {LARGEST_BYTES} are allowed")
    if encoding == BINARY:
        return data
    try:
        return parse_json(data)
    except ValueError as error:
        raise DoesNotFit(str(error)) from error


def check_decoded(compiled: Compiled, encoding: str, value: Any) -> None:
    if encoding == JSON:
        compiled.check_json(value)
    elif isinstance(compiled, ProtoType):
        compiled.check_binary(value)
    else:
        _check_avro(compiled, value)


def _check_avro(compiled: AvroType, data: bytes) -> None:
    reading = Bytes(data)
    compiled.check_binary(reading)
    if reading.left:
        raise DoesNotFit(f"{reading.left} bytes are left after the last field")
