"""The number of series is bounded: every part is asked, with thousands of topics, subscriptions and reasons."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from holdfast.broker.metrics import BrokerMetrics
from holdfast.broker.push.metrics import push_metrics
from holdfast.broker.service import Broker
from holdfast.consumer import Consumer, Upsert
from holdfast.consumer.metrics import consumer_metrics
from holdfast.consumer.pipeline import Pipeline
from holdfast.consumer.settle import Way
from holdfast.deadletter.metrics import KNOWN_REASONS, DeskMetrics
from holdfast.metrics import broker, consumer, desk, push
from holdfast.metrics.bounded import MOST_NAMES, OTHER
from holdfast.metrics.metric import Family, Metric
from holdfast.metrics.table import METRICS
from holdfast.model.message import Delivery, Message
from holdfast.model.resources import Subscription, Topic
from holdfast.settings import BrokerSettings, ConsumerSettings
from holdfast.stores.desk.totals_schema import MOST_REASONS, MOST_SUBSCRIPTIONS
from holdfast.stores.memory.documents import MemoryDocumentStore
from holdfast.stores.memory.log import MemoryMessageLog
from holdfast.stores.sqlite.desk import SqliteDeskStore
from holdfast.testing import ManualClock
from tests.support.desk import a_failure
from tests.support.failures import Captured
from tests.support.push_status import NOW_NS, a_status

THOUSANDS = 2500

# Labels whose values are words of ours. However many there are, they are written in the code.
WORDS = {"version", "part", "outcome", "status", "kind", "state", "severity", "result"}
MOST_WORDS = 30
MOST_VALUES = {
    "topic": MOST_NAMES + 1,
    "subscription": max(MOST_NAMES, MOST_SUBSCRIPTIONS) + 1,
    "reason": MOST_REASONS + 1 + len(KNOWN_REASONS),
    "receiver": MOST_NAMES + 1,  # each is a table of the settings
    **dict.fromkeys(WORDS, MOST_WORDS),
}


def assert_bounded(families: Iterable[Family], *wanted: Metric, grows_with: int) -> None:
    """All of the wanted are there, and no label has more values than it may have. What is beyond is not forgotten."""
    found = {family.metric: [sample.labels for sample in family.samples] for family in families}
    labelled = {metric for metric in wanted if metric.labels}
    assert labelled <= set(found)
    for metric in labelled:
        values: dict[str, set[str]] = defaultdict(set)
        for labels in found[metric]:
            for label, value in zip(metric.labels, labels, strict=True):
                values[label].add(value)
        for label, its in values.items():
            assert len(its) <= MOST_VALUES[label] < grows_with, f"{metric.name}: {len(its)} {label}s"
            if label not in WORDS and len(its) > MOST_REASONS:
                assert OTHER in its, metric.name


def added_up(family: Family) -> float:
    values = [sample.value for sample in family.samples]
    return sum(value for value in values if not isinstance(value, tuple))


def test_every_label_has_a_bound() -> None:
    assert {label for metric in METRICS for label in metric.labels} == set(MOST_VALUES)


def metrics_of(*tables: object) -> Sequence[Metric]:
    return [one for table in tables for one in vars(table).values() if isinstance(one, Metric)]


def test_every_labelled_metric_is_tried_here_or_has_words_of_ours() -> None:
    tried = {*metrics_of(broker, push, consumer, desk)}
    for metric in METRICS:
        if metric.labels and metric not in tried:
            assert set(metric.labels) <= WORDS | {"receiver"}, metric.name


async def test_a_broker_with_thousands_of_topics_and_subscriptions() -> None:
    clock = ManualClock()
    opened = await Broker.open(MemoryMessageLog(), clock, BrokerSettings())
    try:
        for number in range(THOUSANDS):
            topic = f"projects/local/topics/topic-{number}"
            await opened.create_topic(Topic(topic))
            await opened.create_subscription(Subscription(f"projects/local/subscriptions/worker-{number}", topic))
        metrics = BrokerMetrics(opened, clock)
        assert_bounded(await metrics.collect(), *metrics_of(broker), grows_with=THOUSANDS)
        await metrics.close()
    finally:
        await opened.close()


def test_thousands_of_push_subscriptions() -> None:
    found = [a_status(f"s{number}", attempts={"timeout": 1}) for number in range(THOUSANDS)]
    assert_bounded(push_metrics(found, NOW_NS), *metrics_of(push), grows_with=THOUSANDS)


async def test_a_consumer_of_thousands_of_topics_and_of_messages_that_claim_thousands_more() -> None:
    app = Consumer(name="")
    for number in range(THOUSANDS):
        app.on(f"topic-{number}")(lambda event: Upsert("rows", event.message_id, {}))
    pipeline = Pipeline(app, MemoryDocumentStore(), Captured(), ManualClock(), ConsumerSettings())
    for number in range(THOUSANDS):
        message = Message(b"{}", {"topic": f"claimed-{number}"}, message_id=f"m{number}")
        await pipeline.handle(Delivery("projects/local/subscriptions/s", message, 1), Way.PUSH)
    assert_bounded(consumer_metrics(pipeline), *metrics_of(consumer), grows_with=THOUSANDS)


async def test_a_desk_with_thousands_of_reasons_and_subscriptions() -> None:
    clock = ManualClock()
    store = await SqliteDeskStore.in_memory(clock)
    try:
        rows = [
            a_failure(
                f"m{number}", failure_reason=f"REASON_{number}", subscription=f"projects/p/subscriptions/s{number}"
            )
            for number in range(THOUSANDS)
        ]
        for start in range(0, THOUSANDS, 500):
            await store.record(rows[start : start + 500])
        told = DeskMetrics(store, clock, {})
        families = [*await told.collect(), *told.own()]
        assert_bounded(families, *metrics_of(desk), grows_with=THOUSANDS)
        counts = {family.metric: added_up(family) for family in families}
        assert counts[desk.DLQ_MESSAGES] == counts[desk.RECORDED] == THOUSANDS  # none is forgotten
    finally:
        await store.close()
