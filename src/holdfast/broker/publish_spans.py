"""The spans of one publish request: one for each message that has a context of its own, and one for all others."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

from holdfast.broker.trace_context import Tracing, context_in, with_context
from holdfast.model.names import is_subscription, short_id
from holdfast.tracing import spans
from holdfast.tracing.context import are_of_one_trace, is_sampled
from holdfast.tracing.traces import Span


class PublishSpans:
    """`destination` is the topic, or the one subscription that they are for. `messages` are what is to be published."""

    def __init__(self, tracing: Tracing, destination: str, messages: Sequence[bytes]) -> None:
        self.messages = messages
        self._tracing = tracing
        self._destination = destination
        self._caller = tracing.traces.current()
        contexts = [context_in(message) for message in messages]
        self._own = {at: self._start_own(at, context) for at, context in enumerate(contexts) if is_sampled(context)}
        self._others = [at for at, context in enumerate(contexts) if not context]
        self._shared = self._start_shared() if self._others else None
        if self._shared and tracing.marks:
            self._mark(self._shared.context)

    def _start_own(self, at: int, context: str) -> Span:
        elsewhere = self._caller and not are_of_one_trace(self._caller, context)
        told = {**self._about(), spans.BODY_SIZE: len(self.messages[at])}
        links = [self._caller] if elsewhere else []
        return self._tracing.traces.start(spans.PUBLISH, short_id(self._destination), told, parent=context, links=links)

    def _start_shared(self) -> Span | None:
        """None where it is not sampled."""
        size = sum(len(self.messages[at]) for at in self._others)
        told = {**self._about(), spans.BODY_SIZE: size, spans.BATCH: len(self._others)}
        span = self._tracing.traces.start(spans.PUBLISH, short_id(self._destination), told, parent=self._caller)
        return span if is_sampled(span.context) else None

    def _about(self) -> dict[str, str | int]:
        of = spans.of_subscription if is_subscription(self._destination) else spans.of_topic
        return {**of(self._destination), spans.BATCH: len(self.messages)}

    def _mark(self, context: str) -> None:
        others = set(self._others)
        self.messages = [
            with_context(message, context) if at in others else message for at, message in enumerate(self.messages)
        ]

    async def ended_by(self, publishing: Awaitable[list[bytes]]) -> list[bytes]:
        try:
            ids = await publishing
        except BaseException as error:
            for span in self._all():
                span.fail(type(error).__name__)
                span.end()
            raise
        for at, span in self._own.items():
            span.tell({spans.MESSAGE_ID: ids[at].decode()})
        if self._shared is not None:
            if len(self._others) == 1:
                self._shared.tell({spans.MESSAGE_ID: ids[self._others[0]].decode()})
            for at in self._others:
                self._tracing.remember(int(ids[at]), self._shared.context)
        for span in self._all():
            span.end()
        return ids

    def _all(self) -> list[Span]:
        return [*self._own.values(), *([self._shared] if self._shared else [])]
