"""Every change of every status, legal or not, against the table as people would write it down."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from holdfast.errors import FailedPrecondition
from holdfast.model.failed_message import (
    LEGAL_CHANGES,
    LONGEST_ERROR_DETAILS_BYTES,
    FailedMessage,
    FailureStatus,
    bounded_error_details,
)
from holdfast.testing.contracts.failures import a_failure

QUEUED = FailureStatus.QUEUED_FOR_RETRY
PERMANENT = FailureStatus.PERMANENT_FAILURE
SUCCESS = FailureStatus.RETRY_SUCCESS
REPLAYED = FailureStatus.REPLAYED

AT = 1_700_000_000_123_456_789

Change = Callable[[FailedMessage], FailedMessage]

CHANGES: dict[FailureStatus, Change] = {
    QUEUED: lambda failure: failure.schedule_retry(AT),
    PERMANENT: lambda failure: failure.give_up(),
    SUCCESS: lambda failure: failure.mark_retry_success(AT),
    REPLAYED: lambda failure: failure.mark_replayed(AT),
}

# Written again on purpose: a slip in the table of the code must not change the test with it.
LEGAL = {
    (QUEUED, QUEUED),
    (QUEUED, PERMANENT),
    (QUEUED, SUCCESS),
    (QUEUED, REPLAYED),
    (PERMANENT, REPLAYED),
    (PERMANENT, QUEUED),
}
ALL_PAIRS = [(before, after) for before in FailureStatus for after in FailureStatus]


def failure_in(status: FailureStatus) -> FailedMessage:
    retry_at = AT - 1 if status is QUEUED else None
    return a_failure("1", id=7, status=status, retry_count=2, retry_at_ns=retry_at)


def test_every_status_has_a_row_and_a_way_to_reach_it() -> None:
    assert set(LEGAL_CHANGES) == set(FailureStatus) == set(CHANGES)


@pytest.mark.parametrize(("before", "after"), ALL_PAIRS)
def test_the_whole_matrix(before: FailureStatus, after: FailureStatus) -> None:
    failure = failure_in(before)
    if (before, after) in LEGAL:
        assert CHANGES[after](failure).status is after
    else:
        how = "already" if before is after else f"and cannot become {after}"
        with pytest.raises(FailedPrecondition, match=f"7 is {before} {how}"):
            CHANGES[after](failure)
    assert failure == failure_in(before)  # the old one is never changed


@pytest.mark.parametrize(("before", "after"), sorted(LEGAL))
def test_a_change_keeps_what_was_sent_and_why_it_failed(before: FailureStatus, after: FailureStatus) -> None:
    changed = CHANGES[after](failure_in(before))
    state: dict[str, Any] = {
        "status": before,
        "retry_count": 2,
        "retry_at_ns": None,
        "retry_success_at_ns": None,
    }
    assert replace(changed, **state) == replace(failure_in(before), **state)


@pytest.mark.parametrize(
    ("before", "after", "retry_count", "retry_at", "success_at"),
    [
        (QUEUED, QUEUED, 2, AT, None),
        (QUEUED, PERMANENT, 2, None, None),
        (QUEUED, SUCCESS, 2, None, AT),
        (QUEUED, REPLAYED, 2, None, AT),
        (PERMANENT, QUEUED, 2, AT, None),
        (PERMANENT, REPLAYED, 2, None, AT),
    ],
)
def test_counts_and_times_of_a_change(
    before: FailureStatus,
    after: FailureStatus,
    retry_count: int,
    retry_at: int | None,
    success_at: int | None,
) -> None:
    changed = CHANGES[after](failure_in(before))
    assert changed.retry_count == retry_count
    assert changed.retry_at_ns == retry_at
    assert changed.retry_success_at_ns == success_at


def test_three_retries_that_fail_count_three() -> None:
    """0, 1, 2 while queued, 3 when it is given up: each counts once it is sent."""
    failure = a_failure("1", status=QUEUED, retry_at_ns=5)
    counts = [failure.retry_count]
    for at in (10, 20):
        failure = failure.mark_sent(at, "sent").schedule_retry(at)
        counts.append(failure.retry_count)
    counts.append(failure.mark_sent(30, "sent").give_up().retry_count)
    assert counts == [0, 1, 2, 3]


def test_a_claim_does_not_count() -> None:
    claimed = a_failure("1", status=QUEUED, retry_at_ns=5).claim_retry(AT)
    assert (claimed.status, claimed.retry_count, claimed.retry_at_ns, claimed.is_out) == (QUEUED, 0, AT, False)


@pytest.mark.parametrize("change", [lambda row: row.claim_retry(AT), lambda row: row.mark_sent(AT, "again")])
def test_what_is_not_queued_is_neither_claimed_nor_sent(change: Change) -> None:
    with pytest.raises(FailedPrecondition, match="7 is permanent_failure and has no retry due"):
        change(failure_in(PERMANENT))


def test_what_is_out_is_not_claimed() -> None:
    with pytest.raises(FailedPrecondition, match="has no retry due"):
        failure_in(QUEUED).mark_sent(AT, "sent").claim_retry(AT)


def test_the_end_of_a_retry_brings_its_error() -> None:
    out = failure_in(QUEUED).mark_sent(AT, "sent")
    assert out.is_out
    for ended in (out.schedule_retry(AT, "worse"), out.give_up("worse")):
        assert (ended.is_out, ended.error_details, ended.sent_message_id) == (False, "worse", "sent")
    assert out.mark_retry_success(AT).error_details == out.error_details


@pytest.mark.parametrize("letter", ["x", "é", "€", "💥"])
@pytest.mark.parametrize("extra", range(5))
def test_a_cut_never_breaks_a_character(letter: str, extra: int) -> None:
    text = "-" * extra + letter * LONGEST_ERROR_DETAILS_BYTES
    kept = bounded_error_details(text)
    if text == kept:
        assert len(text.encode()) <= LONGEST_ERROR_DETAILS_BYTES
    else:
        assert len(kept.encode()) <= LONGEST_ERROR_DETAILS_BYTES
        assert text.startswith(kept.removesuffix(" … (cut)"))
