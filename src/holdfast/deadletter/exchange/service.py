"""Export and import, row by row: neither holds more than a few rows in memory, however many there are."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace

from holdfast.clock import Clock
from holdfast.deadletter.audit import Action
from holdfast.deadletter.exchange.lines import LARGEST_LINE_BYTES, Key, Line, read_line, write_line
from holdfast.deadletter.progress import Progress
from holdfast.deadletter.redaction import Redaction
from holdfast.deadletter.selecting import selection_in_audit
from holdfast.deadletter.selection import Selection
from holdfast.deadletter.store import DeskStore
from holdfast.errors import BadInput
from holdfast.model.failed_message import FailedMessage, FailureStatus, Revision

EXPORT_STEP = 100

# Of an import, in one transaction.
BATCH_ROWS = 200
BATCH_BYTES = 8 * 1024 * 1024

# Told one by one; of the others only how many.
MOST_ERRORS = 100


@dataclass(frozen=True, slots=True)
class LineError:
    line: int  # the first is 1
    error: str


@dataclass(slots=True)
class Imported:
    """`known` were there already, and stayed as they were."""

    lines: int = 0
    new: int = 0
    known: int = 0
    refused: int = 0
    errors: list[LineError] = field(default_factory=list)

    def refuse(self, line: int, error: str) -> None:
        self.refused += 1
        if len(self.errors) < MOST_ERRORS:
            self.errors.append(LineError(line, error))


class Exchange:
    def __init__(self, store: DeskStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    # Export.

    async def export(self, selection: Selection, redaction: Redaction, actor: str) -> AsyncIterator[str]:
        """By id, so the first failure of a message comes before those that it met with later. Reading on tells of
        what was recorded meanwhile too."""
        redaction.check_selection(selection)
        await self._audit(actor, "export", selection=selection_in_audit(selection), redacted=bool(redaction))
        last_id = 0
        while rows := await self._store.walk(selection, last_id, EXPORT_STEP):
            for failure in rows:
                yield write_line(failure, await self._revisions(failure), await self._origin(failure), redaction)
            last_id = rows[-1].id

    async def _revisions(self, failure: FailedMessage) -> Sequence[Revision]:
        """Not one that was kept since the row was read."""
        kept = await self._store.revisions(failure.id) if failure.revision else ()
        return [revision for revision in kept if revision.number <= failure.revision]

    async def _origin(self, failure: FailedMessage) -> FailedMessage | None:
        return await self._store.get(failure.origin_id) if failure.origin_id else None

    # Import.

    async def take_in(self, pieces: AsyncIterator[bytes], actor: str) -> AsyncIterator[Progress | Imported]:
        """`pieces` are a file, cut anywhere. A line that is wrong is told by its number; all others are imported."""
        told = Imported()
        batch = _Batch()
        async for text in lines_of(pieces):
            told.lines += 1
            line = _read(text, told)
            if line is None:
                continue
            if line.origin is not None:  # may be one of those that wait
                await self._keep(batch, told)
                line = await self._with_origin(line, line.origin)
            batch.add(replace(line, failure=taken_over(line.failure)))
            if batch.is_full:
                await self._keep(batch, told)
                yield Progress(told.lines, told.lines)
        await self._keep(batch, told)
        await self._audit(actor, "import", new=told.new, known=told.known, refused=told.refused)
        yield told

    async def _keep(self, batch: _Batch, told: Imported) -> None:
        if not batch.rows:
            return
        recorded = await self._store.restore(batch.rows)
        told.new += sum(row.is_new for row in recorded)
        told.known += sum(not row.is_new for row in recorded)
        batch.clear()

    async def _with_origin(self, line: Line, origin: Key) -> Line:
        """Where this store has it; one that was erased is nobody's origin."""
        subscription, message_id, _ = origin
        meant = Selection(subscription=subscription, message_id=message_id)
        found = next((row for row in await self._store.walk(meant, 0, EXPORT_STEP) if row.key == origin), None)
        return replace(line, failure=replace(line.failure, origin_id=found.id if found else 0))

    async def _audit(self, actor: str, verb: str, **details: object) -> None:
        await self._store.append(Action(actor, f"failures.{verb}", "failures", details, self._clock.now_ns()))


def taken_over(failure: FailedMessage) -> FailedMessage:
    """What was out when it was exported ends at the desk that sent it, and nobody tells this one. So a retry is due
    again, and a failure that a replay was about to send is free."""
    if failure.status is not FailureStatus.QUEUED_FOR_RETRY:
        return replace(failure, sent_at_ns=None)
    due_ns = failure.retry_at_ns or failure.sent_at_ns or failure.created_at_ns
    return replace(failure, retry_at_ns=due_ns, sent_at_ns=None)


class _Batch:
    def __init__(self) -> None:
        self.rows: list[tuple[FailedMessage, Sequence[Revision]]] = []
        self._bytes = 0

    def add(self, line: Line) -> None:
        self.rows.append((line.failure, line.revisions))
        contents = [line.failure.content, *(revision.content for revision in line.revisions)]
        self._bytes += sum(len(content.data) for content in contents)

    @property
    def is_full(self) -> bool:
        return len(self.rows) >= BATCH_ROWS or self._bytes >= BATCH_BYTES

    def clear(self) -> None:
        self.rows.clear()
        self._bytes = 0


def _read(text: bytes | None, told: Imported) -> Line | None:
    """None, and told, for a line that is none. An empty one is passed over."""
    if text is not None and not text.strip():
        return None
    try:
        if text is None:
            raise BadInput("line", f"is larger than {LARGEST_LINE_BYTES} bytes")
        return read_line(text)
    except BadInput as error:
        told.refuse(told.lines, str(error))
        return None


async def lines_of(pieces: AsyncIterator[bytes], largest: int = LARGEST_LINE_BYTES) -> AsyncIterator[bytes | None]:
    """Lines without their ends; None for one that is too large, of which no more than that is kept."""
    waiting: list[bytes] = []
    size = 0
    async for piece in pieces:
        first, *others = piece.split(b"\n")
        for part in (first, *others)[:-1]:
            yield b"".join((*waiting, part)) if size + len(part) <= largest else None
            waiting, size = [], 0
        rest = others[-1] if others else first
        size += len(rest)
        waiting = [*waiting, rest] if size <= largest else []
    if size:
        yield b"".join(waiting) if size <= largest else None
