"""Settled messages: ranges behave as a plain set would, and the log's copy never differs from memory."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from holdfast.broker.log import FailedAttempts, Progress, Settle
from holdfast.broker.progress import SettledMessages

KEY = 7

_spans = st.tuples(st.integers(1, 60), st.integers(0, 5)).map(lambda span: (span[0], span[0] + span[1]))


def save(saved: Progress, change: Settle) -> None:
    """What a log does with a Settle."""
    saved.floor = change.floor
    for first in change.ranges_gone:
        saved.acked.pop(first, None)
    saved.acked.update(change.ranges_set)
    for sequence in change.failed_gone:
        saved.failed.pop(sequence, None)
    saved.failed.update(change.failed_set)


@given(st.lists(_spans, max_size=60), st.integers(1, 10))
def test_settled_messages_are_a_set(spans: list[tuple[int, int]], floor: int) -> None:
    settled, model = SettledMessages(Progress(floor)), set(range(floor))
    for first, last in spans:
        settled.settle(first, last)
        model |= set(range(first, last + 1))
    assert {sequence for sequence in range(80) if sequence in settled} == model
    assert settled.floor == next(sequence for sequence in range(100) if sequence not in model)


@given(st.lists(_spans, max_size=60))
def test_ranges_never_touch_or_overlap(spans: list[tuple[int, int]]) -> None:
    settled = SettledMessages(Progress(1))
    for first, last in spans:
        settled.settle(first, last)
    edges = sorted(settled.ranges.items())
    assert all(first <= last for first, last in edges)
    assert all(last + 1 < next_first for (_, last), (next_first, _) in pairwise(edges))
    assert not edges or edges[0][0] > settled.floor


_operations = st.lists(
    st.one_of(
        st.tuples(st.just("settle"), _spans),
        st.tuples(st.just("fail"), st.integers(1, 60)),
        st.tuples(st.just("save"), st.none()),
        st.tuples(st.just("refused save"), st.none()),
    ),
    max_size=60,
)


@given(_operations)
def test_what_is_saved_is_what_is_in_memory_also_after_refused_saves(operations: list[tuple[str, object]]) -> None:
    settled, saved = SettledMessages(Progress(1)), Progress(1)
    for attempt, (operation, value) in enumerate(operations):
        if operation == "settle":
            assert isinstance(value, tuple)
            settled.settle(*value)
        elif operation == "fail":
            assert isinstance(value, int)
            if value not in settled:
                settled.fail(value, FailedAttempts(attempt, attempt))
        elif operation == "save":
            save(saved, settled.take_unsaved(KEY))
        else:
            settled.put_back(settled.take_unsaved(KEY))
    save(saved, settled.take_unsaved(KEY))
    assert saved == Progress(settled.floor, dict(settled.ranges), settled.failed)
    assert not settled.has_unsaved


def test_a_message_that_is_settled_has_no_failed_attempts_left() -> None:
    settled = SettledMessages(Progress(1))
    settled.fail(3, FailedAttempts(2, 99))
    settled.settle(3, 3)
    assert settled.failed == {}
    assert settled.take_unsaved(KEY).failed_gone == (3,)


def test_acks_in_order_are_one_number() -> None:
    settled = SettledMessages(Progress(1))
    for sequence in range(1, 1001):
        settled.settle(sequence, sequence)
    assert settled.take_unsaved(KEY) == Settle(KEY, 1001)
