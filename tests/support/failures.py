"""Places for failed messages in tests: a real store in memory, and one that cannot take anything."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.clock import Clock, SystemClock
from holdfast.consumer.failure_sink import FailedDelivery
from holdfast.deadletter.capture import DirectCapture
from holdfast.deadletter.selection import Selection
from holdfast.errors import StorageUnavailable
from holdfast.model.failed_message import FailedMessage
from holdfast.stores.sqlite.desk import SqliteDeskStore


class Captured(DirectCapture):
    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__(SqliteDeskStore.in_memory, clock or SystemClock(), "local")

    async def all(self) -> Sequence[FailedMessage]:
        return (await (await self._opened()).list(Selection(), 1000)).failures


class FullSink:
    name = "a full disk"

    async def record(self, failed: FailedDelivery) -> None:
        raise StorageUnavailable("no space left")
