"""PORT: where the consumer puts a message that it could not apply and that its subscription would not dead-letter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from holdfast.model.failed_message import FailureClass
from holdfast.model.message import Delivery


@dataclass(frozen=True, slots=True)
class FailedDelivery:
    """`topic` is a short id, "" where nothing told it. `reason` is the category that the desk groups by."""

    delivery: Delivery
    topic: str
    reason: str
    error: str
    failure_class: FailureClass = FailureClass.UNKNOWN


class FailureSink(Protocol):
    name: str
    """What people are told about where it went."""

    async def record(self, failed: FailedDelivery) -> None:
        """Durable at return: the message may be acked then. Recording it twice leaves one failure at the desk. Raises
        when that cannot be said."""
        ...

    async def check(self) -> None:
        """Raises when nothing could be recorded now. Records nothing."""
        ...
