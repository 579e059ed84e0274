"""`holdfast desk`: the dead-letter desk alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from holdfast.api.http import journey as journey_api
from holdfast.api.http import metrics as metrics_api
from holdfast.clock import SystemClock
from holdfast.deadletter.journey import DeskJourney
from holdfast.deadletter.redaction import redaction_from
from holdfast.model.resources import PushConfig
from holdfast.settings import Settings
from holdfast.topology.default import create_absent, default_topology
from holdfast.transports.google import GoogleTransport
from holdfast.transports.schemas import GoogleSchemas
from holdfast.wiring.addresses import push_url, take_port
from holdfast.wiring.checks import broker_check
from holdfast.wiring.desk.ingest import validation_of
from holdfast.wiring.desk.serving import serving_desk
from holdfast.wiring.desk.work import make_desk, retry_policy, working
from holdfast.wiring.lifetimes import entered, serving
from holdfast.wiring.metrics import process_registry
from holdfast.wiring.processes.running import Running, may_create
from holdfast.wiring.stores import open_failures
from holdfast.wiring.tracing import tracing
from holdfast.wiring.watching import Watch


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
        create = may_create(settings)
        if create:
            await create_absent(topology.dead_letters_only(), transport)
        schemas = await entered(stack, GoogleSchemas.connect(settings.general.emulator_host))
        validation = validation_of(settings, clock, schemas)
        metrics = process_registry("desk")
        traces = await stack.enter_async_context(tracing(settings, metrics, "desk"))
        desk = await make_desk(settings, clock, policy, failures, transport, validation, traces, watch.look_soon)
        await stack.enter_async_context(working(settings, clock, desk, topology, may_create=create))
        desk_routes = await stack.enter_async_context(serving_desk(desk, schemas, clock, settings, metrics))
        await stack.enter_async_context(watch.running(metrics))
        journeys = journey_api.routes([DeskJourney(failures, redaction_from(settings.desk))])
        routes = [*desk_routes, *metrics_api.routes(metrics), *watch.routes, *journeys]
        checks = {"broker": broker_check(transport, settings.general.project), "failures": failures.check}
        await stack.enter_async_context(serving(listener, routes, checks))
        yield Running(http_port=port)
