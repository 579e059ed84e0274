"""Asks a running Holdfast over its HTTP API."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import IO, Any
from urllib.parse import quote

import aiohttp

from holdfast.errors import BadInput, HoldfastError, NotFound, StorageUnavailable
from holdfast.model.exact_json import dump_exact_json

TIMEOUT_SECONDS = 10

# For what reads or changes many rows.
LONG_TIMEOUT_SECONDS = 120

NDJSON = "application/x-ndjson"

Loads = Callable[[str], Any]
Pairs = Sequence[tuple[str, str]]


async def get_json(url: str, path: str, **query: object) -> Any:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)) as session:
        return await get_json_with(session, url, path, **query)


async def get_json_with(session: aiohttp.ClientSession, url: str, path: str, **query: object) -> Any:
    pairs = [(name, str(value)) for name, value in query.items() if value != ""]
    return await _request_with(session, "GET", url, path, pairs)


async def request(
    method: str,
    url: str,
    path: str,
    pairs: Pairs = (),
    *,
    body: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
    loads: Loads = json.loads,
) -> Any:
    """What it answers as JSON; its refusal becomes an error in its own words. `path` is not encoded. Numbers of the
    body may be exact."""
    timeout = aiohttp.ClientTimeout(total=LONG_TIMEOUT_SECONDS)
    async with aiohttp.ClientSession(timeout=timeout, json_serialize=dump_exact_json) as session:
        return await _request_with(session, method, url, path, pairs, loads, json=body, headers=headers)


async def lines(
    method: str,
    url: str,
    path: str,
    pairs: Pairs = (),
    *,
    body: Mapping[str, Any] | IO[bytes] | None = None,
    headers: Mapping[str, str] | None = None,
) -> AsyncIterator[bytes]:
    """What it answers, line by line, for as long as they come. A file as the body is sent piece by piece."""
    more: dict[str, Any] = {"json": body} if body is None or isinstance(body, Mapping) else {"data": body}
    more["headers"] = {"Accept": NDJSON, **(headers or {})}
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=TIMEOUT_SECONDS, sock_read=LONG_TIMEOUT_SECONDS)
    with errors_of(url):
        async with (
            aiohttp.ClientSession(timeout=timeout, json_serialize=dump_exact_json) as session,
            session.request(method, url.rstrip("/") + quote(path), params=pairs, **more) as response,
        ):
            if response.status >= 400:
                answered(response.status, await response.json(content_type=None))
            async for line in _lines_of(response.content):
                yield line


async def _lines_of(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """One may have many megabytes, which is more than the reader's own lines may have."""
    waiting: list[bytes] = []
    async for piece in content.iter_any():
        first, *others = piece.split(b"\n")
        waiting.append(first)
        for other in others:
            yield b"".join(waiting)
            waiting = [other]
    if any(waiting):
        yield b"".join(waiting)


async def _request_with(
    session: aiohttp.ClientSession,
    method: str,
    url: str,
    path: str,
    pairs: Pairs,
    loads: Loads = json.loads,
    **more: Any,
) -> Any:
    with errors_of(url):
        async with session.request(method, url.rstrip("/") + quote(path), params=pairs, **more) as response:
            body = await response.json(content_type=None, loads=loads)
    return answered(response.status, body)


@contextlib.contextmanager
def errors_of(url: str) -> Iterator[None]:
    try:
        yield
    except aiohttp.InvalidURL as error:
        raise BadInput("--url", f"{url!r} is not a URL such as http://127.0.0.1:8080") from error
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        raise StorageUnavailable(
            f"no Holdfast answers at {url}: {str(error) or type(error).__name__}. Is it up?"
        ) from error


def answered(status: int, body: Any) -> Any:
    if status < 400:
        return body
    try:
        message = str(body["error"]["message"])
    except (LookupError, TypeError):
        message = f"it answered {status}, and no Holdfast does so"
    raise NotFound(message) if status == 404 else HoldfastError(message)
