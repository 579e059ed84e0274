"""The queries, put together from the table of metrics and the alert rules: a name that is not there cannot be asked."""

from __future__ import annotations

from dataclasses import replace

from deploy.grafana.source.parts import HERE, RULE, SUBSCRIPTION
from holdfast.alerts.promql import expression
from holdfast.alerts.rule import Share, with_selectors
from holdfast.alerts.selector import Matcher, Selector
from holdfast.metrics.metric import Kind, Metric

# Grafana puts in how far back a rate must look: four scrapes, or more when one looks at a longer time.
_WINDOW = "$__rate_interval"

_HERE = [Matcher("job", "=~", "$job"), Matcher("instance", "=~", "$instance")]


def of(metric: Metric, more: str = "") -> str:
    """The series of the processes, and of the subscriptions, that were chosen."""
    subscription = SUBSCRIPTION if "subscription" in metric.labels else ""
    return f"{metric.name}{{{','.join(one for one in (HERE, subscription, more) if one)}}}"


def anywhere(metric: Metric, more: str = "") -> str:
    """Of all subscriptions: for dashboards on which none can be chosen."""
    return f"{metric.name}{{{','.join(one for one in (HERE, more) if one)}}}"


def rate(series: str, *by: str) -> str:
    return f"sum{_by(*by)} (rate({series}[{_WINDOW}]))"


def sum_of(series: str, *by: str) -> str:
    return f"sum{_by(*by)} ({series})"


def max_of(series: str, *by: str) -> str:
    return f"max{_by(*by)} ({series})"


def of_store(each: str, *by: str) -> str:
    """What every desk on one store says alike: added up in each process, the largest of them."""
    return f"max{_by(*by)} (sum{_by(*by, 'job', 'instance')} ({each}))"


def increase(series: str, window: str = _WINDOW) -> str:
    return f"increase({series}[{window}])"


def quantile(share: float, metric: Metric, *by: str, everywhere: bool = False) -> str:
    """Of a histogram."""
    if metric.kind is not Kind.HISTOGRAM:
        raise ValueError(f"{metric.name} is no histogram")
    series = (anywhere if everywhere else of)(replace(metric, name=f"{metric.name}_bucket"))
    return f"histogram_quantile({share:g}, {rate(series, *by, 'le')})"


def measured(rule_name: str, *, everywhere: bool = False) -> str:
    """What an alert rule compares with its limit, so that the line and the curve are of one kind. A share is told of
    however few: it is the alert that must not go off at night for one of one."""
    rule = RULE[rule_name]
    measure = rule.measure
    matchers = [*_HERE, *([Matcher("subscription", "=~", "$subscription")] if _chosen(rule.by, everywhere) else [])]
    measure = with_selectors(measure, lambda selector: _narrowed(selector, matchers))
    if isinstance(measure, Share):
        return _share(measure, rule.by)
    return expression(measure, rule.by)


def _narrowed(selector: Selector, matchers: list[Matcher]) -> Selector:
    return replace(selector, matchers=(*matchers, *selector.matchers))


def _chosen(by: tuple[str, ...], everywhere: bool) -> bool:
    return "subscription" in by and not everywhere


def _share(measure: Share, by: tuple[str, ...]) -> str:
    """Also where no series of the part is there yet."""
    window = f"{measure.window // 60}m"
    part, whole = (f"sum{_by(*by)} ({increase(str(one), window)})" for one in (measure.part, measure.whole))
    return f"({part} or {whole} * 0) / ({whole} > 0)"


def _by(*labels: str) -> str:
    return f" by ({', '.join(labels)})" if labels else ""
