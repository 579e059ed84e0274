"""`holdfast broker`: the broker alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from holdfast.api.http import metrics as metrics_api
from holdfast.clock import SystemClock
from holdfast.settings import Settings
from holdfast.wiring.addresses import address_guard, take_broker_ports
from holdfast.wiring.broker import pushing, running_broker_part
from holdfast.wiring.metrics import process_registry
from holdfast.wiring.processes.running import Running
from holdfast.wiring.tracing import tracing
from holdfast.wiring.watching import Watch


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
