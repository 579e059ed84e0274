"""What an endpoint's answer means."""

from __future__ import annotations

import pytest

from holdfast.broker.push.answers import failure_of, is_about_the_message, is_acknowledged, result_name
from holdfast.clock import NANOSECONDS
from holdfast.outgoing.client import Answer, NoAnswer

NOW_NS = 1_700_000_000 * NANOSECONDS  # Tue, 14 Nov 2023 22:13:20 GMT


@pytest.mark.parametrize("status", [102, 200, 201, 202, 204])
def test_these_statuses_acknowledge(status: int) -> None:
    assert is_acknowledged(Answer(status, {}))
    assert result_name(Answer(status, {})) == "acknowledged"


@pytest.mark.parametrize(
    ("status", "name"),
    [
        (203, "status_2xx"),
        (206, "status_2xx"),
        (301, "status_3xx"),
        (400, "status_4xx"),
        (429, "status_4xx"),
        (500, "status_5xx"),
        (599, "status_5xx"),
        (101, "status_other"),
        (999, "status_other"),
    ],
)
def test_no_other_status_does(status: int, name: str) -> None:
    assert not is_acknowledged(Answer(status, {}))
    assert result_name(Answer(status, {})) == name


def test_no_answer_is_a_failure_with_its_reason() -> None:
    result = NoAnswer("timeout", "no answer within 30 s")
    assert not is_acknowledged(result)
    assert not is_about_the_message(result)
    failure = failure_of(result, strict=False, now_ns=NOW_NS)
    assert (failure.status, failure.error) == ("timeout", "no answer within 30 s")


def retry_after(value: str, **headers: str) -> float | None:
    answer = Answer(503, {"retry-after": value, **headers})
    return failure_of(answer, strict=False, now_ns=NOW_NS).retry_after_seconds


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0.0),
        ("30", 30.0),
        ("601", 600.0),
        ("9" * 5000, 600.0),
        ("Tue, 14 Nov 2023 22:14:20 GMT", 60.0),
        ("Tue, 14 Nov 2023 22:12:20 GMT", 0.0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 600.0),
        ("-5", None),
        ("1.5", None),
        ("soon", None),
        ("١٢", None),
        ("", None),
    ],
)
def test_retry_after(value: str, seconds: float | None) -> None:
    assert retry_after(value) == seconds


def test_a_date_is_compared_with_the_endpoints_own_clock() -> None:
    assert retry_after("Mon, 01 Jan 2001 00:00:45 GMT", date="Mon, 01 Jan 2001 00:00:00 GMT") == 45.0


def test_strict_knows_the_status_alone() -> None:
    headers = {
        "retry-after": "30",
        "holdfast-dead-letter": "now",
        "holdfast-error": "x",
        "holdfast-failure-reason": "y",
    }
    failure = failure_of(Answer(503, headers), strict=True, now_ns=NOW_NS)
    assert failure.retry_after_seconds is None
    assert not failure.dead_letter_now
    assert (failure.status, failure.reason, failure.error) == ("503", "", "the endpoint answered 503")
