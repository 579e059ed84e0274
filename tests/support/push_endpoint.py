"""A real HTTP server to push to: it records what arrives and answers as it is told."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Reply = Callable[[web.Request], Awaitable[web.StreamResponse]]

SECONDS = 20.0  # longest wait for what must come


@dataclass
class Endpoint:
    url: str = ""
    reply: Reply | None = None
    envelopes: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    methods: list[str] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    at_once: int = 0
    most_at_once: int = 0
    _waiting: list[tuple[Callable[[], bool], asyncio.Future[None]]] = field(default_factory=list)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            body = await request.read()
            self.methods.append(request.method)
            self.headers.append(dict(request.headers))
            self.bodies.append(body)
            if request.method == "POST" and request.headers.get("Content-Type") == "application/json":
                self.envelopes.append(json.loads(body))
            self._tell()
            return await self.reply(request) if self.reply else web.Response(status=204)
        finally:
            self.at_once -= 1
            self._tell()

    async def wait_for(self, count: int) -> None:
        await self.wait_until(lambda: len(self.bodies) >= count)

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Looks at every arrival and every answer."""
        if not condition():
            arrived = asyncio.get_running_loop().create_future()
            self._waiting.append((condition, arrived))
            await asyncio.wait_for(arrived, SECONDS)

    def _tell(self) -> None:
        for waiting in list(self._waiting):
            condition, arrived = waiting
            if condition():
                self._waiting.remove(waiting)
                if not arrived.done():
                    arrived.set_result(None)

    @property
    def data(self) -> list[bytes]:
        return [base64.b64decode(envelope["message"]["data"]) for envelope in self.envelopes]


@asynccontextmanager
async def push_endpoint(reply: Reply | None = None) -> AsyncIterator[Endpoint]:
    endpoint = Endpoint(reply=reply)
    app = web.Application(client_max_size=20_000_000)
    app.router.add_route("*", "/{tail:.*}", endpoint.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    endpoint.url = f"http://127.0.0.1:{runner.addresses[0][1]}/push"
    try:
        yield endpoint
    finally:
        await runner.cleanup()


def answering(status: int, **headers: str) -> Reply:
    async def reply(request: web.Request) -> web.StreamResponse:
        return web.Response(status=status, headers={name.replace("_", "-"): text for name, text in headers.items()})

    return reply
