"""Editing one failed message: revisions, what differs between them, and whether they would pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.clock import Clock
from holdfast.deadletter.audit import Action
from holdfast.deadletter.edits.changes import Change, Undo, change_content
from holdfast.deadletter.edits.checks import ContentCheck, Finding
from holdfast.deadletter.edits.json_patch import DoesNotApply
from holdfast.deadletter.failures import Edit
from holdfast.deadletter.redaction import Redaction
from holdfast.deadletter.store import DeskStore
from holdfast.errors import BadInput, Conflict, FailedPrecondition, NotFound
from holdfast.model.failed_message import Content, FailedMessage, Revision

ORIGINAL = 0
# Each is kept whole.
MOST_REVISIONS = 1000


@dataclass(frozen=True, slots=True)
class Edited:
    """`before` is what was sent until now, `after` the new revision."""

    failure: FailedMessage
    before: Content
    after: Revision


class Editing:
    def __init__(self, store: DeskStore, clock: Clock, checks: Sequence[ContentCheck] = ()) -> None:
        self._store = store
        self._clock = clock
        self._checks = checks

    # Looking.

    async def failure(self, failure_id: int) -> FailedMessage:
        failure = await self._store.get(failure_id)
        if failure is None:
            raise NotFound(f"there is no failure {failure_id}")
        return failure

    async def revisions(self, failure_id: int) -> Sequence[Revision]:
        """All of them, the original first, as number 0."""
        return await self._revisions_of(await self.failure(failure_id))

    async def contents(self, failure_id: int, *numbers: int | None) -> Sequence[Revision]:
        """These revisions; None is the newest."""
        revisions = await self.revisions(failure_id)
        return [_numbered(revisions, number) for number in numbers]

    async def newest(self, failure: FailedMessage) -> Content:
        if failure.revision == ORIGINAL:
            return failure.content
        return (await self._revisions_of(failure))[-1].content

    # Editing.

    async def edit(
        self,
        failure_id: int,
        change: Change,
        redaction: Redaction,
        *,
        actor: str,
        comment: str = "",
        version: int | None = None,
    ) -> Edited:
        """`version` is the one that the caller has seen: Conflict when there is another by now. Raises BadInput when
        the change does not apply, FailedPrecondition when it changes nothing or nothing is left to send, and
        PermissionDenied when it touches what the redaction hides."""
        failure = await self.failure(failure_id)
        if version is not None and version != failure.version:
            raise _changed(failure_id)
        revised = failure.revise()
        if revised.revision > MOST_REVISIONS:
            raise FailedPrecondition(f"failure {failure_id} has {MOST_REVISIONS} revisions, which is the most")
        before = await self.newest(failure)
        content = await self._changed(failure, before, change, redaction)
        if content == before:
            raise FailedPrecondition(f"failure {failure_id} is so already: nothing would change")
        now_ns = self._clock.now_ns()
        revision = Revision(failure_id, revised.revision, content, actor, comment, now_ns)
        (kept,) = await self._store.revise([Edit(revised, revision, edit_action(actor, revision, now_ns))])
        if not kept:
            raise _changed(failure_id)
        return Edited(await self.failure(failure_id), before, revision)

    async def validate(
        self, failure_id: int, redaction: Redaction, change: Change | None = None, number: int | None = None
    ) -> tuple[Content, Sequence[Finding]]:
        """Of a revision, or of what a change would make of the newest one."""
        failure = await self.failure(failure_id)
        content = _numbered(await self._revisions_of(failure), number).content
        if change is not None:
            content = await self._changed(failure, content, change, redaction)
        return content, await self.findings(failure, content)

    async def findings(self, failure: FailedMessage, content: Content) -> Sequence[Finding]:
        return [await check.check(failure, content) for check in self._checks]

    async def _changed(self, failure: FailedMessage, content: Content, change: Change, redaction: Redaction) -> Content:
        if isinstance(change, Undo):
            return _numbered(await self._revisions_of(failure), change.revision).content
        try:
            return change_content(change, content, redaction.check_untouched)
        except DoesNotApply as error:
            raise BadInput("change", str(error)) from None

    async def _revisions_of(self, failure: FailedMessage) -> list[Revision]:
        """Without one that was kept since: the row says which is the newest."""
        kept = await self._store.revisions(failure.id)
        original = Revision(failure.id, ORIGINAL, failure.content, "", "", failure.created_at_ns)
        return [original, *(revision for revision in kept if revision.number <= failure.revision)]


def edit_action(actor: str, revision: Revision, now_ns: int) -> Action:
    """Without a word of the content."""
    return Action(actor, "failure.edit", f"failures/{revision.failure_id}", {"revision": revision.number}, now_ns)


def _numbered(revisions: Sequence[Revision], number: int | None) -> Revision:
    if number is None:
        return revisions[-1]
    for revision in revisions:
        if revision.number == number:
            return revision
    raise NotFound(f"failure {revisions[0].failure_id} has no revision {number}")


def _changed(failure_id: int) -> Conflict:
    return Conflict(f"failure {failure_id} was changed by somebody else meanwhile: look at it again")
