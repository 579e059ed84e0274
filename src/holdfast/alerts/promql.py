"""A rule's condition in PromQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from holdfast.alerts.durations import written
from holdfast.alerts.rule import Excess, Growth, Increase, Level, Measure, Rule, Share
from holdfast.alerts.selector import Selector
from holdfast.metrics import desk, process
from holdfast.metrics.metric import Metric

# These count what is in the store: every desk on it reports the same, so theirs are not added up.
_OF_THE_STORE = {
    metric.name for metric in vars(desk).values() if isinstance(metric, Metric) and metric is not desk.REPLAYED
}


def condition(rule: Rule) -> str:
    return f"{expression(rule.measure, rule.by)} {rule.comparison} {rule.threshold:g}"


def expression(measure: Measure, by: Sequence[str], *, births: bool = True) -> str:
    """With `births`, a counter that appears is counted from 0 where it may be: Prometheus alone takes what it says
    first for old."""
    match measure:
        case Level(of):
            return f"max{_by(by)} ({of})"
        case Growth(of, window):
            return f"max{_by(by)} ({of} - {of} offset {written(window)})"
        case Increase(of, window, per_minute):
            value = _summed(of, _counted(of, window) if births else _increase(of, window), by)
            return f"{value} / {window / 60:g}" if per_minute else value
        case Share(part, whole, window, at_least):
            parts, wholes = (_summed(one, _increase(one, window), by) for one in (part, whole))
            return f"{parts} / ({wholes} >= {max(at_least, 1)})"
        case Excess(incoming, outgoing, window):
            came, gone = (_summed(one, _increase(one, window), by) for one in (incoming, outgoing))
            return f"{came} - ({gone} or {came} * 0)"
        case _:
            assert_never(measure)


def _increase(of: Selector, window: int) -> str:
    return f"increase({of}[{written(window)}])"


def _counted(of: Selector, window: int) -> str:
    """What was not there when the window began, although its process was, has begun within it."""
    ago = f"offset {written(window)}"
    born = f"{of} unless {of} {ago} and on (job, instance) {process.STARTED.name} {ago}"
    return f"{born} or {_increase(of, window)}"


def _summed(of: Selector, each: str, by: Sequence[str]) -> str:
    if of.metric in _OF_THE_STORE:
        return f"max{_by(by)} (sum{_by([*by, 'job', 'instance'])} ({each}))"
    return f"sum{_by(by)} ({each})"


def _by(labels: Sequence[str]) -> str:
    return f" by ({', '.join(labels)})" if labels else ""
