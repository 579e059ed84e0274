"""A consumer as an ASGI application: mounted into a Starlette or FastAPI app, or served by any ASGI server as it is.

    push = PushApp(consumer)
    app = FastAPI(lifespan=push.lifespan)
    app.mount("/events", push)          # POST /events/pubsub/push

`holdfast consume` is the same with a server around it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from starlette.applications import Starlette
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.api.http import metrics, push_endpoint
from holdfast.api.http.app import make_app
from holdfast.api.http.errors import error_body
from holdfast.clock import SystemClock
from holdfast.consumer.app import Consumer
from holdfast.errors import HoldfastError
from holdfast.settings import Settings, load_settings
from holdfast.wiring.consumer import consuming, make_consumer
from holdfast.wiring.metrics import process_registry
from holdfast.wiring.tracing import tracing
from holdfast.wiring.watching import Watch

log = logging.getLogger("holdfast.consumer")


class PushApp:
    """Serves POST /pubsub/push, /metrics, /healthz and /readyz, and judges the alert rules on the consumer. Without a
    consumer of yours it is the materializer; without settings they are read as `holdfast consume` reads them.

    It starts (opens its store) with the lifespan of the app that it is mounted into, or else at the first request.
    """

    def __init__(self, consumer: Consumer | None = None, settings: Settings | None = None) -> None:
        self._consumer = consumer
        self._settings = settings
        self._starting = asyncio.Lock()
        self._app: ASGIApp | None = None
        self._running = AsyncExitStack()

    async def start(self) -> None:
        """Raises what `holdfast consume` would end with. Changes nothing when it runs already."""
        async with self._starting:
            if self._app is None:
                self._app = await self._started()

    async def stop(self) -> None:
        """Waits for what is under way. What was answered with 200 is safe without it."""
        async with self._starting:
            self._app = None
            await self._running.aclose()

    @asynccontextmanager
    async def lifespan(self, app: object = None) -> AsyncIterator[None]:
        """For the app that this one is mounted into: mounted apps are not told when a server starts and stops."""
        await self.start()
        try:
            yield
        finally:
            await self.stop()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":  # it is the server's own app
            await Starlette(lifespan=self.lifespan)(scope, receive, send)
            return
        try:
            if self._app is None:
                await self.start()
        except HoldfastError as error:
            log.critical("the consumer cannot start", extra={"fields": {"error": str(error)}})
            await error_body(503, "UNAVAILABLE", "the consumer cannot start; its log says why")(scope, receive, send)
            return
        assert self._app is not None
        await self._app(scope, receive, send)

    async def _started(self) -> ASGIApp:
        clock = SystemClock()
        settings = self._settings or load_settings()
        app = make_consumer(settings, clock, self._consumer)
        watch = Watch(settings, clock, "consume", settings.http.host)
        async with AsyncExitStack() as stack:  # a start that fails leaves nothing open for the next one to trip over
            registry = process_registry("consume")
            traces = await stack.enter_async_context(tracing(settings, registry, "consume"))
            part = await stack.enter_async_context(consuming(settings, app, clock, registry, traces))
            await stack.enter_async_context(watch.running(registry))
            self._running = stack.pop_all()
        # Documents, outcomes, journeys and silences are not for everybody who can reach the host app.
        routes = [*push_endpoint.routes(part.pipeline, part.auth, traces), *metrics.routes(registry)]
        return make_app(routes, part.checks)
