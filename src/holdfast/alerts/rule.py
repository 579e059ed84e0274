"""What a rule is: something measured, a limit, and how long it must be passed before somebody is told. Values only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any

from holdfast.alerts.alert import Severity
from holdfast.alerts.selector import Matcher, Selector


class Comparison(StrEnum):
    ABOVE = ">"
    AT_LEAST = ">="
    BELOW = "<"

    def holds(self, value: float, threshold: float) -> bool:
        match self:
            case Comparison.ABOVE:
                return value > threshold
            case Comparison.AT_LEAST:
                return value >= threshold
            case Comparison.BELOW:
                return value < threshold


# What can be measured. A window is in seconds.


@dataclass(frozen=True, slots=True)
class Level:
    """What a gauge says: the largest, where several series have the labels that are kept."""

    of: Selector


@dataclass(frozen=True, slots=True)
class Growth:
    """How much more a gauge says than a window ago."""

    of: Selector
    window: int


@dataclass(frozen=True, slots=True)
class Increase:
    """How much a counter has grown within the window, or on average in each minute of it."""

    of: Selector
    window: int
    per_minute: bool = False


@dataclass(frozen=True, slots=True)
class Share:
    """How much of what `whole` has counted within the window is of `part`, from 0 to 1. Of fewer than `at_least`
    nothing is said: one bad request at night would be all of them."""

    part: Selector
    whole: Selector
    window: int
    at_least: int


@dataclass(frozen=True, slots=True)
class Excess:
    """How much more has come in than has gone out within the window."""

    incoming: Selector
    outgoing: Selector
    window: int


Measure = Level | Growth | Increase | Share | Excess


def selectors_of(measure: Measure) -> list[Selector]:
    found = [getattr(measure, one.name) for one in fields(measure)]
    return [one for one in found if isinstance(one, Selector)]


def window_of(measure: Measure) -> int:
    return 0 if isinstance(measure, Level) else measure.window


def with_selectors(measure: Measure, change: Callable[[Selector], Selector]) -> Measure:
    found = {one.name: getattr(measure, one.name) for one in fields(measure)}
    changes: dict[str, Any] = {name: change(one) for name, one in found.items() if isinstance(one, Selector)}
    return replace(measure, **changes)


def narrowed(measure: Measure, matcher: Matcher) -> Measure:
    """Only the series that the matcher lets through."""
    return with_selectors(measure, lambda selector: selector.with_(matcher))


@dataclass(frozen=True, slots=True)
class Rule:
    """`by` are the labels that are kept: there is one alert for each of their values. `critical_only` keeps to the
    subscriptions that the user calls critical. `summary` may have {label} of those kept, {limit}, {for} and {window}.
    `runbook` is a section of docs/runbook.md, `command` what to run first; it may have {label} too."""

    name: str
    severity: Severity
    measure: Measure
    threshold: float
    summary: str
    runbook: str
    comparison: Comparison = Comparison.ABOVE
    for_seconds: int = 0
    by: tuple[str, ...] = ()
    critical_only: bool = False
    command: str = ""
