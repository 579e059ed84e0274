"""The consumer under proof with one bug planted, named by the environment: a run that does not find it proves nothing.

Imported only by workers of test_planted_bugs.py.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections.abc import Sequence

from holdfast.consumer import reading
from holdfast.consumer.app import MARKS
from holdfast.consumer.coalescer import Coalescer
from holdfast.consumer.documents import Mark, Result, Write
from holdfast.consumer.event import Event
from holdfast.model.document import EventOrder
from holdfast.model.outcome import Applied, Duplicate
from holdfast.stores.sqlite.documents import SqliteDocumentStore
from tests.proof.app import app

__all__ = ["BUGS", "VARIABLE", "app"]

VARIABLE = "PROOF_BUG"

# Between two steps that should have been one, so that every kill falls into it.
GAP_SECONDS = 0.05

_store_apply = SqliteDocumentStore.apply
_coalescer_apply = Coalescer.apply
_under_way: set[asyncio.Task[Result]] = set()


def sequence_ignored() -> None:
    def order(event: Event) -> EventOrder:
        return EventOrder(event.event_time_ns, 0, event.publish_time_ns, event.message_id)

    Event.order = property(order)  # type: ignore[method-assign,assignment]


def ties_go_to_the_last_to_come() -> None:
    """As in the service that source 001 describes: only an older event time is stale."""

    def order(event: Event) -> EventOrder:
        _Counter.value += 1
        return EventOrder(event.event_time_ns, _Counter.value, 0, event.message_id)

    Event.order = property(order)  # type: ignore[method-assign,assignment]


class _Counter:
    value = 0


def marked_before_written() -> None:
    """The mark in a transaction of its own: a crash in between, and the event is lost as a duplicate."""

    async def apply(self: SqliteDocumentStore, writes: Sequence[Write]) -> Sequence[Result]:
        claimed = await _store_apply(self, [dataclasses.replace(write, changes=()) for write in writes])
        await asyncio.sleep(GAP_SECONDS)
        new = [write for write, result in zip(writes, claimed, strict=True) if not isinstance(result, Duplicate)]
        done = iter(await _store_apply(self, [dataclasses.replace(write, marks=()) for write in new]))
        return [result if isinstance(result, Duplicate) else next(done) for result in claimed]

    SqliteDocumentStore.apply = apply  # type: ignore[method-assign]


def written_before_marked() -> None:
    """The other way round: a crash in between, and the event is counted twice."""

    async def apply(self: SqliteDocumentStore, writes: Sequence[Write]) -> Sequence[Result]:
        found = [await self.find_mark(write.marks, write.now_ns) for write in writes]
        new = [write for write, mark in zip(writes, found, strict=True) if mark is None]
        done = iter(await _store_apply(self, [dataclasses.replace(write, marks=()) for write in new]))
        await asyncio.sleep(GAP_SECONDS)
        await _store_apply(self, [dataclasses.replace(write, changes=()) for write in new])
        return [Duplicate(mark.path) if mark else next(done) for mark in found]

    SqliteDocumentStore.apply = apply  # type: ignore[method-assign]


def answered_before_committed() -> None:
    """With the right answer, even: only what a killed worker had promised is missing."""
    promised: set[Mark] = set()

    async def apply(self: Coalescer, write: Write, size: int) -> Result:
        known = not promised.isdisjoint(write.marks) or await self._store.find_mark(write.marks, write.now_ns)
        promised.update(write.marks)
        if known:
            return Duplicate(write.changes[0].path)
        task = asyncio.create_task(_later(self, write, size))
        _under_way.add(task)
        task.add_done_callback(_under_way.discard)
        return Applied(())

    Coalescer.apply = apply  # type: ignore[method-assign]


async def _later(coalescer: Coalescer, write: Write, size: int) -> Result:
    await asyncio.sleep(GAP_SECONDS)
    return await _coalescer_apply(coalescer, write, size)


def republished_not_known() -> None:
    def marks_of(event: Event, key: str, collection: str = MARKS) -> tuple[Mark, ...]:
        return (Mark(collection, event.message_id),)

    reading.marks_of = marks_of  # type: ignore[attr-defined]


def redelivered_not_known() -> None:
    def marks_of(event: Event, key: str, collection: str = MARKS) -> tuple[Mark, ...]:
        return (Mark(collection, key),) if key else ()

    reading.marks_of = marks_of  # type: ignore[attr-defined]


BUGS = {
    bug.__name__: bug
    for bug in (
        sequence_ignored,
        ties_go_to_the_last_to_come,
        marked_before_written,
        written_before_marked,
        answered_before_committed,
        republished_not_known,
        redelivered_not_known,
    )
}

if VARIABLE in os.environ:
    BUGS[os.environ[VARIABLE]]()
