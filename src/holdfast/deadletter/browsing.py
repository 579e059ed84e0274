"""Looking at failures and at the audit trail. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.clock import Clock
from holdfast.deadletter import audit
from holdfast.deadletter.audit import AuditFilter, AuditPage, Verdict
from holdfast.deadletter.failures import Page
from holdfast.deadletter.selecting import Reading, read_time, selection_from_json, selection_from_query
from holdfast.deadletter.selection import Selection
from holdfast.deadletter.statistics import bounded_counts
from holdfast.deadletter.store import DeskStore
from holdfast.errors import NotFound
from holdfast.model.failed_message import FailedMessage, FailureStatus, Revision

# Counting all of a million rows would take a second each time a page is shown; beyond this nobody needs the last digit.
COUNTED_AT_MOST = 10_000


@dataclass(frozen=True, slots=True)
class Count:
    """Not exact: there are at least so many."""

    number: int
    is_exact: bool


@dataclass(frozen=True, slots=True)
class Found:
    """`lineage` are the ids of the failures that this message met with, its own among them, oldest first."""

    failure: FailedMessage
    revisions: Sequence[Revision]
    lineage: Sequence[int]


class Browsing:
    """Short ids are in `project`."""

    def __init__(self, store: DeskStore, clock: Clock, project: str) -> None:
        self._store = store
        self._clock = clock
        self._project = project

    # What is meant.

    @property
    def reading(self) -> Reading:
        return Reading(self._clock.now_ns(), self._project)

    def selection_from_query(self, pairs: Iterable[tuple[str, str]]) -> Selection:
        return selection_from_query(pairs, self.reading)

    def selection_from_json(self, form: Any) -> Selection:
        return selection_from_json(form, self.reading)

    # Failures.

    async def list_failures(self, selection: Selection, page_size: int, page_token: str = "") -> Page:
        """Newest first."""
        return await self._store.list(selection, page_size, page_token)

    async def edits(self, failure: FailedMessage) -> Sequence[Revision]:
        return await self._store.revisions(failure.id) if failure.revision else ()

    async def count(self, selection: Selection) -> Count:
        counted = await self._store.count(selection, COUNTED_AT_MOST + 1)
        return Count(min(counted, COUNTED_AT_MOST), counted <= COUNTED_AT_MOST)

    async def counts(self) -> Mapping[FailureStatus, int]:
        """Of all that is stored, every status named."""
        return await self._store.count_by_status()

    async def counts_by_reason(self) -> Mapping[str, Mapping[FailureStatus, int]]:
        """The most frequent first."""
        return bounded_counts(await self._store.count_by_reason())

    async def find(self, failure_id: int) -> Found:
        failure = await self._store.get(failure_id)
        if failure is None:
            raise NotFound(f"there is no failure {failure_id}")
        return Found(
            failure,
            await self._store.revisions(failure_id),
            await self._store.lineage(failure.origin_id or failure.id),
        )

    # The audit trail.

    async def list_audit(self, wanted: AuditFilter, page_size: int, page_token: str = "") -> AuditPage:
        """Newest first."""
        return await self._store.list_entries(wanted, page_size, page_token)

    def audit_filter(self, given: Mapping[str, str]) -> AuditFilter:
        """As a query names it; what is not there means any."""
        now_ns = self._clock.now_ns()
        since, until = given.get("since"), given.get("until")
        return AuditFilter(
            actor=given.get("actor", ""),
            name=given.get("action", ""),
            target=given.get("target", ""),
            since_ns=None if since is None else read_time("since", since, now_ns),
            until_ns=None if until is None else read_time("until", until, now_ns),
        )

    async def verify_audit(self, head: str = "") -> Verdict:
        return await audit.verify(self._store.read_entries(), head)
