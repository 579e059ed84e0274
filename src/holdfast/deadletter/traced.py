"""The desk with traces: what it records, and what it sends again, are spans of the message's own trace. The wiring
takes these where traces are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace

from holdfast.clock import Clock
from holdfast.deadletter.dead_letter import Arrival
from holdfast.deadletter.intake import Intake
from holdfast.deadletter.outlet import Fate, Outlet, Release
from holdfast.deadletter.retry_policy import RetryPolicy
from holdfast.deadletter.sending import MOST_ATTRIBUTES, Sending
from holdfast.deadletter.store import DeskStore
from holdfast.model.message import Message
from holdfast.model.names import is_subscription
from holdfast.model.replay_attributes import ORIGINAL_MESSAGE_ID, REPLAY_ID
from holdfast.tracing import spans
from holdfast.tracing.context import ATTRIBUTE, checked, is_sampled
from holdfast.tracing.spans import SpanType
from holdfast.tracing.traces import Span, Traces, ended


class TracedIntake(Intake):
    def __init__(
        self,
        traces: Traces,
        store: DeskStore,
        sending: Sending,
        policy: RetryPolicy,
        clock: Clock,
        on_queued: Callable[[], None] = lambda: None,
        on_permanent: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(store, sending, policy, clock, on_queued, on_permanent)
        self._traces = traces

    async def record(self, arrivals: Sequence[Arrival]) -> None:
        caller = self._traces.current()  # a consumer that captures what it cannot handle
        with ExitStack() as all_ended:
            for arrival in arrivals:
                all_ended.enter_context(ended(self._started(arrival, caller, len(arrivals))))
            await super().record(arrivals)

    def _started(self, arrival: Arrival, caller: str, together: int) -> Span:
        failure = arrival.failure
        return self._traces.start(
            spans.RECORD,
            spans.short_name(failure.subscription),
            {
                **spans.of_subscription(failure.subscription),
                spans.FAILURE_MESSAGE_ID: failure.message_id,
                spans.BATCH: together,
            },
            parent=caller or checked(failure.attributes.get(ATTRIBUTE, "")),
        )


class TracedOutlet:
    """`kind` is what it is used for: a retry or a replay."""

    def __init__(self, outlet: Outlet, traces: Traces, kind: SpanType) -> None:
        self._outlet = outlet
        self._traces = traces
        self._kind = kind

    async def publish(self, topic: str, message: Message) -> str:
        if REPLAY_ID not in message.attributes:  # nothing that failed: a person puts in something new
            return await self._outlet.publish(topic, message)
        span = self._started(topic, message, 1)
        with ended(span):
            message_id = await self._outlet.publish(topic, _carrying(message, span.context))
            span.tell({spans.MESSAGE_ID: message_id})
            return message_id

    async def publish_to(self, subscription: str, messages: Sequence[Message]) -> Sequence[str]:
        with ExitStack() as all_ended:
            started = [self._started(subscription, message, len(messages)) for message in messages]
            for span in started:
                all_ended.enter_context(ended(span))
            carrying = [_carrying(message, span.context) for message, span in zip(messages, started, strict=True)]
            message_ids = await self._outlet.publish_to(subscription, carrying)
            for span, message_id in zip(started, message_ids, strict=True):
                span.tell({spans.MESSAGE_ID: message_id})
            return message_ids

    def _started(self, target: str, message: Message, together: int) -> Span:
        about = spans.of_subscription(target) if is_subscription(target) else spans.of_topic(target)
        about[spans.BATCH] = together
        if original := message.attributes.get(ORIGINAL_MESSAGE_ID):
            about[spans.FAILURE_MESSAGE_ID] = original
        return self._traces.start(
            self._kind,
            spans.short_name(target),
            about,
            parent=checked(message.attributes.get(ATTRIBUTE, "")),
        )

    async def exists(self, target: str) -> bool:
        return await self._outlet.exists(target)

    async def fates(self, subscription: str, message_ids: Sequence[str]) -> Mapping[str, Fate]:
        return await self._outlet.fates(subscription, message_ids)

    async def release(self, subscription: str, message_id: str) -> Release:
        return await self._outlet.release(subscription, message_id)


def _carrying(message: Message, context: str) -> Message:
    """The trace goes on from here. Nothing is added for one that nobody wants to see."""
    has_one = ATTRIBUTE in message.attributes
    if not is_sampled(context) or (not has_one and len(message.attributes) >= MOST_ATTRIBUTES):
        return message
    return replace(message, attributes={**message.attributes, ATTRIBUTE: context})
