"""The broker with its servers, its keys and its push delivery."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace

from starlette.routing import Route

from holdfast.api.http import deliveries as deliveries_api
from holdfast.api.http import health, openapi, openid
from holdfast.api.http import held as held_api
from holdfast.api.http import journey as journey_api
from holdfast.api.http import pauses as pauses_api
from holdfast.api.http import push_status as push_status_api
from holdfast.api.pubsub_server import PubsubServer
from holdfast.broker.journey import BrokerJourney
from holdfast.broker.log import MessageLog
from holdfast.broker.metrics import BrokerMetrics
from holdfast.broker.push.delivery import PushDelivery
from holdfast.broker.push.metrics import push_metrics
from holdfast.broker.push.tokens import PushTokens
from holdfast.broker.retention import keep_marking, keep_removing
from holdfast.broker.service import Broker
from holdfast.broker.trace_context import Tracing
from holdfast.broker.traced import TracedBroker
from holdfast.clock import Clock
from holdfast.deadletter.redaction import redaction_from
from holdfast.metrics.registry import MetricsRegistry
from holdfast.outgoing.addresses import AddressGuard
from holdfast.outgoing.client import OutgoingClient
from holdfast.settings import BrokerSettings, Settings
from holdfast.tracing.traces import Traces
from holdfast.wiring.addresses import url_of
from holdfast.wiring.lifetimes import background, entered
from holdfast.wiring.stores import open_log


@dataclass(frozen=True, slots=True)
class BrokerPart:
    broker: Broker
    push: PushDelivery
    port: int
    issuer: str
    routes: Sequence[Route]  # what else it shows of itself
    journey: BrokerJourney


@asynccontextmanager
async def running_broker_part(
    settings: Settings,
    clock: Clock,
    guard: AddressGuard,
    ports: Sequence[socket.socket],
    metrics: MetricsRegistry,
    more_routes: Sequence[Route] = (),
    traces: Traces | None = None,
) -> AsyncIterator[BrokerPart]:
    """`ports` listen already: one for everything, perhaps a second for gRPC alone. `more_routes` are for them only.
    Push is not started yet."""
    async with AsyncExitStack() as stack:
        log = await entered(stack, await open_log(settings))
        # In memory the log is its own cache.
        broker_settings = replace(settings.broker, cache_megabytes=0) if settings.general.memory else settings.broker
        broker = await entered(stack, await _open_broker(log, clock, broker_settings, guard, settings, traces))
        port: int = ports[0].getsockname()[1]
        issuer = settings.push.issuer or url_of(settings.broker.host, port)
        client = await entered(stack, OutgoingClient(guard, ca_file=settings.push.ca_file))
        tokens = PushTokens(broker.signing_keys, issuer, clock)
        push = PushDelivery(broker, client, tokens, issuer, settings.push, clock, strict=settings.broker.strict)
        metrics.register((await entered(stack, BrokerMetrics(broker, clock))).collect)
        metrics.register(lambda: push_metrics(push.status(), clock.now_ns()))
        routes = [
            *push_status_api.routes(push.status, clock),
            *deliveries_api.routes(broker),
            *held_api.routes(broker),
            *pauses_api.routes(broker, clock),
        ]
        journey = BrokerJourney(broker)
        ready = health.routes({"broker": broker.check})
        alone = [*journey_api.routes([journey]), *ready, *openid.routes(broker.signing_keys, lambda: issuer)]
        own_routes = [*routes, *more_routes, *alone]
        own_routes += openapi.routes(own_routes)
        server = PubsubServer(broker, extra_routes=own_routes, traces=traces)
        await server.serve(*ports)
        stack.push_async_callback(server.stop)
        await stack.enter_async_context(background(keep_removing(broker, clock)))
        if settings.broker.history_days:
            await stack.enter_async_context(background(keep_marking(broker, clock)))
        yield BrokerPart(broker, push, port, issuer, routes, journey)


async def _open_broker(
    log: MessageLog,
    clock: Clock,
    broker_settings: BrokerSettings,
    guard: AddressGuard,
    settings: Settings,
    traces: Traces | None,
) -> Broker:
    redaction = redaction_from(settings.desk)
    hide = redaction.of_message if redaction else None
    days = settings.push.key_days
    if traces is None:
        return await Broker.open(log, clock, broker_settings, guard, key_days=days, hide=hide)
    tracing = Tracing(traces, marks=settings.traces.mark_messages)
    return await TracedBroker.open_traced(log, clock, broker_settings, guard, key_days=days, hide=hide, tracing=tracing)


@asynccontextmanager
async def pushing(push: PushDelivery) -> AsyncIterator[None]:
    push.start()
    try:
        yield
    finally:
        await push.stop()
