"""What a service offers: for each method, the request's class and a plain async function. Knows nothing of grpcio."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

# Cloud Pub/Sub takes 10 MB a request and answers INVALID_ARGUMENT above. A server must let a little more in, so that
# the client gets that answer and not a broken connection.
LARGEST_REQUEST_BYTES = 21_000_000


@dataclass(frozen=True, slots=True)
class Method:
    """One request, one response: a protobuf message, or bytes that are one already. `raw` asks for the request's
    bytes as they came, for handlers that take them apart themselves."""

    request: Any
    handle: Callable[[Any], Awaitable[Any]]
    raw: bool = False


@dataclass(frozen=True, slots=True)
class StreamMethod:
    """Many requests, many responses."""

    request: Any
    handle: Callable[[AsyncIterator[Any]], AsyncIterator[Any]]
