"""What a service offers: for each method, the request's class and a plain async function. Knows nothing of grpcio."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any

from holdfast.tracing.context import HEADER

# Cloud Pub/Sub takes 10 MB a request and answers INVALID_ARGUMENT above. A server must let a little more in, so that
# the client gets that answer and not a broken connection.
LARGEST_REQUEST_BYTES = 21_000_000


@dataclass(frozen=True, slots=True)
class Method:
    """One request, one response: a protobuf message, or bytes that are one already. `raw` asks for the request's
    bytes as they came, for handlers that take them apart themselves; `headers` asks for those that Holdfast's own
    clients add to what Pub/Sub knows, as a mapping with names in lower case, and `traced` for traceparent among
    them."""

    request: Any
    handle: Callable[..., Awaitable[Any]]
    raw: bool = False
    headers: bool = False
    traced: bool = False

    def call(self, request: Any, headers: Iterable[tuple[bytes, bytes]]) -> Awaitable[Any]:
        if not self.headers:
            return self.handle(request)
        given = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}
        if given and not self.traced:
            given.pop(HEADER, None)
        return self.handle(request, given)


@dataclass(frozen=True, slots=True)
class StreamMethod:
    """Many requests, many responses."""

    request: Any
    handle: Callable[[AsyncIterator[Any]], AsyncIterator[Any]]
