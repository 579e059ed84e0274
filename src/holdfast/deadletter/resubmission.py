"""Automatic retries of what ingest refused: the same validation, and then its topic.

It ends at once: with the id of the broker it is where it was to go. So it is sent and marked in one step; killed in
between, it is sent again under the same REPLAY_ID.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from holdfast.clock import Clock
from holdfast.deadletter.outlet import Outlet
from holdfast.deadletter.retry_policy import RetryPolicy
from holdfast.deadletter.sending import Sending
from holdfast.errors import HoldfastError
from holdfast.ingest.events import problem_of
from holdfast.ingest.validation import Problem, Validation
from holdfast.model.failed_message import FailedMessage, FailureClass

# What a row becomes, whatever else was changed of it meanwhile.
Ending = Callable[[FailedMessage], FailedMessage]


@dataclass(frozen=True, slots=True)
class Resubmission:
    """Without `validation`, the broker alone says what it takes."""

    outlet: Outlet
    sending: Sending
    policy: RetryPolicy
    clock: Clock
    validation: Validation | None = None

    async def resubmit(self, row: FailedMessage) -> Ending:
        """Raises when the broker is not there: then nothing was tried. BadInput for what Pub/Sub would not take."""
        message = await self.sending.message_for(row)
        try:
            problem = await self.validation.problem(row.source_topic, message) if self.validation else None
            if problem is None:
                message_id = await self.outlet.publish(row.source_topic, message)
                return lambda row: self._succeeded(row, message_id)
        except HoldfastError as error:
            problem = problem_of(error)
            if problem.failure_class is FailureClass.TRANSIENT:
                raise
        return lambda row: self._failed(row, problem)

    def _succeeded(self, row: FailedMessage, message_id: str) -> FailedMessage:
        now_ns = self.clock.now_ns()
        return row.mark_sent(now_ns, message_id).mark_retry_success(now_ns)

    def _failed(self, row: FailedMessage, problem: Problem) -> FailedMessage:
        now_ns = self.clock.now_ns()
        return self.policy.retry_failed(row.mark_sent(now_ns, ""), now_ns, problem.error)
