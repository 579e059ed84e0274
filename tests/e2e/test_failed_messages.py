"""Messages that no subscription would dead-letter end in someone's hands all the same."""

from __future__ import annotations

import json
from typing import Any

import psycopg

from tests.support import http
from tests.support.postgres import PostgresServer, database_url, postgres
from tests.support.process import Launcher, Running
from tests.support.pubsub import Pubsub
from tests.support.waiting import eventually

__all__ = ["database_url", "postgres"]

NO_TOKENS = {"HOLDFAST_CONSUMER_AUTH_PUSH": "off"}


def failures(launcher: Launcher) -> list[dict[str, Any]]:
    shown = launcher.run("failures", "list", "--json")
    found: list[dict[str, Any]] = json.loads(shown.stdout)["failures"] if shown.returncode == 0 else []
    return found


def logged(running: Running, message_id: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in running.stderr.splitlines() if line.startswith("{")]
    return [line for line in lines if line.get("messageId") == message_id]


def test_poison_of_a_push_subscription_without_a_policy_comes_once_and_is_at_the_desk(launcher: Launcher) -> None:
    up = launcher.up(env={**NO_TOKENS, "SUBSCRIPTION_TOPIC_MAP": '{"bare": "system.events"}'})
    with Pubsub(up.broker) as pubsub:
        pubsub.subscribe("bare", "system.events", push_config={"push_endpoint": f"{up.url}/pubsub/push"})
        pubsub.modify_push("system.events.materializer", {})  # so that only the other one is delivered
        message_id = pubsub.publish_one("system.events", {"status": "of nobody"})
        eventually(lambda: len(failures(launcher)) == 1)
        [failure] = failures(launcher)
        assert failure["subscription"] == pubsub.subscription("bare")
        assert (failure["messageId"], failure["failureReason"]) == (message_id, "SCHEMA_VALIDATION_ERROR")
        # A good one after it shows that the first was not sent again meanwhile.
        good = pubsub.publish_one("system.events", {"service": "checkout"})
        eventually(lambda: [line["outcome"] for line in logged(up, good)] == ["applied"])
    [line] = logged(up, message_id)
    assert (line["severity"], line["http_status"], line["recorded"]) == ("ERROR", 200, "the failure store")


def test_with_a_topic_for_them_the_desk_reads_them_from_there(launcher: Launcher) -> None:
    up = launcher.up(env={**NO_TOKENS, "DLQ_TOPIC": "consumer-dlq"})
    reply = http.push(up.url, "m-1", b'{"status": "of nobody"}')
    assert (reply.status, reply.body["recorded"]) == (200, "projects/local/topics/consumer-dlq")
    eventually(lambda: [failure["messageId"] for failure in failures(launcher)] == ["m-1"])
    [failure] = failures(launcher)
    assert failure["subscription"] == "projects/local/subscriptions/system.events.materializer"
    assert failure["sourceTopic"] == "projects/local/topics/system.events"


def test_what_the_store_refuses_for_good_is_published_and_acked_only_then(
    launcher: Launcher, postgres: PostgresServer, database_url: str
) -> None:
    broker = launcher.part("broker")
    consume = launcher.part(
        "consume",
        "--store",
        database_url,
        env={"PUBSUB_EMULATOR_HOST": broker.broker, "DLQ_TOPIC": "consumer-dlq", "DLQ_PUBLISH_DEADLINE_S": "2"},
    )
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("ALTER SCHEMA holdfast RENAME TO elsewhere")
    event = b'{"service": "checkout", "secret": "hunter2"}'
    reply = http.push(consume.url, "m-1", event, attempt=1)
    assert (reply.status, reply.body["recorded"]) == (200, "projects/local/topics/consumer-dlq")
    with Pubsub(broker.broker) as pubsub:
        [dead] = pubsub.pull("consumer-dlq.desk", 1)
        assert dead.message.data == event
        assert dead.message.attributes["holdfast-source-message-id"] == "m-1"
        assert dead.message.attributes["holdfast-failure-reason"] == "STORE_MISCONFIGURED"
    [line] = logged(consume, "m-1")
    assert (line["severity"], line["http_status"], line["error_code"]) == ("ALERT", 200, "42P01")
    # Nobody there to take it: it must come again.
    broker.kill()
    reply = http.push(consume.url, "m-2", event, attempt=1)
    assert (reply.status, "recorded" in reply.body) == (500, False)
    [line] = logged(consume, "m-2")
    assert (line["severity"], line["http_status"]) == ("ALERT", 500)
    assert line["record_error"].startswith("projects/local/topics/consumer-dlq: ")
    # And mended, it is applied.
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("ALTER SCHEMA elsewhere RENAME TO holdfast")
    assert http.push(consume.url, "m-2", event, attempt=2).body["outcome"] == "applied"
    assert "hunter2" not in consume.stderr


def test_routes_of_the_file_are_part_of_up(launcher: Launcher) -> None:
    (launcher.cwd / "holdfast.toml").write_text(
        """
        [[consumer.routes]]
        topic = "orders"
        collection = "orders"
        id = "order.id"
        fields = { total = "order.total" }
        required = ["total"]
        """,
        encoding="utf-8",
    )
    up = launcher.up()
    with Pubsub(up.broker) as pubsub:
        pubsub.publish_one("orders", {"order": {"id": 7, "total": 12.5}})
        pubsub.publish_one("orders", {"order": {"id": 8}})
    eventually(lambda: http.get(f"{up.url}/api/v1/documents/orders/7").status == 200)
    assert http.get(f"{up.url}/api/v1/documents/orders/7").body["fields"] == {"total": 12.5}
    eventually(lambda: [failure["failureReason"] for failure in failures(launcher)] == ["SCHEMA_VALIDATION_ERROR"])
    assert "order.total: is missing" in failures(launcher)[0]["errorDetails"]


def test_a_wrong_route_is_one_clear_line(launcher: Launcher) -> None:
    (launcher.cwd / "holdfast.toml").write_text('[[consumer.routes]]\ntopic = "orders"\n', encoding="utf-8")
    refused = launcher.run("up", "--port", "0", "--broker-port", "0")
    assert refused.returncode != 0
    assert refused.stderr.strip().splitlines() == [
        "holdfast: setting consumer.routes[0].collection = None: must be text that is not empty"
    ]
    assert not launcher.data.exists()
