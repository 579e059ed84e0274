"""The default topics and subscriptions."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.settings.checks import between, one_of
from holdfast.settings.setting import setting


@dataclass(frozen=True, slots=True)
class TopologySettings:
    create: str = setting(
        "auto",
        "Create absent topics and subscriptions at start: `always`, `never`, or `auto`: on our own broker and on "
        "emulators, never on Cloud Pub/Sub.",
        check=one_of("auto", "always", "never"),
    )
    ack_deadline_seconds: int = setting(30, "Ack deadline of the default push subscriptions.", check=between(10, 600))
    max_delivery_attempts: int = setting(
        5, "Attempts before a message of the default subscriptions is dead-lettered.", check=between(5, 100)
    )
    minimum_backoff_seconds: float = setting(
        10.0,
        "Shortest wait before a message of the default subscriptions is sent again.",
        check=between(0, 600),
    )
    maximum_backoff_seconds: float = setting(
        600.0,
        "Longest wait before a message of the default subscriptions is sent again.",
        check=between(0, 600),
    )
