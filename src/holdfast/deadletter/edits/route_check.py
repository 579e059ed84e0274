"""Whether the consumer in this process would take the content: its route for the message, tried without an effect."""

from __future__ import annotations

from holdfast.consumer.rehearsal import Rehearsal, Rehearsed
from holdfast.consumer.routes import UNROUTABLE
from holdfast.deadletter.dead_letter import UNKNOWN_TOPIC
from holdfast.deadletter.edits.checks import Finding, complaint_about
from holdfast.deadletter.rehearsing import delivery_of
from holdfast.model.failed_message import Content, FailedMessage
from holdfast.model.names import short_id

NAME = "route"


class RouteCheck:
    def __init__(self, rehearsal: Rehearsal) -> None:
        self._rehearsal = rehearsal

    async def check(self, failure: FailedMessage, content: Content) -> Finding:
        rehearsed = await self._rehearsal.of(delivery_of(failure, content, failure.delivery_attempt))
        if self._is_of_another_consumer(failure, rehearsed):
            return Finding(NAME, skipped=f"the consumer here has no handler for {short_id(failure.source_topic)}")
        return _finding(rehearsed, content)

    def _is_of_another_consumer(self, failure: FailedMessage, rehearsed: Rehearsed) -> bool:
        """What this one cannot route may well pass at the one that reads the subscription."""
        if rehearsed.failure is None or rehearsed.failure.reason != UNROUTABLE:
            return False
        topic = failure.source_topic
        return topic != UNKNOWN_TOPIC and short_id(topic) not in self._rehearsal.topics


def _finding(rehearsed: Rehearsed, content: Content) -> Finding:
    if rehearsed.failure is not None:
        return Finding(NAME, [complaint_about(content, rehearsed.failure.error)])
    if not rehearsed.was_called:
        return Finding(NAME, skipped=f"{rehearsed.handler} has side effects, so it is not called")
    return Finding(NAME)
