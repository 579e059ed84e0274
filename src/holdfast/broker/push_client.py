"""One HTTP POST to a push endpoint, with everything that can go wrong turned into a value."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import aiohttp

import holdfast


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """`kind` is one word for metrics and logs: timeout, refused, or failed."""

    kind: str
    error: str


class PushClient(Protocol):
    async def post(self, url: str, body: bytes, timeout_seconds: float) -> Answer | NoAnswer: ...


# Above this, aiohttp wants a file, which it sends in pieces; in one piece it would hold up everybody else.
LARGE_BODY_BYTES = 1 << 20


class AiohttpPushClient:
    """Redirects are not followed and the answer's body is not read: nobody needs it, and it could be endless."""

    def __init__(self) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=10),
            headers={
                "Content-Type": "application/json",
                "User-Agent": f"holdfast-push/{holdfast.__version__}",
            },
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def post(self, url: str, body: bytes, timeout_seconds: float) -> Answer | NoAnswer:
        timeout = aiohttp.ClientTimeout(total=timeout_seconds)
        try:
            data = body if len(body) < LARGE_BODY_BYTES else io.BytesIO(body)
            async with self._session.post(url, data=data, timeout=timeout, allow_redirects=False) as response:
                return Answer(response.status, response.headers)
        except TimeoutError:
            return NoAnswer("timeout", f"no answer within {timeout_seconds:g} s")
        except aiohttp.ClientConnectorError as error:
            return NoAnswer("refused", f"cannot connect: {error.os_error}")
        except (aiohttp.ClientError, ValueError, OSError) as error:
            return NoAnswer("failed", f"{type(error).__name__}: {error}")

    async def close(self) -> None:
        await self._session.close()
