"""`holdfast consume`: the consumer alone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from holdfast.api.http import journey as journey_api
from holdfast.api.http import metrics as metrics_api
from holdfast.clock import SystemClock
from holdfast.consumer.pull import pulling
from holdfast.model.names import subscription_path
from holdfast.model.resources import PushConfig
from holdfast.settings import Settings
from holdfast.topology.default import create_absent, default_topology
from holdfast.wiring.addresses import push_url, take_port
from holdfast.wiring.checks import pull_checks
from holdfast.wiring.consumer import consuming, load_app, make_consumer, warn_of_unmapped
from holdfast.wiring.lifetimes import serving
from holdfast.wiring.metrics import process_registry
from holdfast.wiring.processes.running import Running, may_create
from holdfast.wiring.push_tokens import push_token
from holdfast.wiring.tracing import tracing
from holdfast.wiring.watching import Watch


@asynccontextmanager
async def running_consumer(settings: Settings, app: str, pull: Sequence[str]) -> AsyncIterator[Running]:
    """The consumer alone. `app` is MODULE:NAME, or empty for the materializer; `pull` names subscriptions to read."""
    clock = SystemClock()
    watch = Watch(settings, clock, "consume", settings.http.host)
    async with AsyncExitStack() as stack:
        listener, port = take_port(stack, settings.http.host, settings.http.port)
        consumer = make_consumer(settings, clock, load_app(app) if app else None)
        metrics = process_registry("consume")
        traces = await stack.enter_async_context(tracing(settings, metrics, "consume"))
        part = await stack.enter_async_context(consuming(settings, consumer, clock, metrics, traces))
        await stack.enter_async_context(watch.running(metrics))
        routes = [*part.routes, *metrics_api.routes(metrics), *watch.routes, *journey_api.routes([part.journey])]
        paths = [subscription_path(settings.general.project, name) for name in pull]
        checks = {**part.checks, **pull_checks(part.transport, paths)}
        await stack.enter_async_context(serving(listener, routes, checks))
        if not app and may_create(settings):
            token = push_token(settings) if part.auth else None
            push = PushConfig(push_url(settings, port), oidc=token)
            await create_absent(default_topology(settings, push), part.transport())
        if pull:  # first to stop: what it has begun needs all the others
            await stack.enter_async_context(pulling(part.transport(), part.pipeline, clock, settings.consumer, paths))
            warn_of_unmapped(settings, consumer, pull)
        yield Running(http_port=port)
