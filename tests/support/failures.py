"""Places for failed messages in tests: a real store in memory, and one that cannot take anything."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.clock import Clock, SystemClock
from holdfast.consumer.failure_sink import FailedDelivery
from holdfast.deadletter.capture import DirectCapture
from holdfast.deadletter.failures import Filter
from holdfast.errors import StorageUnavailable
from holdfast.model.failed_message import FailedMessage
from holdfast.stores.memory.failures import MemoryFailureStore


class Captured(DirectCapture):
    def __init__(self, clock: Clock | None = None) -> None:
        self.store = store = MemoryFailureStore()

        async def opened() -> MemoryFailureStore:
            return store

        super().__init__(opened, clock or SystemClock(), "local")

    async def all(self) -> Sequence[FailedMessage]:
        return (await self.store.list(Filter(), 1000)).failures


class FullSink:
    name = "a full disk"

    async def record(self, failed: FailedDelivery) -> None:
        raise StorageUnavailable("no space left")
