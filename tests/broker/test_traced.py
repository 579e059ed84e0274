"""A broker that makes traces: how each delivery ends is told, and what was published keeps its bytes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from holdfast.broker.leases import Failure, Lease
from holdfast.broker.log import Progress
from holdfast.broker.subscriptions import SubscriptionQueue
from holdfast.broker.trace_context import Tracing
from holdfast.broker.traced import TracedBroker
from holdfast.broker.wire import PubsubMessage, decode
from holdfast.clock import Clock
from holdfast.errors import BadInput, NotFound
from holdfast.model.resources import DeadLetterPolicy, Subscription, Topic
from holdfast.settings import BrokerSettings
from holdfast.stores.memory.log import MemoryMessageLog
from holdfast.testing import ManualClock
from holdfast.tracing.context import ATTRIBUTE
from holdfast.tracing.otel import Export, OtelTraces
from tests.support.otlp import Collector, collector

__all__ = ["collector"]

TOPIC, DEAD = "projects/local/topics/orders", "projects/local/topics/dead"
WORKER, READER = "projects/local/subscriptions/worker", "projects/local/subscriptions/reader"
TRACE_ID = "ab" * 16
ATTEMPT = "messaging.gcp_pubsub.message.delivery_attempt"
CONTEXT = f"00-{TRACE_ID}-{'cd' * 8}-01"


class Traced:
    """A broker, and what it told the collector once it was closed."""

    def __init__(self, broker: TracedBroker, traces: OtelTraces) -> None:
        self.broker = broker
        self.traces = traces

    @property
    def queue(self) -> SubscriptionQueue:
        return self.broker.queue(WORKER)

    async def publish(self, context: str = CONTEXT, data: bytes = b"x") -> str:
        attributes = {ATTRIBUTE: context} if context else {}
        encoded = PubsubMessage(data=data, attributes=attributes).SerializeToString()
        return (await self.broker.publish(TOPIC, [encoded], len(encoded)))[0].decode()

    async def take(self, subscription: str = WORKER) -> Lease:
        (lease,) = await self.broker.pull(subscription, 1)
        return lease


@asynccontextmanager
async def traced(collector: Collector, clock: Clock | None = None, *, strict: bool = False) -> AsyncIterator[Traced]:
    traces = OtelTraces(Export(f"{collector.url}/v1/traces", "", "parentbased_always_on", 1.0, "", "up", 1000))
    broker = await TracedBroker.open_traced(
        MemoryMessageLog(),
        clock or ManualClock(),
        BrokerSettings(strict=strict, breaker_share=0),
        key_days=30,
        tracing=Tracing(traces, marks=False),
    )
    for topic in (TOPIC, DEAD):
        await broker.create_topic(Topic(topic))
    await broker.create_subscription(Subscription(WORKER, TOPIC, dead_letter=DeadLetterPolicy(DEAD, 5)))
    await broker.create_subscription(Subscription(READER, DEAD))
    try:
        yield Traced(broker, traces)
    finally:
        await broker.close()
        traces.close(5)


def deliveries(collector: Collector) -> list[tuple[object, object]]:
    """Outcome and error of each."""
    found = sorted(collector.found("deliver worker"), key=lambda span: int(span.attributes[ATTEMPT]))
    return [(span.attributes["messaging.holdfast.outcome"], span.attributes.get("error.type")) for span in found]


async def test_every_end_of_a_delivery_has_its_name(collector: Collector) -> None:
    clock = ManualClock()
    async with traced(collector, clock) as one:
        await one.publish()
        one.queue.fail(await one.take(), Failure(status="503", reason="DB_DOWN"))
        one.queue.fail(await one.take(), Failure(status="503"))
        await one.take()
        clock.advance(11)  # its deadline
        lease = await one.broker.pull(WORKER, 1, wait_seconds=5)
        one.queue.put_off(lease[0], Failure(status="stopped"))
        await one.broker.acknowledge(WORKER, [(await one.take()).ack_id])
    assert deliveries(collector) == [
        ("nacked", "DB_DOWN"),
        ("nacked", "503"),
        ("expired", "deadline"),
        ("nacked", "stopped"),
        ("acked", None),
    ]
    assert {span.trace_id for span in collector.spans} == {TRACE_ID}


async def test_what_never_came_to_an_end_of_its_own(collector: Collector) -> None:
    async with traced(collector) as one:
        await one.publish()
        one.queue.give_back([await one.take()])
        lease = await one.take()
        await one.queue.seek(lambda _: Progress(one.queue.topic.visible_end))
        one.queue.fail(lease, Failure(status="late"))  # it is over: nothing is told of it
        await one.publish()
        one.queue.drop(await one.take(), Failure(status="500"))
    assert sorted(deliveries(collector), key=str) == [("dropped", "500"), ("forgotten", None), ("given_back", None)]


async def test_what_cannot_be_published_has_a_failed_span(collector: Collector) -> None:
    async with traced(collector) as one:
        with pytest.raises(BadInput):
            await one.publish(data=b"x" * 11_000_000)
        for publish in (one.broker.publish, one.broker.publish_once):
            with pytest.raises(NotFound):
                await publish("projects/local/topics/none", [b"\n\1x"], 3)
        with pytest.raises(NotFound):
            await one.broker.publish_to("projects/local/subscriptions/none", [b"\n\1x"], 3)
    (failed,) = collector.spans
    assert (failed.name, failed.failed, failed.attributes["error.type"]) == ("publish orders", True, "BadInput")


@pytest.mark.parametrize("strict", [False, True])
async def test_a_dead_letter_goes_on_with_its_trace(collector: Collector, strict: bool) -> None:
    async with traced(collector, strict=strict) as one:
        for context in (CONTEXT, ""):
            await one.publish(context)
            one.queue.fail(await one.take(), Failure(reason="BAD", dead_letter_now=True))
            copy = decode((lease := await one.take(READER)).body)
            await one.broker.acknowledge(READER, [lease.ack_id])
            given = copy.attributes.get(ATTRIBUTE, "")
            # A strict broker adds nothing that Cloud Pub/Sub does not.
            assert given == CONTEXT if context else bool(given) != strict
    for dead_letter in collector.found("dead-letter dead"):
        (deliver,) = collector.found("deliver worker", dead_letter.trace_id)
        assert dead_letter.parent_id == deliver.span_id
        assert dead_letter.attributes["messaging.message.id"] == deliver.attributes["messaging.message.id"]
        assert len(collector.found("deliver reader", dead_letter.trace_id)) == (
            0 if strict and dead_letter.trace_id != TRACE_ID else 1
        )
    assert len(collector.found("dead-letter")) == 2


async def test_a_message_for_one_subscription_alone(collector: Collector) -> None:
    encoded = PubsubMessage(data=b"x", attributes={ATTRIBUTE: CONTEXT}).SerializeToString()
    async with traced(collector) as one:
        await one.broker.publish_to(WORKER, [encoded], len(encoded))
        await one.broker.publish_once(TOPIC, [encoded], len(encoded))
    names = {span.name: dict(span.attributes) for span in collector.spans}
    assert names["publish worker"]["messaging.destination.subscription.name"] == "worker"
    assert names["publish orders"]["messaging.destination.name"] == "orders"


async def test_one_span_for_what_has_no_context_and_one_for_each_that_has(collector: Collector) -> None:
    other = f"00-{'12' * 16}-{'34' * 8}-01"
    unseen = f"00-{'56' * 16}-{'78' * 8}-00"
    contexts = [CONTEXT, "", other, "", unseen]
    batch = [
        PubsubMessage(data=b"x", attributes={ATTRIBUTE: one} if one else {}).SerializeToString() for one in contexts
    ]
    caller = f"00-{TRACE_ID}-{'ef' * 8}-01"
    async with traced(collector) as one:
        with one.traces.within(caller):
            await one.broker.publish(TOPIC, batch, sum(map(len, batch)))
        assert len(await one.broker.pull(WORKER, 10)) == 5
        assert one.queue.outstanding == 5
    published = {span.parent_id: span for span in collector.found("publish orders")}
    assert published.keys() == {"cd" * 8, "34" * 8, "ef" * 8}
    assert published["34" * 8].links == ((TRACE_ID, "ef" * 8),)
    assert published["ef" * 8].attributes["messaging.batch.message_count"] == 2
    # Those two are remembered; nothing of the one that nobody wants to see.
    parents = [span.parent_id for span in collector.found("deliver worker")]
    assert sorted(parents) == sorted(["cd" * 8, "34" * 8, *[published["ef" * 8].span_id] * 2])
