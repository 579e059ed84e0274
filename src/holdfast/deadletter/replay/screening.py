"""Whether a message of a job may be sent, and where to. Pure; the plan, the jobs and their tests ask the same."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.deadletter.dead_letter import UNKNOWN_TOPIC
from holdfast.deadletter.replay.jobs import Options, Target
from holdfast.model.failed_message import FailedMessage, FailureStatus

# Of one subscription (or topic, at ingest), or several would wait for each other's failures.
Key = tuple[str, str]

ERASED = "it was erased"
SUCCEEDED = "a retry has succeeded already"
OUT_ON_RETRY = "it is out on a retry"
TOPIC_UNKNOWN = "nobody knows which topic it came from"
TARGET_GONE = "the subscription or topic is gone"
KEY_FAILED = "an earlier message of its ordering key failed"


@dataclass(frozen=True, slots=True)
class Screening:
    """`most_generations`: what was sent again so often is not sent once more. `job_id` is 0 for a plan."""

    options: Options
    most_generations: int
    job_id: int = 0

    def why_not(self, failure: FailedMessage | None) -> str:
        """ "" when it may be sent."""
        if failure is None:
            return ERASED
        if self.options.target is Target.SHADOW:
            return ""  # nothing is sent
        if self.has_claimed(failure):
            return ""
        return self._is_over(failure) or self._is_cut(failure)

    def has_claimed(self, failure: FailedMessage) -> bool:
        """This job was about to send it, and may have done so before its desk died."""
        return bool(self.job_id) and failure.is_out and failure.replay_id == self.job_id

    def _is_over(self, failure: FailedMessage) -> str:
        if failure.status is FailureStatus.RETRY_SUCCESS:
            return SUCCEEDED
        if failure.status is FailureStatus.REPLAYED:
            return f"replay {failure.replay_id} has sent it" if failure.replay_id else "it was replayed already"
        if failure.is_out:
            return f"replay {failure.replay_id} is sending it" if failure.replay_id else OUT_ON_RETRY
        return ""

    def _is_cut(self, failure: FailedMessage) -> str:
        if failure.generation >= self.most_generations:
            return f"it was sent again {failure.generation} times and failed each time (desk.max_generation)"
        return TOPIC_UNKNOWN if self.destination(failure) == UNKNOWN_TOPIC else ""

    def is_addressed(self, failure: FailedMessage) -> bool:
        """It goes to one subscription alone, and somebody tells what becomes of it there."""
        return self.options.target is Target.SUBSCRIPTION and not failure.is_of_ingest

    def destination(self, failure: FailedMessage) -> str:
        """The full path of a subscription or topic; "" where nothing is sent."""
        match self.options.target:
            case Target.SUBSCRIPTION:
                return failure.route  # what ingest refused has failed at no subscription: its topic is next
            case Target.SOURCE_TOPIC:
                return failure.source_topic
            case Target.TOPIC:
                return self.options.topic
            case Target.SHADOW:
                return ""


def key_of(failure: FailedMessage) -> Key | None:
    return (failure.route, failure.ordering_key) if failure.ordering_key else None
