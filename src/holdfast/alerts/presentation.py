"""Rules as the API gives them, and in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, assert_never

from holdfast.alerts import words
from holdfast.alerts.durations import written
from holdfast.alerts.prometheus import PREFIX
from holdfast.alerts.promql import condition
from holdfast.alerts.rule import Excess, Growth, Increase, Level, Rule, Share, window_of


def presented(rule: Rule, runbook_url: str) -> dict[str, Any]:
    return {
        "rule": rule.name,
        "severity": str(rule.severity),
        "firesWhen": in_words(rule),
        "measure": type(rule.measure).__name__.lower(),
        "compare": str(rule.comparison),
        "threshold": rule.threshold,
        "forSeconds": rule.for_seconds,
        "windowSeconds": window_of(rule.measure),
        "labels": [*rule.by],
        "criticalOnly": rule.critical_only,
        "summary": words.summary(rule, {}),
        "runbook": f"{runbook_url}#{rule.runbook}",
        "command": rule.command,
        "prometheusAlert": f"{PREFIX}{rule.name}",
        "promql": condition(rule),
    }


def in_words(rule: Rule, quote: str = "") -> str:
    """`quote` goes around the metrics."""

    def said(what: object) -> str:
        return f"{quote}{what}{quote}"

    limit = f"{_COMPARED[rule.comparison]} {words.limit(rule)}"
    match rule.measure:
        case Level(of):
            return f"{said(of)} is {limit}"
        case Growth(of, window):
            return f"{said(of)} has grown by {limit} within {written(window)}"
        case Increase(of, window, per_minute):
            each = " a minute, over" if per_minute else " within"
            return f"{said(of)} grows by {limit}{each} {written(window)}"
        case Share(part, whole, window, at_least):
            return f"{said(part)} is {limit} of {said(whole)} over {written(window)}, of {at_least} or more"
        case Excess(incoming, outgoing, window):
            return f"{said(incoming)} grows faster than {said(outgoing)} within {written(window)}, by {limit}"
        case _:
            assert_never(rule.measure)


def for_how_long(rule: Rule) -> str:
    return written(rule.for_seconds) if rule.for_seconds else "at once"


def about(rule: Rule) -> str:
    """What there is one alert of."""
    kept = ", ".join(rule.by)
    return f"critical {kept}" if kept and rule.critical_only else kept


_COMPARED: Mapping[str, str] = {">": "more than", ">=": "at least", "<": "less than"}
