"""Replays by a real desk over a real broker. `make proof ARGS=replay` is the long form of the first one."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from tests.proof.replay import most_within, prove_replay
from tests.support import http
from tests.support.process import Launcher, Running
from tests.support.pubsub import Pubsub
from tests.support.waiting import eventually


def test_each_failure_arrives_once_at_the_failing_subscription_at_its_rate_though_the_desk_is_killed(
    launcher: Launcher,
) -> None:
    replayed = prove_replay(launcher, failures=1500, per_second=150, kills=2, within=60)
    assert not replayed.problems, f"\n{replayed}"


def test_the_count_within_a_second_is_right() -> None:
    assert most_within([], 1.0) == 0
    assert most_within([0.0, 0.5, 0.999, 1.0, 1.4], 1.0) == 4


# Ordering keys.

# It notes what it has handled, in the order in which it did.
SHOP = """
from pathlib import Path

from holdfast.consumer import Consumer, Poison, Upsert

app = Consumer()


@app.on("orders", side_effects=True)
def order(event):
    number = event.data["number"]
    if "total" not in event.data:
        raise Poison("total: is missing")
    with Path("handled").open("a") as file:
        file.write(f"{number}\\n")
    return Upsert("orders", str(number), {})
"""

POISON = 3


class Shop:
    """A subscription that keeps the order of keys, and a consumer that pulls from it."""

    def __init__(self, launcher: Launcher, dead_letters: str) -> None:
        self._handled = launcher.cwd / "handled"
        (launcher.cwd / "shop.py").write_text(SHOP)
        self.up = launcher.up()
        with Pubsub(self.up.broker) as pubsub:
            for topic in ("orders", "orders.worker.dlq"):
                pubsub.create_topic(topic)
            eventually(lambda: "orders.worker.dlq.desk" in pubsub.subscriptions())  # the desk makes it
            pubsub.subscribe(
                "orders.worker",
                "orders",
                enable_message_ordering=True,
                dead_letter_policy={"dead_letter_topic": pubsub.topic("orders.worker.dlq"), "max_delivery_attempts": 5},
                retry_policy={"minimum_backoff": "0s", "maximum_backoff": "0s"},
                labels={"holdfast-ordered-dead-letters": dead_letters},
            )
        env = {"PUBSUB_EMULATOR_HOST": self.up.broker, "PYTHONPATH": str(launcher.cwd)}
        store = f"sqlite:///{launcher.cwd}/shop.db"
        launcher.part("consume", "shop:app", "--pull", "orders.worker", "--store", store, env=env)

    def publish(self, numbers: range) -> None:
        messages = [_message(number) for number in numbers]
        reply = http.post(f"http://{self.up.broker}/v1/projects/local/topics/orders:publish", {"messages": messages})
        assert reply.status == 200, reply.body

    @property
    def handled(self) -> list[int]:
        return [int(line) for line in self._handled.read_text().split()] if self._handled.exists() else []

    def handles(self, *numbers: int) -> None:
        eventually(lambda: len(self.handled) >= len(numbers), 30)
        assert self.handled == list(numbers)

    def failure(self) -> dict[str, Any]:
        [failure] = eventually(lambda: http.get(f"{self.up.url}/api/v1/failures").body["failures"], 30)
        return dict(failure)


def _message(number: int) -> dict[str, Any]:
    event = {"number": number} if number == POISON else {"number": number, "total": 1}
    return {"data": base64.b64encode(json.dumps(event).encode()).decode(), "orderingKey": "customer-7"}


def fix_and_replay(up: Running, failure_id: int) -> None:
    edited = http.post(f"{up.url}/api/v1/failures/{failure_id}:edit", {"merge": {"json": {"total": 1}}})
    assert edited.status == 201, edited.body
    made = http.post(f"{up.url}/api/v1/replays", {"selection": {"id": [failure_id]}})
    assert made.status == 201, made.body
    assert http.post(f"{up.url}/api/v1/replays/{made.body['id']}:start", {}).status == 200


@pytest.mark.parametrize("dead_letters", ["hold", "pass"])
def test_a_fixed_message_comes_in_its_place_where_its_key_was_held(launcher: Launcher, dead_letters: str) -> None:
    shop = Shop(launcher, dead_letters)
    shop.publish(range(1, 11))
    failure = shop.failure()
    assert (failure["failureReason"], failure["orderingKey"]) == ("SCHEMA_VALIDATION_ERROR", "customer-7")
    if dead_letters == "hold":
        shop.handles(1, 2)
        fix_and_replay(shop.up, failure["id"])
        shop.handles(*range(1, 11))
    else:
        shop.handles(1, 2, *range(4, 11))
        fix_and_replay(shop.up, failure["id"])
        shop.handles(1, 2, *range(4, 11), 3)
