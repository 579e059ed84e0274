"""From what the metrics say to which alerts are pending and which fire, by Prometheus' rules: a condition that holds
makes an alert pending, and firing once it has held for as long as the rule demands; one that does not ends it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Set
from dataclasses import replace
from typing import NamedTuple, assert_never

from holdfast.alerts.history import History
from holdfast.alerts.rule import Excess, Growth, Increase, Level, Rule, Share
from holdfast.alerts.selector import Selector
from holdfast.alerts.states import Labels, Series, State, Subject
from holdfast.clock import NANOSECONDS
from holdfast.metrics.table import METRICS

_LABELS_OF = {metric.name: metric.labels for metric in METRICS}


class Reading:
    """What the metrics say now, and what they said lately."""

    def __init__(self, now: Mapping[Series, float], history: History) -> None:
        self._history = history
        self._now = now
        self._gauges = _by_metric(series for series in now if series.labels or not _LABELS_OF[series.metric])
        self._counters = _by_metric(history.counters())

    def passed(self, rule: Rule) -> dict[Subject, float]:
        """What the rule's limit is passed by now, and the values."""
        return {
            Subject(rule.name, rule.severity, labels): value
            for labels, value in self.measured(rule).items()
            if rule.comparison.holds(value, rule.threshold)
        }

    def measured(self, rule: Rule) -> dict[Labels, float]:
        by = tuple(sorted(rule.by))
        match rule.measure:
            case Level(of):
                return _largest((_kept(one, by), self._now[one]) for one in self._matching(of, self._gauges))
            case Growth(of, window):
                grown = self._history.growths(self._matching(of, self._gauges), window)
                return _largest((_kept(one, by), value) for one, value in grown.items())
            case Increase(of, window, per_minute):
                divisor = window / 60 if per_minute else 1
                return {labels: value / divisor for labels, value in self._increases(of, window, by).items()}
            case Share(part, whole, window, at_least):
                parts = self._increases(part, window, by)
                wholes = self._increases(whole, window, by)
                return {
                    labels: value / wholes[labels]
                    for labels, value in parts.items()
                    if wholes.get(labels, 0) >= max(at_least, 1)
                }
            case Excess(incoming, outgoing, window):
                out = self._increases(outgoing, window, by)
                found = self._increases(incoming, window, by)
                return {labels: value - out.get(labels, 0.0) for labels, value in found.items()}
            case _:
                assert_never(rule.measure)

    def _increases(self, of: Selector, window: int, by: tuple[str, ...]) -> dict[Labels, float]:
        sums: dict[Labels, float] = defaultdict(float)
        for series, value in self._history.increases(self._matching(of, self._counters), window).items():
            sums[_kept(series, by)] += value
        return sums

    def _matching(self, of: Selector, among: Mapping[str, list[Series]]) -> list[Series]:
        found = among.get(of.metric, [])
        if not of.matchers:
            return found
        names = _LABELS_OF[of.metric]
        return [one for one in found if of.matches(dict(zip(names, one.labels, strict=True)))]


def _by_metric(found: Iterable[Series]) -> dict[str, list[Series]]:
    groups: dict[str, list[Series]] = defaultdict(list)
    for series in found:
        groups[series.metric].append(series)
    return groups


def _kept(series: Series, by: tuple[str, ...]) -> Labels:
    if not by:
        return ()
    names = _LABELS_OF[series.metric]
    return tuple((label, series.labels[names.index(label)]) for label in by)


def _largest(found: Iterable[tuple[Labels, float]]) -> dict[Labels, float]:
    largest: dict[Labels, float] = {}
    for labels, value in found:
        if labels not in largest or value > largest[labels]:
            largest[labels] = value
    return largest


class Judged(NamedTuple):
    """`begun` and `ended` are what people are told."""

    states: dict[Subject, State]
    begun: dict[Subject, State]
    ended: dict[Subject, State]


def judge(
    passed: Mapping[Subject, float], holds_for: Mapping[str, int], states: Mapping[Subject, State], now_ns: int
) -> Judged:
    """`holds_for` has seconds by rule."""
    after: dict[Subject, State] = {}
    begun: dict[Subject, State] = {}
    for subject, value in passed.items():
        before = states.get(subject)
        since_ns = min(before.since_ns, now_ns) if before else now_ns
        state = State(since_ns, before.firing_ns if before else None, value)
        if state.firing_ns is None and now_ns - since_ns >= holds_for[subject.rule] * NANOSECONDS:
            state = begun[subject] = replace(state, firing_ns=now_ns)
        after[subject] = state
    ended = {
        subject: state for subject, state in states.items() if state.firing_ns is not None and subject not in after
    }
    return Judged(after, begun, ended)


def parted(states: Mapping[Subject, State], rules: Set[str]) -> tuple[dict[Subject, State], dict[Subject, State]]:
    """Those of all other rules, and those of these."""
    others = {subject: state for subject, state in states.items() if subject.rule not in rules}
    return others, {subject: state for subject, state in states.items() if subject.rule in rules}


def without_gap(states: Mapping[Subject, State], gap_ns: int) -> dict[Subject, State]:
    """While nobody looked, nobody knows that a condition held: that time does not count for what is pending. What fires
    goes on firing, until somebody sees that it is over."""
    return {
        subject: replace(state, since_ns=state.since_ns + gap_ns) if state.firing_ns is None else state
        for subject, state in states.items()
    }
