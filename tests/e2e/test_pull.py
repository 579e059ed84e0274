"""`holdfast consume --pull` as a process of its own: stopped, killed, and left without a broker in the middle of its
work. Nothing is lost, and nothing is counted twice."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.files import is_settled, rows
from tests.support.process import Launcher, Running
from tests.support.pubsub import Pubsub
from tests.support.waiting import eventually

MESSAGES = 2000
NAMES = frozenset(f"order-{number}" for number in range(MESSAGES))

# A count would be wrong if an event were applied twice; an upsert alone would not show it.
SHOP = """
import asyncio

from holdfast.consumer import Consumer, Count, Event, Upsert

app = Consumer()


@app.on("orders")
async def order(event: Event):
    await asyncio.sleep(0.01)  # so that there is a middle to be stopped in
    return [
        Upsert("orders", event.data["id"], {"messageId": event.message_id}),
        Count("totals", event.data["id"], {"applied": 1}),
        Count("totals", "all", {"applied": 1}),
    ]
"""


def documents(launcher: Launcher, collection: str) -> dict[str, Any]:
    query = "SELECT id, fields FROM documents WHERE collection = ?"
    found = rows(launcher.data / "documents.db", query, collection)
    return {document_id: json.loads(fields) for document_id, fields in found}


def count(launcher: Launcher) -> int:
    [(number,)] = rows(launcher.data / "documents.db", "SELECT count(*) FROM documents WHERE collection = 'orders'")
    return int(number)


class Shop:
    """A broker with one subscription that has much to deliver, and a consumer that pulls from it."""

    def __init__(self, launcher: Launcher) -> None:
        self.launcher = launcher
        (launcher.cwd / "shop.py").write_text(SHOP)
        self.broker = launcher.part("broker")
        self.address = self.broker.broker
        with Pubsub(self.address) as pubsub:
            pubsub.create_topic("orders")
            pubsub.subscribe("worker", "orders")
            self.ids = pubsub.publish("orders", *({"id": name} for name in sorted(NAMES)))
        self.consumer = self.consume()

    def consume(self) -> Running:
        env = {"PUBSUB_EMULATOR_HOST": self.address, "HOLDFAST_TOPOLOGY_CREATE": "never"}
        return self.launcher.part("consume", "shop:app", "--pull", "worker", env=env)

    def wait_for(self, number: int) -> None:
        eventually(lambda: count(self.launcher) >= number)

    def in_the_middle(self) -> None:
        self.wait_for(MESSAGES // 10)
        assert count(self.launcher) < MESSAGES * 9 // 10

    def everything_is_there_once(self) -> None:
        eventually(lambda: documents(self.launcher, "orders").keys() == NAMES, within=60)
        eventually(lambda: all(is_settled(self.launcher.data, "worker", one) for one in self.ids[:: MESSAGES // 20]))
        totals = documents(self.launcher, "totals")
        assert totals.pop("all") == {"applied": MESSAGES}
        assert totals == {name: {"applied": 1} for name in NAMES}
        assert {fields["messageId"] for fields in documents(self.launcher, "orders").values()} == set(self.ids)


@pytest.fixture
def shop(launcher: Launcher) -> Shop:
    return Shop(launcher)


def outcomes(running: Running) -> list[str]:
    return re.findall(r'"outcome": "(\w+)"', running.stderr)


def test_a_stop_in_the_middle(shop: Shop) -> None:
    shop.in_the_middle()
    assert shop.consumer.stop() == 0
    assert shop.consumer.stdout.endswith("stopped; everything is saved\n")
    assert "Traceback" not in shop.consumer.stderr
    # Whatever it began it also finished and acked: the next one meets none of it again.
    done = count(shop.launcher)
    assert outcomes(shop.consumer) == ["applied"] * done
    again = shop.consume()
    shop.everything_is_there_once()
    assert outcomes(again) == ["applied"] * (MESSAGES - done)


HANGING = """
import threading

from holdfast.consumer import Consumer, Event

app = Consumer()


@app.on("orders", side_effects=True)
def order(event: Event):
    print("begun", flush=True)
    threading.Event().wait(300)
"""


TWO_HANDLERS = """
from holdfast.consumer import Consumer, Event, Upsert

app = Consumer()


@app.on("orders")
@app.on("refunds")
def any_event(event: Event):
    return Upsert("events", event.message_id, {})
"""


@pytest.mark.parametrize(("topic_map", "warned"), [({}, True), ({"worker": "orders"}, False)])
def test_a_subscription_that_leaves_a_doubt_is_told_at_the_start(
    launcher: Launcher, topic_map: dict[str, str], warned: bool
) -> None:
    (launcher.cwd / "shop.py").write_text(TWO_HANDLERS)
    env = {
        "PUBSUB_EMULATOR_HOST": launcher.part("broker").broker,
        "HOLDFAST_TOPOLOGY_CREATE": "never",
        "SUBSCRIPTION_TOPIC_MAP": json.dumps(topic_map),
    }
    consumer = launcher.part("consume", "shop:app", "--pull", "worker", env=env)
    consumer.stop()
    assert ("must name their topic" in consumer.stderr) is warned


def test_a_handler_that_hangs_on_its_thread_does_not_hold_up_a_stop(launcher: Launcher) -> None:
    (launcher.cwd / "hanging.py").write_text(HANGING)
    broker = launcher.part("broker")
    with Pubsub(broker.broker) as pubsub:
        pubsub.create_topic("orders")
        pubsub.subscribe("worker", "orders")
        pubsub.publish("orders", {"id": "a"})
    env = {"PUBSUB_EMULATOR_HOST": broker.broker, "HOLDFAST_CONSUMER_DRAIN_SECONDS": "0.5"}
    consume = launcher.part("consume", "hanging:app", "--pull", "worker", env=env)
    eventually(lambda: "begun" in consume.stdout)
    assert consume.stop() == 0


def test_a_kill_in_the_middle(shop: Shop) -> None:
    shop.in_the_middle()
    shop.consumer.kill()
    shop.consume()
    shop.everything_is_there_once()


@pytest.mark.parametrize("end", [Running.stop, Running.kill])
def test_a_broker_that_goes_away_and_comes_back(shop: Shop, end: Callable[[Running], object]) -> None:
    shop.in_the_middle()
    end(shop.broker)
    eventually(lambda: "cannot be pulled" in shop.consumer.stderr)
    shop.launcher.start("broker", "--port", shop.address.rsplit(":", 1)[1]).wait_until_up()
    shop.everything_is_there_once()
    assert shop.consumer.process.poll() is None


def test_a_subscription_that_is_made_later(launcher: Launcher) -> None:
    (launcher.cwd / "shop.py").write_text(SHOP)
    broker = launcher.part("broker")
    env = {"PUBSUB_EMULATOR_HOST": broker.broker, "HOLDFAST_TOPOLOGY_CREATE": "never"}
    consume = launcher.part("consume", "shop:app", "--pull", "late", "--pull", "there", env=env)
    eventually(lambda: "projects/local/subscriptions/late" in consume.stderr)
    with Pubsub(broker.broker) as pubsub:
        pubsub.create_topic("orders")
        pubsub.subscribe("late", "orders")
        pubsub.publish_one("orders", {"id": "order-1"})
    eventually(lambda: documents(launcher, "orders").keys() == {"order-1"})
    assert consume.stop() == 0


def test_one_consumer_after_the_other(shop: Shop) -> None:
    for part in (1, 2, 3):
        shop.wait_for(part * 300)
        assert shop.consumer.stop() == 0
        shop.consumer = shop.consume()
    shop.everything_is_there_once()
