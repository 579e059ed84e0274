"""PORT: where failed messages live. One contract suite (holdfast.testing.contracts.failures) holds for all backends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from holdfast.deadletter.audit import Action
from holdfast.deadletter.selection import Selection
from holdfast.model.failed_message import FailedMessage, Revision


@dataclass(frozen=True, slots=True)
class Page:
    failures: Sequence[FailedMessage]
    next_page_token: str = ""


@dataclass(frozen=True, slots=True)
class Recorded:
    """`id` is the row's, whether it is new or was there."""

    id: int
    is_new: bool


@dataclass(frozen=True, slots=True)
class Retention:
    """Rows that got their status before these times, in nanoseconds since 1970, are cleaned up. None: never."""

    retry_success_before_ns: int | None
    replayed_before_ns: int | None
    permanent_failure_before_ns: int | None


@dataclass(frozen=True, slots=True)
class Edit:
    """`failure` as its `revise` gives it."""

    failure: FailedMessage
    revision: Revision
    action: Action


class FailureStore(Protocol):
    """Whatever takes an `action` writes it to the audit trail in the same transaction. What is done to a selection adds
    `count` to its details and names the `failures` that it was done to, by ranges of ids."""

    async def record(self, failures: Sequence[FailedMessage]) -> Sequence[Recorded]:
        """Durable at return, all or none. A failure whose key is recorded already changes nothing. A new one counts in
        its group (made when absent, opened again when it was resolved)."""
        ...

    async def restore(self, rows: Sequence[tuple[FailedMessage, Sequence[Revision]]]) -> Sequence[Recorded]:
        """As `record`, with everything that the row tells and its revisions: what another desk has exported. A new row
        gets a new id, and its revisions with it."""
        ...

    async def get(self, failure_id: int) -> FailedMessage | None: ...

    async def list(self, selection: Selection, page_size: int, page_token: str = "") -> Page:
        """Newest first. The token of a page continues right after it, whatever is recorded in between."""
        ...

    async def walk(self, selection: Selection, after_id: int, limit: int) -> Sequence[FailedMessage]:
        """By id, so that whoever goes on after the last one meets all of them, whatever changes meanwhile."""
        ...

    async def count(self, selection: Selection, at_most: int) -> int:
        """How many are meant; counting stops at `at_most`."""
        ...

    async def lineage(self, origin_id: int) -> Sequence[int]:
        """Ids of this failure and of those that the same message met with when it was sent again, as long as they are
        stored; oldest first, and at most 100."""
        ...

    async def of_messages(self, message_ids: Sequence[str], limit: int) -> Sequence[int]:
        """Ids of the failures of these messages, or that one of them was sent again for; oldest first. Of retries only
        the last one is known."""
        ...

    async def due_for_retry(self, now_ns: int, limit: int) -> Sequence[FailedMessage]:
        """Queued ones whose time has come, the longest due first."""
        ...

    async def out_on_retry(self, limit: int, after_id: int = 0) -> Sequence[FailedMessage]:
        """Queued ones that were sent and whose end is not known, by id."""
        ...

    async def save(self, changed: Sequence[FailedMessage], action: Action | None = None) -> Sequence[bool]:
        """Keeps what can change: status, counts, times, error, hold, revision and where it was sent. Of each whether it
        was kept: not where the row has another `version` by now. The action is written if any was."""
        ...

    async def revise(self, edits: Sequence[Edit]) -> Sequence[bool]:
        """Keeps edits with their rows, all in one transaction. Of each whether it was kept: not where the row has
        another `version` by now."""
        ...

    async def revisions(self, failure_id: int) -> Sequence[Revision]:
        """Oldest first."""
        ...

    async def hold(self, selection: Selection, on: bool, action: Action) -> int:
        """Puts all of them under legal hold, or lets them go; gives how many it changed. Where an action tells of any
        number of failures, as here, the store adds `count` to its details, and leaves it out when that is 0."""
        ...

    async def erase(self, selection: Selection, action: Action, expected: int | None = None) -> int:
        """With everything that belongs to them; gives how many. Those under legal hold stay. Raises Conflict, and
        erases nothing, when it would be another number than `expected`."""
        ...

    async def clean_up(self, retention: Retention, action: Action, limit: int) -> int:
        """Erases at most `limit` that are past their time and not under legal hold; gives how many."""
        ...
