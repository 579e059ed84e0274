"""gRPC's own shapes on top of HTTP/2: deadlines, message prefixes, compression, and how a status is written."""

from __future__ import annotations

import base64
import zlib
from struct import Struct
from urllib.parse import quote_from_bytes

from holdfast.api.grpc.methods import LARGEST_REQUEST_BYTES
from holdfast.api.grpc.status import Code, Status
from holdfast.api.http2 import hpack

PREFIX_BYTES = 5
_prefix = Struct(">BL")

# What a client may compress requests with; responses are never compressed.
ENCODINGS = b"identity,deflate,gzip"
# zlib finds out by itself which of the two formats it is.
_ANY_FORMAT = zlib.MAX_WBITS | 32

_SECONDS = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}

# Blocks that are always the same.
RESPONSE_HEAD = hpack.encode([(b":status", b"200"), (b"content-type", b"application/grpc")])
OK_TRAILERS = hpack.encode([(b"grpc-status", b"0")])


class CallFault(Exception):
    """The client's side of a call breaks the rules, or our limits; the call ends with this status."""

    def __init__(self, code: Code, why: str) -> None:
        super().__init__(why)
        self.status = Status(code, why)


def timeout_seconds(value: bytes) -> float | None:
    """Up to eight digits and a unit. None when there is no deadline."""
    if not value:
        return None
    digits, unit = value[:-1], value[-1:]
    if not digits.isdigit() or len(digits) > 8 or unit not in _SECONDS:
        raise CallFault(Code.INTERNAL, "grpc-timeout cannot be read")
    return int(digits) * _SECONDS[unit]


# Messages.


def message_prefix(length: int) -> bytes:
    return _prefix.pack(0, length)


def read_prefix(data: bytes | bytearray) -> tuple[int, int]:
    """Whether the message is compressed, and its length."""
    compressed, length = _prefix.unpack_from(data)
    if length > LARGEST_REQUEST_BYTES:
        raise _too_large(length)
    return compressed, length


def message(compressed: int, body: bytes, encoding: bytes) -> bytes:
    if not compressed:
        return body
    if compressed > 1 or encoding in (b"", b"identity"):
        raise CallFault(Code.INTERNAL, "a message says that it is compressed, but not how")
    reader = zlib.decompressobj(_ANY_FORMAT)
    try:
        # One byte more than allowed tells whether there would be more, without unpacking it.
        unpacked = reader.decompress(body, LARGEST_REQUEST_BYTES + 1)
    except zlib.error as error:
        raise CallFault(Code.INTERNAL, "a message cannot be decompressed") from error
    if len(unpacked) > LARGEST_REQUEST_BYTES:
        raise _too_large(len(unpacked))
    if not reader.eof:
        raise CallFault(Code.INTERNAL, "a compressed message is cut short")
    return unpacked


def _too_large(length: int) -> CallFault:
    return CallFault(
        Code.RESOURCE_EXHAUSTED, f"received message larger than max ({length} vs. {LARGEST_REQUEST_BYTES})"
    )


def check_encoding(encoding: bytes) -> None:
    if encoding and encoding not in ENCODINGS.split(b","):
        raise CallFault(Code.UNIMPLEMENTED, "requests may be compressed with gzip or deflate only")


# Statuses.


def trailers(status: Status, most_bytes: int) -> bytes:
    """The block that ends a call. Details that the client would not take are left out: the code must arrive."""
    fields = [(b"grpc-status", str(status.code.value).encode()), (b"grpc-message", _escaped(status.message))]
    if status.code is Code.UNIMPLEMENTED:
        fields.append((b"grpc-accept-encoding", ENCODINGS))
    if status.details:
        details = (b"grpc-status-details-bin", base64.b64encode(status.details).rstrip(b"="))
        if _list_bytes([*fields, details]) <= most_bytes:
            fields.append(details)
    if _list_bytes(fields) > most_bytes:
        fields = fields[:1]
    return hpack.encode(fields)


def _escaped(text: str) -> bytes:
    """Everything but printable ASCII as %XX, and the percent sign itself."""
    return quote_from_bytes(text.encode(errors="replace"), safe=_AS_IT_IS).encode()


_AS_IT_IS = bytes(byte for byte in range(0x20, 0x7F) if byte != ord("%"))


def _list_bytes(fields: list[hpack.Header]) -> int:
    return sum(len(name) + len(value) + 32 for name, value in fields) + 128  # and the headers that are always there
