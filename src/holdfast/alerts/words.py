"""What a rule says to people. Limits are put in where they are used, so that a changed one is told as it is."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from holdfast.alerts.rule import Rule, Share, selectors_of, window_of

# What a summary may name besides the labels that are kept.
LIMIT, FOR, WINDOW = "limit", "for", "window"


def summary(rule: Rule, labels: Mapping[str, str]) -> str:
    """With the values of the labels; a label without one stays as it is."""
    known = {LIMIT: limit(rule), FOR: _lasting(rule.for_seconds), WINDOW: _lasting(window_of(rule.measure)), **labels}
    return re.sub(r"{(\w+)}", lambda found: known.get(found[1], found[0]), rule.summary)


def limit(rule: Rule) -> str:
    """A share in percent, a time in words."""
    metric = selectors_of(rule.measure)[0].metric
    if isinstance(rule.measure, Share) or metric.endswith("_rate"):
        return f"{rule.threshold * 100:g} %"
    if metric.endswith("_seconds") and rule.threshold == int(rule.threshold):
        return _lasting(int(rule.threshold))
    return f"{rule.threshold:g}"


def measured(rule: Rule, value: float) -> str:
    """As the limit is told, but a time in seconds: it is never a round one."""
    metric = selectors_of(rule.measure)[0].metric
    if isinstance(rule.measure, Share) or metric.endswith("_rate"):
        return f"{value * 100:.4g} %"
    unit = " seconds" if metric.endswith("_seconds") else " a minute" if getattr(rule.measure, "per_minute", 0) else ""
    return f"{round(value, 3):.10g}{unit}"


def command(rule: Rule, labels: Mapping[str, str]) -> str:
    """Ready to be pasted into a shell."""
    return re.sub(r"{(\w+)}", lambda found: shlex.quote(labels.get(found[1], found[0])), rule.command)


def _lasting(seconds: int) -> str:
    number, unit = next(
        (seconds // size, unit)
        for unit, size in (("hour", 3600), ("minute", 60), ("second", 1))
        if seconds % size == 0 and (seconds or size == 1)
    )
    return f"{number} {unit}" if number == 1 else f"{number} {unit}s"
