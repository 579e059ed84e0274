"""A consumer as metrics."""

from __future__ import annotations

from holdfast.consumer.counts import HANDLING_BOUNDS
from holdfast.consumer.error_kinds import KINDS
from holdfast.consumer.pipeline import Pipeline
from holdfast.metrics import consumer as table
from holdfast.metrics.metric import Family, Histogram, Sample


def consumer_metrics(pipeline: Pipeline) -> list[Family]:
    counts, errors = pipeline.counts, pipeline.errors
    topics = counts.by_topic.items()
    return [
        Family(
            table.OUTCOMES,
            [Sample((topic, name), count) for topic, its in topics for name, count in its.outcomes.items()],
        ),
        Family(
            table.HANDLING,
            [Sample((topic,), Histogram(HANDLING_BOUNDS, tuple(its.buckets), its.seconds)) for topic, its in topics],
        ),
        Family(table.ANSWERS, [Sample((str(status),), count) for status, count in sorted(counts.answers.items())]),
        Family(table.QUEUE_DEPTH, [Sample((), pipeline.waiting)]),
        Family(table.IN_HANDS, [Sample((), pipeline.in_hands)]),
        Family(table.STORE_RETRIES, [Sample((), pipeline.store_retries)]),
        Family(table.STORE_ERRORS, [Sample((kind,), errors[kind]) for kind in KINDS]),
    ]
