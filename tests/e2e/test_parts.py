"""Each part alone: `broker`, `consume` and `desk` as processes of their own, found by PUBSUB_EMULATOR_HOST."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support import http
from tests.support.files import is_settled, rows
from tests.support.process import Launcher
from tests.support.pubsub import Pubsub
from tests.support.waiting import eventually

SUBSCRIPTION = "system.events.materializer"

SHOP = """
from holdfast.consumer import Consumer, Event, Poison, Upsert

app = Consumer()


@app.on("orders")
def orders(event: Event) -> Upsert:
    if "total" not in event.data:
        raise Poison("total: is missing", reason="NO_TOTAL")
    return Upsert("orders", str(event.data["order"]), {"total": event.data["total"]})


not_an_app = 42
"""


def documents(launcher: Launcher, collection: str) -> dict[str, Any]:
    query = "SELECT id, fields FROM documents WHERE collection = ?"
    found = rows(launcher.data / "documents.db", query, collection)
    return {document_id: json.loads(fields) for document_id, fields in found}


def failures(launcher: Launcher) -> list[tuple[Any, ...]]:
    query = "SELECT message_id, subscription, failure_reason, delivery_attempt FROM failed_messages"
    return rows(launcher.data / "failures.db", query)


def assert_one_line(done: subprocess.CompletedProcess[str], *parts: str) -> None:
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("holdfast: ")
    assert done.stderr.count("\n") == 1, done.stderr
    for part in parts:
        assert part in done.stderr


def test_three_processes_make_the_same_path(launcher: Launcher) -> None:
    """Together in one default data directory, each with a file of its own."""
    broker = launcher.part("broker")
    found = {"PUBSUB_EMULATOR_HOST": broker.broker}
    desk = launcher.part("desk", env=found)
    consume = launcher.part("consume", env=found)
    kept = {"broker.db", "documents.db", "failures.db", "alerts-broker.db", "alerts-consume.db", "alerts.db"}
    assert {path.name for path in launcher.data.glob("*.db")} == kept

    with Pubsub(broker.broker) as pubsub:
        endpoint = pubsub.describe(SUBSCRIPTION).push_config.push_endpoint
        assert endpoint == f"{consume.url}/pubsub/push"
        good = pubsub.publish_one("system.events", {"service": "checkout", "status": "ok"})
        bad = pubsub.publish_one("system.events", b"<not JSON>")

    eventually(lambda: is_settled(launcher.data, SUBSCRIPTION, good))
    document = documents(launcher, "ops_services")["local__checkout"]
    assert (document["status"], document["source"]["messageId"]) == ("ok", good)
    assert http.get(f"{consume.url}/api/v1/documents/ops_services/local__checkout").body["fields"] == document
    again = http.push(consume.url, good, b'{"service": "checkout", "status": "down"}')
    assert (again.status, again.body["outcome"]) == (200, "duplicate")

    subscription = f"projects/local/subscriptions/{SUBSCRIPTION}"
    recorded = eventually(lambda: failures(launcher))
    assert recorded == [(bad, subscription, "DECODE_ERROR", 1)]
    assert [one["messageId"] for one in http.get(f"{desk.url}/api/v1/failures").body["failures"]] == [bad]
    eventually(lambda: is_settled(launcher.data, SUBSCRIPTION, bad))

    # Each serves its own part only, and stops by itself.
    assert http.get(f"{consume.url}/api/v1/failures").status == 404
    assert http.get(f"{desk.url}/api/v1/documents").status == 404
    for part, number in ((consume, signal.SIGINT), (desk, signal.SIGTERM), (broker, signal.SIGINT)):
        assert part.stop(number) == 0
        assert part.stdout.endswith("stopped; everything is saved\n")
        assert "Traceback" not in part.stderr


def test_the_desk_makes_only_what_it_needs(launcher: Launcher) -> None:
    broker = launcher.part("broker", "--memory")
    desk = launcher.part("desk", "--memory", env={"PUBSUB_EMULATOR_HOST": broker.broker})
    with Pubsub(broker.broker) as pubsub:
        assert pubsub.topics() == {
            f"{topic}.materializer.dlq"
            for topic in ("system.events", "market-ticks", "market-bars-1m", "trade-signals", "ingest-heartbeat")
        }
        pubsub.publish_one(f"{SUBSCRIPTION}.dlq", b"by hand")
    [failure] = eventually(lambda: http.get(f"{desk.url}/api/v1/failures").body["failures"])
    assert failure["subscription"] == f"projects/local/subscriptions/{SUBSCRIPTION}"


def test_parts_go_on_after_the_broker_was_away(launcher: Launcher) -> None:
    broker = launcher.part("broker")
    address = broker.broker
    found = {"PUBSUB_EMULATOR_HOST": address}
    desk = launcher.part("desk", env=found)
    with Pubsub(address) as pubsub:
        pubsub.create_topic("system.events")
        pubsub.subscribe("pulled", "system.events")
    launcher.part("consume", "--pull", "pulled", env=found | {"HOLDFAST_TOPOLOGY_CREATE": "never"})
    assert broker.stop() == 0
    # Both notice that it is gone; neither gives up.
    eventually(lambda: "cannot collect" in desk.stderr)

    again = launcher.start("broker", "--port", address.rsplit(":", 1)[1]).wait_until_up()
    with Pubsub(again.broker) as pubsub:
        pubsub.publish_one("system.events", {"service": "checkout"})
        pubsub.publish_one(f"{SUBSCRIPTION}.dlq", b"by hand")
    eventually(lambda: documents(launcher, "ops_services"), within=30)
    eventually(lambda: failures(launcher), within=30)


def test_consume_by_pull(launcher: Launcher) -> None:
    broker = launcher.part("broker")
    with Pubsub(broker.broker) as pubsub:
        for topic in ("ticks-of-ours", "dead-ticks"):
            pubsub.create_topic(topic)
        pubsub.subscribe("dead", "dead-ticks")
        policy = {"dead_letter_topic": pubsub.topic("dead-ticks"), "max_delivery_attempts": 5}
        pubsub.subscribe("my-ticks", "ticks-of-ours", dead_letter_policy=policy)

        env = {
            "PUBSUB_EMULATOR_HOST": broker.broker,
            "SUBSCRIPTION_TOPIC_MAP": '{"my-ticks": "market-ticks"}',
            "HOLDFAST_TOPOLOGY_CREATE": "never",
        }
        consume = launcher.part("consume", "--pull", "my-ticks", env=env)
        assert pubsub.topics() == {"ticks-of-ours", "dead-ticks"}
        sent = {f"tick-{number}" for number in range(30)}
        ids = pubsub.publish("ticks-of-ours", *({"eventId": name, "symbol": "ACME"} for name in sent))
        poison = pubsub.publish_one("ticks-of-ours", b"<not JSON>")

        eventually(lambda: documents(launcher, "market_ticks").keys() == sent)
        eventually(lambda: all(is_settled(launcher.data, "my-ticks", message_id) for message_id in ids))
        # A pulled poison is rejected: the subscription's own policy ends it, and no attempt is wasted.
        letter = pubsub.pull_one("dead").message
        assert letter.data == b"<not JSON>"
        assert letter.attributes["CloudPubSubDeadLetterSourceDeliveryCount"] == "1"
        assert letter.attributes["holdfast-failure-reason"] == "DECODE_ERROR"
        assert [one["outcome"] for one in http.outcomes(consume.url, poison)] == ["poison"]
    assert consume.stop() == 0


def test_consume_an_app_of_the_users_own(launcher: Launcher) -> None:
    (launcher.cwd / "shop.py").write_text(SHOP)
    broker = launcher.part("broker")
    with Pubsub(broker.broker) as pubsub:
        pubsub.create_topic("orders")
        pubsub.subscribe("orders-pulled", "orders")
        env = {
            "PUBSUB_EMULATOR_HOST": broker.broker,
            "SUBSCRIPTION_TOPIC_MAP": '{"orders-pulled": "orders", "orders-pushed": "orders"}',
        }
        consume = launcher.part("consume", "shop:app", "--pull", "orders-pulled", env=env)
        # An app brings its own topology: the materializer's is not made for it.
        assert pubsub.topics() == {"orders"}
        pubsub.publish_one("orders", {"order": 1, "total": 12.5})
    eventually(lambda: documents(launcher, "orders") == {"1": {"total": 12.5}})

    applied = http.push(consume.url, "m-2", b'{"order": 2, "total": 1}', subscription="orders-pushed")
    assert (applied.status, applied.body["documents"]) == (200, ["orders/2"])
    refused = http.push(consume.url, "m-3", b'{"order": 3}', subscription="orders-pushed", attempt=1)
    assert (refused.status, refused.body["reason"]) == (422, "NO_TOTAL")
    assert not (launcher.data / "failures.db").exists()
    # Without a dead-letter policy nobody else would keep it.
    recorded = http.push(consume.url, "m-4", b'{"order": 4}', subscription="orders-pushed")
    assert (recorded.status, recorded.body["recorded"]) == (200, "the failure store")
    [failure] = json.loads(launcher.run("failures", "list", "--json").stdout)["failures"]
    assert (failure["messageId"], failure["failureReason"]) == ("m-4", "NO_TOTAL")
    assert documents(launcher, "orders") == {"1": {"total": 12.5}, "2": {"total": 1}}


def test_the_store_is_where_the_url_says(launcher: Launcher) -> None:
    consume = launcher.part("consume", "--store", "sqlite:///elsewhere/docs.db")
    assert http.push(consume.url, "m-1", b'{"service": "checkout"}').body["outcome"] == "applied"
    assert rows(launcher.cwd / "elsewhere" / "docs.db", "SELECT id FROM documents") == [("local__checkout",)]
    assert {path.name for path in launcher.data.glob("*.db")} == {"alerts-consume.db"}
    shown = launcher.run("docs", "get", "ops_services/local__checkout", "--store", "sqlite:///elsewhere/docs.db")
    assert "checkout" in shown.stdout


def test_in_memory_nothing_is_written(launcher: Launcher) -> None:
    up = launcher.up("--memory")
    with Pubsub(up.broker) as pubsub:
        message_id = pubsub.publish_one("system.events", {"service": "checkout"})
        eventually(lambda: [one["outcome"] for one in http.outcomes(up.url, message_id)] == ["applied"])
    assert http.get(f"{up.url}/api/v1/documents/ops_services/local__checkout").status == 200
    assert up.stop() == 0
    assert up.stdout.endswith("stopped\n")
    assert not launcher.data.exists()


@pytest.mark.parametrize(
    ("app", "complaint"),
    [
        ("shop", "must look like"),
        ("shop:", "must look like"),
        ("no_such_shop:app", "there is no module no_such_shop"),
        ("shop:nothing", "shop has no nothing"),
        ("shop:not_an_app", "must be a holdfast.consumer.Consumer, not int"),
    ],
)
def test_an_app_that_is_none(launcher: Launcher, app: str, complaint: str) -> None:
    (launcher.cwd / "shop.py").write_text(SHOP)
    assert_one_line(launcher.run("consume", app, "--port", "0"), "MODULE:APP", app, complaint)


@pytest.mark.parametrize("part", ["consume", "desk"])
def test_a_broker_that_is_not_there(launcher: Launcher, part: str) -> None:
    done = launcher.run(part, "--port", "0", env={"PUBSUB_EMULATOR_HOST": "127.0.0.1:1"})
    assert_one_line(done, "the broker did not answer", "127.0.0.1:1")


@pytest.mark.parametrize("args", [("desk",), ("consume", "--pull", "some-subscription")])
def test_neither_broker_nor_cloud(launcher: Launcher, args: tuple[str, ...]) -> None:
    """Without PUBSUB_EMULATOR_HOST it is Cloud Pub/Sub, for which this machine (with an empty home) has no login."""
    env = {"HOME": str(launcher.cwd), "CLOUDSDK_CONFIG": str(launcher.cwd), "NO_GCE_CHECK": "true"}
    assert_one_line(launcher.run(*args, "--port", "0", env=env), "PUBSUB_EMULATOR_HOST", "credentials")


def test_a_broker_takes_as_many_open_files_as_it_may(launcher: Launcher) -> None:
    """A shell gives it 1,024; a thousand endpoints need more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        broker = launcher.part("broker")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    limits = Path(f"/proc/{broker.process.pid}/limits").read_text(encoding="utf-8")
    (line,) = [line for line in limits.splitlines() if line.startswith("Max open files")]
    assert int(line.split()[3]) == min(hard, 65_536)
