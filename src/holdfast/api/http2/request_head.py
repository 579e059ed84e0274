"""A request's headers, checked as HTTP/2 demands, and what a gRPC server wants to know from them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from holdfast.api.http2.hpack import Header

GRPC = b"application/grpc"
OWN = b"holdfast-"


class Malformed(Exception):
    """Not a request by the rules of HTTP/2."""


class RequestHead(NamedTuple):
    method: bytes
    path: bytes
    is_grpc: bool
    # What came, unread: "" is no deadline and no compression.
    timeout: bytes
    encoding: bytes
    # -1 when the client did not say.
    content_length: int
    # Those that Holdfast's own clients add to what Pub/Sub knows.
    own: tuple[Header, ...] = ()
    # The trace that the client is in, as W3C has it.
    traceparent: bytes = b""


TRACEPARENT = b"traceparent"
_TIMEOUT = b"grpc-timeout"
# They are others each time.
_VARYING = frozenset((_TIMEOUT, TRACEPARENT, b"tracestate"))

_PSEUDO = frozenset((b":method", b":scheme", b":path", b":authority"))

# They speak of one connection of HTTP/1, and have no meaning here.
_FORBIDDEN = frozenset((b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"))

_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
_BAD_VALUE = re.compile(rb"[\0\r\n]|\A[ \t]|[ \t]\Z")


def request_head(headers: list[Header]) -> RequestHead:
    """Clients send the same again and again, except for what is left of their deadline, and for their trace."""
    for name, _ in headers:
        if name in _VARYING:
            return _with_varying(headers)
    return _checked(tuple(headers))


def _with_varying(headers: list[Header]) -> RequestHead:
    varying = {name: value for name, value in headers if name in _VARYING}
    if any(_BAD_VALUE.search(value) for value in varying.values()):
        raise Malformed("a header's value has characters that it must not have")
    head = _checked(tuple([header for header in headers if header[0] not in _VARYING]))
    return head._replace(timeout=varying.get(_TIMEOUT, b""), traceparent=varying.get(TRACEPARENT, b""))


@lru_cache(256)
def _checked(headers: tuple[Header, ...]) -> RequestHead:
    found: dict[bytes, bytes] = {}
    pseudo_are_over = False
    for name, value in headers:
        if name in _PSEUDO:
            if pseudo_are_over or name in found:
                raise Malformed("a pseudo-header is there twice, or after others")
        else:
            pseudo_are_over = True
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
        _is_grpc(found.get(b"content-type", b"")),
        b"",
        found.get(b"grpc-encoding", b""),
        _content_length(found.get(b"content-length")),
        tuple((name, value) for name, value in found.items() if name.startswith(OWN)),
    )


def _is_grpc(content_type: bytes) -> bool:
    """Also with a suffix: application/grpc+proto. But application/grpc-web is something else."""
    return content_type.startswith(GRPC) and content_type[len(GRPC) : len(GRPC) + 1] in (b"", b"+", b";")


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
