"""An alert: what a rule says of one thing, from when it began to when it was over. Values only."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol


class Severity(StrEnum):
    WARNING = "warning"
    CRITICAL = "critical"


@dataclass(frozen=True, slots=True)
class Alert:
    """`labels` say what it is about, such as the subscription. It fires until `ended_at_ns` is known."""

    rule: str
    severity: Severity
    labels: Mapping[str, str]
    summary: str
    started_at_ns: int
    ended_at_ns: int | None = None
    value: float | None = None
    details: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The same for as long as it fires, and after a restart: what one receiver joins, and another resolves by."""
        named = "\n".join([self.rule, self.severity, *(f"{name}={self.labels[name]}" for name in sorted(self.labels))])
        return hashlib.sha256(named.encode()).hexdigest()[:32]


class AlertSink(Protocol):
    """PORT: who tells people."""

    async def accept(self, alerts: Sequence[Alert]) -> None:
        """Those that began to fire or ended. Durable at return; telling the same twice tells people once."""
        ...
