"""A failed message and the legal changes of its status (drawn in docs/architecture.md)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from holdfast.errors import FailedPrecondition

# 8 KiB of UTF-8: enough for a long stack trace. With more, a row is mostly noise and a list of rows huge.
LONGEST_ERROR_DETAILS_BYTES = 8 * 1024
_CUT_MARK = " … (cut)"


class FailureStatus(StrEnum):
    QUEUED_FOR_RETRY = "queued_for_retry"
    PERMANENT_FAILURE = "permanent_failure"
    RETRY_SUCCESS = "retry_success"
    REPLAYED = "replayed"


# From each status, where it may go. What has succeeded is final: if it fails again, that is a new row.
LEGAL_CHANGES: Mapping[FailureStatus, frozenset[FailureStatus]] = {
    FailureStatus.QUEUED_FOR_RETRY: frozenset(
        {
            FailureStatus.QUEUED_FOR_RETRY,  # the retry failed and another one is due
            FailureStatus.PERMANENT_FAILURE,
            FailureStatus.RETRY_SUCCESS,
            FailureStatus.REPLAYED,
        }
    ),
    FailureStatus.PERMANENT_FAILURE: frozenset(
        {
            FailureStatus.REPLAYED,
            FailureStatus.QUEUED_FOR_RETRY,  # an operator asks for it
        }
    ),
    FailureStatus.RETRY_SUCCESS: frozenset(),
    FailureStatus.REPLAYED: frozenset(),
}


@dataclass(frozen=True, slots=True)
class FailedMessage:
    """One failed delivery. `key` names it: recording it twice changes nothing.

    `retry_count` counts the automatic retries that were made. `retry_at_ns` is set only while one is due.
    """

    message_id: str
    subscription: str
    source_topic: str
    failure_reason: str
    error_details: str
    data: bytes
    attributes: Mapping[str, str] = field(default_factory=dict)
    ordering_key: str = ""
    publish_time_ns: int = 0
    delivery_attempt: int = 0
    retry_count: int = 0
    status: FailureStatus = FailureStatus.PERMANENT_FAILURE
    created_at_ns: int = 0
    retry_at_ns: int | None = None
    retry_success_at_ns: int | None = None
    id: int = 0  # given by the store

    @property
    def key(self) -> tuple[str, str, str]:
        """What failed, where. The content is part of it, because the message id may come from an attribute that
        anybody can write: a forged one must not pass another message's failure off as recorded."""
        content = json.dumps(
            [self.data.hex(), sorted(self.attributes.items()), self.ordering_key, self.publish_time_ns]
        )
        return self.subscription, self.message_id, hashlib.sha256(content.encode()).hexdigest()

    def schedule_retry(self, at_ns: int) -> FailedMessage:
        """To be retried at `at_ns`. When one was due already, that one was made and has failed."""
        self._check_change(FailureStatus.QUEUED_FOR_RETRY)
        return replace(
            self,
            status=FailureStatus.QUEUED_FOR_RETRY,
            retry_count=self._retries_made(),
            retry_at_ns=at_ns,
        )

    def give_up(self) -> FailedMessage:
        """The last retry failed: from now on it waits for a person."""
        self._check_change(FailureStatus.PERMANENT_FAILURE)
        return replace(
            self,
            status=FailureStatus.PERMANENT_FAILURE,
            retry_count=self._retries_made(),
            retry_at_ns=None,
        )

    def mark_retry_success(self, at_ns: int) -> FailedMessage:
        """The automatic retry that was due succeeded."""
        self._check_change(FailureStatus.RETRY_SUCCESS)
        return replace(
            self,
            status=FailureStatus.RETRY_SUCCESS,
            retry_count=self._retries_made(),
            retry_at_ns=None,
            retry_success_at_ns=at_ns,
        )

    def mark_replayed(self, at_ns: int) -> FailedMessage:
        """A person sent it again. That is not an automatic retry, so the count stays."""
        self._check_change(FailureStatus.REPLAYED)
        return replace(self, status=FailureStatus.REPLAYED, retry_at_ns=None, retry_success_at_ns=at_ns)

    def _retries_made(self) -> int:
        was_due = self.status is FailureStatus.QUEUED_FOR_RETRY
        return self.retry_count + 1 if was_due else self.retry_count

    def _check_change(self, wanted: FailureStatus) -> None:
        if wanted not in LEGAL_CHANGES[self.status]:
            raise FailedPrecondition(f"failed message {self.id} is {self.status} and cannot become {wanted}")


def bounded_error_details(text: str) -> str:
    """The text itself, or its beginning with a mark when it is longer than a row may hold."""
    encoded = text.encode()
    if len(encoded) <= LONGEST_ERROR_DETAILS_BYTES:
        return text
    kept = encoded[: LONGEST_ERROR_DETAILS_BYTES - len(_CUT_MARK.encode())]
    # The cut may fall inside a character; that character goes too.
    return kept.decode(errors="ignore") + _CUT_MARK
