"""What a replay would do, before anything is written or sent."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from holdfast.deadletter.outlet import Outlet
from holdfast.deadletter.replay.jobs import Options, Target
from holdfast.deadletter.replay.screening import TARGET_GONE, Screening
from holdfast.deadletter.selection import Selection
from holdfast.deadletter.store import DeskStore
from holdfast.errors import BadInput
from holdfast.model.failed_message import FailedMessage

PAGE = 1000


@dataclass(frozen=True, slots=True)
class Cause:
    """A group of failures, as far as it is selected."""

    fingerprint: str
    subscription: str
    reason: str


@dataclass(slots=True)
class Plan:
    """`selected` is how many failures are meant, and `skipped` how many of them will not be sent, by the reason."""

    options: Options
    selected: int = 0
    groups: Counter[Cause] = field(default_factory=Counter)
    destinations: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)

    @property
    def to_send(self) -> int:
        return self.selected - self.skipped.total()

    @property
    def seconds(self) -> float | None:
        """At the set rate; None without one."""
        return self.to_send / self.options.per_second if self.options.per_second else None


async def make_plan(store: DeskStore, outlet: Outlet, selection: Selection, screening: Screening) -> Plan:
    plan = Plan(screening.options)
    targets = _Targets(outlet)
    after = 0
    while page := await store.walk(selection, after, PAGE):
        after = page[-1].id
        for failure in page:
            await _count(plan, failure, screening, targets)
    return plan


async def _count(plan: Plan, failure: FailedMessage, screening: Screening, targets: _Targets) -> None:
    plan.selected += 1
    why_not = screening.why_not(failure)
    destination = screening.destination(failure)
    if not why_not and plan.options.target is not Target.SHADOW and not await targets.has(destination):
        why_not = TARGET_GONE
    if why_not:
        plan.skipped[why_not] += 1
        return
    plan.groups[Cause(failure.fingerprint, failure.subscription, failure.failure_reason)] += 1
    if destination:
        plan.destinations[destination] += 1


class _Targets:
    """Asks once for each."""

    def __init__(self, outlet: Outlet) -> None:
        self._outlet = outlet
        self._known: dict[str, bool] = {}

    async def has(self, target: str) -> bool:
        if target not in self._known:
            self._known[target] = await self._ask(target)
        return self._known[target]

    async def _ask(self, target: str) -> bool:
        try:
            return await self._outlet.exists(target)
        except BadInput:  # such a name cannot be that of anything
            return False
