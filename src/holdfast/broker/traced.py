"""The broker with traces: each publish, delivery and dead letter is a span. The wiring takes this one where traces are
asked for.

A message's context is in its attribute, where its publisher has put it. The broker looks for it in the stored bytes,
and parses nothing that is not sampled. What came without one keeps its bytes, unless `marks` says otherwise, and its
context is remembered for a while.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Self

from holdfast.broker.facts import Hide
from holdfast.broker.held import Replacement
from holdfast.broker.leases import LEASE_RAN_OUT, Failure, Holder, Lease
from holdfast.broker.log import MessageLog, Progress
from holdfast.broker.publish_spans import PublishSpans
from holdfast.broker.service import Broker
from holdfast.broker.subscriptions import SubscriptionQueue
from holdfast.broker.topics import TopicLog, message_number
from holdfast.broker.trace_context import MOST_ATTRIBUTES, Tracing
from holdfast.clock import Clock
from holdfast.model.message import Message
from holdfast.model.names import short_id
from holdfast.model.resources import Subscription
from holdfast.outgoing.addresses import AddressGuard
from holdfast.settings import BrokerSettings
from holdfast.tracing import spans
from holdfast.tracing.context import ATTRIBUTE
from holdfast.tracing.traces import Span, ended


class TracedHolder:
    """Whoever holds the lease, and its span."""

    __slots__ = ("_holder", "outcome", "span")

    def __init__(self, holder: Holder, span: Span) -> None:
        self.span = span
        self.outcome = "forgotten"  # by a seek, with its subscription, or at a stop
        self._holder = holder

    def released(self, lease: Lease) -> None:
        self.end_span()
        self._holder.released(lease)

    def end_span(self) -> None:
        self.span.tell({spans.OUTCOME: self.outcome})
        self.span.end()


class TracedQueue(SubscriptionQueue):
    """The span of a delivery lasts as long as its lease."""

    tracing: Tracing

    async def take(
        self, max_messages: int, max_bytes: int, holder: Holder, deadline_seconds: float | None = None
    ) -> list[Lease]:
        taken = await super().take(max_messages, max_bytes, holder, deadline_seconds)
        for lease in taken:
            context = self.tracing.context_of(message_number(self.topic.key, lease.sequence), lease.body)
            if context:
                lease.holder = TracedHolder(lease.holder, self._started(lease, context))
        return taken

    def _started(self, lease: Lease, context: str) -> Span:
        told = {spans.BODY_SIZE: len(lease.body), **about_delivery(self.config.name, self.topic.key, lease)}
        return self.tracing.traces.start(spans.DELIVER, short_id(self.config.name), told, parent=context)

    def context_of(self, lease: Lease) -> str:
        return context_of(lease)

    def _settle(self, sequences: Sequence[int]) -> int:
        for sequence in sequences:
            if (lease := self._leases.get(sequence)) is not None:
                self._ends(lease, "acked")
        return super()._settle(sequences)

    def fail(self, lease: Lease, failure: Failure) -> None:
        self._ends(lease, "expired" if failure is LEASE_RAN_OUT else "nacked", failure)
        super().fail(lease, failure)

    def put_off(self, lease: Lease, failure: Failure) -> None:
        self._ends(lease, "nacked", failure)
        super().put_off(lease, failure)

    def drop(self, lease: Lease, failure: Failure) -> None:
        self._ends(lease, "dropped", failure)
        super().drop(lease, failure)

    def give_back(self, leases: Iterable[Lease]) -> None:
        given_back = list(leases)
        for lease in given_back:
            self._ends(lease, "given_back")
        super().give_back(given_back)

    async def close(self) -> None:
        await super().close()
        for lease in self._leases.values():
            if isinstance(lease.holder, TracedHolder):
                lease.holder.end_span()

    def _ends(self, lease: Lease, outcome: str, failure: Failure | None = None) -> None:
        """Its holder is told when it does."""
        if isinstance(lease.holder, TracedHolder) and self.holds(lease):
            lease.holder.outcome = outcome
            if failure is not None:
                lease.holder.span.fail(failure.reason or failure.status or outcome)


class TracedBroker(Broker):
    """Opened by `open_traced`."""

    _queue_type = TracedQueue
    _tracing: Tracing

    @classmethod
    async def open_traced(
        cls,
        log: MessageLog,
        clock: Clock,
        settings: BrokerSettings,
        guard: AddressGuard | None = None,
        *,
        key_days: float,
        hide: Hide | None = None,
        tracing: Tracing,
    ) -> Self:
        broker = cls(log, clock, settings, guard, key_days=key_days, hide=hide)
        broker._tracing = tracing
        broker._restore(await log.load())
        return broker

    def _add_queue(
        self,
        key: int,
        config: Subscription,
        topic: TopicLog,
        progress: Progress,
        replacements: Sequence[Replacement] = (),
    ) -> None:
        super()._add_queue(key, config, topic, progress, replacements)
        queue = self._queues[config.name]
        assert isinstance(queue, TracedQueue)
        queue.tracing = self._tracing

    async def publish(self, topic: str, messages: Sequence[bytes], request_bytes: int) -> list[bytes]:
        if topic not in self._topics:
            return await super().publish(topic, messages, request_bytes)
        publishing = PublishSpans(self._tracing, topic, messages)
        return await publishing.ended_by(super().publish(topic, publishing.messages, request_bytes))

    async def publish_to(self, subscription: str, messages: Sequence[bytes], request_bytes: int) -> list[bytes]:
        if subscription not in self._queues:
            return await super().publish_to(subscription, messages, request_bytes)
        publishing = PublishSpans(self._tracing, subscription, messages)
        return await publishing.ended_by(super().publish_to(subscription, publishing.messages, request_bytes))

    async def publish_once(self, topic: str, messages: Sequence[bytes], request_bytes: int) -> list[bytes]:
        if topic not in self._topics:
            return await super().publish_once(topic, messages, request_bytes)
        publishing = PublishSpans(self._tracing, topic, messages)
        return await publishing.ended_by(super().publish_once(topic, publishing.messages, request_bytes))

    async def _dead_letter(self, subscription: Subscription, lease: Lease, failure: Failure) -> None:
        context = context_of(lease)
        if not context or subscription.dead_letter is None:
            await super()._dead_letter(subscription, lease, failure)
            return
        topic = short_id(subscription.dead_letter.topic)
        span = self._tracing.traces.start(
            spans.DEAD_LETTER,
            topic,
            {
                spans.TOPIC: topic,
                **about_delivery(subscription.name, self.queue(subscription.name).topic.key, lease),
            },
            parent=context,
        )
        with ended(span):
            await super()._dead_letter(subscription, lease, failure)

    def _dead_letter_copy(self, subscription: Subscription, lease: Lease, failure: Failure) -> Message:
        """It keeps its context. Where it has none it gets one: it carries more attributes than its original anyway."""
        copy = super()._dead_letter_copy(subscription, lease, failure)
        context = context_of(lease)
        if not context or self.is_strict or ATTRIBUTE in copy.attributes or len(copy.attributes) >= MOST_ATTRIBUTES:
            return copy
        return replace(copy, attributes={**copy.attributes, ATTRIBUTE: context})


def context_of(lease: Lease) -> str:
    return lease.holder.span.context if isinstance(lease.holder, TracedHolder) else ""


def about_delivery(subscription: str, topic_key: int, lease: Lease) -> dict[str, str | int]:
    return {
        **spans.of_subscription(subscription),
        spans.MESSAGE_ID: str(message_number(topic_key, lease.sequence)),
        spans.ATTEMPT: lease.attempt,
    }
