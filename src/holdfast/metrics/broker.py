"""The broker: topics and subscriptions, whatever way the messages leave."""

from __future__ import annotations

from holdfast.metrics.metric import Kind, Metric

_SUBSCRIPTION = ("subscription",)

PUBLISHED = Metric(
    "holdfast_broker_published_total", Kind.COUNTER, ("topic",), "Messages that the topic has taken: they are on disk."
)
PUBLISHED_BYTES = Metric(
    "holdfast_broker_published_bytes_total", Kind.COUNTER, ("topic",), "Their size as it is stored, in bytes."
)
DELIVERED = Metric(
    "holdfast_broker_delivered_total", Kind.COUNTER, _SUBSCRIPTION, "Deliveries: leases given, by pull, stream or push."
)
ACKED = Metric("holdfast_broker_acked_total", Kind.COUNTER, _SUBSCRIPTION, "Messages that were acked.")
NACKED = Metric(
    "holdfast_broker_nacked_total",
    Kind.COUNTER,
    _SUBSCRIPTION,
    "Deliveries that failed: nacks, and push requests that ended without success.",
)
EXPIRED = Metric(
    "holdfast_broker_expired_total", Kind.COUNTER, _SUBSCRIPTION, "Deliveries whose ack deadline has passed."
)
DEAD_LETTERED = Metric(
    "holdfast_broker_dead_lettered_total", Kind.COUNTER, _SUBSCRIPTION, "Messages that went to the dead-letter topic."
)
BACKLOG = Metric(
    "holdfast_broker_backlog", Kind.GAUGE, _SUBSCRIPTION, "Messages that are not acked, those under way included."
)
OUTSTANDING = Metric(
    "holdfast_broker_outstanding",
    Kind.GAUGE,
    _SUBSCRIPTION,
    "Messages under way: delivered, neither acked nor given back.",
)
OLDEST_UNACKED = Metric(
    "holdfast_broker_oldest_unacked_seconds",
    Kind.GAUGE,
    _SUBSCRIPTION,
    "Time since the oldest message that is not acked was published, in seconds. 0 when there is none.",
)
PAUSED = Metric(
    "holdfast_broker_paused", Kind.GAUGE, _SUBSCRIPTION, "1 while delivery pauses because it fails in a storm, else 0."
)
