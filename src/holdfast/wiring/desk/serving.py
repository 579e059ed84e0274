"""The desk's services over one store, as routes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from holdfast.api.http import audit, failures, groups, retention
from holdfast.api.http.describing import ApiRoute
from holdfast.clock import Clock, SystemClock
from holdfast.consumer.app import Consumer
from holdfast.consumer.recent import RecentOutcomes
from holdfast.consumer.rehearsal import Rehearsal
from holdfast.deadletter.browsing import Browsing
from holdfast.deadletter.edits.checks import ContentCheck
from holdfast.deadletter.edits.route_check import RouteCheck
from holdfast.deadletter.edits.schema_check import SchemaCheck
from holdfast.deadletter.grouping import Grouping
from holdfast.deadletter.reporting import Processing, Reporting
from holdfast.deadletter.store import DeskStore
from holdfast.ingest.manual import Schemas
from holdfast.metrics.registry import MetricsRegistry
from holdfast.model.outcome import Applied, Duplicate, Stale
from holdfast.settings import Settings
from holdfast.topology.default import topics_by_subscription
from holdfast.wiring.desk.ingest import ingest_routes
from holdfast.wiring.desk.mending import mending_routes, sight_of
from holdfast.wiring.desk.replays import replaying
from holdfast.wiring.desk.work import DeskPart, make_clean_up
from holdfast.wiring.stores import read_failures


@dataclass(frozen=True, slots=True)
class ConsumerBeside:
    """The consumer in the same process: its handlers can be asked, and it knows how many messages there were."""

    app: Consumer
    processing: Processing


@asynccontextmanager
async def serving_desk(
    desk: DeskPart,
    schemas: Schemas,
    clock: Clock,
    settings: Settings,
    metrics: MetricsRegistry,
    beside: ConsumerBeside | None = None,
) -> AsyncIterator[list[ApiRoute]]:
    """All that people can ask of a desk. Replays that were under way go on."""
    store = desk.store
    checks: list[ContentCheck] = [SchemaCheck(schemas)]
    if beside:
        checks.append(RouteCheck(Rehearsal(beside.app, settings.consumer, topics_by_subscription(settings))))
    app = beside.app if beside else None
    async with replaying(store, desk.outlet, desk.sending, clock, settings, metrics, app) as replays:
        yield [
            *looking_routes(store, clock, settings, beside.processing if beside else None),
            *mending_routes(store, clock, settings, checks),
            *ingest_routes(desk, clock, settings, schemas),
            *retention.routes(make_clean_up(settings, clock, store).clean_up_now),
            *replays,
        ]


def looking_routes(
    store: DeskStore, clock: Clock, settings: Settings, processing: Processing | None = None
) -> list[ApiRoute]:
    """Searching, groups, statistics and the audit trail. `processing` tells how many messages there were, where
    somebody in this process knows."""
    project = settings.general.project
    browsing = Browsing(store, clock, project)
    sight = sight_of(store, clock, settings)
    return [
        *failures.routes(browsing, Reporting(store, clock, processing), sight),
        *groups.routes(Grouping(store, clock, project), sight),
        *audit.routes(browsing),
    ]


def counted_by(recent: RecentOutcomes, clock: Clock) -> Processing:
    """The messages that the consumer of this process brought to a good end, from now on."""

    def succeeded() -> int:
        totals = recent.totals
        return sum(totals[kind.name] for kind in (Applied, Duplicate, Stale))

    return Processing("the consumer", clock.now_ns(), succeeded)


@asynccontextmanager
async def reading_routes(settings: Settings) -> AsyncIterator[list[ApiRoute]]:
    """Over the store's own file or database, beside whoever writes to it. What would change something fails."""
    store = await read_failures(settings)
    try:
        clock = SystemClock()
        yield [*looking_routes(store, clock, settings), *mending_routes(store, clock, settings)]
    finally:
        await store.close()
