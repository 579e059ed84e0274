"""Failed messages straight into the desk's table, from a consumer whose subscription has no dead-letter policy."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from holdfast.clock import Clock
from holdfast.consumer.failure_sink import FailedDelivery
from holdfast.deadletter.dead_letter import (
    LONGEST_REASON,
    UNKNOWN_TOPIC,
    Arrival,
    storable,
    storable_attributes,
    without_our_attributes,
)
from holdfast.deadletter.intake import Intake
from holdfast.model.failed_message import FailedMessage, FailureStatus, bounded_error_details
from holdfast.model.names import original_subscription, project_of, topic_path
from holdfast.model.replay_attributes import REPLAY_ID, first_published_ns


class DirectCapture:
    """`open_intake` is called when first something failed: many a consumer never needs one, and some have no disk."""

    name = "the failure store"

    def __init__(self, open_intake: Callable[[], Awaitable[Intake]], clock: Clock, project: str) -> None:
        self._open_intake = open_intake
        self._opening = asyncio.Lock()
        self._intake: Intake | None = None
        self._is_needed = False
        self._clock = clock
        self._project = project

    async def record(self, failed: FailedDelivery) -> None:
        self._is_needed = True
        intake = await self._opened()
        await intake.record([captured(failed, self._clock.now_ns(), self._project)])

    async def check(self) -> None:
        """Nothing is amiss with a store that was never needed."""
        if self._is_needed:
            await (await self._opened()).check()

    async def _opened(self) -> Intake:
        async with self._opening:
            if self._intake is None:
                self._intake = await self._open_intake()
            return self._intake


def captured(failed: FailedDelivery, now_ns: int, project: str) -> Arrival:
    """`project` is where a topic known by its short id is, unless the subscription tells."""
    attributes = storable_attributes(failed.delivery.message)
    failure = _failed_message(failed, without_our_attributes(attributes), now_ns, project)
    return Arrival(failure, attributes.get(REPLAY_ID, ""), failure.message_id)


def _failed_message(failed: FailedDelivery, attributes: dict[str, str], now_ns: int, project: str) -> FailedMessage:
    message = failed.delivery.message
    subscription = original_subscription(storable(failed.delivery.subscription))
    project = project_of(subscription) if subscription.startswith("projects/") else project
    return FailedMessage(
        message_id=storable(message.message_id),
        subscription=subscription,
        source_topic=storable(topic_path(project, failed.topic)) if failed.topic else UNKNOWN_TOPIC,
        failure_reason=storable(failed.reason)[:LONGEST_REASON],
        error_details=bounded_error_details(storable(failed.error)),
        data=message.data,
        attributes=attributes,
        ordering_key=storable(message.ordering_key),
        publish_time_ns=first_published_ns(message.attributes, message.publish_time_ns),
        delivery_attempt=failed.delivery.attempt,
        status=FailureStatus.PERMANENT_FAILURE,
        failure_class=failed.failure_class,
        created_at_ns=now_ns,
        failed_at_ns=now_ns,
    )
