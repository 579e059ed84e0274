"""Every setting: its default with unit and reason, and how it is read from holdfast.toml, environment and flags.

A file for each part, which is a frozen object; nothing else in Holdfast looks at the environment. docs/settings.md is
made from these files (a test compares them).
"""

from __future__ import annotations

from holdfast.settings.alerts import AlertSettings
from holdfast.settings.broker import BrokerSettings
from holdfast.settings.consumer import ConsumerSettings
from holdfast.settings.consumer_auth import ConsumerAuthSettings
from holdfast.settings.desk import DeskSettings
from holdfast.settings.general import GeneralSettings
from holdfast.settings.http import HttpSettings
from holdfast.settings.ingest import IngestSettings
from holdfast.settings.load import CONFIG_VARIABLE, Known, known_settings, load_settings
from holdfast.settings.outgoing import OutgoingSettings
from holdfast.settings.push import PushSettings
from holdfast.settings.setting import Texts
from holdfast.settings.settings import Settings
from holdfast.settings.topology import TopologySettings
from holdfast.settings.traces import TraceSettings

__all__ = [
    "CONFIG_VARIABLE",
    "AlertSettings",
    "BrokerSettings",
    "ConsumerAuthSettings",
    "ConsumerSettings",
    "DeskSettings",
    "GeneralSettings",
    "HttpSettings",
    "IngestSettings",
    "Known",
    "OutgoingSettings",
    "PushSettings",
    "Settings",
    "Texts",
    "TopologySettings",
    "TraceSettings",
    "known_settings",
    "load_settings",
]
