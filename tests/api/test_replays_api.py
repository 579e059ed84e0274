"""/api/v1/replays on a real server, over a real store and a real broker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.broker.service import Broker
from holdfast.clock import SystemClock
from holdfast.deadletter.audit import AuditFilter
from holdfast.deadletter.sending import Sending
from holdfast.deadletter.store import DeskStore
from holdfast.metrics.registry import MetricsRegistry
from holdfast.model.resources import Subscription, Topic
from holdfast.settings import BrokerSettings, load_settings
from holdfast.stores.memory.log import MemoryMessageLog
from holdfast.transports.local import LocalTransport
from holdfast.wiring.desk.replays import replaying
from tests.support.desk import SUBSCRIPTION, Api, a_failure, open_store, served
from tests.support.waiting import comes_about

TOPIC = "projects/local/topics/orders"


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[DeskStore]:
    opened = await open_store(tmp_path)
    yield opened
    await opened.close()


@pytest.fixture
async def broker() -> AsyncIterator[LocalTransport]:
    broker = await Broker.open(MemoryMessageLog(), SystemClock(), BrokerSettings())
    await broker.create_topic(Topic(TOPIC))
    await broker.create_subscription(Subscription(SUBSCRIPTION, TOPIC))
    yield LocalTransport(broker)
    await broker.close()


@pytest.fixture
async def api(store: DeskStore, broker: LocalTransport) -> AsyncIterator[Api]:
    settings = load_settings({"desk.redact": ["payload:card"]}, environ={})
    sending = await Sending.of(store)
    async with (
        replaying(store, broker, sending, SystemClock(), settings, MetricsRegistry()) as routes,
        served(routes) as running,
    ):
        yield running


async def posted(api: Api, path: str, body: object = None, status: int = 200) -> Any:
    got, answer = await api.post(path, body, Holdfast_Actor="anna")
    assert got == status, answer
    return answer


async def refusal(api: Api, body: object, path: str = "/replays", status: int = 400) -> str:
    return str((await posted(api, path, body, status))["error"]["message"])


async def test_a_dry_run_is_the_plan(api: Api, store: DeskStore) -> None:
    await store.record([a_failure("m-1"), a_failure("m-2"), a_failure("m-3", generation=9)])
    plan = await posted(api, "/replays", {"selection": {}, "options": {"perSecond": 2}, "dryRun": True})
    assert plan == {
        "selected": 3,
        "toSend": 2,
        "options": {
            "target": "subscription",
            "perSecond": 2.0,
            "concurrency": 100,
            "canary": 1,
            "stopAbove": 0.5,
            "stopAfter": 10,
        },
        "seconds": 1.0,
        "groups": [
            {"group": "f00d", "subscription": SUBSCRIPTION, "reason": "SCHEMA_VALIDATION_ERROR", "count": 2},
        ],
        "destinations": [{"name": SUBSCRIPTION, "count": 2}],
        "skipped": [{"why": "it was sent again 9 times and failed each time (desk.max_generation)", "count": 1}],
    }
    assert (await api.ok("/replays")) == {"replays": [], "nextPageToken": ""}


async def test_the_life_of_a_replay(api: Api, store: DeskStore, broker: LocalTransport) -> None:
    await store.record([a_failure(f"m-{number}") for number in range(3)])
    made = await posted(api, "/replays", {"selection": {"group": "f00d"}, "options": {"canary": 1}}, 201)
    assert (made["state"], made["total"], made["selection"], made["actor"]) == (
        "planned",
        3,
        {"group": "f00d"},
        "anna",
    )
    one = f"/replays/{made['id']}"
    assert (await posted(api, f"{one}:start"))["state"] == "canary"
    (canary,) = await broker.receive(SUBSCRIPTION, 10, 10.0)
    paused = await posted(api, f"{one}:pause")
    assert (paused["state"], paused["why"]) == ("paused", "paused by anna")
    assert "paused" in await refusal(api, {}, f"{one}:start")
    await posted(api, f"{one}:resume")
    await broker.ack([canary])

    async def done() -> Any:
        await broker.ack(await broker.receive(SUBSCRIPTION, 10, 0.01))
        found = await api.ok(one)
        return found if found["state"] == "done" else None

    ended = await comes_about(done)
    assert ended["counts"] == {"pending": 0, "sent": 0, "succeeded": 3, "failed": 0, "skipped": 0}
    assert ended["secondsLeft"] is None
    items = (await api.ok(f"{one}/items", ("state", "succeeded")))["items"]
    assert [item["failureId"] for item in items] == [1, 2, 3]
    assert (await api.ok("/replays", ("state", "done")))["replays"][0]["id"] == made["id"]
    names = [entry.action.name for entry in (await store.list_entries(AuditFilter(actor="anna"), 100)).entries]
    assert names == ["replay.resume", "replay.pause", "replay.start", "replay.create"]


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ({}, "selection: must be there"),
        ({"selection": []}, "selection"),
        ({"selection": {"colour": "red"}}, "colour: is not known"),
        ({"selection": {}, "dryRun": "yes"}, "dryRun: must be true or false"),
        ({"selection": {}, "speed": 1}, "speed: is not known"),
        ({"selection": {}, "options": 7}, "options: must be a JSON object"),
        ({"selection": {}, "options": {"speed": 1}}, "speed: is not known"),
        ({"selection": {}, "options": {"target": "moon"}}, "target: must be one of"),
        ({"selection": {}, "options": {"target": "topic"}}, "topic: must name"),
        ({"selection": {}, "options": {"topic": "orders"}}, "topic: belongs"),
        ({"selection": {}, "options": {"target": "topic", "topic": "a/b/c"}}, "topic"),
        ({"selection": {}, "options": {"perSecond": -1}}, "perSecond: must be a number from 0 to 100000"),
        ({"selection": {}, "options": {"perSecond": True}}, "perSecond"),
        ({"selection": {}, "options": {"perSecond": "50"}}, "perSecond"),
        ({"selection": {}, "options": {"canary": 1.5}}, "canary: must be a whole number"),
        ({"selection": {}, "options": {"stopAbove": 1.1}}, "stopAbove"),
        ({"selection": {}, "options": {"concurrency": 10**9}}, "concurrency"),
        ({"selection": {}, "options": {"target": "shadow"}}, "needs a consumer"),
    ],
)
async def test_what_is_wrong_is_named(api: Api, body: object, names: str) -> None:
    assert names in await refusal(api, body)


async def test_what_is_not_there(api: Api) -> None:
    for path in ("/replays/7", "/replays/x", "/replays/7/items", "/replays/" + "9" * 40):
        assert "there is no replay" in await api.refused(path, code=404)
    assert "there is no replay 7" in await refusal(api, {}, "/replays/7:cancel", 404)
    assert "state: must be one of" in await api.refused("/replays", ("state", "asleep"))


async def test_what_is_redacted_cannot_be_searched_by_a_replay(api: Api, store: DeskStore) -> None:
    await store.record([a_failure("m-1", data=b'{"card": "4711"}')])
    body = {"selection": {"payload": {"card": "4711"}}, "dryRun": True}
    assert "redacted" in await refusal(api, body, status=403)
