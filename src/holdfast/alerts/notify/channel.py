"""A way to people, and what may become of a notification on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from holdfast.alerts.notify.notification import Notification


@dataclass(frozen=True, slots=True)
class NotSent:
    """`error` is for people, without secrets. Where it was `refused`, the receiver is there and does not want it: most
    likely somebody must mend the settings. `retry_after` is in seconds, where the receiver told."""

    error: str
    refused: bool = False
    retry_after: float | None = None


class Channel(Protocol):
    """PORT: Slack, PagerDuty, …"""

    @property
    def where(self) -> str:
        """For people, without secrets."""
        ...

    async def send(self, notification: Notification) -> NotSent | None:
        """None once the receiver has it. The same notification may come again, by the same id."""
        ...
