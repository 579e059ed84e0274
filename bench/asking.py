"""Single requests to a server under test, over HTTP and gRPC: what the load generator is not for."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import grpc

from bench.peers import Server

PATIENCE_SECONDS = 60.0


def ask(server: Server, path: str, body: dict[str, Any] | None = None) -> Any:
    """A GET, or a POST where there is a body."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{server.port}{path}", data, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
        return json.load(answer)


def call(channel: grpc.Channel, method: str, request: Any, answer: Any = None) -> Any:
    """`request` and `answer` are of google-cloud-pubsub; without `answer` the bytes are given as they came."""
    read = answer.deserialize if answer is not None else lambda raw: raw
    write = (lambda raw: raw) if isinstance(request, bytes) else type(request).serialize
    unary = channel.unary_unary(f"/google.pubsub.v1.{method}", request_serializer=write, response_deserializer=read)
    return unary(request, timeout=PATIENCE_SECONDS)
