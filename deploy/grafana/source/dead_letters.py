"""Dead letters: what failed and why, who has it in hands, and how its repair goes."""

from __future__ import annotations

from grafana_foundation_sdk.builders import common, dashboard, piechart, prometheus, stat, timeseries
from grafana_foundation_sdk.models.common import LegendDisplayMode, LegendPlacement
from grafana_foundation_sdk.models.piechart import PieChartLabels, PieChartLegendValues, PieChartType

from deploy.grafana.source.parts import (
    CHART_HEIGHT,
    DATASOURCE,
    Query,
    board,
    chart,
    just_above,
    limits,
    number,
)
from deploy.grafana.source.promql import increase, max_of, measured, of, of_store
from holdfast.metrics import desk

EACH = "{{subscription}}"
THIRD = 8


def dead_letters() -> dashboard.Dashboard:
    made = board(
        "dead-letters",
        "dead letters",
        "Failed messages, their causes and their repair. What the desk's store counts is told by every desk on it: it"
        " is shown once.",
        subscriptions=desk.RECORDED,
        look_back="now-24h",
    )
    for panel in _now():
        made.with_panel(panel)
    made.with_row(dashboard.Row("Why"))
    made.with_panel(by_reason())
    for chart_panel in _recorded():
        made.with_panel(chart_panel)
    made.with_row(dashboard.Row("Repair"))
    for chart_panel in _repair():
        made.with_panel(chart_panel)
    return made


def by_reason() -> piechart.Panel:
    """Of what happened in the last 24 hours, whatever time the dashboard shows."""
    query = f"sum by (reason) (rate({of(desk.DLQ_MESSAGES)}[24h])) > 0"
    return (
        piechart.Panel()
        .title("Failed Messages by Reason (Last 24 Hours)")
        .description("Which part of the failed messages failed for which reason.")
        .datasource(DATASOURCE)
        .span(THIRD)
        .height(CHART_HEIGHT)
        .pie_type(PieChartType.PIE)
        .display_labels([PieChartLabels.PERCENT])
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .no_value("None has failed")
        .legend(
            piechart.PieChartLegendOptions()
            .display_mode(LegendDisplayMode.TABLE)
            .placement(LegendPlacement.RIGHT)
            .show_legend(True)
            .values([PieChartLegendValues.PERCENT])
        )
        .with_target(
            prometheus.Dataquery().expr(query).ref_id("A").datasource(DATASOURCE).legend_format("{{reason}}").instant()
        )
    )


def _now() -> list[stat.Panel]:
    nothing = " or vector(0)"
    return [
        number(
            "In nobody's hands",
            Query(f"sum({measured('DeadLettersWait')}){nothing}"),
            desk.OPEN.doc,
            limits=just_above(limits("DeadLettersWait", "DeadLettersStay")),
        ),
        number(
            "Wait for a person",
            Query(measured("ReviewQueueLong")),
            "Permanent failures.",
            limits=limits("ReviewQueueLong"),
        ),
        number(
            "Wait for a retry",
            Query(measured("RetryQueueLong")),
            "Queued for a retry.",
            limits=limits("RetryQueueLong"),
        ),
        number(
            "Mended by retries",
            Query(measured("RetriesFail")),
            desk.DLQ_RETRY_SUCCESS_RATE.doc,
            "percentunit",
            limits("RetriesFail"),
        ),
        number(
            "Retries before one succeeded", Query(max_of(of(desk.DLQ_AVG_RETRY_COUNT))), desk.DLQ_AVG_RETRY_COUNT.doc
        ),
        number(
            "New permanent failures within 5 minutes",
            Query(measured("PermanentFailure")),
            desk.DLQ_PERMANENT_FAILURES.doc,
            limits=just_above(limits("PermanentFailure")),
        ),
    ]


def _recorded() -> list[timeseries.Panel]:
    return [
        chart(
            "Recorded within 10 minutes",
            Query(measured("DeadLettersBurst"), EACH),
            about="More than the limit within 10 minutes is critical.",
            limits=limits("DeadLettersBurst"),
            width=THIRD,
        ),
        chart(
            "Recorded minus mended within 10 minutes",
            Query(measured("DeadLettersGrow"), EACH),
            about="Above 0 for 30 minutes is critical: more fails than is mended.",
            limits=just_above(limits("DeadLettersGrow")),
            width=THIRD,
        ),
        chart(
            "Recorded, by reason",
            Query(of_store(increase(of(desk.DLQ_MESSAGES)), "reason"), "{{reason}}"),
            about=desk.DLQ_MESSAGES.doc,
            stacked=True,
        ),
        chart(
            "In nobody's hands",
            Query(measured("DeadLettersWait"), EACH),
            about=desk.OPEN.doc,
            limits=just_above(limits("DeadLettersWait", "DeadLettersStay")),
        ),
    ]


def _repair() -> list[timeseries.Panel]:
    return [
        chart(
            "Failed messages, by status",
            Query(max_of(of(desk.FAILURES), "status"), "{{status}}"),
            about=desk.FAILURES.doc,
            stacked=True,
        ),
        chart("Groups, by state", Query(max_of(of(desk.GROUPS), "state"), "{{state}}"), about=desk.GROUPS.doc),
        chart(
            "Mended",
            Query(of_store(increase(of(desk.SETTLED)), "subscription"), EACH),
            about=desk.SETTLED.doc,
        ),
        chart("Replays, by state", Query(max_of(of(desk.REPLAYS), "state"), "{{state}}"), about=desk.REPLAYS.doc),
        chart(
            "Replayed messages",
            Query(f"sum by (result) ({increase(of(desk.REPLAYED))})", "{{result}}"),
            about=desk.REPLAYED.doc,
            stacked=True,
        ),
        chart(
            "Mended by retries, and retries that took",
            Query(measured("RetriesFail"), "share mended"),
            Query(max_of(of(desk.DLQ_AVG_RETRY_COUNT)), "retries before one succeeded"),
            about="Over the last 7 days.",
            limits=limits("RetriesFail"),
        ),
    ]
