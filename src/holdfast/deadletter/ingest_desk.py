"""What ingest could not publish, as failed messages: the desk's end of ingest/events.py."""

from __future__ import annotations

import secrets

from holdfast.clock import Clock
from holdfast.deadletter.dead_letter import LONGEST_REASON, storable, without_our_attributes
from holdfast.deadletter.edits.schema_check import complaint_of
from holdfast.deadletter.intake import Intake
from holdfast.deadletter.store import DeskStore
from holdfast.errors import StorageUnavailable
from holdfast.ingest.events import Refused
from holdfast.ingest.validation import Problem
from holdfast.model.failed_message import FailedMessage, FailureStatus, bounded_error_details
from holdfast.model.message import Message


class IngestDesk:
    def __init__(self, intake: Intake, store: DeskStore, clock: Clock) -> None:
        self._intake = intake
        self._store = store
        self._clock = clock

    async def refuse(self, topic: str, message: Message, key: str, problem: Problem) -> Refused:
        """Under its key it is one failure. Without a key, nobody can say that the next one is the same."""
        failure = _failed_message(topic, message, key or secrets.token_hex(16), problem, self._clock.now_ns())
        (recorded,) = await self._intake.record_new([failure])
        row = await self._store.get(recorded.id)
        if row is None:  # erased by somebody in this very moment
            raise StorageUnavailable("somebody has erased the failure meanwhile")
        complaint = complaint_of(failure.content, problem.error)
        return Refused(topic, problem, row.id, row.status, complaint.path, complaint.expected, complaint.actual)


def _failed_message(topic: str, message: Message, message_id: str, problem: Problem, now_ns: int) -> FailedMessage:
    attributes = {storable(name): storable(value) for name, value in message.attributes.items()}
    return FailedMessage(
        message_id=storable(message_id),
        subscription="",
        source_topic=topic,
        failure_reason=storable(problem.reason)[:LONGEST_REASON],
        error_details=bounded_error_details(storable(problem.error)),
        data=message.data,
        attributes=without_our_attributes(attributes),
        ordering_key=storable(message.ordering_key),
        status=FailureStatus.PERMANENT_FAILURE,
        failure_class=problem.failure_class,
        created_at_ns=now_ns,
        failed_at_ns=now_ns,
    )
