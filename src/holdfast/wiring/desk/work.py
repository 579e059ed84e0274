"""What a desk does by itself: it takes failures in, retries them, and cleans up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from holdfast.clock import Clock
from holdfast.consumer.transport import Transport
from holdfast.deadletter.collector import Collector
from holdfast.deadletter.held_places import HeldPlaces
from holdfast.deadletter.intake import Intake
from holdfast.deadletter.outlet import Outlet
from holdfast.deadletter.pace import Pace
from holdfast.deadletter.resubmission import Resubmission
from holdfast.deadletter.retention import CleanUp, Keep
from holdfast.deadletter.retries import RetryScheduler
from holdfast.deadletter.retry_ends import RetryEnds
from holdfast.deadletter.retry_policy import RetryPolicy
from holdfast.deadletter.sending import Sending
from holdfast.deadletter.sources import Sources
from holdfast.deadletter.store import DeskStore
from holdfast.deadletter.traced import TracedIntake, TracedOutlet
from holdfast.ingest.validation import Validation
from holdfast.model.message import Message
from holdfast.model.names import DESK_SUFFIX, subscription_path
from holdfast.settings import Settings
from holdfast.topology.default import Topology, desk_subscription_of
from holdfast.tracing import spans
from holdfast.tracing.spans import SpanType
from holdfast.tracing.traces import Traces
from holdfast.wiring.lifetimes import background


class DeskTransport(Transport, Outlet, Protocol):
    """What reads dead letters is also what sends again."""

    async def publish(self, topic: str, message: Message) -> str: ...


@dataclass(frozen=True, slots=True)
class DeskPart:
    """`outlet` is for what people send again, `intake` also for who captures failures in this process, `validation`
    for what comes in, and comes in again. Nothing runs yet."""

    store: DeskStore
    transport: DeskTransport
    outlet: Outlet
    sending: Sending
    intake: Intake
    retries: RetryScheduler
    validation: Validation


def retry_policy(settings: Settings) -> RetryPolicy:
    return RetryPolicy.of_tables(settings.desk.retry, settings.desk.retry_jitter)


async def make_intake(store: DeskStore, policy: RetryPolicy, clock: Clock, traces: Traces | None = None) -> Intake:
    """Of a process without a desk: the desk finds by itself what is to be retried."""
    return _intake_type(traces)(store, await Sending.of(store), policy, clock)


def _intake_type(traces: Traces | None) -> Callable[..., Intake]:
    return Intake if traces is None else partial(TracedIntake, traces)


def traced_outlet(outlet: Outlet, traces: Traces | None, kind: SpanType) -> Outlet:
    return outlet if traces is None else TracedOutlet(outlet, traces, kind)


async def make_desk(
    settings: Settings,
    clock: Clock,
    policy: RetryPolicy,
    store: DeskStore,
    transport: DeskTransport,
    validation: Validation,
    traces: Traces | None = None,
    on_permanent: Callable[[], None] = lambda: None,
) -> DeskPart:
    """`on_permanent` is called when something has failed for good."""
    sending = await Sending.of(store)
    ends = RetryEnds(store, transport, policy, clock, settings.desk.retry_settle_seconds)
    outlet = traced_outlet(transport, traces, spans.RETRY)
    resubmission = Resubmission(outlet, sending, policy, clock, validation)
    retries = RetryScheduler(store, outlet, sending, ends, resubmission, clock, Pace(settings.desk.retry_per_second))
    intake = _intake_type(traces)(store, sending, policy, clock, retries.wake, on_permanent)
    return DeskPart(
        store, transport, traced_outlet(transport, traces, spans.REPLAY), sending, intake, retries, validation
    )


def make_clean_up(settings: Settings, clock: Clock, store: DeskStore) -> CleanUp:
    desk = settings.desk
    keep = Keep(desk.keep_retry_success_days, desk.keep_replayed_days, desk.keep_permanent_failure_days)
    return CleanUp(store, clock, keep)


@asynccontextmanager
async def working(
    settings: Settings, clock: Clock, part: DeskPart, topology: Topology, *, may_create: bool
) -> AsyncIterator[None]:
    """At the end nothing more is taken in or sent; what was received and what is being sent is finished."""
    sources = _sources(settings, part.transport, topology, may_create=may_create)
    collector = Collector(part.transport, part.intake, clock, sources)
    places = HeldPlaces(part.store, part.transport, clock)
    async with background(make_clean_up(settings, clock, part.store).run()), background(places.run()):
        running = [asyncio.create_task(collector.run()), asyncio.create_task(part.retries.run())]
        try:
            yield
        finally:
            collector.stop()
            part.retries.stop()
            await asyncio.gather(*running)


def _sources(settings: Settings, transport: Transport, topology: Topology, *, may_create: bool) -> Sources:
    project = settings.general.project
    named = [subscription_path(project, name) for name in settings.desk.subscriptions]
    of_consumer = [name for name in topology.desk_subscriptions if not name.endswith(DESK_SUFFIX)]
    return Sources(
        transport,
        f"projects/{project}",
        always=[*named, *of_consumer],
        if_unlisted=topology.desk_subscriptions,
        make=desk_subscription_of if may_create else None,
    )
