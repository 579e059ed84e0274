"""The policy table: its defaults, how it is edited, and what it does to a failure."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast.clock import NANOSECONDS
from holdfast.deadletter.retry_policy import RetryPolicy
from holdfast.errors import SettingError
from holdfast.model.failed_message import FailedMessage, FailureClass, FailureStatus
from holdfast.settings import load_settings
from holdfast.testing.contracts.failures import a_failure

NOW = 1_700_000_000 * NANOSECONDS


def policy(*tables: Mapping[str, Any], jitter: float = 0.0) -> RetryPolicy:
    return RetryPolicy.of_tables(tables, jitter)


def begun(reason: str, *tables: Mapping[str, Any]) -> FailedMessage:
    return policy(*tables).begin(a_failure("1", failure_reason=reason), NOW)


def delays_until_given_up(reason: str, *tables: Mapping[str, Any]) -> list[float]:
    """What a failure goes through that never succeeds."""
    failure, delays, now = begun(reason, *tables), [], NOW
    while failure.retry_at_ns is not None:
        delays.append((failure.retry_at_ns - now) / NANOSECONDS)
        now = failure.retry_at_ns
        failure = policy(*tables).retry_failed(failure.mark_sent(now, "sent"), now, "again")
    assert failure.status is FailureStatus.PERMANENT_FAILURE
    assert failure.retry_count == len(delays)
    return delays


@pytest.mark.parametrize(
    ("reason", "delays"),
    [
        ("API_RATE_LIMIT_EXCEEDED", [60, 60, 60]),
        ("DATABASE_CONNECTION_ERROR", [5, 10, 20]),
        ("KAFKA_BROKER_UNAVAILABLE", [5, 10, 20]),
        ("DELIVERY_ATTEMPTS_EXHAUSTED", [5, 10, 20]),
        ("what nobody foresaw", [5, 10, 20]),
        ("SCHEMA_VALIDATION_ERROR", []),
        ("DECODE_ERROR", []),
        ("UNROUTABLE", []),
        ("MISCONFIGURED", []),
        ("STORE_MISCONFIGURED", []),
    ],
)
def test_the_defaults(reason: str, delays: Sequence[float]) -> None:
    assert delays_until_given_up(reason) == delays


@pytest.mark.parametrize(
    ("reason", "failure_class"),
    [
        ("DECODE_ERROR", FailureClass.POISON),
        ("STORE_MISCONFIGURED", FailureClass.MISCONFIGURED),
        ("DATABASE_CONNECTION_ERROR", FailureClass.TRANSIENT),
        ("what nobody foresaw", FailureClass.UNKNOWN),
    ],
)
def test_what_can_be_done_about_it(reason: str, failure_class: FailureClass) -> None:
    assert begun(reason).failure_class is failure_class


@pytest.mark.parametrize("told", [FailureClass.POISON, FailureClass.MISCONFIGURED])
def test_a_reason_without_a_rule_is_what_its_consumer_says(told: FailureClass) -> None:
    failure = policy().begin(a_failure("1", failure_reason="NO_NUMBER", failure_class=told), NOW)
    assert (failure.status, failure.failure_class) == (FailureStatus.PERMANENT_FAILURE, told)
    own = policy({"reason": "NO_NUMBER", "delays": [1]})
    assert own.begin(failure, NOW).status is FailureStatus.QUEUED_FOR_RETRY  # a rule of its own says more


def test_a_duplicate_is_a_success_at_once() -> None:
    failure = begun("DUPLICATE_MESSAGE")
    assert (failure.status, failure.retry_success_at_ns) == (FailureStatus.RETRY_SUCCESS, NOW)
    assert failure.retry_count == 0


def test_the_error_of_the_last_retry_is_kept() -> None:
    failure = begun("DATABASE_CONNECTION_ERROR").mark_sent(NOW, "sent")
    assert policy().retry_failed(failure, NOW, "still down").error_details == "still down"


def test_a_failure_that_had_all_its_retries_gets_one_more_when_a_person_asks() -> None:
    failure = a_failure("1", failure_reason="DATABASE_CONNECTION_ERROR", retry_count=3).schedule_retry(NOW)
    assert policy().retry_failed(failure.mark_sent(NOW, "sent"), NOW, "").status is FailureStatus.PERMANENT_FAILURE


def test_jitter_spreads_a_thousand_over_two_fifths_of_the_delay() -> None:
    spread = RetryPolicy(jitter=0.2, spread=random.Random(7).random)
    failures = [spread.begin(a_failure("1", failure_reason="API_RATE_LIMIT_EXCEEDED"), NOW) for _ in range(1000)]
    delays = [((failure.retry_at_ns or 0) - NOW) / NANOSECONDS for failure in failures]
    assert 48 <= min(delays) < 49
    assert 71 < max(delays) <= 72
    busiest = max(sum(second <= delay < second + 1 for delay in delays) for second in range(48, 72))
    assert busiest < 75  # 42 on average; without jitter it would be 1,000


# Editing.


def test_a_table_changes_one_reason_and_no_other() -> None:
    table = {"reason": "DECODE_ERROR", "delays": [1, 2.5]}
    assert delays_until_given_up("DECODE_ERROR", table) == [1, 2.5]
    assert delays_until_given_up("UNROUTABLE", table) == []
    assert begun("DECODE_ERROR", table).failure_class is FailureClass.POISON


def test_the_rule_of_all_others_can_be_edited() -> None:
    table = {"reason": "*", "delays": [], "class": "misconfigured"}
    assert delays_until_given_up("what nobody foresaw", table) == []
    assert begun("what nobody foresaw", table).failure_class is FailureClass.MISCONFIGURED
    assert delays_until_given_up("DATABASE_CONNECTION_ERROR", table) == [5, 10, 20]


def test_a_class_alone_leaves_the_delays() -> None:
    assert delays_until_given_up("API_RATE_LIMIT_EXCEEDED", {"reason": "API_RATE_LIMIT_EXCEEDED", "class": "poison"})


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        ("retry_success", FailureStatus.RETRY_SUCCESS),
        ("permanent_failure", FailureStatus.PERMANENT_FAILURE),
    ],
)
def test_an_outcome_takes_the_place_of_retries(outcome: str, status: FailureStatus) -> None:
    assert begun("ALREADY_DONE", {"reason": "ALREADY_DONE", "outcome": outcome}).status is status


def test_it_is_written_in_holdfast_toml(tmp_path: Path) -> None:
    config = tmp_path / "holdfast.toml"
    config.write_text('[[desk.retry]]\nreason = "DECODE_ERROR"\ndelays = [1]\nclass = "transient"\n')
    tables = load_settings(environ={}, config=config).desk.retry
    assert delays_until_given_up("DECODE_ERROR", *tables) == [1]


@pytest.mark.parametrize(
    ("table", "key"),
    [
        ({}, "desk.retry[0].reason"),
        ({"reason": ""}, "desk.retry[0].reason"),
        ({"reason": 5}, "desk.retry[0].reason"),
        ({"reason": "A"}, "desk.retry[0]"),
        ({"reason": "A", "delay": [1]}, "desk.retry[0].delay"),
        ({"reason": "A", "delays": 5}, "desk.retry[0].delays"),
        ({"reason": "A", "delays": [1] * 11}, "desk.retry[0].delays"),
        ({"reason": "A", "delays": [1, "2"]}, "desk.retry[0].delays[1]"),
        ({"reason": "A", "delays": [True]}, "desk.retry[0].delays[0]"),
        ({"reason": "A", "delays": [-1]}, "desk.retry[0].delays[0]"),
        ({"reason": "A", "delays": [float("nan")]}, "desk.retry[0].delays[0]"),
        ({"reason": "A", "delays": [1e9]}, "desk.retry[0].delays[0]"),
        ({"reason": "A", "class": "bad"}, "desk.retry[0].class"),
        ({"reason": "A", "class": ["poison"]}, "desk.retry[0].class"),
        ({"reason": "A", "outcome": "replayed"}, "desk.retry[0].outcome"),
        ({"reason": "A", "outcome": "retry_success", "delays": [1]}, "desk.retry[0].delays"),
    ],
)
def test_a_table_that_makes_no_sense_is_refused_by_its_key(table: Mapping[str, Any], key: str) -> None:
    with pytest.raises(SettingError) as caught:
        policy(table)
    assert caught.value.key == key


def test_two_tables_for_one_reason_are_refused() -> None:
    with pytest.raises(SettingError) as caught:
        policy({"reason": "A", "delays": []}, {"reason": "A", "delays": [1]})
    assert caught.value.key == "desk.retry[1].reason"
