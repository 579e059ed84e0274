"""Strict mode: the broker behaves as Cloud Pub/Sub does, so a poisonous message spends its attempts first."""

from __future__ import annotations

from tests.support import http
from tests.support.files import is_settled, rows
from tests.support.process import Launcher
from tests.support.pubsub import Pubsub
from tests.support.waiting import eventually

SUBSCRIPTION = "system.events.materializer"

STRICT = {
    "HOLDFAST_BROKER_STRICT": "true",
    "HOLDFAST_TOPOLOGY_MINIMUM_BACKOFF_SECONDS": "0.1",
    "HOLDFAST_TOPOLOGY_MAXIMUM_BACKOFF_SECONDS": "0.2",
}


def test_a_poisonous_message_is_dead_lettered_after_five_attempts(launcher: Launcher) -> None:
    up = launcher.up(env=STRICT)
    assert "strict" in up.stdout
    with Pubsub(up.broker) as pubsub:
        pubsub.subscribe("mine", f"{SUBSCRIPTION}.dlq")
        message_id = pubsub.publish_one("system.events", b"<not JSON>", origin="a test")
        letter = pubsub.pull_one("mine").message

    assert [one["outcome"] for one in http.outcomes(up.url, message_id)] == ["poison"] * 5
    attributes = dict(letter.attributes)
    assert attributes.pop("CloudPubSubDeadLetterSourceTopicPublishTime").endswith("Z")
    assert attributes == {
        "origin": "a test",
        "CloudPubSubDeadLetterSourceSubscription": SUBSCRIPTION,
        "CloudPubSubDeadLetterSourceSubscriptionProject": "local",
        "CloudPubSubDeadLetterSourceDeliveryCount": "5",
    }
    eventually(lambda: is_settled(launcher.data, SUBSCRIPTION, message_id))

    # Without our attributes the desk knows the dead letter's own id only, and no reason.
    query = "SELECT message_id, delivery_attempt, data, attributes FROM failed_messages"
    recorded = eventually(lambda: rows(launcher.data / "failures.db", query))
    assert recorded == [(letter.message_id, 5, b"<not JSON>", '{"origin": "a test"}')]
