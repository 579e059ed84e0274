"""Asks routes without a server: for commands that read a store's file in the words of the API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import quote, urlencode

from starlette.applications import Starlette
from starlette.routing import BaseRoute
from starlette.types import Message, Scope


async def get(
    routes: Sequence[BaseRoute], path: str, pairs: Sequence[tuple[str, str]], headers: Mapping[str, str]
) -> tuple[int, bytes]:
    """Status and body. `path` is not encoded."""
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    await Starlette(routes=routes)(_scope(path, pairs, headers), receive, send)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])


def _scope(path: str, pairs: Sequence[tuple[str, str]], headers: Mapping[str, str]) -> Scope:
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "server": ("localhost", 80),
        "client": None,
        "root_path": "",
        "path": path,
        "raw_path": quote(path).encode(),
        "query_string": urlencode(pairs).encode(),
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
    }
