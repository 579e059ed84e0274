"""Messages for one subscription alone, sent by Google's own client while the broker is killed: each arrives once."""

from __future__ import annotations

import json
import urllib.request
from collections import Counter
from urllib.parse import urlencode

import pytest
from google.api_core.exceptions import GoogleAPICallError, InvalidArgument
from google.cloud.pubsub_v1.publisher.futures import Future

from holdfast.model.replay_attributes import REPLAY_ID
from tests.support.process import Launcher, Running
from tests.support.pubsub import CALL_SECONDS, Pubsub
from tests.support.waiting import eventually

MESSAGES = 2000


def test_each_arrives_once_though_the_broker_is_killed_twice(launcher: Launcher) -> None:
    """A sender that does not know how far it came sends everything again, as the desk does after a crash."""
    broker = launcher.part("broker")
    with Pubsub(broker.broker) as pubsub:
        pubsub.create_topic("orders")
        for name in ("worker", "other"):
            pubsub.subscribe(name, "orders")
    promised: dict[str, str] = {}
    for _ in range(2):
        with Pubsub(broker.broker) as pubsub:
            promised |= send_until_killed(broker, pubsub, promised)
        broker = launcher.part("broker")
    with Pubsub(broker.broker) as pubsub:
        ids = send_all(pubsub)
        assert {name: ids[name] for name in promised} == promised
        arrived: Counter[str] = Counter()
        while received := pubsub.pull("worker", max_messages=1000):
            arrived.update(one.message.data.decode() for one in received)
        assert arrived == dict.fromkeys(ids, 1)
        assert pubsub.pull("other") == []
        fates = asked(broker, pubsub.subscription("worker"), list(ids.values())[:500])
    assert set(fates.values()) == {"acked"}


def send_until_killed(broker: Running, pubsub: Pubsub, known: dict[str, str]) -> dict[str, str]:
    """Gives the ids that the broker gave until then."""
    futures = {name: publish(pubsub, name) for name in names()}
    eventually(lambda: sum(future.done() for future in futures.values()) >= 200)
    broker.kill()
    given = {}
    for name, future in futures.items():
        try:
            given[name] = str(future.result(timeout=CALL_SECONDS))
        except GoogleAPICallError:  # the broker was gone; nothing was promised
            continue
    assert all(given.get(name, message_id) == message_id for name, message_id in known.items())
    return given


def send_all(pubsub: Pubsub) -> dict[str, str]:
    futures = {name: publish(pubsub, name) for name in names()}
    return {name: str(future.result(timeout=CALL_SECONDS)) for name, future in futures.items()}


def publish(pubsub: Pubsub, name: str) -> Future:
    """The subscription in the topic's place."""
    return pubsub.publisher.publish(
        pubsub.subscription("worker"), name.encode(), retry=None, timeout=CALL_SECONDS, **{REPLAY_ID: name}
    )


def names() -> list[str]:
    return [f"failure-{number}" for number in range(MESSAGES)]


def asked(broker: Running, subscription: str, ids: list[str]) -> dict[str, str]:
    query = urlencode([("subscription", subscription), *(("messageId", one) for one in ids)])
    with urllib.request.urlopen(f"http://{broker.broker}/api/v1/deliveries?{query}", timeout=CALL_SECONDS) as answer:
        return {one["messageId"]: one["fate"] for one in json.load(answer)["deliveries"]}


def test_up_tells_fates_on_its_own_port_too(launcher: Launcher) -> None:
    up = launcher.up()
    with Pubsub(up.broker) as pubsub:
        subscription = pubsub.subscription("market-ticks.materializer")
        tick = b'{"topic": "market-ticks", "eventId": "1", "symbol": "ACME", "price": 101.25}'
        future = pubsub.publisher.publish(subscription, tick, timeout=CALL_SECONDS)
        message_id = str(future.result(timeout=CALL_SECONDS))
    query = urlencode({"subscription": subscription, "messageId": message_id})

    def is_acked() -> bool:
        with urllib.request.urlopen(f"{up.url}/api/v1/deliveries?{query}", timeout=CALL_SECONDS) as answer:
            return bool(json.load(answer)["deliveries"][0]["fate"] == "acked")

    eventually(is_acked)


def test_a_strict_broker_refuses_the_address(launcher: Launcher) -> None:
    broker = launcher.part("broker", "--strict")
    with Pubsub(broker.broker) as pubsub:
        pubsub.create_topic("orders")
        pubsub.subscribe("worker", "orders")
        with pytest.raises(InvalidArgument, match="topic"):
            publish(pubsub, "x").result(timeout=CALL_SECONDS)
