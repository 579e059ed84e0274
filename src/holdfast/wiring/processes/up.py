"""`holdfast up`: the whole in one process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from urllib.parse import urlsplit

from holdfast.api.http import journey as journey_api
from holdfast.api.http import metrics as metrics_api
from holdfast.api.http import push_endpoint
from holdfast.broker.service import Broker
from holdfast.clock import SystemClock
from holdfast.consumer.housekeeping import keep_forgetting
from holdfast.consumer.journey import ConsumerJourney
from holdfast.deadletter.journey import DeskJourney
from holdfast.deadletter.redaction import redaction_from
from holdfast.model.resources import PushConfig
from holdfast.settings import Settings
from holdfast.topology.default import Topology, create_absent, default_topology
from holdfast.transports.local import LocalTransport
from holdfast.transports.schemas import LocalSchemas
from holdfast.wiring.addresses import address_guard, is_loopback, push_url, reachable, take_broker_ports, take_port
from holdfast.wiring.broker import pushing, running_broker_part
from holdfast.wiring.consumer import consumer_routes, desk_failure_sink, make_consumer, make_pipeline
from holdfast.wiring.desk.ingest import validation_of
from holdfast.wiring.desk.serving import ConsumerBeside, counted_by, serving_desk
from holdfast.wiring.desk.work import make_desk, retry_policy, working
from holdfast.wiring.lifetimes import background, entered, serving
from holdfast.wiring.metrics import process_registry
from holdfast.wiring.processes.running import Running
from holdfast.wiring.push_tokens import local_auth, push_token
from holdfast.wiring.stores import check_files, open_documents, open_failures
from holdfast.wiring.tracing import tracing
from holdfast.wiring.watching import Watch


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
