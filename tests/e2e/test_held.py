"""`holdfast held`, and keys that go on by themselves, with the whole of Holdfast and official clients."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from tests.support import http
from tests.support.operator import Operator
from tests.support.process import Launcher, Running
from tests.support.pubsub import CALL_SECONDS, Pubsub
from tests.support.waiting import eventually

WORKER = "projects/local/subscriptions/orders.worker"

# A retry would come into the place within seconds.
NO_RETRIES = """
[[desk.retry]]
reason = "*"
delays = []
"""


@pytest.fixture(autouse=True)
def no_retries(launcher: Launcher) -> None:
    (launcher.cwd / "holdfast.toml").write_text(NO_RETRIES)


@pytest.fixture
def up(launcher: Launcher) -> Running:
    return launcher.up()


def waits_at_a_failure(up: Running, *payloads: bytes) -> str:
    """The first of them is dead-lettered, and the others of its key wait behind it. Gives its message id."""
    with Pubsub(up.broker) as pubsub:
        for topic in {"orders", "orders.worker.dlq"} - pubsub.topics():
            pubsub.create_topic(topic)
        eventually(lambda: "orders.worker.dlq.desk" in pubsub.subscriptions())  # the desk makes it
        pubsub.subscribe(
            "orders.worker",
            "orders",
            enable_message_ordering=True,
            dead_letter_policy={"dead_letter_topic": pubsub.topic("orders.worker.dlq"), "max_delivery_attempts": 5},
            retry_policy={"minimum_backoff": "0s", "maximum_backoff": "0s"},
            labels={"holdfast-ordered-dead-letters": "hold"},
        )
        messages = [{"data": base64.b64encode(one).decode(), "orderingKey": "customer-7"} for one in payloads]
        published = http.post(f"http://{up.broker}/v1/projects/local/topics/orders:publish", {"messages": messages})
        nacks = 0
        while nacks < 5:
            found = pubsub.subscriber.pull(subscription=WORKER, max_messages=1, timeout=CALL_SECONDS).received_messages
            for one in found:
                assert one.message.data == payloads[0]
                pubsub.subscriber.modify_ack_deadline(
                    subscription=WORKER, ack_ids=[one.ack_id], ack_deadline_seconds=0, timeout=CALL_SECONDS
                )
                nacks += 1
    return str(published.body["messageIds"][0])


def the_failure(up: Running) -> dict[str, Any]:
    [failure] = eventually(lambda: http.get(f"{up.url}/api/v1/failures").body["failures"], 30)
    return dict(failure)


def comes(up: Running, *expected: bytes) -> None:
    found: list[bytes] = []

    def all_of_them() -> bool:
        with Pubsub(up.broker) as pubsub:
            found.extend(one.message.data for one in pubsub.pull("orders.worker"))
        return len(found) >= len(expected)

    eventually(all_of_them, 30)
    assert found == list(expected)


def test_a_key_is_listed_and_released_by_hand(launcher: Launcher, up: Running) -> None:
    operator = Operator(launcher, up.broker)
    assert "no ordering key of project local waits" in operator.ok("held", "list")
    message_id = waits_at_a_failure(up, b"1", b"2", b"3")
    failure = the_failure(up)
    assert failure["messageId"] == message_id
    (held,) = operator.json("held", "list")["held"]
    assert (held["subscription"], held["messageId"], held["orderingKey"]) == (WORKER, message_id, "customer-7")
    assert operator.json("held", "list", "orders.worker")["held"] == [held]
    table = operator.ok("held", "list").splitlines()
    assert table[0].split("  ")[0] == "SUBSCRIPTION"
    assert message_id in table[1]
    assert "waits at 12" in operator.refused("held", "release", "orders.worker", "12")
    assert "released" in operator.ok("held", "release", "orders.worker", message_id)
    comes(up, b"2", b"3")
    told = json.loads(operator.ok("held", "release", "orders.worker", message_id, "--json"))
    assert told == {"released": False, "notYet": False}
    assert "nothing-there" in operator.refused("held", "list", "nothing-there")


def test_cloud_pubsub_holds_nothing(launcher: Launcher) -> None:
    done = launcher.run("held", "list", "--cloud", "--project", "some-project")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "holds no ordering keys" in done.stderr


def test_what_is_erased_frees_its_key_though_the_desk_is_killed(launcher: Launcher, up: Running) -> None:
    waits_at_a_failure(up, b"1", b"2", b"3")
    failure = the_failure(up)
    erased = http.post(f"{up.url}/api/v1/failures:erase", {"selection": {"id": [failure["id"]]}, "confirm": 1})
    assert erased.status == 200, erased.body
    up.kill()
    comes(launcher.up(), b"2", b"3")


def test_a_desk_apart_frees_keys_of_its_broker(launcher: Launcher) -> None:
    broker = launcher.part("broker")
    env = {"PUBSUB_EMULATOR_HOST": broker.broker}
    with Pubsub(broker.broker) as pubsub:  # before the desk, which looks for new ones once a minute
        for topic in ("orders", "orders.worker.dlq"):
            pubsub.create_topic(topic)
        pubsub.subscribe("orders.worker.dlq.desk", "orders.worker.dlq")
    desk = launcher.part("desk", env=env)
    message_id = waits_at_a_failure(broker, b"1", b"2")
    failure = the_failure(desk)
    assert failure["messageId"] == message_id
    replayed = http.post(f"{desk.url}/api/v1/ingest/orders/manual", {"left": "out"})
    assert replayed.status == 200
    erased = http.post(f"{desk.url}/api/v1/failures:erase", {"selection": {"id": [failure["id"]]}, "confirm": 1})
    assert erased.status == 200, erased.body
    desk.kill()
    launcher.part("desk", env=env)
    comes(broker, b"2", b'{"left": "out"}')
