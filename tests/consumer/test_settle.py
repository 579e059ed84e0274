"""Every outcome's end: acked, recorded and acked, or sent again, and the answer to a push request."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

import pytest

from holdfast.consumer.settle import Settlement, Way, must_be_recorded, not_recorded, push_answer, settle
from holdfast.model.outcome import Applied, Duplicate, Outcome, Poisoned, Retry, Stale

POISON = Poisoned("SCHEMA_VALIDATION_ERROR", "service: is missing", readable=True)
REFUSED_BY_STORE = Poisoned("SCHEMA_VALIDATION_ERROR", "too large", readable=True, by_store=True)
FORBIDDEN_STORE = Retry("PERMISSION_DENIED", misconfigured=True, by_store=True)
DONE = (Applied(("a/b",)), Duplicate("ops_dedupe/1"), Stale("a/b"))


# Who keeps it.


@pytest.mark.parametrize(
    ("outcome", "way", "has_policy", "has_topic", "recorded"),
    [
        # The subscription dead-letters it.
        (POISON, Way.PUSH, True, False, False),
        (POISON, Way.PUSH, True, True, False),
        (POISON, Way.PULL, True, False, False),
        # A nack would burn all attempts first.
        (POISON, Way.PULL, True, True, True),
        # It would come for ever.
        (POISON, Way.PUSH, False, False, True),
        (POISON, Way.PULL, False, False, True),
        # What the store refuses for good goes to DLQ_TOPIC, where there is one.
        (REFUSED_BY_STORE, Way.PUSH, True, True, True),
        (REFUSED_BY_STORE, Way.PUSH, True, False, False),
        (REFUSED_BY_STORE, Way.PUSH, False, False, True),
        (FORBIDDEN_STORE, Way.PUSH, True, True, True),
        (FORBIDDEN_STORE, Way.PULL, False, True, True),
        (FORBIDDEN_STORE, Way.PUSH, False, False, False),
        # Another service that is misconfigured is not the store.
        (Retry("no key", misconfigured=True), Way.PUSH, False, True, False),
        # Time may mend these.
        (Retry("busy"), Way.PUSH, False, True, False),
        (Retry("busy", by_store=True), Way.PUSH, False, True, False),
        (Retry("full", overloaded=True), Way.PUSH, False, True, False),
    ],
)
def test_what_is_recorded(outcome: Outcome, way: Way, has_policy: bool, has_topic: bool, recorded: bool) -> None:
    assert must_be_recorded(outcome, way, has_policy=has_policy, has_topic=has_topic) is recorded


@pytest.mark.parametrize("outcome", DONE)
@pytest.mark.parametrize("way", Way)
def test_what_is_done_needs_no_record(outcome: Outcome, way: Way) -> None:
    assert not must_be_recorded(outcome, way, has_policy=False, has_topic=True)
    assert settle(outcome, 0).acks


@pytest.mark.parametrize("outcome", [POISON, REFUSED_BY_STORE, FORBIDDEN_STORE])
def test_what_is_recorded_is_acked_and_what_could_not_be_is_not(outcome: Outcome) -> None:
    assert settle(outcome, 3, recorded="the desk") == Settlement(outcome, 200, "the desk")
    failed = not_recorded(outcome, 3)
    assert (failed.acks, failed.status, failed.recorded) == (False, 500, "")


# Pulled messages.


def test_a_pulled_message_comes_again_when_it_said_so() -> None:
    settlement = settle(Retry("busy", retry_after=30), 1)
    assert (settlement.acks, settlement.delay_seconds) == (False, 30)


def test_without_a_word_pauses_grow_with_the_attempts() -> None:
    pauses = [settle(Retry("busy"), attempt).delay_seconds for attempt in (0, 1, 2, 3, 20)]
    assert 1 <= pauses[0] <= 1.1
    assert 1 <= pauses[1] <= 1.1
    assert 2 <= pauses[2] <= 2.2
    assert 4 <= pauses[3] <= 4.4
    assert 54 <= pauses[4] <= 60


def test_poison_for_the_dead_letter_policy_is_not_held_back() -> None:
    assert settle(POISON, 2).delay_seconds == 0


# Push.

WHY = {"Holdfast-Failure-Reason": "TRANSIENT_ERROR", "Holdfast-Error": "why"}
SAID = {"outcome": "retry", "reason": "TRANSIENT_ERROR", "error": "why"}


@pytest.mark.parametrize(
    ("outcome", "status", "headers", "details"),
    [
        (Applied(("a/b",)), 200, {}, {"outcome": "applied", "documents": ["a/b"]}),
        (Duplicate("message:1"), 200, {}, {"outcome": "duplicate", "key": "message:1"}),
        (Stale("a/b"), 200, {}, {"outcome": "stale_ignored", "document": "a/b"}),
        (Retry("why"), 500, WHY, SAID),
        (
            Retry("why", misconfigured=True, reason="MISCONFIGURED"),
            500,
            WHY | {"Holdfast-Failure-Reason": "MISCONFIGURED"},
            SAID | {"reason": "MISCONFIGURED"},
        ),
        (Retry("why", retry_after=1.2), 503, WHY | {"Retry-After": "2"}, SAID),
        (Retry("why", retry_after=0), 503, WHY | {"Retry-After": "1"}, SAID),
        (Retry("why", overloaded=True), 429, WHY, SAID),
    ],
)
def test_answers(outcome: Outcome, status: int, headers: dict[str, str], details: dict[str, Any]) -> None:
    answer = push_answer(settle(outcome, 1), "m1")
    assert answer.status == status
    assert answer.headers == headers
    assert answer.body == {"messageId": "m1"} | details


@pytest.mark.parametrize(("readable", "status"), [(True, 422), (False, 400)])
def test_poison_asks_for_the_dead_letter_topic(readable: bool, status: int) -> None:
    answer = push_answer(settle(Poisoned("SCHEMA_VALIDATION_ERROR", "service: is missing", readable), 1), "m1")
    assert answer.status == status
    assert answer.headers == {
        "Holdfast-Dead-Letter": "now",
        "Holdfast-Failure-Reason": "SCHEMA_VALIDATION_ERROR",
        "Holdfast-Error": "service%3A%20is%20missing",
    }
    assert answer.body["reason"] == "SCHEMA_VALIDATION_ERROR"
    assert answer.body["error"] == "service: is missing"


@pytest.mark.parametrize("settlement", [settle(POISON, 1, recorded="the desk"), not_recorded(POISON, 1)])
def test_poison_that_is_not_the_brokers_to_keep_does_not_ask_for_it(settlement: Settlement) -> None:
    answer = push_answer(settlement, "m1")
    assert answer.headers == {"Holdfast-Error": "service%3A%20is%20missing"}
    assert answer.body.get("recorded", "") == settlement.recorded


def test_texts_in_headers_are_bounded_and_harmless() -> None:
    headers = push_answer(settle(Poisoned("R\r\nX: y", "😀\r\n\ud800" * 1000, readable=True), 1), "m1").headers
    assert headers["Holdfast-Failure-Reason"] == "R%0D%0AX%3A%20y"
    assert headers["Holdfast-Error"].isascii()
    assert len(unquote(headers["Holdfast-Error"])) == 512
    assert len(headers["Holdfast-Error"]) < 8000


def test_an_unknown_outcome_is_an_error_and_no_answer() -> None:
    class Shrug:
        name = "shrug"

    unknown: Any = Shrug()
    with pytest.raises(AssertionError):
        must_be_recorded(unknown, Way.PUSH, has_policy=True, has_topic=False)
    with pytest.raises(AssertionError):
        settle(unknown, 1)
    with pytest.raises(AssertionError):
        push_answer(Settlement(unknown, 200), "m1")
