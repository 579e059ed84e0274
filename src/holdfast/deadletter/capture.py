"""Failed messages straight into the desk's table, from a consumer whose subscription has no dead-letter policy."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from holdfast.clock import Clock
from holdfast.consumer.failure_sink import FailedDelivery
from holdfast.deadletter.dead_letter import LONGEST_REASON, UNKNOWN_TOPIC, storable
from holdfast.deadletter.store import DeskStore
from holdfast.model.failed_message import FailedMessage, FailureStatus, bounded_error_details
from holdfast.model.names import project_of, topic_path


class DirectCapture:
    """`open_store` is called when first something failed: many a consumer never needs one, and some have no disk."""

    name = "the failure store"

    def __init__(self, open_store: Callable[[], Awaitable[DeskStore]], clock: Clock, project: str) -> None:
        self._open_store = open_store
        self._opening = asyncio.Lock()
        self._store: DeskStore | None = None
        self._clock = clock
        self._project = project

    async def record(self, failed: FailedDelivery) -> None:
        store = await self._opened()
        await store.record([self._failed_message(failed)])

    async def close(self) -> None:
        if self._store is not None:
            await self._store.close()

    async def _opened(self) -> DeskStore:
        async with self._opening:
            if self._store is None:
                self._store = await self._open_store()
            return self._store

    def _failed_message(self, failed: FailedDelivery) -> FailedMessage:
        """It waits for a person, like every dead letter."""
        now_ns = self._clock.now_ns()
        message, subscription = failed.delivery.message, storable(failed.delivery.subscription)
        project = project_of(subscription) if subscription.startswith("projects/") else self._project
        return FailedMessage(
            message_id=storable(message.message_id),
            subscription=subscription,
            source_topic=storable(topic_path(project, failed.topic)) if failed.topic else UNKNOWN_TOPIC,
            failure_reason=storable(failed.reason)[:LONGEST_REASON],
            error_details=bounded_error_details(storable(failed.error)),
            data=message.data,
            attributes={storable(name): storable(value) for name, value in message.attributes.items()},
            ordering_key=storable(message.ordering_key),
            publish_time_ns=message.publish_time_ns,
            delivery_attempt=failed.delivery.attempt,
            status=FailureStatus.PERMANENT_FAILURE,
            created_at_ns=now_ns,
            failed_at_ns=now_ns,
        )
