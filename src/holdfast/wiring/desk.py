"""The desk's services over one store, as routes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holdfast.api.http import audit, failures, groups
from holdfast.api.http.describing import ApiRoute
from holdfast.clock import Clock, SystemClock
from holdfast.consumer.recent import RecentOutcomes
from holdfast.deadletter.browsing import Browsing
from holdfast.deadletter.grouping import Grouping
from holdfast.deadletter.reporting import Processing, Reporting
from holdfast.deadletter.store import DeskStore
from holdfast.model.outcome import Applied, Duplicate, Stale
from holdfast.settings import Settings
from holdfast.wiring.mending import mending_routes, sight_of
from holdfast.wiring.stores import read_failures


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
