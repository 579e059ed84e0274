"""uvicorn without a listener: serves connections that another one accepted and looked into."""

from __future__ import annotations

import asyncio

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from holdfast.api.http.server import uvicorn_config


class ConnectionServer:
    def __init__(self, app: ASGIApp) -> None:
        self._config = uvicorn_config(app)
        self._server = uvicorn.Server(self._config)
        self._ticking: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """What `uvicorn.Server.serve` does, except that signals are left to us."""
        self._config.load()
        self._server.lifespan = self._config.lifespan_class(self._config)
        await self._server.startup(sockets=[])
        self._ticking = asyncio.create_task(self._server.main_loop())

    def protocol(self) -> asyncio.Protocol:
        """For one connection; give it `connection_made` and what was read already."""
        return HttpToolsProtocol(self._config, self._server.server_state, app_state={})

    async def stop(self) -> None:
        """Requests under way get a few seconds to finish."""
        if self._ticking is not None:
            self._server.should_exit = True
            await self._ticking
            await self._server.shutdown(sockets=[])
