"""Asks a running Holdfast over its HTTP API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import aiohttp

from holdfast.errors import BadInput, HoldfastError, NotFound, StorageUnavailable

TIMEOUT_SECONDS = 10

# For what reads or changes many rows.
LONG_TIMEOUT_SECONDS = 120

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
) -> Any:
    """What it answers as JSON; its refusal becomes an error in its own words. `path` is not encoded."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=LONG_TIMEOUT_SECONDS)) as session:
        return await _request_with(session, method, url, path, pairs, json=body, headers=headers)


async def _request_with(
    session: aiohttp.ClientSession, method: str, url: str, path: str, pairs: Pairs, **more: Any
) -> Any:
    try:
        async with session.request(method, url.rstrip("/") + quote(path), params=pairs, **more) as response:
            body = await response.json(content_type=None)
    except aiohttp.InvalidURL as error:
        raise BadInput("--url", f"{url!r} is not a URL such as http://127.0.0.1:8080") from error
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        raise StorageUnavailable(
            f"no Holdfast answers at {url}: {str(error) or type(error).__name__}. Is it up?"
        ) from error
    return answered(response.status, body)


def answered(status: int, body: Any) -> Any:
    if status < 400:
        return body
    try:
        message = str(body["error"]["message"])
    except (LookupError, TypeError):
        message = f"it answered {status}, and no Holdfast does so"
    raise NotFound(message) if status == 404 else HoldfastError(message)
