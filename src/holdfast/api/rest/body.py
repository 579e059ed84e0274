"""Reads a request's body within limits: what is announced, what really comes, and what gzip makes of it."""

from __future__ import annotations

import zlib

from starlette.types import Receive

from holdfast.api.rest.errors import BodyTooLarge
from holdfast.errors import BadInput

# Cloud Pub/Sub takes 10 MB a request. Base64 makes 13.4 MB of that, and names and punctuation come on top; what is
# still too large for the broker then gets the broker's own answer.
LARGEST_BODY_BYTES = 21_000_000

_GZIP_WINDOW = 16 + zlib.MAX_WBITS  # 16 asks zlib for gzip's header


class ClientGone(Exception):
    """The client closed the connection: nobody is there to answer."""


async def read_body(headers: list[tuple[bytes, bytes]], receive: Receive) -> bytes:
    announced = _header(headers, b"content-length")
    # A number of 10 digits or more is too large whatever it is, and int() refuses very long ones.
    if announced.isdigit() and (len(announced) > 9 or int(announced) > LARGEST_BODY_BYTES):
        raise _too_large()
    encoding = _header(headers, b"content-encoding").strip().lower()
    if encoding not in (b"", b"identity", b"gzip", b"x-gzip"):
        raise BadInput("Content-Encoding", f"{encoding.decode('latin-1')[:64]} is not supported; gzip is")
    body = await _received(receive)
    return _unzipped(body) if encoding.endswith(b"gzip") else body


async def _received(receive: Receive) -> bytes:
    pieces: list[bytes] = []
    size = 0
    while True:
        event = await receive()
        if event["type"] == "http.disconnect":
            raise ClientGone
        piece = event.get("body", b"")
        size += len(piece)
        if size > LARGEST_BODY_BYTES:
            raise _too_large()
        if not event.get("more_body", False):
            return b"".join([*pieces, piece])
        pieces.append(piece)


# Each member costs a copy of what follows it, so that very many tiny ones would take minutes.
MOST_GZIP_MEMBERS = 100


def _unzipped(body: bytes) -> bytes:
    """A gzip file may have several members, one after the other."""
    pieces: list[bytes] = []
    left = LARGEST_BODY_BYTES
    while body:
        if len(pieces) == MOST_GZIP_MEMBERS:
            raise BadInput("body", f"has more than {MOST_GZIP_MEMBERS} gzip members")
        member = zlib.decompressobj(_GZIP_WINDOW)
        try:
            piece = member.decompress(body, left + 1)
        except zlib.error as error:
            raise BadInput("body", f"is not valid gzip: {error}") from error
        left -= len(piece)
        if left < 0:
            raise _too_large()
        if not member.eof:
            raise BadInput("body", "is not valid gzip: it ends too early")
        pieces.append(piece)
        body = member.unused_data
    return b"".join(pieces)


def _header(headers: list[tuple[bytes, bytes]], wanted: bytes) -> bytes:
    """ASGI gives the names in small letters."""
    return next((value for name, value in headers if name == wanted), b"")


def _too_large() -> BodyTooLarge:
    return BodyTooLarge(f"is larger than {LARGEST_BODY_BYTES} bytes")
