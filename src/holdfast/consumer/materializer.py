"""The built-in consumer: system events to ops_services, ingest heartbeats to ingest_pipelines; ticks, bars and trade
signals to a collection each.

Handlers are pure but for `ingestedAt`, which is the clock's. A field that is absent from the payload and has
no default is absent from the document.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from holdfast.clock import Clock, SystemClock
from holdfast.consumer.app import Consumer
from holdfast.consumer.changes import Change, Count, Upsert
from holdfast.consumer.event import Event
from holdfast.consumer.event_time import read_time
from holdfast.errors import Poison
from holdfast.model.names import normalized
from holdfast.model.timestamps import format_rfc3339
from holdfast.settings import ConsumerSettings

# A service that reports nothing about itself is not healthy by default.
UNKNOWN = "unknown"

Fields = dict[str, Any]


def materializer(settings: ConsumerSettings, clock: Clock | None = None) -> Consumer:
    clock = clock or SystemClock()
    app = Consumer(name="")  # its dedupe records are where other programs look for them

    @app.on(settings.system_events_topic, identity=system_event_identity, strict_time=True)
    def system_events(event: Event) -> Upsert:
        return service_state(event, settings)

    @app.on("market-ticks", strict_time=True)
    def market_ticks(event: Event) -> Upsert:
        return _stream_document("market_ticks", event, clock, _texts(event.data, "symbol"))

    @app.on("market-bars-1m", strict_time=True)
    def market_bars_1m(event: Event) -> Upsert:
        own = {
            **_texts(event.data, "symbol"),
            "timeframe": _text(event.data, "timeframe") or "1m",
            **_times(event.data, "start", "end"),
        }
        return _stream_document("market_bars_1m", event, clock, own)

    @app.on("trade-signals", strict_time=True)
    def trade_signals(event: Event) -> Upsert:
        return _stream_document("trade_signals", event, clock, _texts(event.data, "symbol", "strategy", "action"))

    @app.on("ingest-heartbeat", identity=heartbeat_identity, marks="ingest_pipelines_dedupe", strict_time=True)
    def ingest_heartbeat(event: Event) -> tuple[Change, ...]:
        return pipeline_state(event, settings, clock)

    return app


# System events.


def system_event_identity(event: Event) -> Mapping[str, Any] | None:
    """What makes two system events one where they have no eventId. None without a time in the payload: then every
    report of a service would look like the first."""
    data = event.data
    produced = data.get("producedAt") or data.get("timestamp")
    if not produced:
        return None
    return {
        "schema": data.get("schemaVersion") or "unknown",
        "type": data.get("eventType") or "system_event",
        "service": data.get("service"),
        "producedAt": produced,
        "region": data.get("region") or "",
        # Beyond what the source lists: two reports of one second are two events when they say different things.
        **{name: data.get(name) for name in ("sequence", "status", "version", "lastHeartbeatAt")},
    }


def service_state(event: Event, settings: ConsumerSettings) -> Upsert:
    """The last known state of one service: the newest event replaces the whole document."""
    service = _text(event.data, "service").strip()
    if not service:
        raise Poison("service: is missing or empty")
    region = _region(event, settings)
    fields: Fields = {"serviceId": service, **_state(event, settings), **_times(event.data, "lastHeartbeatAt")}
    return Upsert("ops_services", _state_document_id(settings, service, region), fields)


# Ingest heartbeats.

# What producers call the thing that sends heartbeats, surest name first.
_PIPELINE_NAMES = ("pipelineId", "pipeline_id", "pipeline", "service")


def heartbeat_identity(event: Event) -> Mapping[str, Any] | None:
    common = system_event_identity(event)
    return None if common is None else {**common, "type": "ingest_heartbeat", "service": _pipeline_name(event)}


def pipeline_state(event: Event, settings: ConsumerSettings, clock: Clock) -> tuple[Change, ...]:
    """The last known state of one pipeline, a record that this heartbeat was seen, and how many were. The count is
    exact: it is made in the transaction that marks the event as done."""
    name = _pipeline_name(event)
    document_id = _state_document_id(settings, name, _region(event, settings))
    # A heartbeat that does not say so was beaten when it was sent.
    beaten = _times(event.data, "lastHeartbeatAt") or {"lastHeartbeatAt": format_rfc3339(event.event_time_ns)}
    seen = {
        "pipelineId": name,
        "lastEventId": event.event_id or event.message_id,
        "lastEventTime": format_rfc3339(event.event_time_ns),
    }
    return (
        Upsert("ingest_pipelines", document_id, {"pipelineId": name, **_state(event, settings), **beaten}),
        _stream_document("ingest_events", event, clock, {"pipelineId": name}),
        Count("ingest_events_summary", document_id, {"count": 1}, seen),
    )


def _pipeline_name(event: Event) -> str:
    for field in _PIPELINE_NAMES:
        if name := _text(event.data, field).strip():
            return name
    raise Poison("pipelineId: is missing or empty")


# States: one document for each thing that reports about itself.


def _state(event: Event, settings: ConsumerSettings) -> Fields:
    return {
        # This consumer's environment, whatever the payload says: it names where the documents are kept.
        "env": settings.env,
        "status": _text(event.data, "status") or UNKNOWN,
        "version": _text(event.data, "version") or UNKNOWN,
        "region": _region(event, settings),
        "updatedAt": format_rfc3339(event.event_time_ns),
        "source": _source(event),
    }


def _region(event: Event, settings: ConsumerSettings) -> str:
    return _text(event.data, "region") or settings.default_region


def _state_document_id(settings: ConsumerSettings, service: str, region: str) -> str:
    match settings.service_document_id:
        case "plain":
            return service
        case "env_region":
            parts = [settings.env, service, region]
        case _:
            parts = [settings.env, service]
    return "__".join(normalize_id_part(part) for part in parts)


@lru_cache(maxsize=4096)  # services report again and again
def normalize_id_part(text: str) -> str:
    safe = normalized(text)
    if not safe:
        # Two such names would share one document.
        raise Poison("service: name, environment and region need a letter or digit each to name a document")
    return safe


# Streams: one document per event.


def _stream_document(collection: str, event: Event, clock: Clock, own: Fields) -> Upsert:
    document_id = event.event_id or event.message_id
    fields: Fields = {
        "docId": document_id,
        **({"eventId": event.event_id} if event.event_id else {}),
        **own,
        "eventTime": format_rfc3339(event.event_time_ns),
        **_times(event.data, "producedAt", "publishedAt"),
        "data": event.data,
        "source": _source(event),
        "ingestedAt": format_rfc3339(clock.now_ns()),
    }
    return Upsert(collection, document_id, fields)


# Fields.


def _source(event: Event) -> Fields:
    published = {"publishedAt": format_rfc3339(event.publish_time_ns)} if event.publish_time_ns else {}
    return {"topic": event.topic, "messageId": event.message_id, **published}


def _texts(data: Mapping[str, Any], *names: str) -> Fields:
    return {name: text for name in names if (text := _text(data, name))}


def _times(data: Mapping[str, Any], *names: str) -> Fields:
    return {name: format_rfc3339(when) for name in names if (when := read_time(data, name)) is not None}


def _text(data: Mapping[str, Any], name: str) -> str:
    """ "" when the field is absent, null or empty. Raises Poison that names the field."""
    value = data.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise Poison(f"{name}: must be text")
    return value
