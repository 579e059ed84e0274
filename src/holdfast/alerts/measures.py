"""What a rule of the user's own measures, read from its table."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.alerts.rule import Excess, Growth, Increase, Level, Measure, Share, selectors_of
from holdfast.alerts.selector import Selector
from holdfast.alerts.tables import Table, close_to
from holdfast.errors import SettingError
from holdfast.metrics.metric import Kind, Metric
from holdfast.metrics.table import METRICS

BY_NAME = {metric.name: metric for metric in METRICS}

SHORTEST_WINDOW, LONGEST_WINDOW = 60, 3600
DEFAULT_WINDOW = 300
DEFAULT_AT_LEAST = 20

KINDS = ("level", "growth", "increase", "share", "excess")


def measure_from(table: Table, more: Sequence[str]) -> tuple[Measure, tuple[str, ...]]:
    """And the labels that are kept. `more` are other keys that the table may have."""
    kind = table.choice("measure", KINDS)
    window = table.duration("window", DEFAULT_WINDOW, SHORTEST_WINDOW, LONGEST_WINDOW)
    measure: Measure
    match kind:
        case "level":
            keys: tuple[str, ...] = ("of",)
            measure = Level(_selector(table, "of", Kind.GAUGE))
        case "growth":
            keys = ("of", "window")
            measure = Growth(_selector(table, "of", Kind.GAUGE), window)
        case "increase":
            keys = ("of", "window", "per_minute")
            per_minute = table.flag("per_minute", default=False)
            measure = Increase(_selector(table, "of", Kind.COUNTER), window, per_minute)
        case "share":
            keys = ("part", "whole", "window", "at_least")
            part, whole = _selector(table, "part", Kind.COUNTER), _selector(table, "whole", Kind.COUNTER)
            measure = Share(part, whole, window, table.whole("at_least", DEFAULT_AT_LEAST))
        case _:
            keys = ("incoming", "outgoing", "window")
            incoming, outgoing = (_selector(table, name, Kind.COUNTER) for name in keys[:2])
            measure = Excess(incoming, outgoing, window)
    table.only((*more, "measure", "by", *keys), because=f"for a {kind} ")
    return measure, _kept(table, measure)


def _selector(table: Table, name: str, kind: Kind) -> Selector:
    text = table.text(name)
    try:
        selector = Selector.parse(text)
    except ValueError as error:
        raise SettingError(table.key(name), text, str(error)) from error
    metric = BY_NAME.get(selector.metric)
    if metric is None:
        close = close_to(selector.metric, BY_NAME)
        raise SettingError(table.key(name), text, f"there is no such metric{close or '; docs/metrics.md lists them'}")
    if metric.kind is not kind:
        raise SettingError(table.key(name), text, f"must be a {kind}, and {metric.name} is a {metric.kind}")
    for matcher in selector.matchers:
        if matcher.label not in metric.labels:
            raise SettingError(table.key(name), text, f"{metric.name} has no label {matcher.label}{_has(metric)}")
    return selector


def _kept(table: Table, measure: Measure) -> tuple[str, ...]:
    """Unless told otherwise, a gauge's labels, and the subscription of others: most labels of a counter are what is
    added up."""
    metrics = [BY_NAME[one.metric] for one in selectors_of(measure)]
    common = [label for label in metrics[0].labels if all(label in metric.labels for metric in metrics)]
    if "by" not in table.raw:
        is_gauge = metrics[0].kind is Kind.GAUGE
        return tuple(label for label in common if is_gauge or label == "subscription")
    wanted = table.raw["by"]
    if wanted == []:
        return ()
    for label in table.texts("by", "must be a list of labels"):
        if label not in common:
            lacking = next(metric for metric in metrics if label not in metric.labels)
            raise SettingError(table.key("by"), wanted, f"{lacking.name} has no label {label}{_has(lacking)}")
    return tuple(wanted)


def _has(metric: Metric) -> str:
    return f"; it has {', '.join(metric.labels)}" if metric.labels else "; it has none"
