"""Replay jobs of a desk: what runs them, and their routes."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holdfast.api.http import replays as replays_api
from holdfast.api.http.describing import ApiRoute
from holdfast.clock import Clock
from holdfast.consumer.app import Consumer
from holdfast.consumer.rehearsal import Rehearsal
from holdfast.deadletter.metrics import DeskMetrics
from holdfast.deadletter.outlet import Outlet
from holdfast.deadletter.replay.jobs import Options
from holdfast.deadletter.replay.run import Parts
from holdfast.deadletter.replay.runner import ReplayRunner
from holdfast.deadletter.replay.service import Replays
from holdfast.deadletter.replay.shadow import Shadow
from holdfast.deadletter.sending import Sending
from holdfast.deadletter.store import DeskStore
from holdfast.metrics.registry import MetricsRegistry
from holdfast.settings import Settings
from holdfast.topology.default import topics_by_subscription
from holdfast.wiring.desk.mending import sight_of
from holdfast.wiring.lifetimes import background


@asynccontextmanager
async def replaying(
    store: DeskStore,
    outlet: Outlet,
    sending: Sending,
    clock: Clock,
    settings: Settings,
    metrics: MetricsRegistry,
    consumer: Consumer | None = None,
) -> AsyncIterator[list[ApiRoute]]:
    """Jobs that were under way go on. `consumer` is the one of this process, if there is one: shadow replays ask it."""
    sight = sight_of(store, clock, settings)
    shadow = None
    if consumer is not None:
        rehearsal = Rehearsal(consumer, settings.consumer, topics_by_subscription(settings))
        shadow = Shadow(store, clock, rehearsal, sight.redaction)
    parts = Parts(
        store=store,
        outlet=outlet,
        sending=sending,
        clock=clock,
        name=secrets.token_hex(8),
        most_generations=settings.desk.max_generation,
        settle_seconds=settings.desk.retry_settle_seconds,
        shadow=shadow,
        redaction=sight.redaction,
    )
    told = DeskMetrics(store, clock, parts.ended)
    metrics.register(told.collect)
    metrics.register(told.own)
    runner = ReplayRunner(parts)
    replays = Replays(parts, runner, Options(per_second=settings.desk.replay_per_second))
    async with background(runner.run()):
        yield replays_api.routes(replays, sight, clock, settings.general.project)
