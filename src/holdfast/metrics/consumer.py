"""The consumer: what became of messages, and how it and its store do."""

from __future__ import annotations

from holdfast.metrics.metric import Kind, Metric

OUTCOMES = Metric(
    "holdfast_consumer_outcomes_total",
    Kind.COUNTER,
    ("topic", "outcome"),
    "Messages handled, by outcome: applied, duplicate, stale_ignored, poison or retry.",
)
HANDLING = Metric(
    "holdfast_consumer_handling_seconds",
    Kind.HISTOGRAM,
    ("topic",),
    "Time from having a message to its outcome, in seconds.",
)
ANSWERS = Metric(
    "holdfast_consumer_answers_total", Kind.COUNTER, ("status",), "Answers to push requests, by HTTP status."
)
QUEUE_DEPTH = Metric("holdfast_consumer_queue_depth", Kind.GAUGE, (), "Messages that wait for a worker now.")
IN_HANDS = Metric(
    "holdfast_consumer_in_hands", Kind.GAUGE, (), "Messages that have no outcome yet: waiting, or being worked on."
)
STORE_RETRIES = Metric(
    "holdfast_consumer_store_retries_total",
    Kind.COUNTER,
    (),
    "Times that the store was asked again, because it was not there or too busy.",
)
STORE_ERRORS = Metric(
    "holdfast_consumer_store_errors_total",
    Kind.COUNTER,
    ("kind",),
    "Errors of the store and of what handlers call, by kind: transient, permission (an operator must act) or other.",
)
