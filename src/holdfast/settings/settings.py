"""All parts together, and which table of holdfast.toml fills which."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.settings.alerts import AlertSettings
from holdfast.settings.broker import BrokerSettings
from holdfast.settings.consumer import ConsumerSettings
from holdfast.settings.consumer_auth import ConsumerAuthSettings
from holdfast.settings.desk import DeskSettings
from holdfast.settings.general import GeneralSettings
from holdfast.settings.http import HttpSettings
from holdfast.settings.ingest import IngestSettings
from holdfast.settings.outgoing import OutgoingSettings
from holdfast.settings.push import PushSettings
from holdfast.settings.topology import TopologySettings
from holdfast.settings.traces import TraceSettings


@dataclass(frozen=True, slots=True)
class Settings:
    """A table of holdfast.toml per part; `general` is what stands there before the first table."""

    general: GeneralSettings = field(default_factory=GeneralSettings)
    broker: BrokerSettings = field(default_factory=BrokerSettings)
    push: PushSettings = field(default_factory=PushSettings)
    outgoing: OutgoingSettings = field(default_factory=OutgoingSettings)
    http: HttpSettings = field(default_factory=HttpSettings)
    consumer: ConsumerSettings = field(default_factory=ConsumerSettings)
    consumer_auth: ConsumerAuthSettings = field(default_factory=ConsumerAuthSettings)
    desk: DeskSettings = field(default_factory=DeskSettings)
    ingest: IngestSettings = field(default_factory=IngestSettings)
    topology: TopologySettings = field(default_factory=TopologySettings)
    alerts: AlertSettings = field(default_factory=AlertSettings)
    traces: TraceSettings = field(default_factory=TraceSettings)


# Table of holdfast.toml -> the part of Settings it fills.
TABLES: Mapping[str, str] = {
    "": "general",
    "broker": "broker",
    "broker.push": "push",
    "outgoing": "outgoing",
    "http": "http",
    "consumer": "consumer",
    "consumer.auth": "consumer_auth",
    "desk": "desk",
    "ingest": "ingest",
    "topology": "topology",
    "alerts": "alerts",
    "traces": "traces",
}

PARTS: Mapping[str, type[Any]] = {
    "general": GeneralSettings,
    "broker": BrokerSettings,
    "push": PushSettings,
    "outgoing": OutgoingSettings,
    "http": HttpSettings,
    "consumer": ConsumerSettings,
    "consumer_auth": ConsumerAuthSettings,
    "desk": DeskSettings,
    "ingest": IngestSettings,
    "topology": TopologySettings,
    "alerts": AlertSettings,
    "traces": TraceSettings,
}
