"""Pipeline overview: is everything well, and if not, where to look."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard, stat, timeseries

from deploy.grafana.source.parts import CHART_WIDTH, WIDTH, Query, board, chart, just_above, limits, number
from deploy.grafana.source.promql import anywhere, increase, max_of, measured, of_store, quantile, rate, sum_of
from holdfast.metrics import alerts, broker, consumer, desk, process

THIRD = WIDTH // 3


def pipeline() -> dashboard.Dashboard:
    made = board("pipeline", "pipeline overview", "All parts at a glance.")
    for figure in _at_a_glance():
        made.with_panel(figure)
    rows = {
        "The path of a message": _path(),
        "The consumer": _consumer(),
        "Failures and alerts": _failures(),
        "Processes": _processes(),
    }
    for title, charts in rows.items():
        made.with_row(dashboard.Row(title))
        for panel in charts:
            made.with_panel(panel)
    return made


def _at_a_glance() -> list[stat.Panel]:
    return [
        number(
            "Processes",
            Query(f"count({anywhere(process.BUILD)})"),
            "Processes of Holdfast that answer Prometheus.",
        ),
        number("Published", Query(rate(anywhere(broker.PUBLISHED))), "Messages taken a second.", "ops"),
        number("Backlog", Query(sum_of(anywhere(broker.BACKLOG))), broker.BACKLOG.doc),
        number(
            "Oldest unacked",
            Query(f"max({measured('OldestUnacked', everywhere=True)})"),
            broker.OLDEST_UNACKED.doc,
            "s",
            limits("OldestUnacked", "OldestUnackedHigh"),
        ),
        number(
            "Dead letters in nobody's hands",
            Query(f"sum({measured('DeadLettersWait', everywhere=True)}) or vector(0)"),
            desk.OPEN.doc,
            limits=just_above(limits("DeadLettersWait", "DeadLettersStay")),
        ),
        number("Alerts firing", Query(sum_of(anywhere(alerts.FIRING))), "Of all processes, as they judge themselves."),
    ]


def _path() -> list[timeseries.Panel]:
    counters = {
        "published": broker.PUBLISHED,
        "delivered": broker.DELIVERED,
        "acked": broker.ACKED,
        "nacked": broker.NACKED,
        "expired": broker.EXPIRED,
        "dead-lettered": broker.DEAD_LETTERED,
    }
    return [
        chart(
            "Messages a second",
            *(Query(rate(anywhere(metric)), name) for name, metric in counters.items()),
            about="One message that two subscriptions have is delivered and acked twice.",
            unit="ops",
        ),
        chart(
            "Outcomes a second",
            Query(rate(anywhere(consumer.OUTCOMES), "outcome"), "{{outcome}}"),
            about=consumer.OUTCOMES.doc,
            unit="ops",
            stacked=True,
        ),
        chart(
            "Backlog",
            Query(max_of(anywhere(broker.BACKLOG), "subscription"), "{{subscription}}"),
            about=broker.BACKLOG.doc,
        ),
        chart(
            "Oldest unacked message",
            Query(measured("OldestUnacked", everywhere=True), "{{subscription}}"),
            about=broker.OLDEST_UNACKED.doc,
            unit="s",
            limits=limits("OldestUnacked", "OldestUnackedHigh"),
        ),
    ]


def _consumer() -> list[timeseries.Panel]:
    return [
        chart(
            "Handling time",
            *(Query(quantile(share, consumer.HANDLING), f"p{share * 100:g}") for share in (0.5, 0.95, 0.99)),
            about=consumer.HANDLING.doc,
            unit="s",
            width=THIRD,
        ),
        chart(
            "Answers with 5xx",
            Query(measured("ServerErrors"), "5xx"),
            about="Share of push requests. What is transient: the store or something else that the consumer needs.",
            unit="percentunit",
            limits=limits("ServerErrors", "ServerErrorsHigh"),
            width=THIRD,
        ),
        chart(
            "Answers with 4xx",
            Query(measured("ClientErrors"), "4xx"),
            about="Share of push requests, without 429. A producer has changed, or messages go to the wrong place.",
            unit="percentunit",
            limits=limits("ClientErrors", "ClientErrorsHigh"),
            width=THIRD,
        ),
    ]


def _failures() -> list[timeseries.Panel]:
    return [
        chart(
            "Failed messages recorded",
            Query(of_store(increase(anywhere(desk.RECORDED)), "subscription"), "{{subscription}}"),
            about=desk.RECORDED.doc,
        ),
        chart(
            "Alerts firing",
            Query(sum_of(anywhere(alerts.FIRING), "severity"), "{{severity}}"),
            about=alerts.FIRING.doc,
            stacked=True,
        ),
    ]


def _processes() -> list[timeseries.Panel]:
    return [
        chart(
            "Processor time",
            Query(rate(anywhere(process.CPU), "instance"), "{{instance}}"),
            about="Of one core: a process has one event loop, so 1 is all that it can use for most of its work.",
            unit="percentunit",
            width=THIRD,
        ),
        chart(
            "Memory",
            Query(max_of(anywhere(process.RESIDENT_MEMORY), "instance"), "{{instance}}"),
            about=process.RESIDENT_MEMORY.doc,
            unit="bytes",
            width=THIRD,
        ),
        chart(
            "Open files and connections",
            Query(f"{anywhere(process.OPEN_FDS)} / {anywhere(process.MAX_FDS)}", "{{instance}}"),
            about="Share of what the system allows.",
            unit="percentunit",
            width=THIRD,
        ),
        chart(
            "Time since the start",
            Query(f"time() - {anywhere(process.STARTED)}", "{{instance}}"),
            about="It falls to 0 at a restart.",
            unit="s",
        ),
        chart(
            "Time since the alert rules were judged",
            Query(f"time() - {anywhere(alerts.LAST_EVALUATION)}", "{{instance}}"),
            about="Each process judges them by itself, every 15 seconds unless its settings say otherwise.",
            unit="s",
            width=CHART_WIDTH,
        ),
    ]
