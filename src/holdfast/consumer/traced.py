"""The consumer with traces: its work on each delivery is a span, with the handler, the wait for the store, and the
transactions below it. The wiring takes these where traces are asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass

from holdfast.clock import Clock
from holdfast.consumer.app import Consumer, Route
from holdfast.consumer.changes import Change
from holdfast.consumer.coalescer import Coalescer
from holdfast.consumer.documents import DocumentStore, Result, Write
from holdfast.consumer.event import Event
from holdfast.consumer.failure_sink import FailureSink
from holdfast.consumer.message_log import Hide, Trail
from holdfast.consumer.pipeline import Pipeline
from holdfast.consumer.settle import Settlement, Way
from holdfast.model.message import Delivery
from holdfast.model.outcome import Poisoned, Retry
from holdfast.settings import ConsumerSettings
from holdfast.tracing import spans
from holdfast.tracing.context import ATTRIBUTE, are_of_one_trace, checked, is_sampled
from holdfast.tracing.traces import Span, Traces, ended


@dataclass(slots=True)
class _Work:
    """On one delivery."""

    span: Span
    handler: str = ""


_work: ContextVar[_Work | None] = ContextVar("work", default=None)


class TracedPipeline(Pipeline):
    def __init__(
        self,
        traces: Traces,
        app: Consumer,
        store: DocumentStore,
        failures: FailureSink,
        clock: Clock,
        settings: ConsumerSettings,
        subscription_topics: Mapping[str, str] | None = None,
        hide: Hide | None = None,
    ) -> None:
        super().__init__(app, store, failures, clock, settings, subscription_topics, hide)
        self._traces = traces
        self._coalescer = TracedCoalescer(traces, store, clock, settings)

    async def handle(self, delivery: Delivery, way: Way) -> Settlement:
        span = self._begun(delivery, way)
        # Of what nobody wants to see only the context goes on.
        token = _work.set(_Work(span) if is_sampled(span.context) else None)
        try:
            with self._traces.within(span), ended(span):
                return await super().handle(delivery, way)
        finally:
            _work.reset(token)

    def _begun(self, delivery: Delivery, way: Way) -> Span:
        """What the message carries is the trace that it belongs to. Whoever pushes it may know where in that trace it
        is; a front end in between has a trace of its own, to which there is a link."""
        message = delivery.message
        carried = checked(message.attributes.get(ATTRIBUTE, ""))
        caller = self._traces.current() if way is Way.PUSH else ""
        is_deeper = not carried or (bool(caller) and are_of_one_trace(caller, carried))
        return self._traces.start(
            spans.PROCESS,
            spans.short_name(delivery.subscription),
            {
                **spans.of_subscription(delivery.subscription),
                spans.MESSAGE_ID: message.message_id,
                spans.BODY_SIZE: len(message.data),
                spans.WAY: way.value,
                **({spans.ATTEMPT: delivery.attempt} if delivery.attempt else {}),
                **({spans.ORDERING_KEY: message.ordering_key} if message.ordering_key else {}),
            },
            parent=caller if is_deeper else carried,
            links=[caller] if caller and not is_deeper else [],
        )

    async def _changes(self, route: Route, event: Event) -> tuple[Change, ...]:
        if (work := _work.get()) is None:
            return await super()._changes(route, event)
        work.span.happened("decoded")
        work.handler = route.name
        about = {spans.HANDLER: route.name}
        span = self._traces.start(spans.HANDLE, route.name, about, parent=self._traces.current())
        with self._traces.within(span), ended(span):
            return await super()._changes(route, event)

    def _note(self, delivery: Delivery, trail: Trail, settlement: Settlement, way: Way) -> None:
        super()._note(delivery, trail, settlement, way)
        if (work := _work.get()) is None:
            return
        outcome = settlement.outcome
        known = {spans.OUTCOME: outcome.name, spans.TOPIC: spans.short_name(trail.topic), spans.HANDLER: trail.handler}
        work.span.tell({name: value for name, value in known.items() if value})
        if isinstance(outcome, Poisoned | Retry):
            work.span.fail(outcome.reason)


class TracedCoalescer(Coalescer):
    def __init__(self, traces: Traces, store: DocumentStore, clock: Clock, settings: ConsumerSettings) -> None:
        super().__init__(store, clock, settings)
        self._traces = traces
        self._spans: dict[int, Span] = {}  # by the id of the write, of those that are sampled

    async def apply(self, write: Write, size: int) -> Result:
        if (work := _work.get()) is None:
            return await super().apply(write, size)
        about = {spans.HANDLER: work.handler}
        span = self._spans[id(write)] = self._traces.start(
            spans.APPLY, work.handler, about, parent=self._traces.current()
        )
        try:
            with ended(span):
                result = await super().apply(write, size)
                span.tell({spans.OUTCOME: result.name})
                return result
        finally:
            del self._spans[id(write)]

    async def _with_retries(self, writes: Sequence[Write]) -> Sequence[Result]:
        applied = [span.context for write in writes if (span := self._spans.get(id(write))) is not None]
        if not applied:
            return await super()._with_retries(writes)
        span = self._traces.start(
            spans.WRITE, "documents", {spans.BATCH: len(writes)}, parent=applied[0], links=applied[1:]
        )
        with self._traces.within(span), ended(span):
            return await super()._with_retries(writes)
