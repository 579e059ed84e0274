"""A failed message and the legal changes of its status (drawn in docs/architecture.md).

Every change has a name and gives a new value; what was there stays as it was. A store keeps one only if nobody else
changed the row meanwhile: `version` tells.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from holdfast.errors import FailedPrecondition

# 8 KiB of UTF-8: enough for a long stack trace. With more, a row is mostly noise and a list of rows huge.
LONGEST_ERROR_DETAILS_BYTES = 8 * 1024
CUT_MARK = " … (cut)"


class FailureStatus(StrEnum):
    QUEUED_FOR_RETRY = "queued_for_retry"
    PERMANENT_FAILURE = "permanent_failure"
    RETRY_SUCCESS = "retry_success"
    REPLAYED = "replayed"


class FailureClass(StrEnum):
    """What can be done about it."""

    POISON = "poison"  # will never succeed without a change of code or data
    TRANSIENT = "transient"  # is likely to succeed later
    MISCONFIGURED = "misconfigured"  # will not succeed until an operator acts
    UNKNOWN = "unknown"


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
class Content:
    """What is sent: the message without the broker's own part."""

    data: bytes
    attributes: Mapping[str, str] = field(default_factory=dict)
    ordering_key: str = ""


@dataclass(frozen=True, slots=True)
class FailedMessage:
    """One failed delivery, or an event that ingest could not publish: then `subscription` is "", as it was in none.
    `key` names it: recording it twice changes nothing. Times are nanoseconds since 1970; stores
    keep those that end in `at_ns` to the microsecond. `failed_at_ns` is when the delivery failed for good, by the
    publish time of the dead letter, and `created_at_ns` when the desk recorded it: what lies between is the time to
    detection.

    `retry_count` counts the automatic retries that were made. `retry_at_ns` is set only while one is due: the time, or,
    when a desk is at it, the time until which the others leave it alone. `sent_at_ns` and `sent_message_id` tell of the
    retry that is out and whose end is not known yet.

    Lineage: `generation` says how often this message was sent again before it failed here, and `origin_id` names its
    first failure; both are 0 for the first one. `revision` is the newest edit, 0 the original.
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
    failed_at_ns: int = 0
    retry_at_ns: int | None = None
    retry_success_at_ns: int | None = None
    failure_class: FailureClass = FailureClass.UNKNOWN
    fingerprint: str = ""  # of the group it belongs to
    generation: int = 0
    origin_id: int = 0
    revision: int = 0
    legal_hold: bool = False
    sent_at_ns: int | None = None
    sent_message_id: str = ""
    replay_id: int = 0  # of the replay job that took it
    version: int = 1  # given by the store: one more with every change
    id: int = 0  # given by the store

    @property
    def content(self) -> Content:
        """As it failed; an edit is kept beside it."""
        return Content(self.data, self.attributes, self.ordering_key)

    @property
    def is_of_ingest(self) -> bool:
        """It was never published: it is sent to its topic, and no subscription has seen it."""
        return not self.subscription

    @property
    def route(self) -> str:
        """Where it failed: the subscription, or the topic that it was on its way to."""
        return self.subscription or self.source_topic

    @property
    def first_seen_ns(self) -> int:
        """Its publish time, or when it was to be published; 0 where nobody knows."""
        return self.publish_time_ns or (self.failed_at_ns if self.is_of_ingest else 0)

    @property
    def key(self) -> tuple[str, str, str]:
        """What failed, where. The content is part of it, because the message id may come from an attribute that
        anybody can write: a forged one must not pass another message's failure off as recorded."""
        content = [self.data.hex(), sorted(self.attributes.items()), self.ordering_key, self.publish_time_ns]
        if self.is_of_ingest:  # what names it is its topic
            content.append(self.source_topic)
        return self.subscription, self.message_id, hashlib.sha256(json.dumps(content).encode()).hexdigest()

    @property
    def is_out(self) -> bool:
        """A retry was sent and nobody knows yet how it ends."""
        return self.sent_at_ns is not None

    def waits_for_retry(self, number: int) -> bool:
        """This one of its automatic retries comes next, and is not out."""
        is_queued = self.status is FailureStatus.QUEUED_FOR_RETRY
        return is_queued and not self.is_out and self.retry_count + 1 == number

    def schedule_retry(self, at_ns: int, error_details: str | None = None) -> FailedMessage:
        """To be retried at `at_ns`. When one was out, that one has failed, with `error_details`."""
        self._check_change(FailureStatus.QUEUED_FOR_RETRY)
        changed = replace(self, status=FailureStatus.QUEUED_FOR_RETRY, retry_at_ns=at_ns)
        return changed._retry_ended(error_details)

    def claim_retry(self, until_ns: int) -> FailedMessage:
        """A desk is at it; if it dies, another one may be from `until_ns` on."""
        if self.status is not FailureStatus.QUEUED_FOR_RETRY or self.is_out:
            raise FailedPrecondition(f"failed message {self.id} is {self.status} and has no retry due")
        return replace(self, retry_at_ns=until_ns)

    def mark_sent(self, at_ns: int, message_id: str) -> FailedMessage:
        """The retry is out, as this message."""
        if self.status is not FailureStatus.QUEUED_FOR_RETRY:
            raise FailedPrecondition(f"failed message {self.id} is {self.status} and has no retry due")
        return replace(
            self,
            retry_at_ns=None,
            sent_at_ns=at_ns,
            sent_message_id=message_id,
            retry_count=self.retry_count + 1,
        )

    def give_up(self, error_details: str | None = None) -> FailedMessage:
        """The last retry failed: from now on it waits for a person."""
        self._check_change(FailureStatus.PERMANENT_FAILURE)
        changed = replace(self, status=FailureStatus.PERMANENT_FAILURE, retry_at_ns=None)
        return changed._retry_ended(error_details)

    def mark_retry_success(self, at_ns: int) -> FailedMessage:
        """The automatic retry succeeded, or there was nothing to retry."""
        self._check_change(FailureStatus.RETRY_SUCCESS)
        changed = replace(self, status=FailureStatus.RETRY_SUCCESS, retry_at_ns=None, retry_success_at_ns=at_ns)
        return changed._retry_ended(None)

    def claim_replay(self, at_ns: int, replay_id: int) -> FailedMessage:
        """A replay job is about to send it. Until that is known to be done or not, nobody else sends or edits it, and
        it is not retried by itself any more."""
        self._check_change(FailureStatus.REPLAYED)
        if self.is_out:
            raise FailedPrecondition(f"failed message {self.id} is out already")
        return replace(
            self,
            status=FailureStatus.PERMANENT_FAILURE,
            retry_at_ns=None,
            sent_at_ns=at_ns,
            replay_id=replay_id,
        )

    def release_replay(self) -> FailedMessage:
        """The replay job did not send it after all."""
        return replace(self, sent_at_ns=None, replay_id=0)

    def mark_replayed(self, at_ns: int, replay_id: int = 0, message_id: str = "") -> FailedMessage:
        """A person sent it again. That is not an automatic retry, so the count stays."""
        self._check_change(FailureStatus.REPLAYED)
        return replace(
            self,
            status=FailureStatus.REPLAYED,
            retry_at_ns=None,
            retry_success_at_ns=at_ns,
            sent_at_ns=None,
            sent_message_id=message_id or self.sent_message_id,
            replay_id=replay_id or self.replay_id,
        )

    def hold(self, on: bool) -> FailedMessage:
        """Under legal hold it is neither erased nor cleaned up."""
        return replace(self, legal_hold=on)

    def revise(self) -> FailedMessage:
        """It has one edit more, which is what is sent from now on."""
        if not LEGAL_CHANGES[self.status]:
            raise FailedPrecondition(f"failed message {self.id} is {self.status}: there is nothing left to send")
        if self.is_out:
            raise FailedPrecondition(f"failed message {self.id} is out on a retry: wait for its end")
        return replace(self, revision=self.revision + 1)

    def _retry_ended(self, error_details: str | None) -> FailedMessage:
        return replace(
            self,
            sent_at_ns=None,
            error_details=self.error_details if error_details is None else bounded_error_details(error_details),
        )

    def _check_change(self, wanted: FailureStatus) -> None:
        if wanted not in LEGAL_CHANGES[self.status]:
            how = "already" if wanted is self.status else f"and cannot become {wanted}"
            raise FailedPrecondition(f"failed message {self.id} is {self.status} {how}")


@dataclass(frozen=True, slots=True)
class Revision:
    """An edit of a failed message, whole. The original is never changed."""

    failure_id: int
    number: int
    content: Content
    author: str
    comment: str = ""
    created_at_ns: int = 0


def bounded_error_details(text: str) -> str:
    """The text itself, or its beginning with a mark when it is longer than a row may hold."""
    encoded = text.encode()
    if len(encoded) <= LONGEST_ERROR_DETAILS_BYTES:
        return text
    kept = encoded[: LONGEST_ERROR_DETAILS_BYTES - len(CUT_MARK.encode())]
    # The cut may fall inside a character; that character goes too.
    return kept.decode(errors="ignore") + CUT_MARK
