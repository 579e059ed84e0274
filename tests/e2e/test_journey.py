"""`holdfast trace` and its API against real processes: every attempt once, the whole family from any of its ids, and
the same after kill -9."""

from __future__ import annotations

import asyncio
import base64
import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web
from google.cloud.pubsub_v1.subscriber.message import Message

from tests.e2e.test_retries import ENV, shop
from tests.e2e.test_retries import publish as order
from tests.support import http
from tests.support.process import Launcher, Running
from tests.support.pubsub import CALL_SECONDS, Pubsub
from tests.support.push_endpoint import push_endpoint
from tests.support.waiting import eventually

MATERIALIZER = "projects/local/subscriptions/system.events.materializer"


def journey(address: str, message_id: str) -> dict[str, Any]:
    reply = http.get(f"http://{address.removeprefix('http://')}/api/v1/messages/{message_id}/journey")
    assert reply.status == 200, reply
    found: dict[str, Any] = reply.body
    return found


def steps(found: dict[str, Any]) -> list[tuple[str, int]]:
    return [(event["did"], event["attempt"]) for event in found["events"]]


def attempts(found: dict[str, Any]) -> Counter[tuple[str, int]]:
    """How often each was told, by message."""
    failed = [event for event in found["events"] if event["did"] == "attempt_failed"]
    return Counter((event["messageId"], event["attempt"]) for event in failed)


def until(address: str, message_id: str, did: str) -> dict[str, Any]:
    """The journey, once that is part of it."""

    def look() -> dict[str, Any] | None:
        found = journey(address, message_id)
        return found if did in [event["did"] for event in found["events"]] else None

    return eventually(look) or {}


# One subscription, whichever way it is read: failed twice, then acked.


def fail_by_pull(pubsub: Pubsub, times: int) -> None:
    """Unary pull."""
    path = pubsub.subscription("worker")
    for failing in [True] * times + [False]:
        received = eventually(lambda: pubsub.subscriber.pull(subscription=path, max_messages=1).received_messages)
        ack_ids = [one.ack_id for one in received]
        if failing:
            request = {"subscription": path, "ack_ids": ack_ids, "ack_deadline_seconds": 0}
            pubsub.subscriber.modify_ack_deadline(request=request, timeout=CALL_SECONDS)
        else:
            pubsub.subscriber.acknowledge(subscription=path, ack_ids=ack_ids, timeout=CALL_SECONDS)


def fail_by_stream(pubsub: Pubsub, times: int) -> None:
    seen: list[str] = []

    def handle(message: Message) -> None:
        seen.append(message.message_id)
        if len(seen) <= times:
            message.nack()
        else:
            message.ack()

    stream = pubsub.subscriber.subscribe(pubsub.subscription("worker"), handle)
    eventually(lambda: len(seen) > times)
    stream.cancel()
    stream.result(timeout=CALL_SECONDS)


@pytest.mark.parametrize("fail", [fail_by_pull, fail_by_stream])
def test_failed_twice_and_then_acked(launcher: Launcher, fail: Callable[[Pubsub, int], None]) -> None:
    broker = launcher.part("broker")
    with Pubsub(broker.broker) as pubsub:
        pubsub.create_topic("orders")
        pubsub.subscribe("worker", "orders")
        message_id = pubsub.publish_one("orders", b"a secret payload")
        fail(pubsub, 2)
        found = until(broker.broker, message_id, "acked")
    assert steps(found) == [("published", 0), ("attempt_failed", 1), ("attempt_failed", 2), ("acked", 0)]
    assert [event["precision"] for event in found["events"]] == ["exact", "exact", "exact", "by"]
    assert found["parts"] == ["broker"]
    assert found["messageIds"] == [message_id]
    assert "secret" not in json.dumps(found)
    assert {event["where"] for event in found["events"][1:]} == {pubsub.subscription("worker")}


async def test_the_same_by_push_and_errors_hide_what_is_redacted(launcher: Launcher) -> None:
    answers = [503, 422, 204]

    async def reply(request: web.Request) -> web.Response:
        status = answers.pop(0)
        message = (await request.json())["message"]
        card = json.loads(base64.b64decode(message["data"]))["card"]
        return web.Response(status=status, headers={"Holdfast-Error": f"refused%20{card}"})

    broker = await asyncio.to_thread(launcher.part, "broker", env={"HOLDFAST_DESK_REDACT": "payload:card"})
    async with push_endpoint(reply) as endpoint:

        def run() -> dict[str, Any]:
            with Pubsub(broker.broker) as pubsub:
                pubsub.create_topic("orders")
                soon = {"nanos": 100_000_000}
                pubsub.subscribe(
                    "worker",
                    "orders",
                    push_config={"push_endpoint": endpoint.url},
                    retry_policy={"minimum_backoff": soon, "maximum_backoff": soon},
                )
                message_id = pubsub.publish_one("orders", {"card": "4111-1111"})
                return until(broker.broker, message_id, "acked")

        found = await asyncio.to_thread(run)
    assert [event["detail"] for event in found["events"] if event["attempt"]] == [
        "503: refused [redacted]",
        "422: refused [redacted]",
    ]
    assert steps(found) == [("published", 0), ("attempt_failed", 1), ("attempt_failed", 2), ("acked", 0)]


