"""The whole, and each part alone, as a process runs it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from holdfast.api.http import journey as journey_api
from holdfast.api.http import metrics as metrics_api
from holdfast.api.http import push_endpoint
from holdfast.broker.service import Broker
from holdfast.clock import SystemClock
from holdfast.consumer.housekeeping import keep_forgetting
from holdfast.consumer.journey import ConsumerJourney
from holdfast.consumer.pull import pulling
from holdfast.deadletter.journey import DeskJourney
from holdfast.deadletter.redaction import redaction_from
from holdfast.model.names import subscription_path
from holdfast.model.resources import PushConfig
from holdfast.settings import Settings
from holdfast.topology.default import Topology, create_absent, default_topology
from holdfast.transports.google import GoogleTransport
from holdfast.transports.local import LocalTransport
from holdfast.transports.schemas import GoogleSchemas, LocalSchemas
from holdfast.wiring.addresses import address_guard, is_loopback, push_url, reachable, take_broker_ports, take_port
from holdfast.wiring.broker import pushing, running_broker_part
from holdfast.wiring.checks import broker_check, pull_checks
from holdfast.wiring.consumer import (
    consumer_routes,
    consuming,
    desk_failure_sink,
    load_app,
    make_consumer,
    make_pipeline,
    warn_of_unmapped,
)
from holdfast.wiring.desk.ingest import validation_of
from holdfast.wiring.desk.serving import ConsumerBeside, counted_by, serving_desk
from holdfast.wiring.desk.work import make_desk, retry_policy, working
from holdfast.wiring.lifetimes import background, entered, serving
from holdfast.wiring.metrics import process_registry
from holdfast.wiring.push_tokens import local_auth, push_token
from holdfast.wiring.stores import check_files, open_documents, open_failures
from holdfast.wiring.tracing import tracing
from holdfast.wiring.watching import Watch


@dataclass(frozen=True, slots=True)
class Running:
    """Where the parts of this process listen. A port is 0 where that part does not run."""

    broker_port: int = 0
    http_port: int = 0


@asynccontextmanager
async def running_up(settings: Settings) -> AsyncIterator[Running]:
    """Broker, consumer and desk in one process."""
    clock = SystemClock()
    app = make_consumer(settings, clock)
    policy = retry_policy(settings)
    watch = Watch(settings, clock, "up", settings.broker.host)
    async with AsyncExitStack() as stack:
        listener, http_port = take_port(stack, settings.http.host, settings.http.port)
        broker_ports = take_broker_ports(stack, settings)
        await asyncio.to_thread(check_files, settings)
        documents = await entered(stack, await open_documents(settings))
        failures = await entered(stack, await open_failures(settings))
        own_consumer = (reachable(listener.getsockname()[0]), http_port, push_endpoint.PATH)
        guard = address_guard(settings, settings.broker.host, [own_consumer])
        metrics = process_registry("up")
        traces = await stack.enter_async_context(tracing(settings, metrics, "up"))
        shared = [*metrics_api.routes(metrics), *watch.routes]
        part = await stack.enter_async_context(
            running_broker_part(settings, clock, guard, broker_ports, metrics, shared, traces)
        )
        transport = LocalTransport(part.broker)
        endpoint = push_url(settings, http_port)
        token = None if settings.consumer_auth.push == "off" else push_token(settings)
        topology = default_topology(settings, PushConfig(endpoint, oidc=token))
        may_create = settings.topology.create != "never"
        if may_create:
            await create_absent(topology, transport)
            await _point_push_here(part.broker, topology, settings.http.host)
        schemas = LocalSchemas(part.broker)
        validation = validation_of(settings, clock, schemas, app)
        desk = await make_desk(settings, clock, policy, failures, transport, validation, traces, watch.look_soon)
        sink = desk_failure_sink(settings, clock, transport, desk.intake)
        pipeline = await entered(stack, make_pipeline(settings, clock, app, documents, sink, metrics, traces))
        await stack.enter_async_context(working(settings, clock, desk, topology, may_create=may_create))
        await stack.enter_async_context(background(keep_forgetting(documents, clock)))
        auth = local_auth(part, clock, token, endpoint) if token else None
        beside = ConsumerBeside(app, counted_by(pipeline.recent, clock))
        desk_routes = await stack.enter_async_context(serving_desk(desk, schemas, clock, settings, metrics, beside))
        journeys = journey_api.routes(
            [
                part.journey,
                ConsumerJourney(app, documents, pipeline.recent),
                DeskJourney(failures, redaction_from(settings.desk)),
            ]
        )
        routes = [*consumer_routes(pipeline, documents, auth, traces), *desk_routes, *part.routes, *shared, *journeys]
        checks = {"broker": part.broker.check, "documents": documents.check, "failures": failures.check}
        await stack.enter_async_context(watch.running(metrics))
        await stack.enter_async_context(serving(listener, routes, checks))
        # Last to start and first to stop: it calls the others.
        await stack.enter_async_context(pushing(part.push))
        yield Running(part.port, http_port)


@asynccontextmanager
async def running_broker(settings: Settings) -> AsyncIterator[Running]:
    """The broker alone, with whatever topics and subscriptions clients create."""
    clock = SystemClock()
    watch = Watch(settings, clock, "broker", settings.broker.host)
    async with AsyncExitStack() as stack:
        ports = take_broker_ports(stack, settings)
        guard = address_guard(settings, settings.broker.host)
        metrics = process_registry("broker")
        traces = await stack.enter_async_context(tracing(settings, metrics, "broker"))
        routes = [*metrics_api.routes(metrics), *watch.routes]
        part = await stack.enter_async_context(
            running_broker_part(settings, clock, guard, ports, metrics, routes, traces)
        )
        await stack.enter_async_context(watch.running(metrics))
        await stack.enter_async_context(pushing(part.push))
        yield Running(broker_port=part.port)


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
        if not app and _may_create(settings):
            token = push_token(settings) if part.auth else None
            push = PushConfig(push_url(settings, port), oidc=token)
            await create_absent(default_topology(settings, push), part.transport())
        if pull:  # first to stop: what it has begun needs all the others
            await stack.enter_async_context(pulling(part.transport(), part.pipeline, clock, settings.consumer, paths))
            warn_of_unmapped(settings, consumer, pull)
        yield Running(http_port=port)


@asynccontextmanager
async def running_desk(settings: Settings) -> AsyncIterator[Running]:
    """The desk alone, beside a broker somewhere else."""
    clock = SystemClock()
    policy = retry_policy(settings)
    watch = Watch(settings, clock, "desk", settings.http.host)
    async with AsyncExitStack() as stack:
        listener, port = take_port(stack, settings.http.host, settings.http.port)
        failures = await entered(stack, await open_failures(settings))
        transport = await entered(stack, GoogleTransport.connect(settings.general.emulator_host))
        topology = default_topology(settings, PushConfig(push_url(settings, port)))
        may_create = _may_create(settings)
        if may_create:
            await create_absent(topology.dead_letters_only(), transport)
        schemas = await entered(stack, GoogleSchemas.connect(settings.general.emulator_host))
        validation = validation_of(settings, clock, schemas)
        metrics = process_registry("desk")
        traces = await stack.enter_async_context(tracing(settings, metrics, "desk"))
        desk = await make_desk(settings, clock, policy, failures, transport, validation, traces, watch.look_soon)
        await stack.enter_async_context(working(settings, clock, desk, topology, may_create=may_create))
        desk_routes = await stack.enter_async_context(serving_desk(desk, schemas, clock, settings, metrics))
        await stack.enter_async_context(watch.running(metrics))
        journeys = journey_api.routes([DeskJourney(failures, redaction_from(settings.desk))])
        routes = [*desk_routes, *metrics_api.routes(metrics), *watch.routes, *journeys]
        checks = {"broker": broker_check(transport, settings.general.project), "failures": failures.check}
        await stack.enter_async_context(serving(listener, routes, checks))
        yield Running(http_port=port)


def _may_create(settings: Settings) -> bool:
    """Nobody's cloud project gets resources without having been asked."""
    create = settings.topology.create
    return create == "always" or (create == "auto" and bool(settings.general.emulator_host))


async def _point_push_here(broker: Broker, topology: Topology, host: str) -> None:
    """The consumer of this process may listen elsewhere than last time; its own subscriptions follow it. One that its
    owner has turned to pull, or pointed at somebody else, is left alone."""
    for wanted in topology.subscriptions:
        stored = broker.get_subscription(wanted.name).push
        if wanted.push is None or stored is None or not _is_own(stored.endpoint, host):
            continue
        push = replace(stored, endpoint=wanted.push.endpoint, oidc=wanted.push.oidc)
        if push != stored:
            await broker.modify_push_config(wanted.name, push)


def _is_own(endpoint: str, host: str) -> bool:
    """As an `up` that listens on `host`, or on loopback, writes it."""
    parts = urlsplit(endpoint)
    return parts.path == push_endpoint.PATH and (is_loopback(parts.hostname or "") or parts.hostname == host)
