"""Editing a whole selection, seen before it is done: what is applied is what the preview showed.

The preview gives a digest: the rows that would change, in the version that was seen, signed together with what was
asked. Applying takes it back. So it needs no memory of previews, and any desk of the same store will do. Rows that
changed meanwhile are left out and told.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import zlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from holdfast.clock import Clock
from holdfast.deadletter.audit import Action
from holdfast.deadletter.edits.changes import Change, change_content
from holdfast.deadletter.edits.checks import Finding
from holdfast.deadletter.edits.editing import MOST_REVISIONS, Editing, edit_action
from holdfast.deadletter.edits.json_patch import DoesNotApply
from holdfast.deadletter.failures import Edit
from holdfast.deadletter.progress import Progress, Reasons
from holdfast.deadletter.redaction import Redaction
from holdfast.deadletter.selecting import selection_in_audit
from holdfast.deadletter.selection import Selection
from holdfast.deadletter.store import DeskStore
from holdfast.errors import BadInput, FailedPrecondition, PermissionDenied
from holdfast.model.failed_message import Content, FailedMessage, Revision

# A digest has a few bytes for each row, and a person looks at each preview.
MOST_ROWS = 10_000
# Rows in memory at once, and in one transaction; each may be 10 MB.
STEP = 100
# A check may ask another service about each.
MOST_CHECKED = 1000
SAMPLES = 5

CHANGED_SINCE = "was changed since the preview"
ERASED_SINCE = "was erased since the preview"


@dataclass(frozen=True, slots=True)
class Asked:
    """`told` is all of it as text: what the digest is for."""

    selection: Selection
    change: Change
    told: str


@dataclass(frozen=True, slots=True)
class Sample:
    failure_id: int
    before: Content
    after: Content
    findings: Sequence[Finding]


@dataclass(slots=True)
class Preview:
    """`passed` and `skipped` count findings by check; `complaints` say what is wrong with the others."""

    matched: int = 0
    unchanged: int = 0
    not_applied: Reasons = field(default_factory=Reasons)
    checked: int = 0
    complaints: Reasons = field(default_factory=Reasons)
    passed: dict[str, int] = field(default_factory=dict)
    skipped: Reasons = field(default_factory=Reasons)
    samples: list[Sample] = field(default_factory=list)
    rows: list[tuple[int, int]] = field(default_factory=list)  # id and version of those that would change
    digest: str = ""


@dataclass(slots=True)
class Applied:
    changed: int = 0
    left_out: Reasons = field(default_factory=Reasons)


class BulkEditing:
    def __init__(self, store: DeskStore, clock: Clock, editing: Editing) -> None:
        self._store = store
        self._clock = clock
        self._editing = editing

    async def preview(self, asked: Asked, redaction: Redaction) -> AsyncIterator[Progress | Preview]:
        redaction.check_selection(asked.selection)
        total = await self._store.count(asked.selection, MOST_ROWS + 1)
        if total > MOST_ROWS:
            raise BadInput("selection", f"means more than {MOST_ROWS} failures: narrow it, and patch part by part")
        preview, last_id = Preview(), 0
        while rows := await self._store.walk(asked.selection, last_id, STEP):
            for failure in rows:
                await self._look(failure, asked, redaction, preview)
            last_id = rows[-1].id
            yield Progress(preview.matched, max(total, preview.matched))
        preview.digest = await self._digest(asked, _packed(preview.rows))
        yield preview

    async def apply(
        self, asked: Asked, digest: str, redaction: Redaction, *, actor: str, comment: str = ""
    ) -> AsyncIterator[Progress | Applied]:
        """`digest` is that of a preview of the very same: FailedPrecondition when it is not."""
        redaction.check_selection(asked.selection)
        rows = await self._previewed(asked, digest)
        applied = Applied()
        for start in range(0, len(rows), STEP):
            await self._apply_step(dict(rows[start : start + STEP]), asked, redaction, (actor, comment), applied)
            yield Progress(min(start + STEP, len(rows)), len(rows))
        details = {
            "selection": selection_in_audit(asked.selection),
            "changed": applied.changed,
            "leftOut": applied.left_out.total,
        }
        await self._store.append(Action(actor, "failures.patch", "failures", details, self._clock.now_ns()))
        yield applied

    # One row, and one step.

    async def _look(self, failure: FailedMessage, asked: Asked, redaction: Redaction, preview: Preview) -> None:
        preview.matched += 1
        before = await self._editing.newest(failure)
        after = _changed(failure, before, asked.change, redaction)
        if isinstance(after, str):
            preview.not_applied.add(after, failure.id)
        elif after == before:
            preview.unchanged += 1
        else:
            preview.rows.append((failure.id, failure.version))
            findings = await self._check(failure, after, redaction, preview)
            if len(preview.samples) < SAMPLES:
                preview.samples.append(Sample(failure.id, before, after, findings))

    async def _check(
        self, failure: FailedMessage, content: Content, redaction: Redaction, preview: Preview
    ) -> Sequence[Finding]:
        if preview.checked == MOST_CHECKED:
            return []
        preview.checked += 1
        findings = await self._editing.findings(failure, content)
        for finding in findings:
            if finding.skipped:
                preview.skipped.add(f"{finding.check}: {redaction.text(finding.skipped, content)}", failure.id)
            elif not finding.complaints:
                preview.passed[finding.check] = preview.passed.get(finding.check, 0) + 1
            for complaint in finding.complaints:
                told = redaction.text(complaint.expected, content)
                preview.complaints.add(f"{finding.check}: {complaint.path or 'message'}: {told}", failure.id)
        return findings

    async def _apply_step(
        self, versions: dict[int, int], asked: Asked, redaction: Redaction, by: tuple[str, str], applied: Applied
    ) -> None:
        found = await self._rows(tuple(versions))
        for failure_id in versions.keys() - {failure.id for failure in found}:
            applied.left_out.add(ERASED_SINCE, failure_id)
        edits = []
        for failure in found:
            edit = await self._edit(failure, versions[failure.id], asked, redaction, by)
            if isinstance(edit, Edit):
                edits.append(edit)
            else:
                applied.left_out.add(edit, failure.id)
        for edit, kept in zip(edits, await self._store.revise(edits) if edits else (), strict=True):
            if kept:
                applied.changed += 1
            else:
                applied.left_out.add(CHANGED_SINCE, edit.failure.id)

    async def _rows(self, ids: Sequence[int]) -> Sequence[FailedMessage]:
        """A page may be shorter than asked for, where rows are large."""
        found: list[FailedMessage] = []
        while rows := await self._store.walk(Selection(ids=ids), found[-1].id if found else 0, STEP):
            found += rows
        return found

    async def _edit(
        self, failure: FailedMessage, version: int, asked: Asked, redaction: Redaction, by: tuple[str, str]
    ) -> Edit | str:
        """Or why not."""
        if failure.version != version:
            return CHANGED_SINCE
        content = _changed(failure, await self._editing.newest(failure), asked.change, redaction)
        if isinstance(content, str):
            return content
        revised, now_ns, (actor, comment) = failure.revise(), self._clock.now_ns(), by
        revision = Revision(failure.id, revised.revision, content, actor, comment, now_ns)
        return Edit(revised, revision, edit_action(actor, revision, now_ns))

    # The digest.

    async def _digest(self, asked: Asked, rows: bytes) -> str:
        told = b"\0".join((b"patch", asked.told.encode(), rows))
        signature = hmac.digest(await self._store.secret(), told, "sha256")
        return f"{base64.urlsafe_b64encode(signature).decode()}.{rows.decode()}"

    async def _previewed(self, asked: Asked, digest: str) -> list[tuple[int, int]]:
        rows = digest.rpartition(".")[2].encode("ascii", "replace")
        if not hmac.compare_digest((await self._digest(asked, rows)).encode(), digest.encode("ascii", "replace")):
            raise FailedPrecondition("digest: is of no preview of this selection and this change: preview it first")
        return _unpacked(rows)


def _changed(failure: FailedMessage, before: Content, change: Change, redaction: Redaction) -> Content | str:
    """Or why it cannot be changed so. Reasons quote no value."""
    try:
        if failure.revise().revision > MOST_REVISIONS:
            return f"has {MOST_REVISIONS} revisions, which is the most"
    except FailedPrecondition:
        return f"is {failure.status}" if not failure.is_out else "is out on a retry"
    try:
        return change_content(change, before, redaction.check_untouched)
    except (DoesNotApply, PermissionDenied) as error:
        return str(error)


def _packed(rows: Sequence[tuple[int, int]]) -> bytes:
    """Ids as distances, because those are short."""
    words, last = [], 0
    for failure_id, version in rows:
        words.append(f"{failure_id - last}:{version}")
        last = failure_id
    return base64.urlsafe_b64encode(zlib.compress(",".join(words).encode(), 9))


def _unpacked(packed: bytes) -> list[tuple[int, int]]:
    """Of what we have signed."""
    try:
        words = zlib.decompress(base64.urlsafe_b64decode(packed)).decode()
    except (binascii.Error, zlib.error) as error:
        raise BadInput("digest", "is damaged") from error
    rows: list[tuple[int, int]] = []
    last = 0
    for word in words.split(",") if words else ():
        distance, version = map(int, word.split(":"))
        last += distance
        rows.append((last, version))
    return rows
