"""What writes do to documents: which are duplicates, which are stale, and what the documents are afterwards. Pure.

Every store reads what is there, has it judged here, and writes the difference, all in one transaction. So all of them
decide alike, and several events for one document become one write of the newest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.consumer.changes import Count, Upsert
from holdfast.consumer.documents import Mark, MarkRecord, Result, Write
from holdfast.errors import BadInput
from holdfast.model.document import EventOrder
from holdfast.model.outcome import Applied, Duplicate, Stale
from holdfast.model.strict_json import LARGEST_INTEGER, SMALLEST_INTEGER

Path = tuple[str, str]
"""Collection and id."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A document as it is: its JSON fields, and the order of the newest event that wrote it."""

    fields: Mapping[str, Any]
    order: EventOrder


@dataclass(frozen=True, slots=True)
class Needed:
    """What a store must read before `judge`: of `documents` the order is enough, but for those that are counted."""

    marks: frozenset[Mark]
    documents: frozenset[Path]
    counted: frozenset[Path]


@dataclass(slots=True)
class Judged:
    """`documents` and `marks` are to be written, whole, in the same transaction that read them."""

    results: list[Result] = field(default_factory=list)
    documents: dict[Path, Stored] = field(default_factory=dict)
    marks: dict[Mark, MarkRecord] = field(default_factory=dict)


def needed_for(writes: Iterable[Write]) -> Needed:
    marks: set[Mark] = set()
    documents: set[Path] = set()
    counted: set[Path] = set()
    for write in writes:
        marks.update(write.marks)
        for change in write.changes:
            (counted if isinstance(change, Count) else documents).add((change.collection, change.id))
    return Needed(frozenset(marks), frozenset(documents - counted), frozenset(counted))


def judge(writes: Iterable[Write], marks: Mapping[Mark, int], documents: Mapping[Path, Stored]) -> Judged:
    """`marks` are those found, with the time they expire; `documents` those found. Raises BadInput for a number that
    cannot be counted up."""
    judging = _Judging(marks, documents)
    for write in writes:
        judging.judged.results.append(judging.result(write))
    return judging.judged


class _Judging:
    def __init__(self, marks: Mapping[Mark, int], documents: Mapping[Path, Stored]) -> None:
        self.judged = Judged()
        self._marks = marks
        self._documents = documents

    def result(self, write: Write) -> Result:
        for mark in write.marks:
            if self._counts(mark, write.now_ns):
                return Duplicate(mark.path)
        upserts = [change for change in write.changes if isinstance(change, Upsert)]
        orders = [stored.order if (stored := self._stored(upsert)) else None for upsert in upserts]
        # One that this very event wrote shows that all of it was done, though another may be newer by now.
        if any(order == write.order for order in orders):
            return Duplicate(upserts[0].path)
        # First all that may refuse, so that a refused write leaves nothing behind.
        replaced = [
            ((upsert.collection, upsert.id), Stored(upsert.fields, write.order))
            for upsert, order in zip(upserts, orders, strict=True)
            if order is None or order < write.order
        ]
        counted = [self._counted(change, write) for change in write.changes if isinstance(change, Count)]
        for path, stored in [*replaced, *counted]:
            self.judged.documents[path] = stored
        for mark in write.marks:
            self.judged.marks[mark] = MarkRecord(write.order.message_id, write.now_ns, write.mark_until_ns)
        if upserts and not replaced and not counted:
            return Stale(upserts[0].path)
        return Applied(tuple(f"{collection}/{document_id}" for (collection, document_id), _ in [*replaced, *counted]))

    def _counts(self, mark: Mark, now_ns: int) -> bool:
        made = self.judged.marks.get(mark)
        return (made.expire_ns if made else self._marks.get(mark, now_ns)) > now_ns

    def _stored(self, change: Upsert | Count) -> Stored | None:
        path = (change.collection, change.id)
        return self.judged.documents.get(path) or self._documents.get(path)

    def _counted(self, count: Count, write: Write) -> tuple[Path, Stored]:
        stored = self._stored(count)
        before = stored.fields if stored else {}
        newest = stored is None or stored.order < write.order
        fields = {**before, **(count.fields if newest else {})}
        for name, number in count.numbers.items():
            fields[name] = _sum(name, before.get(name, 0), number)
        order = write.order if stored is None or newest else stored.order
        return (count.collection, count.id), Stored(fields, order)


def _sum(name: str, before: object, number: int) -> int:
    if not isinstance(before, int) or isinstance(before, bool):
        raise BadInput(name, "cannot be counted up: the stored value is not a whole number")
    total = before + number
    if not SMALLEST_INTEGER <= total <= LARGEST_INTEGER:
        raise BadInput(name, "is beyond 64 bits")
    return total
