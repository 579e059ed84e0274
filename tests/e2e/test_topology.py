"""What `holdfast up` makes at its start, and what it leaves alone."""

from __future__ import annotations

import socket
from datetime import timedelta

from tests.support import http
from tests.support.process import Launcher
from tests.support.pubsub import Pubsub
from tests.support.waiting import eventually

TOPICS = ("system.events", "market-ticks", "market-bars-1m", "trade-signals", "ingest-heartbeat")


def test_the_default_topology_is_made_when_absent(launcher: Launcher) -> None:
    up = launcher.up()
    with Pubsub(up.broker) as pubsub:
        assert pubsub.topics() == {*TOPICS, *(f"{topic}.materializer.dlq" for topic in TOPICS)}
        assert pubsub.subscriptions() == {
            *(f"{topic}.materializer" for topic in TOPICS),
            *(f"{topic}.materializer.dlq.desk" for topic in TOPICS),
        }
        for topic in TOPICS:
            made = pubsub.describe(f"{topic}.materializer")
            assert made.topic == pubsub.topic(topic)
            assert made.push_config.push_endpoint == f"{up.url}/pubsub/push"
            assert made.ack_deadline_seconds == 30
            assert made.dead_letter_policy.dead_letter_topic == pubsub.topic(f"{topic}.materializer.dlq")
            assert made.dead_letter_policy.max_delivery_attempts == 5
            assert made.retry_policy.minimum_backoff == timedelta(seconds=10)
            assert made.retry_policy.maximum_backoff == timedelta(seconds=600)

            desk = pubsub.describe(f"{topic}.materializer.dlq.desk")
            assert desk.topic == made.dead_letter_policy.dead_letter_topic
            assert desk.push_config.push_endpoint == ""
            assert desk.message_retention_duration == timedelta(days=31)


def test_it_can_be_named_and_tuned(launcher: Launcher) -> None:
    env = {
        "GCP_PROJECT": "shop",
        "SYSTEM_EVENTS_TOPIC": "ops.events",
        "HOLDFAST_TOPOLOGY_ACK_DEADLINE_SECONDS": "60",
        "HOLDFAST_TOPOLOGY_MAX_DELIVERY_ATTEMPTS": "7",
        "HOLDFAST_TOPOLOGY_MINIMUM_BACKOFF_SECONDS": "0.5",
    }
    up = launcher.up(env=env)
    with Pubsub(up.broker, project="shop") as pubsub:
        assert "system.events" not in pubsub.topics()
        made = pubsub.describe("ops.events.materializer")
        assert made.ack_deadline_seconds == 60
        assert made.dead_letter_policy.max_delivery_attempts == 7
        assert made.retry_policy.minimum_backoff == timedelta(seconds=0.5)
        message_id = pubsub.publish_one("ops.events", {"service": "checkout"})
        eventually(lambda: [one["outcome"] for one in http.outcomes(up.url, message_id)] == ["applied"])


def test_what_is_there_already_is_left_alone(launcher: Launcher) -> None:
    broker = launcher.part("broker")
    with Pubsub(broker.broker) as pubsub:
        pubsub.create_topic("system.events")
        pubsub.create_topic("my-dead-letters")
        pubsub.subscribe(
            "system.events.materializer",
            "system.events",
            ack_deadline_seconds=77,
            labels={"owner": "me"},
            push_config={
                "push_endpoint": "http://127.0.0.1:9/elsewhere",
                "attributes": {"x-holdfast-concurrency": "3"},
            },
            dead_letter_policy={
                "dead_letter_topic": pubsub.topic("my-dead-letters"),
                "max_delivery_attempts": 9,
            },
        )
        pubsub.subscribe("audit", "system.events")
    assert broker.stop() == 0

    up = launcher.up()
    with Pubsub(up.broker) as pubsub:
        kept = pubsub.describe("system.events.materializer")
        assert (kept.ack_deadline_seconds, dict(kept.labels)) == (77, {"owner": "me"})
        assert kept.dead_letter_policy.dead_letter_topic == pubsub.topic("my-dead-letters")
        assert kept.dead_letter_policy.max_delivery_attempts == 9
        assert kept.retry_policy.minimum_backoff == timedelta(0)
        assert kept.push_config.push_endpoint == "http://127.0.0.1:9/elsewhere"
        assert dict(kept.push_config.attributes) == {"x-holdfast-concurrency": "3"}
        assert "audit" in pubsub.subscriptions()
        assert {f"{topic}.materializer" for topic in TOPICS} <= pubsub.subscriptions()


def test_a_start_on_another_port_points_the_subscriptions_there(launcher: Launcher) -> None:
    """Those that its owner has not turned to pull."""
    first = launcher.up()
    with Pubsub(first.broker) as pubsub:
        pubsub.modify_push("trade-signals.materializer", {})
    assert first.stop() == 0
    with socket.create_server(("127.0.0.1", _port_of(first.url))):  # so that it cannot be chosen again
        second = launcher.up()
    assert second.url != first.url
    with Pubsub(second.broker) as pubsub:
        assert pubsub.describe("trade-signals.materializer").push_config.push_endpoint == ""
        for topic in [topic for topic in TOPICS if topic != "trade-signals"]:
            endpoint = pubsub.describe(f"{topic}.materializer").push_config.push_endpoint
            assert endpoint == f"{second.url}/pubsub/push"
        message_id = pubsub.publish_one("system.events", {"service": "checkout"})
        eventually(lambda: [one["outcome"] for one in http.outcomes(second.url, message_id)] == ["applied"])


def test_nothing_is_made_when_told_so(launcher: Launcher) -> None:
    up = launcher.up(env={"HOLDFAST_TOPOLOGY_CREATE": "never"})
    with Pubsub(up.broker) as pubsub:
        assert pubsub.topics() == set()
        assert pubsub.subscriptions() == set()


def _port_of(url: str) -> int:
    return int(url.rsplit(":", 1)[1])
