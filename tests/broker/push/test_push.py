"""Push delivery against a real HTTP server that answers, fails, hangs, resets and redirects."""

from __future__ import annotations

import asyncio
import base64

import pytest
from aiohttp import web

import holdfast
from holdfast.broker.service import Broker
from holdfast.broker.wire import decode
from holdfast.model import dead_letter_attributes as names
from holdfast.model.message import Message
from holdfast.model.resources import DeadLetterPolicy, PushConfig, Subscription
from tests.broker.helpers import DEAD_LETTERS, SUBSCRIPTION, TOPIC, make_dead_letter_topic, publish, take_one, text
from tests.broker.push.pushing import AT_ONCE, acked, push_to
from tests.support.push_endpoint import Endpoint, Reply, answering, push_endpoint


async def test_the_envelope_is_pubsubs(broker: Broker, endpoint: Endpoint) -> None:
    await push_to(broker, endpoint.url)
    message_id = await broker.publish_message(TOPIC, Message(b"\x00\xff", {"a": "ü"}, "key"))
    await acked(broker, 1)
    (envelope,) = endpoint.envelopes
    message = envelope["message"]
    assert base64.b64decode(message["data"]) == b"\x00\xff"
    assert message["attributes"] == {"a": "ü"}
    assert message["messageId"] == message["message_id"] == message_id
    assert message["publishTime"] == message["publish_time"]
    assert message["orderingKey"] == "key"
    assert envelope["subscription"] == SUBSCRIPTION
    assert "deliveryAttempt" not in envelope
    assert endpoint.headers[0]["Content-Type"] == "application/json"
    assert endpoint.headers[0]["User-Agent"] == f"holdfast-push/{holdfast.__version__}"


async def test_the_largest_message_is_pushed_whole(broker: Broker, endpoint: Endpoint) -> None:
    await push_to(broker, endpoint.url)
    await broker.publish_message(TOPIC, Message(b"x" * 9_900_000))
    await acked(broker, 1)
    assert len(base64.b64decode(endpoint.envelopes[0]["message"]["data"])) == 9_900_000


async def test_the_attempt_is_told_where_there_is_a_dead_letter_policy(broker: Broker, endpoint: Endpoint) -> None:
    await make_dead_letter_topic(broker)
    await push_to(broker, endpoint.url, dead_letter=DeadLetterPolicy(DEAD_LETTERS))
    await publish(broker, "a")
    await acked(broker, 1)
    assert endpoint.envelopes[0]["deliveryAttempt"] == 1


async def hang(request: web.Request) -> web.StreamResponse:
    await asyncio.sleep(30)
    return web.Response()


async def reset(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def redirect(request: web.Request) -> web.StreamResponse:
    return web.Response(status=307, headers={"Location": "/elsewhere"})


async def drip(request: web.Request) -> web.StreamResponse:
    """A good status that never comes to an end: Pub/Sub looks at the status."""
    response = web.StreamResponse(status=500)
    response.content_length = 200_000_000
    await response.prepare(request)
    await response.write(b"x" * 1000)
    await asyncio.sleep(30)
    return response


@pytest.mark.parametrize("bad", [answering(500), hang, reset, redirect, drip])
async def test_everything_but_an_acknowledgement_is_tried_again_and_dead_lettered_in_the_end(
    broker: Broker, endpoint: Endpoint, bad: Reply
) -> None:
    reader = await make_dead_letter_topic(broker)
    endpoint.reply = bad
    await push_to(broker, endpoint.url, dead_letter=DeadLetterPolicy(DEAD_LETTERS, 5), retry=AT_ONCE)
    await publish(broker, "a")
    dead = decode((await asyncio.wait_for(take_one(reader), 20)).body)
    assert dead.data == b"a"
    assert dead.attributes[names.SOURCE_DELIVERY_COUNT] == "5"
    assert [envelope["deliveryAttempt"] for envelope in endpoint.envelopes] == [1, 2, 3, 4, 5]
    await acked(broker, 1)


@pytest.mark.parametrize("status", [200, 201, 202, 204])
async def test_these_statuses_acknowledge(broker: Broker, endpoint: Endpoint, status: int) -> None:
    endpoint.reply = answering(status)
    await push_to(broker, endpoint.url, retry=AT_ONCE)
    await publish(broker, "a")
    await acked(broker, 1)
    assert len(endpoint.envelopes) == 1


async def test_a_closed_port_is_a_failed_attempt_and_the_message_waits(broker: Broker, endpoint: Endpoint) -> None:
    await push_to(broker, "http://127.0.0.1:1/push", retry=AT_ONCE)
    await publish(broker, "a")
    queue = broker.queue(SUBSCRIPTION)
    async with asyncio.timeout(20):
        while not queue.settled.failed or queue.settled.failed[1].attempts < 3:
            await asyncio.sleep(0.005)
    await broker.modify_push_config(SUBSCRIPTION, PushConfig(endpoint.url))
    await acked(broker, 1)
    assert len(endpoint.envelopes) == 1


async def test_dead_letter_now_is_our_brokers_alone(broker: Broker, endpoint: Endpoint, strict: bool) -> None:
    async def refuse(request: web.Request) -> web.StreamResponse:
        headers = {
            "Holdfast-Dead-Letter": "now",
            "Holdfast-Failure-Reason": "SCHEMA_VALIDATION_ERROR",
            "Holdfast-Error": "no%20service%3A%20%C3%A9",
        }
        return web.Response(status=422, headers=headers)

    reader = await make_dead_letter_topic(broker)
    endpoint.reply = refuse
    await push_to(broker, endpoint.url, dead_letter=DeadLetterPolicy(DEAD_LETTERS, 5), retry=AT_ONCE)
    await publish(broker, "a")
    dead = decode((await asyncio.wait_for(take_one(reader), 20)).body)
    assert len(endpoint.envelopes) == (5 if strict else 1)
    if not strict:
        assert dead.attributes[names.FAILURE_REASON] == "SCHEMA_VALIDATION_ERROR"
        assert dead.attributes[names.ERROR] == "no service: é"
        assert dead.attributes[names.LAST_STATUS] == "422"


async def test_an_endpoint_that_hangs_does_not_hold_up_another(broker: Broker, endpoint: Endpoint) -> None:
    endpoint.reply = hang
    await push_to(broker, endpoint.url)
    async with push_endpoint() as good:
        push = PushConfig(good.url)
        await broker.create_subscription(Subscription("projects/local/subscriptions/good", TOPIC, push=push))
        await publish(broker, *(str(number) for number in range(200)))
        await good.wait_for(200)


async def test_push_turned_into_pull_keeps_its_messages(broker: Broker, endpoint: Endpoint) -> None:
    endpoint.reply = answering(500)
    await push_to(broker, endpoint.url, retry=AT_ONCE)
    await publish(broker, "a")
    await endpoint.wait_for(1)
    await broker.modify_push_config(SUBSCRIPTION, None)
    assert text(await asyncio.wait_for(take_one(broker.queue(SUBSCRIPTION)), 20)) == "a"


async def test_a_deleted_push_subscription_stops(broker: Broker, endpoint: Endpoint) -> None:
    await push_to(broker, endpoint.url)
    await publish(broker, "a")
    await acked(broker, 1)
    await broker.delete_subscription(SUBSCRIPTION)
    await publish(broker, "b")
    await broker.create_subscription(Subscription(SUBSCRIPTION, TOPIC, push=PushConfig(endpoint.url)))
    await publish(broker, "c")
    await endpoint.wait_for(2)
    assert [base64.b64decode(item["message"]["data"]) for item in endpoint.envelopes] == [b"a", b"c"]
