"""Traces of a process, where its settings ask for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from holdfast.errors import SettingError
from holdfast.metrics import traces as table
from holdfast.metrics.metric import Family, Sample
from holdfast.metrics.registry import MetricsRegistry
from holdfast.settings import Settings
from holdfast.tracing.traces import Traces

if TYPE_CHECKING:
    from holdfast.tracing.exporting import SpanQueue
    from holdfast.tracing.otel import OtelTraces


@asynccontextmanager
async def tracing(settings: Settings, metrics: MetricsRegistry, part: str) -> AsyncIterator[Traces | None]:
    """`part` is the command. None where there are no traces. At the end the last spans are sent, so it is entered
    before whatever makes spans."""
    if not settings.traces.url:
        yield None
        return
    traces = _opened(settings, part)
    metrics.register(lambda: _metrics(traces.queue))
    try:
        yield traces
    finally:
        await asyncio.to_thread(traces.close, settings.traces.flush_seconds)


def _opened(settings: Settings, part: str) -> OtelTraces:
    """Imported only when asked for: what it needs is an extra, and takes its time."""
    try:
        from holdfast.tracing.otel import Export, OtelTraces  # noqa: PLC0415
    except ModuleNotFoundError as error:
        needed = "needs more packages: pip install 'holdfast[otel]'; or turn traces.enabled off"
        raise SettingError("traces.endpoint", settings.traces.url, needed) from error
    given = settings.traces
    _check_headers(given.headers)
    export = Export(
        given.url, given.headers, given.sampler, given.sample_ratio, given.service_name, part, given.queue_size
    )
    return OtelTraces(export)


def _check_headers(text: str) -> None:
    """The error does not quote what is mostly a secret."""
    pairs = [pair.partition("=") for pair in text.split(",") if pair.strip()]
    if not all(name.strip() and equals for name, equals, _ in pairs):
        raise SettingError("traces.headers", "…", "must look like name=value,name=value")


def _metrics(queue: SpanQueue) -> list[Family]:
    counts = {"exported": queue.exported, "failed": queue.failed, "dropped": queue.dropped}
    return [
        Family(table.SPANS, [Sample((result,), count) for result, count in counts.items()]),
        Family(table.WAITING, [Sample((), queue.waiting)]),
    ]
