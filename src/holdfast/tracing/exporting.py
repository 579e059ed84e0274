"""Sends spans away on a thread of its own. Nothing waits for it: what it cannot send is dropped, and counted."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from time import monotonic

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

log = logging.getLogger("holdfast.traces")

# OpenTelemetry's own figure.
BATCH_SPANS = 512

# Whoever looks at a trace while it happens does not wait long. A request a second costs nothing.
LONGEST_WAIT_SECONDS = 1.0

# At a stop, for a collector that is known to be down.
FAILING_SECONDS = 0.5

# What the exporter says of each failed try would fill the log of an outage: the loggers that are silent on our thread.
_CHATTY = ("opentelemetry.exporter.otlp.proto.http.trace_exporter", "opentelemetry.exporter.otlp.common.http")


class SpanQueue(SpanProcessor):
    """OpenTelemetry's BatchSpanProcessor does not count what it drops, and waits half a minute at the end."""

    def __init__(self, exporter: SpanExporter, most: int, wait_seconds: float = LONGEST_WAIT_SECONDS) -> None:
        self.exported = 0
        self.failed = 0  # the collector did not take them
        self.dropped = 0  # there was no room, or no time at the end
        self._exporter = exporter
        self._most = most
        self._wait_seconds = wait_seconds
        self._waiting: deque[ReadableSpan] = deque()
        self._sending = 0
        self._wake = threading.Event()
        self._stopping = False
        self._is_failing = False
        # A daemon: a collector that hangs must not keep the process.
        self._thread = threading.Thread(target=self._run, name="holdfast traces", daemon=True)
        for name in _CHATTY:
            logging.getLogger(name).addFilter(self._is_not_ours)
        self._thread.start()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        pass

    def on_end(self, span: ReadableSpan) -> None:
        """Runs where the span ends, so it must cost nothing: two looks and an append."""
        if self._stopping or len(self._waiting) >= self._most:
            self.dropped += 1
            return
        self._waiting.append(span)
        if len(self._waiting) >= BATCH_SPANS and not self._wake.is_set():
            self._wake.set()

    def _run(self) -> None:
        while not self._stopping:
            self._wake.wait(self._wait_seconds)
            self._wake.clear()
            self._send_all()
        self._send_all()

    def _send_all(self) -> None:
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), BATCH_SPANS))]
            self._sending = len(batch)
            if self._sent(batch):
                self.exported += len(batch)
            else:
                self.failed += len(batch)
            self._sending = 0

    def _sent(self, batch: Sequence[ReadableSpan]) -> bool:
        try:
            is_sent = self._exporter.export(batch) is SpanExportResult.SUCCESS
        except Exception as error:  # noqa: BLE001 - whatever the exporter meets, the thread goes on
            log.warning("spans could not be sent", extra={"fields": {"error": type(error).__name__}})
            is_sent = False
        self._tell(is_sent)
        return is_sent

    def _tell(self, is_sent: bool) -> None:
        if is_sent and self._is_failing:
            log.info("the collector takes spans again")
        elif not is_sent and not self._is_failing:
            log.warning("the collector takes no spans; they are dropped until it does")
        self._is_failing = not is_sent

    def _is_not_ours(self, _: logging.LogRecord) -> bool:
        return threading.current_thread() is not self._thread

    def close(self, within_seconds: float) -> None:
        """What waits is sent, as far as that time allows. For a collector that takes nothing there is one more try."""
        within_seconds = min(within_seconds, FAILING_SECONDS) if self._is_failing else within_seconds
        ends = monotonic() + within_seconds
        self._stopping = True
        self._wake.set()
        self._thread.join(within_seconds)
        _within(max(0.1, ends - monotonic()), self._exporter.shutdown)
        left = len(self._waiting) + self._sending if self._thread.is_alive() else len(self._waiting)
        self.dropped += left
        self._waiting.clear()
        for name in _CHATTY:
            logging.getLogger(name).removeFilter(self._is_not_ours)
        if left:
            log.warning("spans were lost at the stop", extra={"fields": {"count": left}})

    def shutdown(self) -> None:
        pass  # `close` has its time told

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        self._wake.set()
        return True


def _within(seconds: float, work: Callable[[], None]) -> None:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
