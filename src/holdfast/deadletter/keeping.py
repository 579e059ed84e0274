"""Legal hold and erasure of whole selections, counted before they are done."""

from __future__ import annotations

from dataclasses import dataclass, replace

from holdfast.clock import Clock
from holdfast.deadletter.audit import Action
from holdfast.deadletter.redaction import Redaction
from holdfast.deadletter.selecting import selection_in_audit
from holdfast.deadletter.selection import Selection
from holdfast.deadletter.store import DeskStore

# Above what any desk holds: here every one must be counted.
ALL = 2**62


@dataclass(frozen=True, slots=True)
class Meant:
    """How many a selection means, and how many of these are under legal hold."""

    number: int
    held: int

    @property
    def free(self) -> int:
        return self.number - self.held


class Keeping:
    def __init__(self, store: DeskStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def meant(self, selection: Selection, redaction: Redaction) -> Meant:
        redaction.check_selection(selection)
        number = await self._store.count(selection, ALL)
        if selection.legal_hold is not None:
            return Meant(number, number if selection.legal_hold else 0)
        return Meant(number, await self._store.count(replace(selection, legal_hold=True), ALL))

    async def hold(self, selection: Selection, on: bool, redaction: Redaction, actor: str) -> int:
        """Gives how many it changed."""
        redaction.check_selection(selection)
        return await self._store.hold(selection, on, self._action(actor, "hold" if on else "release", selection))

    async def erase(self, selection: Selection, confirm: int, redaction: Redaction, actor: str) -> int:
        """`confirm` is how many the caller expects to be erased: those under legal hold stay. Conflict when it would
        be another number; then nothing is erased."""
        redaction.check_selection(selection)
        return await self._store.erase(selection, self._action(actor, "erase", selection), confirm)

    def _action(self, actor: str, verb: str, selection: Selection) -> Action:
        """The store adds how many there were."""
        told = {"selection": selection_in_audit(selection)}
        return Action(actor, f"failures.{verb}", "failures", told, self._clock.now_ns())
