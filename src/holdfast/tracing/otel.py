"""Traces by OpenTelemetry, sent over OTLP. Imported only where traces are asked for: it needs holdfast[otel]."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import unquote

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import TracerProvider, sampling
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    ProxyTracerProvider,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
)

import holdfast
from holdfast.tracing import spans
from holdfast.tracing.context import checked
from holdfast.tracing.exporting import SpanQueue
from holdfast.tracing.spans import Kind, SpanType
from holdfast.tracing.traces import Attributes, Span

SYSTEM = "gcp_pubsub"

_KINDS = {
    Kind.SERVER: SpanKind.SERVER,
    Kind.PRODUCER: SpanKind.PRODUCER,
    Kind.CONSUMER: SpanKind.CONSUMER,
    Kind.CLIENT: SpanKind.CLIENT,
    Kind.INTERNAL: SpanKind.INTERNAL,
}

# An id that somebody gave is bounded already, but not by us.
LONGEST_NAME = 300


@dataclass(frozen=True, slots=True)
class Export:
    """`url` takes the spans. Empty `headers`, and whatever is not here, are as OTEL_EXPORTER_OTLP_… say."""

    url: str
    headers: str
    sampler: str
    ratio: float
    service_name: str
    part: str
    most_waiting: int


class OtelSpan:
    __slots__ = ("otel_span",)

    def __init__(self, span: trace.Span) -> None:
        self.otel_span = span

    @property
    def context(self) -> str:
        return _written(self.otel_span.get_span_context())

    def tell(self, attributes: Attributes) -> None:
        self.otel_span.set_attributes(attributes)

    def happened(self, event: str) -> None:
        self.otel_span.add_event(event)

    def fail(self, error_type: str) -> None:
        self.otel_span.set_attribute(spans.ERROR_TYPE, error_type)
        self.otel_span.set_status(Status(StatusCode.ERROR))

    def end(self) -> None:
        self.otel_span.end()


class OtelTraces:
    def __init__(self, export: Export) -> None:
        headers = _headers(export.headers)
        self.queue = SpanQueue(OTLPSpanExporter(endpoint=export.url, headers=headers or None), export.most_waiting)
        self._provider = TracerProvider(
            sampler=_sampler(export.sampler, export.ratio),
            resource=_resource(export.service_name, export.part),
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(self.queue)
        # For handlers with spans of their own. Where the program around us has a provider, theirs go there.
        if isinstance(trace.get_tracer_provider(), ProxyTracerProvider):
            trace.set_tracer_provider(self._provider)
        self._tracer = self._provider.get_tracer("holdfast", holdfast.__version__)

    def start(
        self, kind: SpanType, name: str, attributes: Attributes, *, parent: str = "", links: Sequence[str] = ()
    ) -> OtelSpan:
        told = {spans.SYSTEM: SYSTEM, spans.OPERATION: kind.operation, **attributes}
        if kind.operation_type:
            told[spans.OPERATION_TYPE] = kind.operation_type
        span = self._tracer.start_span(
            f"{kind.operation} {name[:LONGEST_NAME]}",
            context=_as_parent(parent),
            kind=_KINDS[kind.kind],
            attributes=told,
            links=[Link(_read(link)) for link in links],
        )
        return OtelSpan(span)

    def current(self) -> str:
        context = trace.get_current_span().get_span_context()
        return _written(context) if context.is_valid else ""

    @contextmanager
    def within(self, span: Span | str) -> Iterator[None]:
        current = span.otel_span if isinstance(span, OtelSpan) else NonRecordingSpan(_read(_context_of(span)))
        token = otel_context.attach(trace.set_span_in_context(current))
        try:
            yield
        finally:
            otel_context.detach(token)

    def close(self, within_seconds: float) -> None:
        self.queue.close(within_seconds)
        self._provider.shutdown()


def _as_parent(traceparent: str) -> Context:
    """An empty context, and not the current one, for the first span of a trace."""
    return trace.set_span_in_context(NonRecordingSpan(_read(traceparent)), Context()) if traceparent else Context()


def _context_of(span: Span | str) -> str:
    return span if isinstance(span, str) else span.context


def _read(traceparent: str) -> SpanContext:
    assert checked(traceparent)
    _, trace_id, span_id, flags = traceparent.split("-")
    return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=TraceFlags(int(flags, 16)))


def _written(context: SpanContext) -> str:
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags & 0xFF:02x}"


def _sampler(name: str, ratio: float) -> sampling.Sampler:
    root: sampling.Sampler
    match name.removeprefix("parentbased_"):
        case "always_on":
            root = sampling.ALWAYS_ON
        case "always_off":
            root = sampling.ALWAYS_OFF
        case _:
            root = sampling.TraceIdRatioBased(ratio)
    return sampling.ParentBased(root) if name.startswith("parentbased_") else root


def _resource(service_name: str, part: str) -> Resource:
    """OTEL_RESOURCE_ATTRIBUTES may say more, and even the name."""
    told = Resource.create({SERVICE_VERSION: holdfast.__version__, "holdfast.part": part})
    if service_name:
        return told.merge(Resource({SERVICE_NAME: service_name}))
    if str(told.attributes.get(SERVICE_NAME, "")).startswith("unknown_service"):
        return told.merge(Resource({SERVICE_NAME: "holdfast" if part == "up" else f"holdfast-{part}"}))
    return told


def _headers(text: str) -> dict[str, str]:
    """`name=value,name=value`, percent-encoded as OTEL_EXPORTER_OTLP_HEADERS is."""
    pairs = (pair.partition("=") for pair in text.split(",") if pair.strip())
    return {unquote(name.strip()).lower(): unquote(value.strip()) for name, _, value in pairs}
