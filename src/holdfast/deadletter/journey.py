"""What the desk knows of a message's journey: its failures, who did what to them, and what they were sent again as.

Redacted for everybody: who may see more looks at the failure itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from holdfast.deadletter.audit import AuditFilter, Entry
from holdfast.deadletter.redaction import Redaction
from holdfast.deadletter.replay.jobs import Item, ItemState
from holdfast.deadletter.store import DeskStore
from holdfast.model.failed_message import FailedMessage, FailureStatus, Revision
from holdfast.model.journey import Did, Event, Part, Precision, Told
from holdfast.model.timestamps import format_rfc3339

# Rows that are told of: a message that failed in a hundred subscriptions, or came back a hundred times.
MOST_FAILURES = 100
MOST_ITEMS = 500
MOST_ENTRIES = 100

# Told by other events.
_TOLD = frozenset({"failure.edit"})


@dataclass(frozen=True, slots=True)
class _Row:
    failure: FailedMessage
    revisions: Sequence[Revision]
    items: Sequence[Item]
    entries: Sequence[Entry]
    redaction: Redaction

    @property
    def name(self) -> str:
        return f"failures/{self.failure.id}"

    def shown(self, text: str) -> str:
        contents = [self.failure.content, *(revision.content for revision in self.revisions)]
        return self.redaction.text(text, *contents)

    def event(self, did: Did, at_ns: int | None, detail: str = "", related: str = "", where: str = "") -> Event:
        return Event(
            Part.DESK,
            did,
            self.failure.message_id,
            where or self.name,
            at_ns,
            Precision.EXACT if at_ns else Precision.NOW,
            detail=detail,
            related=related,
        )


class DeskJourney:
    part = Part.DESK

    def __init__(self, store: DeskStore, redaction: Redaction) -> None:
        self._store = store
        self._redaction = redaction

    async def tell(self, message_ids: Sequence[str]) -> Told:
        found = await self._store.of_messages(message_ids, MOST_FAILURES)
        rows = [row for failure_id in await self._with_lineage(found) if (row := await self._row(failure_id))]
        events = [event for row in rows for event in _events(row)]
        ids = {
            message_id
            for row in rows
            for message_id in (
                row.failure.message_id,
                row.failure.sent_message_id,
                *(item.message_id for item in row.items),
            )
            if message_id
        }
        return Told(events, sorted(ids))

    async def _with_lineage(self, failure_ids: Sequence[int]) -> list[int]:
        """Also what else the same messages met with when they were sent again."""
        failures = [failure for one in failure_ids if (failure := await self._store.get(one)) is not None]
        origins = {failure.origin_id or failure.id for failure in failures}
        known = {one for origin in origins for one in await self._store.lineage(origin)}
        return sorted(known | set(failure_ids))[:MOST_FAILURES]

    async def _row(self, failure_id: int) -> _Row | None:
        failure = await self._store.get(failure_id)
        if failure is None:  # it was erased
            return None
        audited = await self._store.list_entries(AuditFilter(target=f"failures/{failure_id}"), MOST_ENTRIES)
        revisions = await self._store.revisions(failure_id) if failure.revision else ()
        items = await self._store.items_of([failure_id], MOST_ITEMS)
        return _Row(failure, revisions, items, audited.entries, self._redaction)


def _events(row: _Row) -> Iterator[Event]:
    failure = row.failure
    error = row.shown(failure.error_details)
    if failure.publish_time_ns and not failure.generation:  # where the broker has forgotten it, or never tells
        yield row.event(Did.PUBLISHED, failure.publish_time_ns, where=failure.source_topic)
    yield row.event(Did.RECORDED, failure.created_at_ns, f"{failure.failure_reason}: {error}")
    for revision in row.revisions:
        yield row.event(Did.EDITED, revision.created_at_ns, f"revision {revision.number} by {revision.author}")
    for entry in row.entries:
        if entry.action.name not in _TOLD:
            yield row.event(Did.ACTED_ON, entry.action.at_ns, f"{entry.action.name} by {entry.action.actor}")
    for item in row.items:
        yield _replayed(row, item)
    yield from _sent_by_itself(row)
    if failure.status is FailureStatus.RETRY_SUCCESS:
        yield row.event(Did.SUCCEEDED, failure.retry_success_at_ns, f"after {failure.retry_count} automatic retries")
    yield row.event(Did.IS, None, _stands(failure))


def _replayed(row: _Row, item: Item) -> Event:
    where = f"replays/{item.job_id}"
    note = f": {row.shown(item.note)}" if item.note else ""
    if not item.sent_at_ns or item.state is ItemState.SKIPPED:
        return row.event(Did.IS, None, f"{item.state}{note}", where=where)
    return row.event(Did.SENT_AGAIN, item.sent_at_ns, f"replay {item.state}{note}", item.message_id, where)


def _sent_by_itself(row: _Row) -> Iterator[Event]:
    """Without a replay job: the retry that is out, or a replay by hand. Of earlier retries the broker tells."""
    failure = row.failure
    if failure.sent_message_id in {item.message_id for item in row.items}:
        return
    if failure.status is FailureStatus.QUEUED_FOR_RETRY and failure.is_out:
        detail = f"automatic retry {failure.retry_count}"
        yield row.event(Did.SENT_AGAIN, failure.sent_at_ns, detail, failure.sent_message_id)
    if failure.status is FailureStatus.REPLAYED:
        yield row.event(Did.SENT_AGAIN, failure.retry_success_at_ns, "by hand", failure.sent_message_id)


def _stands(failure: FailedMessage) -> str:
    told = str(failure.status)
    if failure.retry_count:
        told += f" after {failure.retry_count} automatic retries"
    if failure.is_out:
        return f"{told}; one is out" if failure.status is FailureStatus.QUEUED_FOR_RETRY else f"{told}; being replayed"
    return f"{told}; the next at {format_rfc3339(failure.retry_at_ns)}" if failure.retry_at_ns else told
