"""The built-in consumer: documents exactly as their readers expect them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import pytest

from holdfast.clock import NANOSECONDS
from holdfast.consumer.changes import Count, Upsert
from holdfast.consumer.decode import decode_event
from holdfast.consumer.event import Event
from holdfast.consumer.event_time import event_time_ns
from holdfast.consumer.materializer import heartbeat_identity, materializer, system_event_identity
from holdfast.errors import Poison
from holdfast.model.message import Delivery, Message
from holdfast.settings import ConsumerSettings
from holdfast.testing import ManualClock

PUBLISHED = 1_767_875_696_123 * 1_000_000
SETTINGS = ConsumerSettings(env="prod", default_region="eu")


def changes(topic: str, payload: dict[str, Any], settings: ConsumerSettings = SETTINGS) -> Any:
    message = Message(json.dumps(payload).encode(), message_id="m1", publish_time_ns=PUBLISHED)
    event = dataclasses.replace(decode_event(Delivery("s", message), message.data), topic=topic)
    route = materializer(settings, ManualClock(2_000_000_000 * NANOSECONDS)).route(topic)
    event.event_time_ns = event_time_ns(event.data, PUBLISHED, strict=route.strict_time)
    return route.handler(event)


def upsert(topic: str, payload: dict[str, Any], settings: ConsumerSettings = SETTINGS) -> Upsert:
    result = changes(topic, payload, settings)
    assert isinstance(result, Upsert)
    return result


def source(topic: str) -> dict[str, str]:
    return {"topic": topic, "messageId": "m1", "publishedAt": "2026-01-08T12:34:56.123Z"}


def test_a_full_system_event() -> None:
    payload = {
        "service": "Strategy Engine",
        "status": "healthy",
        "version": "1.2.3",
        "region": "us-central1",
        "lastHeartbeatAt": 1_767_225_600,
        "producedAt": "2026-01-08T12:00:00+00:00",
    }
    assert upsert("system.events", payload) == Upsert(
        "ops_services",
        "prod__strategy-engine",
        {
            "serviceId": "Strategy Engine",
            "env": "prod",
            "status": "healthy",
            "lastHeartbeatAt": "2026-01-01T00:00:00Z",
            "version": "1.2.3",
            "region": "us-central1",
            "updatedAt": "2026-01-08T12:00:00Z",
            "source": source("system.events"),
        },
    )


def test_a_bare_system_event_gets_the_defaults() -> None:
    assert upsert("system.events", {"service": "api", "status": None, "region": ""}).fields == {
        "serviceId": "api",
        "env": "prod",
        "status": "unknown",
        "version": "unknown",
        "region": "eu",
        "updatedAt": "2026-01-08T12:34:56.123Z",
        "source": source("system.events"),
    }


@pytest.mark.parametrize("payload", [{}, {"service": None}, {"service": ""}, {"service": " "}, {"service": 5}])
def test_a_system_event_without_its_service_is_poison(payload: dict[str, Any]) -> None:
    with pytest.raises(Poison, match=r"^service: ") as caught:
        upsert("system.events", payload)
    assert caught.value.reason == "SCHEMA_VALIDATION_ERROR"
    assert caught.value.readable


@pytest.mark.parametrize("name", ["status", "version", "region", "lastHeartbeatAt"])
def test_a_field_of_the_wrong_type_is_poison_and_named(name: str) -> None:
    with pytest.raises(Poison, match=f"^{name}: "):
        upsert("system.events", {"service": "api", name: {"no": "text"}})


@pytest.mark.parametrize(
    ("form", "document_id"),
    [("env", "prod__api"), ("env_region", "prod__api__us-east-1"), ("plain", "API")],
)
def test_the_id_of_a_service_is_a_setting(form: str, document_id: str) -> None:
    settings = dataclasses.replace(SETTINGS, service_document_id=form)
    assert upsert("system.events", {"service": "API", "region": "US/East 1"}, settings).id == document_id


@pytest.mark.parametrize(
    ("service", "part"),
    [
        ("a/b", "a-b"),
        ("A  B", "a-b"),
        ("a__b", "a_b"),
        ("_a_", "a"),
        ("v1.2", "v1.2"),
        ("Größe", "größe"),
        ("服务", "服务"),
    ],
)
def test_services_are_normalised_in_ids_only(service: str, part: str) -> None:
    got = upsert("system.events", {"service": service})
    assert got.id == f"prod__{part}"
    assert got.fields["serviceId"] == service


def test_a_service_with_no_letter_at_all_is_poison() -> None:
    with pytest.raises(Poison, match=r"^service: "):
        upsert("system.events", {"service": "///"})


def test_the_topic_of_system_events_is_a_setting() -> None:
    settings = dataclasses.replace(SETTINGS, system_events_topic="ops")
    assert upsert("ops", {"service": "api"}, settings).collection == "ops_services"


def test_a_tick() -> None:
    payload = {"eventId": "e1", "symbol": "SPY", "price": 1.5, "producedAt": "2026-01-08T12:00:00Z"}
    assert upsert("market-ticks", payload) == Upsert(
        "market_ticks",
        "e1",
        {
            "docId": "e1",
            "eventId": "e1",
            "symbol": "SPY",
            "eventTime": "2026-01-08T12:00:00Z",
            "producedAt": "2026-01-08T12:00:00Z",
            "data": payload,
            "source": source("market-ticks"),
            "ingestedAt": "2033-05-18T03:33:20Z",
        },
    )


def test_without_an_event_id_the_message_id_names_the_document() -> None:
    got = upsert("market-ticks", {"publishedAt": 1_767_225_600_000})
    assert got.id == "m1"
    assert got.fields == {
        "docId": "m1",
        "eventTime": "2026-01-01T00:00:00Z",
        "publishedAt": "2026-01-01T00:00:00Z",
        "data": {"publishedAt": 1_767_225_600_000},
        "source": source("market-ticks"),
        "ingestedAt": "2033-05-18T03:33:20Z",
    }


def test_a_bar() -> None:
    got = upsert("market-bars-1m", {"symbol": "SPY", "start": 1_767_225_600, "end": "2026-01-01T00:01:00Z"})
    assert got.collection == "market_bars_1m"
    assert got.fields["timeframe"] == "1m"
    assert got.fields["start"] == "2026-01-01T00:00:00Z"
    assert got.fields["end"] == "2026-01-01T00:01:00Z"
    assert upsert("market-bars-1m", {"timeframe": "5m"}).fields["timeframe"] == "5m"


def test_a_signal() -> None:
    got = upsert("trade-signals", {"symbol": "SPY", "strategy": "gamma", "action": "BUY"})
    assert got.collection == "trade_signals"
    assert {name: got.fields[name] for name in ("symbol", "strategy", "action")} == {
        "symbol": "SPY",
        "strategy": "gamma",
        "action": "BUY",
    }


@pytest.mark.parametrize(
    ("payload", "named"),
    [
        ({"producedAt": 1, "publishedAt": "soon"}, "publishedAt"),
        ({"start": "soon"}, "start"),
        ({"symbol": 5}, "symbol"),
        ({"eventId": "a/b"}, "document id"),
    ],
)
def test_a_bad_stream_event_is_poison_and_named(payload: dict[str, Any], named: str) -> None:
    with pytest.raises(Poison, match=f"^{named}: "):
        upsert("market-bars-1m", payload)


def identity_of(payload: dict[str, Any]) -> Mapping[str, Any] | None:
    return system_event_identity(Event(payload, "m1"))


def test_a_system_event_is_known_by_who_says_it_and_when() -> None:
    event = {"service": "api", "timestamp": "2026-03-01T12:00:00Z", "status": "ok"}
    assert identity_of(event) == {
        "schema": "unknown",
        "type": "system_event",
        "service": "api",
        "producedAt": "2026-03-01T12:00:00Z",
        "region": "",
        "sequence": None,
        "status": "ok",
        "version": None,
        "lastHeartbeatAt": None,
    }
    assert identity_of(event | {"note": "again"}) == identity_of(event)
    for other in ({"status": "down"}, {"sequence": 2}):
        assert identity_of(event | other) != identity_of(event)
    for other in (
        {"service": "web"},
        {"region": "eu"},
        {"eventType": "deploy"},
        {"schemaVersion": 2},
        {"producedAt": 5},
    ):
        assert identity_of(event | other) != identity_of(event)


def test_a_system_event_without_a_time_of_its_own_has_no_identity() -> None:
    assert identity_of({"service": "api", "status": "ok"}) is None


# Ingest heartbeats.


def test_a_heartbeat_is_a_state_a_record_and_a_count() -> None:
    payload = {"pipelineId": "ticks-in", "status": "running", "producedAt": "2026-01-08T12:00:00Z", "eventId": "e1"}
    state, record, count = changes("ingest-heartbeat", payload)
    assert state == Upsert(
        "ingest_pipelines",
        "prod__ticks-in",
        {
            "pipelineId": "ticks-in",
            "env": "prod",
            "status": "running",
            "version": "unknown",
            "region": "eu",
            "updatedAt": "2026-01-08T12:00:00Z",
            "source": source("ingest-heartbeat"),
            "lastHeartbeatAt": "2026-01-08T12:00:00Z",
        },
    )
    assert record == Upsert(
        "ingest_events",
        "e1",
        {
            "docId": "e1",
            "eventId": "e1",
            "pipelineId": "ticks-in",
            "eventTime": "2026-01-08T12:00:00Z",
            "producedAt": "2026-01-08T12:00:00Z",
            "data": payload,
            "source": source("ingest-heartbeat"),
            "ingestedAt": "2033-05-18T03:33:20Z",
        },
    )
    assert count == Count(
        "ingest_events_summary",
        "prod__ticks-in",
        {"count": 1},
        {"pipelineId": "ticks-in", "lastEventId": "e1", "lastEventTime": "2026-01-08T12:00:00Z"},
    )


@pytest.mark.parametrize("name", ["pipelineId", "pipeline_id", "pipeline", "service"])
def test_a_pipeline_may_be_named_in_several_ways(name: str) -> None:
    state = changes("ingest-heartbeat", {name: "ticks-in", "lastHeartbeatAt": 1_767_225_600})[0]
    assert (state.id, state.fields["lastHeartbeatAt"]) == ("prod__ticks-in", "2026-01-01T00:00:00Z")


def test_a_heartbeat_of_nobody_is_poison() -> None:
    with pytest.raises(Poison, match="pipelineId: is missing or empty"):
        changes("ingest-heartbeat", {"status": "running"})


def test_heartbeats_are_marked_in_a_collection_of_their_own() -> None:
    route = materializer(SETTINGS).route("ingest-heartbeat")
    assert route is not None
    assert route.marks == "ingest_pipelines_dedupe"


def test_a_heartbeat_is_told_from_a_system_event_and_from_another_pipelines() -> None:
    def of(payload: dict[str, Any]) -> Event:
        message = Message(json.dumps(payload).encode(), message_id="m1", publish_time_ns=PUBLISHED)
        return decode_event(Delivery("s", message), message.data)

    one = of({"service": "a", "producedAt": "2026-01-08T12:00:00Z"})
    other = of({"service": "b", "producedAt": "2026-01-08T12:00:00Z"})
    assert heartbeat_identity(one) == heartbeat_identity(one) != heartbeat_identity(other)
    assert heartbeat_identity(one) != system_event_identity(one)
    assert heartbeat_identity(of({"service": "a"})) is None
