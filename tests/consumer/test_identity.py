"""When two deliveries are the same event."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import pytest

from holdfast.consumer.app import Route
from holdfast.consumer.changes import Upsert
from holdfast.consumer.documents import Mark
from holdfast.consumer.event import Event
from holdfast.consumer.identity import digest, logical_key, marks_of
from holdfast.model.replay_attributes import REPLAY_ID


def an_event(**fields: Any) -> Event:
    return Event(**{"data": {}, "message_id": "17", "topic": "orders", **fields})


def a_route(**route: Any) -> Route:
    return Route(lambda event: Upsert("a", "b", {}), **route)


def test_the_event_id_is_the_key_with_environment_and_topic() -> None:
    assert logical_key("prod", an_event(event_id="e1"), a_route()) == "prod__orders__e1"


def test_without_one_only_the_message_id_tells() -> None:
    event = an_event()
    assert logical_key("prod", event, a_route()) == ""
    assert marks_of(event, "", "ops_dedupe") == (Mark("ops_dedupe", "17"),)


def test_identity_fields_are_digested_as_the_source_says() -> None:
    route = a_route(identity=lambda event: {"b": "ü", "a": 1})
    expected = base64.b32encode(hashlib.sha256('{"a":1,"b":"ü"}'.encode()).digest()).decode()[:52]
    assert logical_key("prod", an_event(), route) == f"prod__orders__{expected}"
    assert len(expected) == 52


def test_no_identity_is_no_key() -> None:
    assert logical_key("prod", an_event(), a_route(identity=lambda event: None)) == ""


def test_the_order_of_fields_does_not_matter_and_their_values_do() -> None:
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
    assert digest({"a": 1}) != digest({"a": "1"})


@pytest.mark.parametrize("event_id", ["a/b", "x" * 1500])
def test_an_event_id_that_no_store_takes_as_a_name_is_digested(event_id: str) -> None:
    key = logical_key("prod", an_event(event_id=event_id), a_route())
    assert key == digest({"env": "prod", "topic": "orders", "key": event_id})


def test_parts_that_could_be_cut_elsewhere_are_digested() -> None:
    first = logical_key("prod", an_event(topic="a", event_id="b__c"), a_route())
    second = logical_key("prod", an_event(topic="a__b", event_id="c"), a_route())
    assert first != second
    (mark,) = marks_of(an_event(message_id="prod__orders__e1"), "", "ops_dedupe")
    assert mark.id != logical_key("prod", an_event(event_id="e1"), a_route())


@pytest.mark.parametrize("message_id", ["a/b", ".", "..", "__x__"])
def test_so_is_a_message_id(message_id: str) -> None:
    (mark,) = marks_of(an_event(message_id=message_id), "", "ops_dedupe")
    assert mark.id == digest({"messageId": message_id})


def test_marks_are_kept_where_the_route_says() -> None:
    assert marks_of(an_event(), "k", "ingest_pipelines_dedupe") == (
        Mark("ingest_pipelines_dedupe", "17"),
        Mark("ingest_pipelines_dedupe", "k"),
    )


def test_what_is_sent_again_twice_is_one_event() -> None:
    """The broker may not know a REPLAY_ID: then two messages carry it."""
    first, second = (
        marks_of(an_event(message_id=message_id, attributes={REPLAY_ID: "s.7.1.0.sig"}), "k", "ops_dedupe")
        for message_id in ("17", "18")
    )
    assert [mark.id for mark in first] == ["17", first[1].id, "k"]
    assert first[1:] == second[1:]
    other = marks_of(an_event(attributes={REPLAY_ID: "s.7.2.0.sig"}), "", "ops_dedupe")
    assert other[1] != first[1]
    forged = marks_of(an_event(message_id=first[1].id), "", "ops_dedupe")
    assert first[1] not in forged
