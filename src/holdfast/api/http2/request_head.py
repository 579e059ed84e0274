"""A request's headers, checked as HTTP/2 demands, and what a gRPC server wants to know from them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from holdfast.api.http2.hpack import Header

GRPC = b"application/grpc"


class Malformed(Exception):
    """Not a request by the rules of HTTP/2."""


@dataclass(frozen=True, slots=True)
class RequestHead:
    method: bytes
    path: bytes
    content_type: bytes
    # What came, unread: "" is no deadline and no compression.
    timeout: bytes
    encoding: bytes
    # -1 when the client did not say.
    content_length: int

    @property
    def is_grpc(self) -> bool:
        """Also with a suffix: application/grpc+proto. But application/grpc-web is something else."""
        kind = self.content_type
        return kind.startswith(GRPC) and kind[len(GRPC) : len(GRPC) + 1] in (b"", b"+", b";")


_PSEUDO = frozenset((b":method", b":scheme", b":path", b":authority"))

# They speak of one connection of HTTP/1, and have no meaning here.
_FORBIDDEN = frozenset((b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"))

_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
_BAD_VALUE = re.compile(rb"[\0\r\n]|\A[ \t]|[ \t]\Z")

# Names that need no further look.
_COMMON = frozenset(
    (
        *(b"content-type", b"user-agent", b"accept-encoding", b"grpc-accept-encoding", b"x-goog-api-client"),
        *(b"grpc-timeout", b"grpc-encoding", b"x-goog-request-params"),
    )
)


def request_head(headers: Iterable[Header]) -> RequestHead:
    found: dict[bytes, bytes] = {}
    pseudo_are_over = False
    for name, value in headers:
        if name in _PSEUDO:
            if pseudo_are_over or name in found:
                raise Malformed("a pseudo-header is there twice, or after others")
        else:
            pseudo_are_over = True
            if name not in _COMMON:
                check_field(name, value)
        if _BAD_VALUE.search(value):
            raise Malformed("a header's value has characters that it must not have")
        found[name] = value
    method, path = found.get(b":method", b""), found.get(b":path", b"")
    if not method or not path or b":scheme" not in found:
        raise Malformed("method, scheme and path are needed")
    return RequestHead(
        method,
        path,
        found.get(b"content-type", b""),
        found.get(b"grpc-timeout", b""),
        found.get(b"grpc-encoding", b""),
        _content_length(found.get(b"content-length")),
    )


def check_trailers(headers: Iterable[Header]) -> None:
    for name, value in headers:
        check_field(name, value)


def check_field(name: bytes, value: bytes) -> None:
    if not _NAME.fullmatch(name):
        raise Malformed("a header's name has characters that it must not have, or is unknown")
    if name in _FORBIDDEN or (name == b"te" and value != b"trailers"):
        raise Malformed("a header belongs to HTTP/1")


def _content_length(value: bytes | None) -> int:
    if value is None:
        return -1
    if not value.isdigit() or len(value) > 18:
        raise Malformed("content-length is not a number")
    return int(value)
