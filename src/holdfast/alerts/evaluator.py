"""Judges the rules every few seconds by what this process reports of itself, and tells what has begun and what is over.

Nothing else is needed: no Prometheus, no other process. What it knows survives a kill (AlertStates): who was told is
not told again, and what was pending stays so.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence, Set

from holdfast.alerts.alert import Alert, AlertSink, Severity
from holdfast.alerts.history import History, snapshot_of
from holdfast.alerts.judging import Reading, judge, parted, without_gap
from holdfast.alerts.rule import Level, Rule, selectors_of, window_of
from holdfast.alerts.states import AlertStates, Snapshot, State, Subject
from holdfast.alerts.words import command, limit, measured, summary
from holdfast.clock import NANOSECONDS, Clock
from holdfast.errors import HoldfastError
from holdfast.metrics import alerts as metrics
from holdfast.metrics.metric import Family, Sample

log = logging.getLogger("holdfast.alerts")

# What the metrics of this process say now.
Read = Callable[[], Awaitable[Iterable[Family]]]

# An evaluation may be so many intervals late before that counts as a gap in which nobody looked.
LATEST = 3


# What has just happened shows in the metrics by then: the desk reads its totals every 3 seconds.
EARLY_NS = 3 * NANOSECONDS


class Evaluator:
    """`resume` comes first, then `run`. `runbook_url` is the page that has the rules' sections."""

    def __init__(
        self,
        rules: Sequence[Rule],
        read: Read,
        states: AlertStates,
        sink: AlertSink,
        clock: Clock,
        interval_seconds: float,
        runbook_url: str = "",
    ) -> None:
        self._rules = {rule.name: rule for rule in rules}
        self._holds_for = {rule.name: rule.for_seconds for rule in rules}
        self._read = read
        self._store = states
        self._sink = sink
        self._clock = clock
        self._interval_ns = round(interval_seconds * NANOSECONDS)
        self._runbook_url = runbook_url
        self._wanted = {one.metric for rule in rules for one in selectors_of(rule.measure)}
        windowed = [rule.measure for rule in rules if not isinstance(rule.measure, Level)]
        self._remembered = {one.metric for measure in windowed for one in selectors_of(measure)}
        self._told: set[str] = set()  # metrics that this process has reported
        self._history = History(max(map(window_of, windowed), default=0), 2 * interval_seconds)
        self._states: Mapping[Subject, State] = {}
        self._asked_early = asyncio.Event()
        self._last_ns: int | None = None  # of the last evaluation, also by a process before this one

    async def resume(self, told: Iterable[Alert] = ()) -> None:
        """With what the process before this one knew. `told` are alerts that people believe to fire: one that it was
        killed before it could note must end for them too."""
        kept = await self._store.load()
        for snapshot in kept.snapshots:
            self._history.add(snapshot)
        self._states = {**{_subject(alert): _state(alert) for alert in told}, **kept.states}
        self._last_ns = self._history.newest_ns

    def look_soon(self) -> None:
        """Something has happened that a rule may tell of at once. Once in an interval that moves the next look up."""
        self._asked_early.set()

    async def run(self) -> None:
        """For ever. Trouble with one evaluation is told, and the next one comes all the same."""
        due_ns = self._clock.now_ns()
        while True:
            due_ns = max(due_ns + self._interval_ns, self._clock.now_ns())  # what was missed is not made up for
            await self._sleep_until(due_ns)
            await self._evaluate_and_go_on()

    async def _sleep_until(self, due_ns: int) -> None:
        """With one early look in between, where somebody asks for it."""
        asked = asyncio.ensure_future(self._asked_early.wait())
        slept = asyncio.ensure_future(self._clock.sleep_until(due_ns))
        try:
            await asyncio.wait({asked, slept}, return_when=asyncio.FIRST_COMPLETED)
            self._asked_early.clear()
            early_ns = self._clock.now_ns() + EARLY_NS
            if asked.done() and early_ns < due_ns:
                await self._clock.sleep_until(early_ns)
                await self._evaluate_and_go_on()
            await slept
        finally:
            asked.cancel()
            slept.cancel()

    async def _evaluate_and_go_on(self) -> None:
        try:
            await self.evaluate()
        except HoldfastError as error:
            log.error("alerts could not be judged", extra={"fields": {"error": str(error)}})
        except Exception:  # a fault in one source of metrics must not silence every alert
            log.exception("alerts could not be judged")

    async def evaluate(self) -> None:
        """Once. The sink knows before the state is saved: a crash in between tells it twice, never not at all."""
        families = [*await self._read()]
        now_ns = self._clock.now_ns()
        untold = self._untold({family.metric.name for family in families})
        now = snapshot_of(families, now_ns, self._wanted)
        remembered = {one: value for one, value in now.values.items() if one.metric in self._remembered}
        self._history.add(Snapshot(now_ns, remembered))
        passed = await self._passed(Reading(now.values, self._history), untold)
        known, unknown = parted(self._watched_states(now_ns), untold)
        judged = judge(passed, self._holds_for, known, now_ns)
        if judged.begun or judged.ended:
            told = [self.alert_of(subject, state) for subject, state in judged.begun.items()]
            told += [self.alert_of(subject, state, now_ns) for subject, state in judged.ended.items()]
            await self._sink.accept(told)
        self._states = judged.states | without_gap(unknown, now_ns - (self._last_ns or now_ns))
        self._last_ns = now_ns
        await self._store.save(Snapshot(now_ns, remembered), self._states, self._history.forget_ns)

    def _untold(self, told: Set[str]) -> frozenset[str]:
        """The rules of which nothing is known now. A source reports its metrics also where they have no series, so one
        that is missing has failed or hangs, as the desk's does while its database is away: nothing is over by that."""
        self._told |= told
        missing = self._told - told
        return frozenset(
            name
            for name, rule in self._rules.items()
            if any(one.metric in missing for one in selectors_of(rule.measure))
        )

    async def _passed(self, reading: Reading, untold: Set[str]) -> dict[Subject, float]:
        found: dict[Subject, float] = {}
        for name, rule in self._rules.items():
            if name not in untold:
                found |= reading.passed(rule)
            await asyncio.sleep(0)  # with a thousand subscriptions all rules together take tens of milliseconds
        return found

    def _watched_states(self, now_ns: int) -> Mapping[Subject, State]:
        gap_ns = now_ns - self._last_ns - self._interval_ns if self._last_ns is not None else 0
        if gap_ns <= (LATEST - 1) * self._interval_ns:
            return self._states
        log.warning("nobody judged the alerts for a while", extra={"fields": {"seconds": gap_ns // NANOSECONDS}})
        return without_gap(self._states, gap_ns)

    def alert_of(self, subject: Subject, state: State, ended_ns: int | None = None) -> Alert:
        """While it is pending it begins when its condition did."""
        began_ns = state.since_ns if state.firing_ns is None else state.firing_ns
        labels = dict(subject.labels)
        rule = self._rules.get(subject.rule)
        said = summary(rule, labels) if rule else f"{subject.rule} is not judged any more"
        details = _details(rule, labels, state.value, self._runbook_url) if rule else {}
        return Alert(subject.rule, subject.severity, labels, said, began_ns, ended_ns, state.value, details)

    # What it tells of itself.

    def firing(self) -> list[Alert]:
        states = self._states.items()
        return [self.alert_of(subject, state) for subject, state in states if state.firing_ns is not None]

    @property
    def states(self) -> Mapping[Subject, State]:
        return self._states

    def families(self) -> list[Family]:
        firing = dict.fromkeys(map(str, Severity), 0)
        for subject, state in self._states.items():
            firing[subject.severity] += state.firing_ns is not None
        found = [Family(metrics.FIRING, [Sample((severity,), count) for severity, count in firing.items()])]
        if self._last_ns is not None:
            found.append(Family(metrics.LAST_EVALUATION, [Sample((), self._last_ns / NANOSECONDS)]))
        return found


def _details(rule: Rule, labels: Mapping[str, str], value: float, runbook_url: str) -> dict[str, str]:
    found = {"runbook": f"{runbook_url}#{rule.runbook}", "measured": measured(rule, value), "limit": limit(rule)}
    return found | ({"next": command(rule, labels)} if rule.command else {})


def _subject(alert: Alert) -> Subject:
    return Subject(alert.rule, alert.severity, tuple(sorted(alert.labels.items())))


def _state(alert: Alert) -> State:
    return State(alert.started_at_ns, alert.started_at_ns, alert.value or 0.0)
