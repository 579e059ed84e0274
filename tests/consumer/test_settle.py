"""Every outcome's answer to a push request."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

import pytest

from holdfast.consumer.settle import settle
from holdfast.model.outcome import Applied, Duplicate, Outcome, Poisoned, Retry, Stale


@pytest.mark.parametrize(
    ("outcome", "status", "headers", "details"),
    [
        (Applied(("a/b",)), 200, {}, {"outcome": "applied", "documents": ["a/b"]}),
        (Duplicate("message:1"), 200, {}, {"outcome": "duplicate", "key": "message:1"}),
        (Stale("a/b"), 200, {}, {"outcome": "stale_ignored", "document": "a/b"}),
        (Retry("why"), 500, {"Holdfast-Error": "why"}, {"outcome": "retry", "error": "why"}),
        (Retry("why", misconfigured=True), 500, {"Holdfast-Error": "why"}, {"outcome": "retry", "error": "why"}),
        (
            Retry("why", retry_after=1.2),
            503,
            {"Retry-After": "2", "Holdfast-Error": "why"},
            {"outcome": "retry", "error": "why"},
        ),
        (
            Retry("why", retry_after=0),
            503,
            {"Retry-After": "1", "Holdfast-Error": "why"},
            {"outcome": "retry", "error": "why"},
        ),
        (
            Retry("backpressure_queue_full", overloaded=True),
            429,
            {"Holdfast-Error": "backpressure_queue_full"},
            {"outcome": "retry", "error": "backpressure_queue_full"},
        ),
    ],
)
def test_answers(outcome: Outcome, status: int, headers: dict[str, str], details: dict[str, Any]) -> None:
    answer = settle(outcome, "m1")
    assert answer.status == status
    assert answer.headers == headers
    assert answer.body == {"messageId": "m1"} | details


@pytest.mark.parametrize(("readable", "status"), [(True, 422), (False, 400)])
def test_poison_asks_for_the_dead_letter_topic(readable: bool, status: int) -> None:
    answer = settle(Poisoned("SCHEMA_VALIDATION_ERROR", "service: is missing", readable), "m1")
    assert answer.status == status
    assert answer.headers == {
        "Holdfast-Dead-Letter": "now",
        "Holdfast-Failure-Reason": "SCHEMA_VALIDATION_ERROR",
        "Holdfast-Error": "service%3A%20is%20missing",
    }
    assert answer.body["reason"] == "SCHEMA_VALIDATION_ERROR"
    assert answer.body["error"] == "service: is missing"


def test_texts_in_headers_are_bounded_and_harmless() -> None:
    headers = settle(Poisoned("R\r\nX: y", "😀\r\n\ud800" * 1000, readable=True), "m1").headers
    assert headers["Holdfast-Failure-Reason"] == "R%0D%0AX%3A%20y"
    assert headers["Holdfast-Error"].isascii()
    assert len(unquote(headers["Holdfast-Error"])) == 512
    assert len(headers["Holdfast-Error"]) < 8000


def test_an_unknown_outcome_is_an_error_and_no_answer() -> None:
    class Shrug:
        name = "shrug"

    with pytest.raises(AssertionError):
        settle(Shrug(), "m1")  # type: ignore[arg-type]
