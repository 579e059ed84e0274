"""What a consumer would make of failed messages now. Nothing is sent, and nothing is written but what was found."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from holdfast.clock import Clock
from holdfast.consumer.rehearsal import Rehearsal, Rehearsed
from holdfast.deadletter.fingerprints import FINGERPRINT_LETTERS, normalised
from holdfast.deadletter.redaction import Redaction
from holdfast.deadletter.rehearsing import delivery_of
from holdfast.deadletter.replay.claiming import Pending
from holdfast.deadletter.replay.dispatch import Dispatched
from holdfast.deadletter.replay.jobs import Item, ItemState
from holdfast.deadletter.replay.screening import ERASED
from holdfast.deadletter.sending import content_of
from holdfast.deadletter.store import DeskStore
from holdfast.model.failed_message import Content, FailedMessage

LONGEST_NOTE = 500
MOST_SAMPLES = 5
MOST_GROUPS = 100
MOST_DOCUMENTS = 20

WOULD_WRITE = "would write "
NOTHING_TO_WRITE = "would write nothing"


@dataclass(frozen=True, slots=True)
class Foreseen:
    """`problem` is "" when it would pass. `unknown` says why nobody can tell."""

    documents: Sequence[str] = ()
    problem: str = ""
    unknown: str = ""


async def foresee(rehearsal: Rehearsal, failure: FailedMessage, content: Content, redaction: Redaction) -> Foreseen:
    """Errors and document ids may tell what is redacted."""
    foreseen = _foreseen(await rehearsal.of(delivery_of(failure, content, attempt=1)))
    contents = (failure.content, content)
    documents = [redaction.text(path, *contents) for path in foreseen.documents]
    return replace(foreseen, documents=documents, problem=redaction.text(foreseen.problem, *contents)[:LONGEST_NOTE])


def _foreseen(rehearsed: Rehearsed) -> Foreseen:
    if rehearsed.failure is not None:
        return Foreseen(problem=f"{rehearsed.failure.reason}: {rehearsed.failure.error}")
    if not rehearsed.was_called:
        return Foreseen(unknown=f"{rehearsed.handler} has side effects, so it is not called")
    return Foreseen(tuple(change.path for change in rehearsed.changes))


class Shadow:
    """In the place of sending, for jobs whose target is `shadow`."""

    def __init__(self, store: DeskStore, clock: Clock, rehearsal: Rehearsal, redaction: Redaction) -> None:
        self._store = store
        self._redaction = redaction
        self._clock = clock
        self._rehearsal = rehearsal

    async def send(self, batch: Sequence[Pending]) -> Dispatched:
        ended = [(await self._tried(item, failure), failure) for item, failure in batch]
        await self._store.save_items([item for item, _ in ended])
        return Dispatched(ended, len(ended))

    async def _tried(self, item: Item, failure: FailedMessage | None) -> Item:
        if failure is None:
            return replace(item, state=ItemState.SKIPPED, note=ERASED)
        content = await content_of(self._store, failure, failure.revision)
        foreseen = await foresee(self._rehearsal, failure, content, self._redaction)
        state = ItemState.FAILED if foreseen.problem else ItemState.SUCCEEDED
        if foreseen.unknown:
            state = ItemState.SKIPPED
        return replace(item, state=state, note=_note(foreseen), sent_at_ns=self._clock.now_ns())


def _note(foreseen: Foreseen) -> str:
    if foreseen.problem or foreseen.unknown:
        return foreseen.problem or foreseen.unknown
    written = WOULD_WRITE + ", ".join(foreseen.documents)
    return written[:LONGEST_NOTE] if foreseen.documents else NOTHING_TO_WRITE


@dataclass(slots=True)
class WouldFail:
    """Those that would fail in the same way. `example` is the error of the first one."""

    fingerprint: str
    example: str
    count: int = 0
    failure_ids: list[int] = field(default_factory=list)


@dataclass(slots=True)
class ShadowReport:
    """What was foreseen, added up. `documents` counts them by collection, and `samples` names some."""

    would_pass: int = 0
    would_fail: int = 0
    unknown: Counter[str] = field(default_factory=Counter)
    groups: dict[str, WouldFail] = field(default_factory=dict)
    documents: Counter[str] = field(default_factory=Counter)
    samples: list[str] = field(default_factory=list)

    def add(self, failure_id: int, foreseen: Foreseen) -> None:
        if foreseen.unknown:
            self.unknown[foreseen.unknown] += 1
        elif foreseen.problem:
            self._add_problem(failure_id, foreseen.problem)
        else:
            self.would_pass += 1
            self._add_documents(foreseen.documents)

    def _add_problem(self, failure_id: int, problem: str) -> None:
        self.would_fail += 1
        fingerprint = fingerprint_of(problem)
        if fingerprint not in self.groups and len(self.groups) >= MOST_GROUPS:
            return
        group = self.groups.setdefault(fingerprint, WouldFail(fingerprint, problem))
        group.count += 1
        if len(group.failure_ids) < MOST_SAMPLES:
            group.failure_ids.append(failure_id)

    def _add_documents(self, paths: Sequence[str]) -> None:
        for path in paths:
            self.documents[path.partition("/")[0]] += 1
            if len(self.samples) < MOST_DOCUMENTS and path not in self.samples:
                self.samples.append(path)


def fingerprint_of(problem: str) -> str:
    return hashlib.sha256(normalised(problem).encode()).hexdigest()[:FINGERPRINT_LETTERS]


def foreseen_in(item: Item) -> Foreseen | None:
    """As an item of a shadow job tells it; None while it is pending."""
    match item.state:
        case ItemState.SUCCEEDED:
            paths = item.note.removeprefix(WOULD_WRITE).split(", ") if item.note.startswith(WOULD_WRITE) else ()
            return Foreseen(paths if item.note != NOTHING_TO_WRITE else ())
        case ItemState.FAILED:
            return Foreseen(problem=item.note)
        case ItemState.SKIPPED:
            return Foreseen(unknown=item.note)
        case _:
            return None
