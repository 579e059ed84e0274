"""The built-in consumer: system events to ops_services; ticks, bars and trade signals to a collection each.

Handlers are pure but for `ingestedAt`, which is the clock's. A field that is absent from the payload and has
no default is absent from the document.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from holdfast.clock import Clock, SystemClock
from holdfast.consumer.app import Consumer
from holdfast.consumer.changes import Upsert
from holdfast.consumer.event import Event
from holdfast.consumer.event_time import read_time
from holdfast.errors import Poison
from holdfast.model.timestamps import format_rfc3339
from holdfast.settings import ConsumerSettings

# A service that reports nothing about itself is not healthy by default.
UNKNOWN = "unknown"

Fields = dict[str, Any]


def materializer(settings: ConsumerSettings, clock: Clock | None = None) -> Consumer:
    clock = clock or SystemClock()
    app = Consumer()

    @app.on(settings.system_events_topic, identity=system_event_identity)
    def system_events(event: Event) -> Upsert:
        return service_state(event, settings)

    @app.on("market-ticks")
    def market_ticks(event: Event) -> Upsert:
        return _stream_document("market_ticks", event, clock, _texts(event.data, "symbol"))

    @app.on("market-bars-1m")
    def market_bars_1m(event: Event) -> Upsert:
        own = {
            **_texts(event.data, "symbol"),
            "timeframe": _text(event.data, "timeframe") or "1m",
            **_times(event.data, "start", "end"),
        }
        return _stream_document("market_bars_1m", event, clock, own)

    @app.on("trade-signals")
    def trade_signals(event: Event) -> Upsert:
        return _stream_document("trade_signals", event, clock, _texts(event.data, "symbol", "strategy", "action"))

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
    region = _text(event.data, "region") or settings.default_region
    fields: Fields = {
        "serviceId": service,
        # This consumer's environment, whatever the payload says: it names where the documents are kept.
        "env": settings.env,
        "status": _text(event.data, "status") or UNKNOWN,
        **_times(event.data, "lastHeartbeatAt"),
        "version": _text(event.data, "version") or UNKNOWN,
        "region": region,
        "updatedAt": format_rfc3339(event.event_time_ns),
        "source": _source(event),
    }
    return Upsert("ops_services", _service_document_id(settings, service, region), fields)


def _service_document_id(settings: ConsumerSettings, service: str, region: str) -> str:
    match settings.service_document_id:
        case "plain":
            parts = [service]
        case "env_region":
            parts = [settings.env, service, region]
        case _:
            parts = [settings.env, service]
    return "__".join(normalize_id_part(part) for part in parts)


def normalize_id_part(text: str) -> str:
    """Lower-case letters and digits of any script and . - _; never "__", which joins the parts."""
    safe = re.sub(r"_+", "_", re.sub(r"[^\w.-]+", "-", text.lower())).strip("-_")
    if not safe:
        # Two such names would share one document.
        raise Poison("service: service, environment and region need a letter or digit each to name a document")
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
