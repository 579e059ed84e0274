"""Which sign tells the topic, and which sign wins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from holdfast.consumer.event import Event
from holdfast.consumer.routes import Routes
from holdfast.errors import Poison
from holdfast.model.message import Delivery, Message

KNOWN = ("by-attribute", "by-topic", "by-pubsub", "by-source", "by-path", "by-id", "system.events", "orders")
SUBSCRIPTION = "projects/p/subscriptions/orders.materializer"


def topic_of(
    data: dict[str, Any],
    attributes: dict[str, str] | None = None,
    subscription: str = "",
    subscription_topics: dict[str, str] | None = None,
    known: Sequence[str] = KNOWN,
) -> str:
    routes = Routes(subscription_topics or {}, "system.events", known)
    return routes.topic_of(Event(data, "m1", subscription=subscription, attributes=attributes or {}))


def test_the_signs_from_surest_to_weakest() -> None:
    data = {"topic": "by-topic", "pubsubTopic": "by-pubsub", "sourceTopic": "by-source", "service": "s"}
    topics = {SUBSCRIPTION: "by-path", "orders.materializer": "by-id"}
    assert topic_of(data, {"topic": "by-attribute"}, SUBSCRIPTION, topics) == "by-attribute"
    assert topic_of(data, {"topic": ""}, SUBSCRIPTION, topics) == "by-topic"
    del data["topic"]
    assert topic_of(data, None, SUBSCRIPTION, topics) == "by-pubsub"
    del data["pubsubTopic"]
    assert topic_of(data, None, SUBSCRIPTION, topics) == "by-source"
    del data["sourceTopic"]
    assert topic_of(data, None, SUBSCRIPTION, topics) == "by-path"
    del topics[SUBSCRIPTION]
    assert topic_of(data, None, SUBSCRIPTION, topics) == "by-id"
    del topics["orders.materializer"]
    assert topic_of(data, None, SUBSCRIPTION, topics) == "system.events"


def test_a_full_topic_path_is_cut_to_its_id() -> None:
    assert topic_of({}, {"topic": "projects/p/topics/orders"}) == "orders"


def test_what_is_sent_again_through_a_topic_of_its_own_routes_as_before() -> None:
    event = Event({}, "1", subscription="projects/p/subscriptions/orders-worker.replay")
    for name in ("orders-worker", "projects/p/subscriptions/orders-worker"):
        assert Routes({name: "orders"}, "system.events", ["orders", "others"]).topic_of(event) == "orders"


def test_payload_fields_that_are_not_text_are_no_sign() -> None:
    assert topic_of({"topic": 5, "pubsubTopic": "", "sourceTopic": "orders"}) == "orders"


@pytest.mark.parametrize("service", [None, "", "  ", 5, {}])
def test_without_any_sign_it_is_poison(service: object) -> None:
    with pytest.raises(Poison, match=r"^topic: ") as caught:
        topic_of({"service": service}, subscription="projects/p/subscriptions/unknown")
    assert caught.value.reason == "UNROUTABLE"
    assert caught.value.readable


def test_a_sign_that_names_no_handler_is_none() -> None:
    data = {"topic": "the weather", "service": "s"}
    assert topic_of(data, {"topic": "billing"}, SUBSCRIPTION, {"orders.materializer": "orders"}) == "orders"
    assert topic_of({"topic": "the weather"}, known=["orders"]) == "orders"


def test_where_no_sign_names_a_handler_the_surest_is_told() -> None:
    with pytest.raises(Poison, match=r"^topic: there is no handler for 'billing'$") as caught:
        topic_of({"topic": "the weather", "service": "s"}, {"topic": "billing"})
    assert caught.value.reason == "UNROUTABLE"


def test_what_is_known_without_the_payload() -> None:
    def told(attribute: str, subscription: str, known: Sequence[str] = KNOWN) -> str:
        delivery = Delivery(subscription, Message(b"\xff", {"topic": attribute} if attribute else {}))
        return Routes({SUBSCRIPTION: "by-path"}, "system.events", known).topic_without_payload(delivery)

    assert told("projects/p/topics/by-attribute", SUBSCRIPTION) == "by-attribute"
    assert told("unknown", SUBSCRIPTION) == "by-path"
    assert told("", "projects/p/subscriptions/other") == ""
    assert told("", "projects/p/subscriptions/other", ["orders"]) == "orders"
