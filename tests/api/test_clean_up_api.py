"""POST /api/v1/failures:cleanUp on a real server over a real store."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from holdfast.api.http.retention import routes
from holdfast.deadletter.audit import Action
from holdfast.deadletter.selection import Selection
from holdfast.deadletter.store import DeskStore
from holdfast.model.failed_message import FailureStatus
from holdfast.settings import Settings
from holdfast.wiring.desk.work import make_clean_up
from tests.support.desk import HOUR_NS, NOW_NS, Api, a_clock, a_failure, served, store
from tests.support.postgres import database_url, postgres

__all__ = ["database_url", "postgres", "store"]

DAY_NS = 24 * HOUR_NS


@pytest.fixture
async def api(store: DeskStore) -> AsyncIterator[Api]:
    async with served(routes(make_clean_up(Settings(), a_clock(), store).clean_up_now)) as running:
        yield running


async def fill(store: DeskStore) -> None:
    def ended(message_id: str, status: FailureStatus, days: int) -> None:
        at_ns = NOW_NS - days * DAY_NS
        rows.append(a_failure(message_id, status=status, created_at_ns=at_ns, retry_success_at_ns=at_ns))

    rows = [a_failure("permanent", created_at_ns=NOW_NS - 90 * DAY_NS)]
    ended("retried", FailureStatus.RETRY_SUCCESS, 31)
    ended("replayed", FailureStatus.REPLAYED, 31)
    ended("recent", FailureStatus.REPLAYED, 10)
    ended("held", FailureStatus.REPLAYED, 60)
    await store.record(rows)
    [held] = (await store.list(Selection(message_id="held"), 1)).failures
    await store.hold(Selection(ids=(held.id,)), True, Action("t", "failure.hold", "selection"))


async def left(store: DeskStore) -> set[str]:
    return {failure.message_id for failure in (await store.list(Selection(), 10)).failures}


async def test_what_was_mended_long_ago_goes(api: Api, store: DeskStore) -> None:
    await fill(store)
    assert await api.post("/failures:cleanUp") == (200, {"erased": 2})
    assert await left(store) == {"permanent", "recent", "held"}
    assert await api.post("/failures:cleanUp", {"days": 5}, Holdfast_Actor="anna") == (200, {"erased": 1})
    assert await left(store) == {"permanent", "held"}
    newest = [entry async for entry in store.read_entries()][-1]
    assert (newest.action.actor, newest.action.name) == ("anna", "failure.clean_up")


@pytest.mark.parametrize("days", ["30", None, True, -1, 36_501, [30]])
async def test_bad_days_erase_nothing(api: Api, store: DeskStore, days: object) -> None:
    await fill(store)
    status, body = await api.post("/failures:cleanUp", {"days": days})
    assert (status, body["error"]["message"].split(":")[0]) == (400, "days")
    assert len(await left(store)) == 5
