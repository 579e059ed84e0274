"""Consumer: what became of messages, how long that took, and how the store does."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard, timeseries

from deploy.grafana.source.parts import Query, board, chart, just_above, limits
from deploy.grafana.source.promql import increase, max_of, measured, of, quantile, rate, sum_of
from holdfast.metrics import consumer


def consumers() -> dashboard.Dashboard:
    made = board("consumer", "consumer", "Outcomes, times, answers, and the store.")
    for title, panels in (("Outcomes", _outcomes()), ("Answers to push requests", _answers()), ("Work", _work())):
        made.with_row(dashboard.Row(title))
        for panel in panels:
            made.with_panel(panel)
    return made


def _outcomes() -> list[timeseries.Panel]:
    return [
        chart(
            "Outcomes a second",
            Query(rate(of(consumer.OUTCOMES), "outcome"), "{{outcome}}"),
            about=consumer.OUTCOMES.doc,
            unit="ops",
            stacked=True,
        ),
        chart(
            "Messages a second, by topic",
            Query(rate(of(consumer.OUTCOMES), "topic"), "{{topic}}"),
            about="Whatever became of them.",
            unit="ops",
        ),
        chart(
            "Stale messages",
            Query(measured("StaleSpike"), "{{topic}}"),
            about="Share of those that came too late to count, because a newer one came first, over 5 minutes.",
            unit="percentunit",
            limits=limits("StaleSpike"),
        ),
        chart(
            "Duplicates a second",
            Query(rate(of(consumer.OUTCOMES, 'outcome="duplicate"'), "topic"), "{{topic}}"),
            about="Messages whose effect was already there.",
            unit="ops",
        ),
        chart(
            "Handling time",
            *(Query(quantile(share, consumer.HANDLING), f"p{share * 100:g}") for share in (0.5, 0.95, 0.99)),
            about=consumer.HANDLING.doc,
            unit="s",
        ),
        chart(
            "Handling time, 99th percentile by topic",
            Query(quantile(0.99, consumer.HANDLING, "topic"), "{{topic}}"),
            about=consumer.HANDLING.doc,
            unit="s",
        ),
    ]


def _answers() -> list[timeseries.Panel]:
    return [
        chart(
            "Answers a second",
            Query(rate(of(consumer.ANSWERS), "status"), "{{status}}"),
            about="429 slows the broker down and is no error.",
            unit="ops",
            stacked=True,
            width=24,
        ),
        chart(
            "Share of 5xx",
            Query(measured("ServerErrors"), "5xx"),
            about="Something is away or too busy. 429 does not count. Any 5xx for 15 minutes is critical too.",
            unit="percentunit",
            limits=limits("ServerErrors", "ServerErrorsHigh"),
        ),
        chart(
            "Share of 4xx",
            Query(measured("ClientErrors"), "4xx"),
            about="Messages that can never succeed, or requests without a valid token. 429 does not count.",
            unit="percentunit",
            limits=limits("ClientErrors", "ClientErrorsHigh"),
        ),
    ]


def _work() -> list[timeseries.Panel]:
    return [
        chart(
            "In hands",
            Query(max_of(of(consumer.IN_HANDS), "instance"), "{{instance}} in hands"),
            Query(max_of(of(consumer.QUEUE_DEPTH), "instance"), "{{instance}} waiting for a worker"),
            about=consumer.IN_HANDS.doc,
        ),
        chart(
            "The store asked again",
            Query(sum_of(increase(of(consumer.STORE_RETRIES)), "instance"), "{{instance}}"),
            about=consumer.STORE_RETRIES.doc,
        ),
        chart(
            "Transient errors of the store a minute",
            Query(measured("StoreErrors"), "transient"),
            about="It is too busy or away.",
            limits=limits("StoreErrors", "StoreErrorsHigh"),
        ),
        chart(
            "Errors of the store within 5 minutes that nobody should wait for",
            Query(measured("StorePermission"), "permission"),
            Query(sum_of(increase(of(consumer.STORE_ERRORS, 'kind="other"'), "5m")), "other"),
            about="Want of rights will not mend itself: an operator must act.",
            limits=just_above(limits("StorePermission")),
        ),
    ]
