"""Asks a running Holdfast over its HTTP API."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import aiohttp

from holdfast.errors import BadInput, NotFound, StorageUnavailable

TIMEOUT_SECONDS = 10


async def get_json(url: str, path: str, **query: object) -> Any:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)) as session:
        return await get_json_with(session, url, path, **query)


async def get_json_with(session: aiohttp.ClientSession, url: str, path: str, **query: object) -> Any:
    wanted = {name: str(value) for name, value in query.items() if value != ""}
    try:
        async with session.get(url.rstrip("/") + quote(path), params=wanted) as response:
            body = await response.json(content_type=None)
    except aiohttp.InvalidURL as error:
        raise BadInput("--url", f"{url!r} is not a URL such as http://127.0.0.1:8080") from error
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        raise StorageUnavailable(
            f"no Holdfast answers at {url}: {str(error) or type(error).__name__}. Is it up?"
        ) from error
    if response.status == 404:
        raise NotFound(body["error"]["message"])
    if response.status >= 400:
        raise BadInput("request", body["error"]["message"])
    return body
