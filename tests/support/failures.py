"""Places for failed messages in tests: one that keeps them for a look, and one that cannot take anything."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.clock import Clock, SystemClock
from holdfast.consumer.failure_sink import FailedDelivery
from holdfast.deadletter.capture import captured
from holdfast.errors import StorageUnavailable
from holdfast.model.failed_message import FailedMessage


class Captured:
    """What would be recorded; the same failure once."""

    name = "the failure store"

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._rows: dict[tuple[str, str, str], FailedMessage] = {}

    async def check(self) -> None:
        pass

    async def record(self, failed: FailedDelivery) -> None:
        row = captured(failed, self._clock.now_ns(), "local").failure
        self._rows.setdefault(row.key, row)

    async def all(self) -> Sequence[FailedMessage]:
        """Newest first."""
        return [*reversed(self._rows.values())]


class FullSink:
    name = "a full disk"

    async def check(self) -> None:
        pass

    async def record(self, failed: FailedDelivery) -> None:
        raise StorageUnavailable("no space left")
