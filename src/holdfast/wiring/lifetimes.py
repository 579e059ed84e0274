"""Things that start when they are entered and stop when they are left."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Protocol, TypeVar

from starlette.routing import Route

from holdfast.api.http.app import make_app
from holdfast.api.http.health import Check
from holdfast.api.http.server import HttpServer

log = logging.getLogger("holdfast.wiring")


@asynccontextmanager
async def serving(listener: socket.socket, routes: Sequence[Route], checks: Mapping[str, Check]) -> AsyncIterator[None]:
    server = HttpServer(make_app(routes, checks), listener)
    await server.start()
    try:
        yield
    finally:
        await server.stop()


@asynccontextmanager
async def background(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Work that ends by itself should not have, and is told at once: else it would be missed at the stop, or never."""
    task = asyncio.create_task(work)
    task.add_done_callback(_told)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def _told(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()):
        log.critical("work in the background has ended: restart this process", exc_info=error)


class _Closable(Protocol):
    async def close(self) -> None: ...


ClosableT = TypeVar("ClosableT", bound=_Closable)


async def entered(stack: AsyncExitStack, thing: ClosableT) -> ClosableT:
    """Closes it when the stack ends."""
    stack.push_async_callback(thing.close)
    return thing
