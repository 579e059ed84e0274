"""Broker and push: topics, subscriptions, and how their endpoints do."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard, timeseries

from deploy.grafana.source.parts import Query, board, chart, just_above, limits
from deploy.grafana.source.promql import max_of, measured, of, quantile, rate
from holdfast.metrics import broker, push
from holdfast.metrics.metric import Metric

EACH = "{{subscription}}"


def broker_and_push() -> dashboard.Dashboard:
    made = board("broker", "broker and push", "Topics, subscriptions and endpoints.", subscriptions=broker.BACKLOG)
    for title, panels in (
        ("What comes in", _topics()),
        ("What waits", _backlog()),
        ("What goes out", _deliveries()),
        ("Push", _push()),
    ):
        made.with_row(dashboard.Row(title))
        for panel in panels:
            made.with_panel(panel)
    return made


def _topics() -> list[timeseries.Panel]:
    return [
        chart(
            "Published messages a second",
            Query(rate(of(broker.PUBLISHED), "topic"), "{{topic}}"),
            about=broker.PUBLISHED.doc,
            unit="ops",
        ),
        chart(
            "Published bytes a second",
            Query(rate(of(broker.PUBLISHED_BYTES), "topic"), "{{topic}}"),
            about=broker.PUBLISHED_BYTES.doc,
            unit="Bps",
        ),
    ]


def _backlog() -> list[timeseries.Panel]:
    return [
        chart("Backlog", Query(max_of(of(broker.BACKLOG), "subscription"), EACH), about=broker.BACKLOG.doc),
        chart(
            "Growth of the backlog within 5 minutes",
            Query(measured("BacklogGrows"), EACH),
            about="A backlog that stays above 0 here for 15 minutes is a warning, for 30 minutes critical.",
            limits=just_above(limits("BacklogGrows", "BacklogGrowsOn")),
        ),
        chart(
            "Oldest unacked message",
            Query(measured("OldestUnacked"), EACH),
            about=broker.OLDEST_UNACKED.doc,
            unit="s",
            limits=limits("OldestUnacked", "OldestUnackedHigh"),
        ),
        chart("Under way", Query(max_of(of(broker.OUTSTANDING), "subscription"), EACH), about=broker.OUTSTANDING.doc),
    ]


def _deliveries() -> list[timeseries.Panel]:
    return [
        *_rates(
            ("Delivered a second", broker.DELIVERED),
            ("Acked a second", broker.ACKED),
            ("Nacked a second", broker.NACKED),
            ("Ack deadlines passed a second", broker.EXPIRED),
            ("Dead-lettered a second", broker.DEAD_LETTERED),
        ),
        chart(
            "Delivery pauses",
            Query(measured("DeliveryPaused"), EACH),
            about=broker.PAUSED.doc,
            limits=just_above(limits("DeliveryPaused")),
        ),
    ]


def _push() -> list[timeseries.Panel]:
    return [
        chart(
            "Requests a second, by result",
            Query(rate(of(push.ATTEMPTS), "result"), "{{result}}"),
            about=push.ATTEMPTS.doc,
            unit="ops",
            stacked=True,
        ),
        chart(
            "Share of requests that fail",
            Query(measured("PushEndpointFails"), EACH),
            about="Everything but an acknowledgement, over 5 minutes.",
            unit="percentunit",
            limits=limits("PushEndpointFails"),
        ),
        chart(
            "Time to the answer",
            *(Query(quantile(share, push.LATENCY), f"p{share * 100:g}") for share in (0.5, 0.95, 0.99)),
            about=push.LATENCY.doc,
            unit="s",
        ),
        chart(
            "Time to the answer, 99th percentile by subscription",
            Query(quantile(0.99, push.LATENCY, "subscription"), EACH),
            about=push.LATENCY.doc,
            unit="s",
        ),
        chart(
            "Requests under way, and the most there may be",
            Query(max_of(of(push.IN_FLIGHT), "subscription"), f"{EACH} under way"),
            Query(max_of(of(push.WINDOW), "subscription"), f"{EACH} window"),
            about=push.WINDOW.doc,
        ),
        chart(
            "Messages that wait to be sent",
            Query(max_of(of(push.DUE), "subscription"), f"{EACH} due"),
            Query(max_of(of(push.WAITING), "subscription"), f"{EACH} later"),
            about="Due are those that could be sent now; the others wait for the time of their next attempt.",
        ),
        chart(
            "How long the oldest due message has waited",
            Query(max_of(of(push.OLDEST_DUE), "subscription"), EACH),
            about=push.OLDEST_DUE.doc,
            unit="s",
        ),
        chart(
            "Given up for good within 5 minutes",
            Query(measured("PushDropped"), EACH),
            about=push.DROPPED.doc,
            limits=just_above(limits("PushDropped")),
        ),
    ]


def _rates(*wanted: tuple[str, Metric]) -> list[timeseries.Panel]:
    return [
        chart(title, Query(rate(of(metric), "subscription"), EACH), about=metric.doc, unit="ops")
        for title, metric in wanted
    ]
