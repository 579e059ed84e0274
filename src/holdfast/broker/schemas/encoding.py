"""Whether one message's bytes fit a compiled definition, in JSON or in binary."""

from __future__ import annotations

from typing import Any

from holdfast.broker.schemas.avro_types import Bytes
from holdfast.broker.schemas.definitions import Compiled
from holdfast.broker.schemas.json_text import parse_json
from holdfast.broker.schemas.problems import DoesNotFit
from holdfast.broker.schemas.proto_messages import ProtoType

JSON = "JSON"
BINARY = "BINARY"

LARGEST_BYTES = 10_000_000  # Cloud Pub/Sub's, of a message


def check_message(compiled: Compiled, encoding: str, data: bytes) -> None:
    """Raises DoesNotFit."""
    if len(data) > LARGEST_BYTES:
        raise DoesNotFit(f"has {len(data)} bytes; at most {LARGEST_BYTES} are allowed")
    if encoding == JSON:
        compiled.check_json(_parsed(data))
    else:
        _check_binary(compiled, data)


def _parsed(data: bytes) -> Any:
    try:
        return parse_json(data)
    except ValueError as error:
        raise DoesNotFit(str(error)) from error


def _check_binary(compiled: Compiled, data: bytes) -> None:
    if isinstance(compiled, ProtoType):
        compiled.check_binary(data)
        return
    reading = Bytes(data)
    compiled.check_binary(reading)
    if reading.left:
        raise DoesNotFit(f"{reading.left} bytes are left after the last field")
