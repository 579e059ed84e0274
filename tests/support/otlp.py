"""A collector of traces on this machine: it takes OTLP over HTTP and keeps the spans, parsed by OpenTelemetry's own
protobuf classes."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span as PbSpan
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from tests.support.waiting import eventually


@dataclass(frozen=True, slots=True)
class Seen:
    """A span as it came; ids in hex. `service` and `part` are of the process that made it."""

    name: str
    kind: str
    trace_id: str
    span_id: str
    parent_id: str
    links: tuple[tuple[str, str], ...]  # trace and span ids
    attributes: Mapping[str, Any]
    events: tuple[str, ...]
    failed: bool
    start_ns: int
    end_ns: int
    resource: Mapping[str, Any]

    @property
    def operation(self) -> str:
        return self.name.partition(" ")[0]

    @property
    def context(self) -> str:
        """As W3C writes it, up to the flags."""
        return f"00-{self.trace_id}-{self.span_id}-"


@dataclass
class Collector:
    """`answer` is the status of every answer. While `open_gate` is not set, requests wait for their answer."""

    url: str = ""
    answer: int = 200
    spans: list[Seen] = field(default_factory=list)
    requests: list[Mapping[str, str]] = field(default_factory=list)  # their headers
    paths: list[str] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    open_gate: threading.Event = field(default_factory=threading.Event)

    def found(self, name: str, trace_id: str = "") -> list[Seen]:
        """By name, or by the first word of it."""
        return [
            span
            for span in list(self.spans)
            if name in (span.name, span.operation) and (not trace_id or span.trace_id == trace_id)
        ]

    def wait_for(self, name: str, trace_id: str = "", count: int = 1, within: float = 30.0) -> list[Seen]:
        def enough() -> list[Seen]:
            found = self.found(name, trace_id)
            assert len(found) >= count, f"{len(found)} of {name}; there are {sorted({one.name for one in self.spans})}"
            return found

        return eventually(enough, within)

    def one(self, name: str, trace_id: str = "") -> Seen:
        (found,) = self.wait_for(name, trace_id)
        return found


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as running:
        yield running


@contextmanager
def collecting() -> Iterator[Collector]:
    collector = Collector()
    collector.open_gate.set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            collector.requests.append(dict(self.headers))
            collector.paths.append(self.path)
            collector.bodies.append(body)
            collector.open_gate.wait(30)
            if collector.answer == 200:
                assert self.headers["Content-Type"] == "application/x-protobuf"
                collector.spans += _spans(ExportTraceServiceRequest.FromString(body))
            self.send_response(collector.answer)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """A client that went away."""

    server = Server(("127.0.0.1", 0), Handler)
    collector.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield collector
    finally:
        collector.open_gate.set()
        server.shutdown()
        server.server_close()
        thread.join()


def _spans(request: Any) -> Iterator[Seen]:
    for resource_spans in request.resource_spans:
        resource = _values(resource_spans.resource.attributes)
        for scope_spans in resource_spans.scope_spans:
            for span in scope_spans.spans:
                yield Seen(
                    span.name,
                    PbSpan.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_").lower(),
                    span.trace_id.hex(),
                    span.span_id.hex(),
                    span.parent_span_id.hex(),
                    tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
                    _values(span.attributes),
                    tuple(event.name for event in span.events),
                    span.status.code == Status.STATUS_CODE_ERROR,
                    span.start_time_unix_nano,
                    span.end_time_unix_nano,
                    resource,
                )


def _values(attributes: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}
