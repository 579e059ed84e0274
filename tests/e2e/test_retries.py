"""Automatic retries by a real `holdfast up`: what a consumer answers decides what becomes of the row, and kill -9 does
not send anything twice."""

from __future__ import annotations

import asyncio
import base64
import json
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from holdfast.model.replay_attributes import ORIGINAL_MESSAGE_ID, REPLAY_ID
from tests.support import http
from tests.support.process import Launcher, Running
from tests.support.pubsub import Pubsub
from tests.support.push_endpoint import Endpoint, push_endpoint
from tests.support.waiting import eventually

REASON = "DATABASE_CONNECTION_ERROR"
RETRIES = [{"reason": REASON, "delays": [0.3, 0.3, 0.3]}]
ENV = {"HOLDFAST_DESK_RETRY": json.dumps(RETRIES)}

# A claim that a killed desk has left runs out after a minute.
PATIENCE_SECONDS = 100.0


class Shop:
    """A consumer to push to. A message says how often it fails; -1 is always. Delivered twice, it fails twice."""

    def __init__(self) -> None:
        self.delivered: list[dict[str, Any]] = []
        self.ids: dict[str, list[str]] = defaultdict(list)  # by name: of the message, then of each retry

    async def reply(self, request: web.Request) -> web.StreamResponse:
        message = (await request.json())["message"]
        name, failing = base64.b64decode(message["data"]).decode().split(":")
        self.delivered.append(message)
        ids = self.ids[name]
        if message["messageId"] not in ids:
            ids.append(message["messageId"])
        if int(failing) < 0 or ids.index(message["messageId"]) < int(failing):
            headers = {"Holdfast-Dead-Letter": "now", "Holdfast-Failure-Reason": REASON, "Holdfast-Error": "db%20gone"}
            return web.Response(status=422, headers=headers)
        return web.Response(status=204)


@asynccontextmanager
async def shop(up: Running) -> AsyncIterator[tuple[Shop, Endpoint]]:
    consumer = Shop()
    async with push_endpoint(consumer.reply) as endpoint:
        await asyncio.to_thread(subscribe, up, endpoint.url)
        yield consumer, endpoint


def subscribe(up: Running, url: str) -> None:
    with Pubsub(up.broker) as pubsub:
        pubsub.create_topic("orders")
        pubsub.create_topic("orders.dlq")
        policy = {"dead_letter_topic": pubsub.topic("orders.dlq"), "max_delivery_attempts": 5}
        pubsub.subscribe("orders", "orders", push_config={"push_endpoint": url}, dead_letter_policy=policy)
        # The desk has made itself a reader for what failed.
        eventually(lambda: "orders.dlq.desk" in pubsub.subscriptions())


def publish(up: Running, *messages: str) -> list[str]:
    with Pubsub(up.broker) as pubsub:
        return pubsub.publish("orders", *(message.encode() for message in messages))


def rows(up: Running) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = http.get(f"{up.url}/api/v1/failures?pageSize=1000").body["failures"]
    return found


def states(up: Running) -> list[tuple[str, int]]:
    return [(row["status"], row["retryCount"]) for row in rows(up)]


def critical(up: Running) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in up.stderr.splitlines() if line.startswith("{")]
    return [line for line in lines if line["severity"] == "CRITICAL"]


async def test_one_that_fails_twice_and_then_succeeds(launcher: Launcher) -> None:
    up = await asyncio.to_thread(launcher.up, env=ENV)
    async with shop(up) as (consumer, _):
        [message_id] = await asyncio.to_thread(publish, up, "flaky:2")
        await asyncio.to_thread(eventually, lambda: states(up) == [("retry_success", 2)])
    [row] = rows(up)
    assert (row["messageId"], row["failureReason"], row["failureClass"]) == (message_id, REASON, "transient")
    assert "db gone" in row["errorDetails"]
    first, *retries = consumer.delivered
    assert first["messageId"] == message_id
    assert REPLAY_ID not in first["attributes"] if "attributes" in first else True
    assert [retry["attributes"][ORIGINAL_MESSAGE_ID] for retry in retries] == [message_id] * 2
    assert critical(up) == []


async def test_one_that_always_fails_is_given_up_and_somebody_is_told(launcher: Launcher) -> None:
    up = await asyncio.to_thread(launcher.up, env=ENV)
    async with shop(up) as (consumer, _):
        [message_id] = await asyncio.to_thread(publish, up, "hopeless:-1")
        await asyncio.to_thread(eventually, lambda: states(up) == [("permanent_failure", 3)])
        assert len(consumer.ids["hopeless"]) == 4
    [line] = critical(up)
    [row] = rows(up)
    assert line["message"] == "a message failed for good"
    told = (line["failure"], line["messageId"], line["failure_reason"], line["group"], line["retries"])
    assert told == (row["id"], message_id, REASON, row["group"], 3)
    assert "hopeless" not in json.dumps(line)  # never what the message carries


async def test_kill_9_in_the_middle_of_retries_loses_none_and_sends_none_twice(launcher: Launcher) -> None:
    up = await asyncio.to_thread(launcher.up, env=ENV)
    async with shop(up) as (consumer, endpoint):
        names = [f"order-{number}" for number in range(60)]
        await asyncio.to_thread(publish, up, *(f"{name}:{number % 3}" for number, name in enumerate(names)))
        for number in (30, 60):
            await endpoint.wait_until(lambda number=number: len(consumer.delivered) >= 60 + number // 2)  # type: ignore[misc]
            await asyncio.to_thread(up.kill)
            ports = ("--broker-port", up.broker.rpartition(":")[2])
            up = await asyncio.to_thread(launcher.up, *ports, env=ENV)
        wanted = Counter({("retry_success", 1): 20, ("retry_success", 2): 20})
        await asyncio.to_thread(eventually, lambda: Counter(states(up)) == wanted, PATIENCE_SECONDS)
    # What was under way at a kill may be delivered twice, but it was sent once: under one id.
    sent: dict[str, set[str]] = defaultdict(set)
    for message in consumer.delivered:
        sent[message.get("attributes", {}).get(REPLAY_ID, "")].add(message["messageId"])
    originals = sent.pop("")
    assert len(originals) == 60
    assert {len(ids) for ids in sent.values()} == {1}
