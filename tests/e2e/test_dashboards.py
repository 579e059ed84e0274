"""Every query of every dashboard, asked of a real Prometheus that scrapes `holdfast up`, after `holdfast demo`."""

from __future__ import annotations

import asyncio
import json
import math
import re
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from aiohttp import web

from deploy.grafana.source.boards import FOLDER
from tests.support.process import Launcher, Running
from tests.support.prometheus import Prometheus, scraping
from tests.support.pubsub import Pubsub
from tests.support.push_endpoint import push_endpoint
from tests.support.waiting import eventually

REASON = "DATABASE_CONNECTION_ERROR"
ENV = {
    "HOLDFAST_DESK_RETRY": json.dumps([{"reason": REASON, "delays": [0.3]}]),
    "HOLDFAST_ALERTS_INTERVAL_SECONDS": "1",
}

# What is 0 when all goes well, or too quick to be seen at the end of a second.
MAY_BE_ZERO = {
    "Under way",
    "In hands",
    "Requests under way, and the most there may be",
    "Messages that wait to be sent",
    "How long the oldest due message has waited",
    "Delivery pauses",
    "Given up for good within 5 minutes",
    "Share of 5xx",
    "Answers with 5xx",
    "The store asked again",
    "Transient errors of the store a minute",
    "Errors of the store within 5 minutes that nobody should wait for",
    "Alerts firing",
    "Wait for a retry",
}


@dataclass(frozen=True, slots=True)
class Seen:
    """`before` is a time before, `after` one after all that happened."""

    prometheus: Prometheus
    before: float
    after: float


@asynccontextmanager
async def flaky_endpoint() -> AsyncIterator[str]:
    """Refuses each message for good the first time, and takes its retry."""
    seen: list[bytes] = []

    async def reply(request: web.Request) -> web.StreamResponse:
        data = (await request.json())["message"]["data"]
        if data in seen:
            return web.Response(status=204)
        seen.append(data)
        return web.Response(status=422, headers={"Holdfast-Dead-Letter": "now", "Holdfast-Failure-Reason": REASON})

    async with push_endpoint(reply) as endpoint:
        yield endpoint.url


def subscribe(up: Running, url: str) -> None:
    with Pubsub(up.broker) as pubsub:
        pubsub.create_topic("orders")
        pubsub.create_topic("orders.dlq")
        policy = {"dead_letter_topic": pubsub.topic("orders.dlq"), "max_delivery_attempts": 5}
        pubsub.subscribe("orders", "orders", push_config={"push_endpoint": url}, dead_letter_policy=policy)
        pubsub.subscribe("orders-nobody-acks", "orders", ack_deadline_seconds=10)
        eventually(lambda: "orders.dlq.desk" in pubsub.subscriptions())


def publish(up: Running, batch: str) -> None:
    with Pubsub(up.broker) as pubsub:
        pubsub.publish("orders", *(f"order {number} of {batch}".encode() for number in range(5)))
        nobody = pubsub.subscription("orders-nobody-acks")
        assert pubsub.subscriber.pull(subscription=nobody, max_messages=2).received_messages


def play(launcher: Launcher, up: Running) -> None:
    messages = json.loads(launcher.run("demo", "--broker", up.broker, "--url", up.url, "--json").stdout)["messages"]
    ids = [one["where"].removeprefix("failure ") for one in messages if one["outcome"] == "poison"]
    assert len(ids) == 2
    assert launcher.run("failures", "replay", *ids, "--canary", "0", "--yes", "--url", up.url).stderr == ""


async def everything_happens(launcher: Launcher, up: Running, prometheus: Prometheus) -> tuple[float, float]:
    def wait_for(query: str) -> None:
        eventually(lambda: prometheus.ask(query), 60)

    async with flaky_endpoint() as url:
        await asyncio.to_thread(subscribe, up, url)
        # A counter must have been seen before it counts.
        counted = 'min(count_over_time(holdfast_push_window{subscription=~".*/orders"}[5m])) >= 3'
        await asyncio.to_thread(wait_for, counted)
        before = time.time()
        # Twice: what a subscription's first failure has counted cannot be told from what was there all along.
        for batch in (1, 2):
            await asyncio.to_thread(publish, up, f"batch {batch}")
            await asyncio.to_thread(play, launcher, up)
            for happened in (
                f'holdfast_desk_failures{{status="retry_success"}} == {5 * batch}',
                f"sum(holdfast_desk_replayed_total) == {2 * batch}",
                "sum(holdfast_broker_expired_total) > 0",
            ):
                await asyncio.to_thread(wait_for, happened)
        # All of it is in the next scrape too, so that there is something to compare with.
        await asyncio.to_thread(wait_for, f"timestamp(holdfast_build_info) > {time.time() + 1}")
    return before, time.time()


@pytest.fixture(scope="module")
def seen(shared_launcher: Launcher) -> Iterator[Seen]:
    up = shared_launcher.up(env=ENV)
    with scraping(shared_launcher.cwd / "prometheus", up.url.removeprefix("http://")) as prometheus:
        before, after = asyncio.run(everything_happens(shared_launcher, up, prometheus))
        yield Seen(prometheus, before, after)


def panels() -> list[Any]:
    return [
        pytest.param(panel, id=f"{file.stem}: {panel['title']}")
        for file in sorted(FOLDER.iterdir())
        for panel in json.loads(file.read_text(encoding="utf-8"))["panels"]
        if panel["type"] != "row"
    ]


@pytest.mark.parametrize("panel", panels())
def test_every_query_of_a_panel_has_data(panel: dict[str, Any], seen: Seen) -> None:
    for target in panel["targets"]:
        query = with_values(target["expr"])
        # What compares with five minutes ago is asked for five minutes after all began: the last values still hold.
        at = seen.before + 300 if "offset 5m" in query and "increase" not in query else seen.after
        values = [float(row["value"][1]) for row in seen.prometheus.ask(query, at)]
        numbers = [value for value in values if not math.isnan(value)]  # NaN is a quantile of nothing
        assert numbers, query
        assert any(numbers) or panel["title"] in MAY_BE_ZERO, f"only zeros: {query}"


@pytest.mark.parametrize("name", ["pipeline", "broker-and-push", "consumer", "dead-letters"])
def test_every_variable_has_something_to_choose(name: str, seen: Seen) -> None:
    board = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    chosen = [variable for variable in board["templating"]["list"] if variable["type"] == "query"]
    assert {"job", "instance"} <= {variable["name"] for variable in chosen}
    for variable in chosen:
        found = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"])
        assert found, variable["query"]
        assert seen.prometheus.label_values(found[2], with_values(found[1]))


def with_values(query: str) -> str:
    """As Grafana asks when all is chosen."""
    for name, value in {"$job": ".*", "$instance": ".*", "$subscription": ".*", "$__rate_interval": "2m"}.items():
        query = query.replace(name, value)
    return query
