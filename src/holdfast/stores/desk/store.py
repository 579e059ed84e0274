"""The desk's store over a driver of either database. Only names what is read and what is written."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from holdfast.clock import Clock, SystemClock
from holdfast.deadletter.audit import Action, AuditFilter, AuditPage, Entry
from holdfast.deadletter.failures import Edit, Page, Recorded, Retention
from holdfast.deadletter.groups import Comment, Group, GroupFilter, GroupPage
from holdfast.deadletter.held_places import FreedPlace
from holdfast.deadletter.replay.jobs import Item, ItemPage, ItemState, Job, JobPage, JobState
from holdfast.deadletter.selection import Selection
from holdfast.deadletter.statistics import Statistics, Totals
from holdfast.model.failed_message import FailedMessage, FailureStatus, Revision
from holdfast.stores.desk import audit, failures, groups, meta, places, recording, replays, revisions, statistics
from holdfast.stores.desk.statements import Operation

T = TypeVar("T")

# Entries of the audit trail that are in memory at once.
_ENTRIES_AT_ONCE = 1000


class Driver(Protocol):
    """Runs an operation in one transaction. It is made anew whenever it has to be begun again."""

    async def read(self, make: Callable[[], Operation[T]]) -> T:
        """Each statement sees what is committed just then."""
        ...

    async def read_at_once(self, make: Callable[[], Operation[T]]) -> T:
        """All statements see the same state."""
        ...

    async def write(self, make: Callable[[], Operation[T]]) -> T:
        """Durable at return."""
        ...

    async def check(self) -> None: ...

    async def close(self) -> None: ...


class SqlDeskStore:
    def __init__(self, driver: Driver, clock: Clock | None = None) -> None:
        self._driver = driver
        self._clock = clock or SystemClock()

    async def check(self) -> None:
        await self._driver.check()

    async def close(self) -> None:
        await self._driver.close()

    async def store_id(self) -> str:
        return await self._made_once("store_id", secrets.token_hex(8))

    async def secret(self) -> bytes:
        return bytes.fromhex(await self._made_once("secret", secrets.token_hex(32)))

    async def _made_once(self, name: str, value: str) -> str:
        found: str | None = await self._driver.read(lambda: meta.value_of(name))
        if found is not None:
            return found
        return await self._driver.write(lambda: meta.made_once(name, value))

    # Failures.

    async def record(self, failures: Sequence[FailedMessage]) -> Sequence[Recorded]:
        return await self._driver.write(lambda: recording.record(failures)) if failures else []

    async def restore(self, rows: Sequence[tuple[FailedMessage, Sequence[Revision]]]) -> Sequence[Recorded]:
        return await self._driver.write(lambda: revisions.restore(rows)) if rows else []

    async def get(self, failure_id: int) -> FailedMessage | None:
        return await self._driver.read(lambda: failures.get(failure_id))

    async def list(self, selection: Selection, page_size: int, page_token: str = "") -> Page:
        return await self._driver.read(lambda: failures.list_failures(selection, page_size, page_token))

    async def walk(self, selection: Selection, after_id: int, limit: int) -> Sequence[FailedMessage]:
        return await self._driver.read(lambda: failures.walk(selection, after_id, limit))

    async def count(self, selection: Selection, at_most: int) -> int:
        return await self._driver.read(lambda: failures.count(selection, at_most))

    async def lineage(self, origin_id: int) -> Sequence[int]:
        return await self._driver.read(lambda: failures.lineage(origin_id))

    async def of_messages(self, message_ids: Sequence[str], limit: int) -> Sequence[int]:
        return await self._driver.read(lambda: failures.of_messages(message_ids, limit))

    async def due_for_retry(self, now_ns: int, limit: int) -> Sequence[FailedMessage]:
        return await self._driver.read(lambda: failures.due_for_retry(now_ns, limit))

    async def out_on_retry(self, limit: int, after_id: int = 0) -> Sequence[FailedMessage]:
        return await self._driver.read(lambda: failures.out_on_retry(limit, after_id))

    async def save(self, changed: Sequence[FailedMessage], action: Action | None = None) -> Sequence[bool]:
        now_ns = self._clock.now_ns()
        return await self._driver.write(lambda: failures.save(changed, action, now_ns))

    async def revise(self, edits: Sequence[Edit]) -> Sequence[bool]:
        now_ns = self._clock.now_ns()
        return await self._driver.write(lambda: revisions.revise(edits, now_ns))

    async def revisions(self, failure_id: int) -> Sequence[Revision]:
        return await self._driver.read(lambda: revisions.revisions(failure_id))

    async def hold(self, selection: Selection, on: bool, action: Action) -> int:
        return await self._driver.write(lambda: failures.hold(selection, on, action))

    async def erase(self, selection: Selection, action: Action, expected: int | None = None) -> int:
        return await self._driver.write(lambda: failures.erase(selection, action, expected))

    async def clean_up(self, retention: Retention, action: Action, limit: int) -> int:
        return await self._driver.write(lambda: failures.clean_up(retention, action, limit))

    # Groups.

    async def list_groups(self, wanted: GroupFilter, page_size: int, page_token: str = "") -> GroupPage:
        return await self._driver.read(lambda: groups.list_groups(wanted, page_size, page_token))

    async def get_group(self, fingerprint: str) -> Group | None:
        return await self._driver.read(lambda: groups.get_group(fingerprint))

    async def save_group(self, group: Group, action: Action) -> bool:
        return await self._driver.write(lambda: groups.save_group(group, action))

    async def comment(self, fingerprint: str, comment: Comment, action: Action) -> None:
        await self._driver.write(lambda: groups.comment(fingerprint, comment, action))

    async def comments(self, fingerprint: str) -> Sequence[Comment]:
        return await self._driver.read(lambda: groups.comments(fingerprint))

    async def counts_by_hour(self, fingerprint: str, since_ns: int) -> Mapping[int, int]:
        return await self._driver.read(lambda: groups.counts_by_hour(fingerprint, since_ns))

    # Replays.

    async def create_job(self, job: Job, action: Action) -> Job:
        return await self._driver.write(lambda: replays.create_job(job, action))

    async def get_job(self, job_id: int) -> Job | None:
        return await self._driver.read(lambda: replays.get_job(job_id))

    async def list_jobs(self, states: Sequence[JobState], page_size: int, page_token: str = "") -> JobPage:
        return await self._driver.read(lambda: replays.list_jobs(states, page_size, page_token))

    async def save_job(self, job: Job, action: Action | None = None) -> bool:
        return await self._driver.write(lambda: replays.save_job(job, action))

    async def pending(self, job_id: int, limit: int) -> Sequence[tuple[Item, FailedMessage | None]]:
        return await self._driver.read_at_once(lambda: replays.pending(job_id, limit))

    async def sent(self, job_id: int, limit: int, after_position: int = 0) -> Sequence[Item]:
        return await self._driver.read(lambda: replays.sent(job_id, limit, after_position))

    async def save_items(self, items: Sequence[Item], failures: Sequence[FailedMessage] = ()) -> Sequence[bool]:
        now_ns = self._clock.now_ns()
        return await self._driver.write(lambda: replays.save_items(items, failures, now_ns))

    async def items_of(self, failure_ids: Sequence[int], limit: int) -> Sequence[Item]:
        return await self._driver.read(lambda: replays.items_of(failure_ids, limit))

    async def count_items(self, job_id: int) -> Mapping[ItemState, int]:
        return await self._driver.read(lambda: replays.count_items(job_id))

    async def list_items(
        self, job_id: int, states: Sequence[ItemState], page_size: int, page_token: str = ""
    ) -> ItemPage:
        return await self._driver.read(lambda: replays.list_items(job_id, states, page_size, page_token))

    # Statistics.

    async def count_by_status(self) -> Mapping[FailureStatus, int]:
        return await self._driver.read(statistics.count_by_status)

    async def count_by_reason(self) -> Mapping[str, Mapping[FailureStatus, int]]:
        return await self._driver.read(statistics.count_by_reason)

    async def statistics(self, since_ns: int) -> Statistics:
        return await self._driver.read_at_once(lambda: statistics.statistics(since_ns))

    async def totals(self, since_ns: int) -> Totals:
        return await self._driver.read_at_once(lambda: statistics.totals(since_ns))

    async def lost(self, since_ns: int) -> int:
        return await self._driver.read(lambda: statistics.lost(since_ns))

    # Places in ordering keys.

    async def freed_places(self, limit: int, after_id: int = 0) -> Sequence[FreedPlace]:
        return await self._driver.read(lambda: places.freed_places(limit, after_id))

    async def forget_places(self, ids: Sequence[int]) -> None:
        if ids:
            await self._driver.write(lambda: places.forget(ids))

    # Audit.

    async def append(self, action: Action) -> Entry:
        return await self._driver.write(lambda: audit.append(action))

    async def list_entries(self, wanted: AuditFilter, page_size: int, page_token: str = "") -> AuditPage:
        return await self._driver.read(lambda: audit.list_entries(wanted, page_size, page_token))

    async def read_entries(self) -> AsyncIterator[Entry]:
        number = -(2**63)  # below every number that somebody may have put there
        while entries := await self._entries_after(number):
            for entry in entries:
                yield entry
            number = entries[-1].number

    async def _entries_after(self, number: int) -> Sequence[Entry]:
        return await self._driver.read(lambda: audit.entries_after(number, _ENTRIES_AT_ONCE))
