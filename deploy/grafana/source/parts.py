"""What the dashboards have in common: variables, queries, panels, and the limits of the alert rules as lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.models.common import (
    GraphThresholdsStyleMode,
    LegendDisplayMode,
    LegendPlacement,
    SortOrder,
    StackingMode,
    TooltipDisplayMode,
)
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DashboardLinkType,
    DataSourceRef,
    FieldColorModeId,
    Threshold,
    ThresholdsMode,
    VariableRefresh,
    VariableSort,
)

from holdfast.alerts.alert import Severity
from holdfast.alerts.rule import Comparison, Rule
from holdfast.alerts.table import RULES
from holdfast.metrics import process
from holdfast.metrics.metric import Metric

DATASOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
TAG = "holdfast"

# Which processes and subscriptions are looked at: the variables at the top of each dashboard.
HERE = 'job=~"$job",instance=~"$instance"'
SUBSCRIPTION = 'subscription=~"$subscription"'

WIDTH = 24
NUMBER_WIDTH, NUMBER_HEIGHT = 4, 4
CHART_WIDTH, CHART_HEIGHT = 12, 8

GREEN, YELLOW, RED = "green", "yellow", "red"
_COLORS = {Severity.WARNING: YELLOW, Severity.CRITICAL: RED}

RULE = {rule.name: rule for rule in RULES}


@dataclass(frozen=True, slots=True)
class Query:
    """`legend` may have {{label}}. An instant one is asked for now alone."""

    expr: str
    legend: str = ""
    instant: bool = False


# Dashboards.


def board(
    uid: str, title: str, description: str, subscriptions: Metric | None = None, look_back: str = "now-1h"
) -> dashboard.Dashboard:
    """With `subscriptions`, one can choose among those that this metric has."""
    made = (
        dashboard.Dashboard(f"Holdfast: {title}")
        .uid(f"holdfast-{uid}")
        .description(description)
        .tags([TAG])
        .time(look_back, "now")
        .refresh("30s")
        .timezone("browser")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .editable()
        .link(_other_boards())
        .with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"))
        .with_variable(_choice("job", "Job", f"label_values({process.BUILD.name}, job)"))
        .with_variable(_choice("instance", "Process", f'label_values({process.BUILD.name}{{job=~"$job"}}, instance)'))
    )
    if subscriptions is not None:
        query = f"label_values({subscriptions.name}{{{HERE}}}, subscription)"
        made.with_variable(_choice("subscription", "Subscription", query))
    return made


def _other_boards() -> dashboard.DashboardLink:
    return (
        dashboard.DashboardLink("Holdfast")
        .type(DashboardLinkType.DASHBOARDS)
        .tags([TAG])
        .as_dropdown(True)
        .include_vars(True)
        .keep_time(True)
    )


def _choice(name: str, label: str, query: str) -> dashboard.QueryVariable:
    """All of them, until somebody chooses."""
    return (
        dashboard.QueryVariable(name)
        .label(label)
        .query(query)
        .datasource(DATASOURCE)
        .multi(True)
        .include_all(True)
        .all_value(".*")
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.ALPHABETICAL_ASC)
    )


# Panels.


def number(title: str, query: Query, about: str, unit: str = "short", limits: Sequence[Threshold] = ()) -> stat.Panel:
    """One value in large, in the color of the limit that it has passed."""
    return (
        stat.Panel()
        .title(title)
        .description(about)
        .datasource(DATASOURCE)
        .unit(unit)
        .span(NUMBER_WIDTH)
        .height(NUMBER_HEIGHT)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .thresholds(_steps(limits))
        .with_target(_target(query, 0))
    )


def chart(
    title: str,
    *queries: Query,
    about: str,
    unit: str = "short",
    limits: Sequence[Threshold] = (),
    stacked: bool = False,
    width: int = CHART_WIDTH,
) -> timeseries.Panel:
    panel = (
        timeseries.Panel()
        .title(title)
        .description(about)
        .datasource(DATASOURCE)
        .unit(unit)
        .span(width)
        .height(CHART_HEIGHT)
        .min(0)
        .fill_opacity(20 if stacked else 5)
        .color_scheme(dashboard.FieldColor().mode(FieldColorModeId.PALETTE_CLASSIC))
        .stacking(common.StackingConfig().mode(StackingMode.NORMAL if stacked else StackingMode.NONE))
        .tooltip(common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI).sort(SortOrder.DESCENDING))
        .legend(
            common.VizLegendOptions()
            .display_mode(LegendDisplayMode.TABLE)
            .placement(LegendPlacement.BOTTOM)
            .show_legend(True)
            .calcs(["lastNotNull", "max"])
        )
        .thresholds(_steps(limits))
        .thresholds_style(
            common.GraphThresholdsStyleConfig().mode(
                GraphThresholdsStyleMode.DASHED if limits else GraphThresholdsStyleMode.OFF
            )
        )
    )
    for place, query in enumerate(queries):
        panel.with_target(_target(query, place))
    return panel


def _target(query: Query, place: int) -> prometheus.Dataquery:
    asked = prometheus.Dataquery().expr(query.expr).ref_id(chr(ord("A") + place)).datasource(DATASOURCE)
    if query.legend:
        asked.legend_format(query.legend)
    return asked.instant() if query.instant else asked.range()


# Limits, as the alert rules have them.


def limits(*names: str) -> list[Threshold]:
    """Those of these rules, all of which measure the same thing."""
    rules = [RULE[name] for name in names]
    if len({rule.measure for rule in rules}) != 1:
        raise ValueError(f"{', '.join(names)} do not measure the same")
    if rules[0].comparison is Comparison.BELOW:
        [rule] = rules
        return [Threshold(value=None, color=_COLORS[rule.severity]), Threshold(value=rule.threshold, color=GREEN)]
    # Two rules with one limit differ in how long it must be passed: the milder one is what it means at first.
    first = {rule.threshold: rule for rule in sorted(rules, key=_severity, reverse=True)}
    steps = [Threshold(value=limit, color=_COLORS[first[limit].severity]) for limit in sorted(first)]
    return [Threshold(value=None, color=GREEN), *steps]


def just_above(steps: Sequence[Threshold]) -> list[Threshold]:
    """For whole numbers: Grafana takes a value that is at a limit for one that has passed it."""
    return [Threshold(value=None if one.value is None else one.value + 1, color=one.color) for one in steps]


def _severity(rule: Rule) -> int:
    return list(_COLORS).index(rule.severity)


def _steps(steps: Sequence[Threshold]) -> dashboard.ThresholdsConfig:
    known = list(steps) or [Threshold(value=None, color=GREEN)]
    return dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(known)