def test_kill_9_in_the_middle_loses_nothing_and_doubles_nothing(launcher: Launcher) -> None:
    broker = launcher.part("broker")
    with Pubsub(broker.broker) as pubsub:
        pubsub.create_topic("orders")
        pubsub.subscribe("worker", "orders")
        message_id = pubsub.publish_one("orders", b"a")
        nack(pubsub)
        until(broker.broker, message_id, "attempt_failed")
        pubsub.subscriber.pull(subscription=pubsub.subscription("worker"), max_messages=1)  # and never settled
    broker.kill()
    broker = launcher.part("broker")
    with Pubsub(broker.broker) as pubsub:
        found = journey(broker.broker, message_id)
        assert steps(found) == [("published", 0), ("attempt_failed", 1), ("is", 0)]
        nack(pubsub)
        pubsub.pull_one("worker")
        found = until(broker.broker, message_id, "acked")
    broker.kill()
    broker = launcher.part("broker")
    assert attempts(found) == {(message_id, 1): 1, (message_id, 2): 1}
    assert steps(journey(broker.broker, message_id)) == steps(found)


def nack(pubsub: Pubsub) -> None:
    path = pubsub.subscription("worker")
    received = eventually(lambda: pubsub.subscriber.pull(subscription=path, max_messages=1).received_messages)
    request = {"subscription": path, "ack_ids": [received[0].ack_id], "ack_deadline_seconds": 0}
    pubsub.subscriber.modify_ack_deadline(request=request, timeout=CALL_SECONDS)


# The whole path.


def test_a_success_is_told_by_broker_and_consumer(launcher: Launcher) -> None:
    up = launcher.up()
    with Pubsub(up.broker) as pubsub:
        message_id = pubsub.publish_one("system.events", {"service": "checkout", "status": "ok"})
    found = until(up.url, message_id, "acked")
    assert steps(found) == [("published", 0), ("applied", 0), ("acked", 0)]
    assert found["parts"] == ["broker", "consumer", "desk"]
    assert found["events"][1]["detail"] == "ops_services/local__checkout"
    up.kill()
    again = until(launcher.up().url, message_id, "acked")
    assert steps(again) == [("published", 0), ("handled", 0), ("acked", 0)], "outcomes were in memory, marks are not"
    assert again["events"][1]["time"] is not None


async def test_automatic_retries_are_one_family_found_by_any_of_its_ids(launcher: Launcher) -> None:
    up = await asyncio.to_thread(launcher.up, env=ENV)
    async with shop(up) as (consumer, _):
        [message_id] = await asyncio.to_thread(order, up, "flaky:2")
        found = await asyncio.to_thread(until, up.url, message_id, "succeeded")
        sent = consumer.ids["flaky"]
    assert sent[0] == message_id
    assert len(sent) == 3
    assert attempts(found) == {(sent[0], 1): 1, (sent[1], 1): 1}
    copies = [event["relatedMessageId"] for event in found["events"] if event["did"] == "dead_lettered"]
    again = [event["relatedMessageId"] for event in found["events"] if event["did"] == "sent_again"]
    assert (len(copies), again) == (2, sent[1:])
    assert set(found["messageIds"]) == {*sent, *copies}
    up.kill()
    up = await asyncio.to_thread(launcher.up, env=ENV)
    for other in (*sent, *copies):
        one = journey(up.url, other)
        assert set(one["messageIds"]) == set(found["messageIds"])
        assert attempts(one) == attempts(found)
        assert one["messageIds"][0] == other


def replayed(up: Running, launcher: Launcher) -> str:
    """A message that was dead-lettered, edited and sent again. Gives its id."""
    with Pubsub(up.broker) as pubsub:
        message_id = pubsub.publish_one("system.events", {"status": "no service"})
    eventually(lambda: http.get(f"{up.url}/api/v1/failures").body["failures"])
    edit = ("failures", "edit", "1", "--set", "service=checkout", "--actor", "ada", "--url", up.url)
    for command in (edit, ("failures", "replay", "1", "--yes", "--url", up.url)):
        done = launcher.run(*command)
        assert done.returncode == 0, done.stderr
    eventually(lambda: http.get(f"{up.url}/api/v1/failures/1").body["status"] == "replayed")
    return message_id


