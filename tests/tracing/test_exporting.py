"""Spans on their way out, through a real exporter to a real collector."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

import pytest

from holdfast.tracing import spans
from holdfast.tracing.otel import Export, OtelTraces
from tests.support.otlp import Collector, collector
from tests.support.waiting import eventually

__all__ = ["collector"]

# Whoever else in this process has set a provider: ours is used by ourselves.
CLOSE_SECONDS = 2.0


@contextmanager
def traces_to(
    url: str, most_waiting: int = 1000, sampler: str = "always_on", ratio: float = 1.0
) -> Iterator[OtelTraces]:
    traces = OtelTraces(Export(f"{url}/v1/traces", "", sampler, ratio, "", "up", most_waiting))
    try:
        yield traces
    finally:
        traces.close(CLOSE_SECONDS)


def end(traces: OtelTraces, count: int = 1) -> None:
    for _ in range(count):
        traces.start(spans.HANDLE, "order", {}).end()


def counts(traces: OtelTraces) -> tuple[int, int, int]:
    return traces.queue.exported, traces.queue.failed, traces.queue.dropped


def test_spans_go_out_by_themselves_and_all_of_them_at_the_end(collector: Collector) -> None:
    with traces_to(collector.url) as traces:
        end(traces)
        collector.wait_for("handle order")
        end(traces, 700)
    assert len(collector.spans) == 701
    assert counts(traces) == (701, 0, 0)


def test_what_has_no_room_is_dropped_at_once(collector: Collector) -> None:
    """The collector has taken a request, and does not answer."""
    collector.open_gate.clear()
    with traces_to(collector.url, most_waiting=50) as traces:
        end(traces)
        eventually(lambda: collector.requests)
        began = monotonic()
        end(traces, 10_000)
        assert monotonic() - began < 8
        assert traces.queue.waiting == 50
        assert counts(traces) == (0, 0, 9_950)
        collector.open_gate.set()
    assert counts(traces) == (51, 0, 9_950)
    assert len(collector.spans) == 51


def test_a_stop_waits_no_longer_than_it_may(collector: Collector) -> None:
    collector.open_gate.clear()
    with traces_to(collector.url) as traces:
        end(traces, 20)
        began = monotonic()
    assert CLOSE_SECONDS <= monotonic() - began < CLOSE_SECONDS + 8
    assert counts(traces) == (0, 0, 20)
    end(traces)  # some part may end after it
    assert counts(traces) == (0, 0, 21)


def test_a_collector_that_refuses_is_told_of_once_and_so_is_its_return(
    collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    collector.answer = 400  # for good, so that the exporter does not try again
    with caplog.at_level(logging.INFO), traces_to(collector.url) as traces:
        for count in (1, 2, 3):
            end(traces)
            eventually(lambda: traces.queue.failed == count)  # noqa: B023 - it is looked at in this turn
        collector.answer = 200
        end(traces)
        eventually(lambda: traces.queue.exported == 1)
    assert [record.getMessage() for record in caplog.records] == [
        "the collector takes no spans; they are dropped until it does",
        "the collector takes spans again",
    ]
    assert counts(traces) == (1, 3, 0)


def test_no_thread_is_left(collector: Collector) -> None:
    before = threading.active_count()
    with traces_to(collector.url) as traces:
        end(traces)
    eventually(lambda: threading.active_count() <= before)


@pytest.mark.parametrize(
    ("sampler", "ratio", "of_root", "of_sampled", "of_unsampled"),
    [
        ("always_on", 0.0, True, True, True),
        ("always_off", 1.0, False, False, False),
        ("traceidratio", 0.0, False, False, False),
        ("parentbased_always_on", 0.0, True, True, False),
        ("parentbased_always_off", 1.0, False, True, False),
        ("parentbased_traceidratio", 1.0, True, True, False),
        ("parentbased_traceidratio", 0.0, False, True, False),
    ],
)
def test_samplers(
    collector: Collector, sampler: str, ratio: float, of_root: bool, of_sampled: bool, of_unsampled: bool
) -> None:
    parents = {"": of_root, f"00-{'ab' * 16}-{'cd' * 8}-01": of_sampled, f"00-{'ab' * 16}-{'cd' * 8}-00": of_unsampled}
    with traces_to(collector.url, sampler=sampler, ratio=ratio) as traces:
        for parent in parents:
            traces.start(spans.HANDLE, parent, {}, parent=parent).end()
    kept = {span.name.partition(" ")[2] for span in collector.spans}
    assert kept == {parent for parent, is_kept in parents.items() if is_kept}


def test_what_runs_within_a_span_is_its_child_and_a_new_trace_is_none_of_it(collector: Collector) -> None:
    with traces_to(collector.url) as traces:
        assert traces.current() == ""
        outer = traces.start(spans.PROCESS, "worker", {spans.MESSAGE_ID: "1"})
        with traces.within(outer):
            assert traces.current() == outer.context
            traces.start(spans.HANDLE, "order", {}, parent=traces.current()).end()
            traces.start(spans.APPLY, "other", {}).end()
            with traces.within(f"00-{'ab' * 16}-{'cd' * 8}-01"):
                assert traces.current() == f"00-{'ab' * 16}-{'cd' * 8}-01"
        assert traces.current() == ""
        outer.end()
    by_name = {span.name: span for span in collector.spans}
    assert by_name["handle order"].parent_id == by_name["process worker"].span_id
    assert by_name["apply other"].parent_id == ""
    assert by_name["apply other"].trace_id != by_name["process worker"].trace_id