def test_an_edited_replay_on_the_command_line(launcher: Launcher) -> None:
    up = launcher.up()
    message_id = replayed(up, launcher)
    found = until(up.url, message_id, "sent_again")
    [again] = [event for event in found["events"] if event["did"] == "sent_again"]
    until(up.url, again["relatedMessageId"], "acked")
    asked = ("--broker", up.broker, "--url", up.url)
    done = launcher.run("trace", again["relatedMessageId"], *asked)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["TIME", "WHERE", "WHAT", "MESSAGE", "DETAIL"]
    assert [line.rstrip().endswith("revision 1 by ada") for line in lines].count(True) == 1
    assert [f"as {again['relatedMessageId']}" in line for line in lines].count(True) == 1
    assert lines[-1].startswith("now ")
    assert lines[-1].endswith("replayed")
    by_failure = launcher.run("trace", "failures/1", *asked, "--json")
    told = json.loads(by_failure.stdout)
    assert told["messageId"] == message_id
    assert len(told["events"]) == len(lines) - 1
    assert [(place["parts"], place["error"]) for place in told["asked"]] == [
        (["broker"], ""),
        (["broker", "consumer", "desk"], ""),
    ]
    assert told["notes"] == []


def test_three_processes_by_their_urls(launcher: Launcher) -> None:
    broker = launcher.part("broker")
    env = {"PUBSUB_EMULATOR_HOST": broker.broker}
    desk = launcher.part("desk", env=env)
    consume = launcher.part("consume", env=env)
    with Pubsub(broker.broker) as pubsub:
        good = pubsub.publish_one("system.events", {"service": "checkout", "status": "ok"})
        bad = pubsub.publish_one("system.events", b"<not JSON>")
    eventually(lambda: http.get(f"{desk.url}/api/v1/failures").body["failures"])
    until(broker.broker, good, "acked")
    urls = ("--url", consume.url, "--url", desk.url)
    told = json.loads(launcher.run("trace", good, *urls, "--json", env=env).stdout)
    assert steps(told) == [("published", 0), ("applied", 0), ("acked", 0)]
    assert [place["parts"] for place in told["asked"]] == [["broker"], ["consumer"], ["desk"]]
    told = json.loads(launcher.run("trace", bad, *urls, "--json", env=env).stdout)
    assert [did for did, _ in steps(told)][:4] == ["published", "attempt_failed", "dead_lettered", "published"]
    assert "recorded" in [did for did, _ in steps(told)]
    assert told["notes"] == []

    # Without a broker of ours, as beside Cloud Pub/Sub: what the desk knows, and what cannot be known.
    alone = launcher.run("trace", bad, "--broker", "127.0.0.1:1", "--url", desk.url)
    assert alone.returncode == 0, alone.stderr
    assert "Cloud Pub/Sub" in alone.stdout
    assert [line.split()[-2] for line in alone.stdout.splitlines()[1:2]] == ["published"]
    assert "attempt_failed" not in alone.stdout
    assert "127.0.0.1:1" in alone.stderr


def test_a_message_that_nobody_knows(launcher: Launcher) -> None:
    up = launcher.up("--memory")
    asked = ("--broker", up.broker, "--url", up.url)
    done = launcher.run("trace", "123", *asked)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"holdfast: nobody knows a message 123; asked: http://{up.broker} (broker); {up.url} (broker, consumer, desk)\n"
    )
    done = launcher.run("trace", "failures/77", *asked)
    assert done.returncode == 1
    assert done.stderr == f"holdfast: nobody knows failures/77; asked: {up.url}: there is no failure 77\n"
    for wrong, said in [
        (("",), "MESSAGE_ID: must not be empty"),
        (("1", "--url", "x"), "--url: 'x' is not a URL such as"),
    ]:
        done = launcher.run("trace", *wrong, *asked)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith(f"holdfast: {said}")
    done = launcher.run("trace", "failures/x", *asked)
    assert done.stderr.startswith("holdfast: MESSAGE_ID: must be a message id, or failures/ and a number")
    nobody = launcher.run("trace", "123", "--broker", "127.0.0.1:1", "--url", "http://127.0.0.1:1")
    assert (nobody.returncode, nobody.stdout) == (1, "")
    assert "no Holdfast answers" in nobody.stderr
    for hostile in ("%00", "a%20b", "x" * 256, "%F0%9F%92%99", "9" * 19):
        assert journey(up.url, hostile)["events"] == []
    assert http.get(f"{up.url}/api/v1/messages/{'x' * 257}/journey").status == 400
    assert http.get(f"{up.url}/api/v1/messages/1/journey?x=1").status == 400
