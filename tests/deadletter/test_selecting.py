"""Which failures are meant, as people write it: query strings, JSON, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.deadletter.selecting import (
    LARGEST_NUMBER,
    NAMES,
    Reading,
    form_from_query,
    query_from_form,
    selection_from_json,
    selection_from_query,
    selection_to_json,
)
from holdfast.deadletter.selection import Selection
from holdfast.errors import BadInput
from holdfast.model.failed_message import FailureStatus
from holdfast.model.timestamps import format_rfc3339

HOUR_NS = 3600 * 10**9
NOW_NS = 1_800_000_000 * 10**9
READING = Reading(NOW_NS, "shop")

ALL: Mapping[str, Any] = {
    "id": [3, 4],
    "status": ["permanent_failure", "queued_for_retry"],
    "reason": "DECODE_ERROR",
    "subscription": "projects/other/subscriptions/orders.worker",
    "topic": "orders",
    "group": "f00",
    "messageId": "m-1",
    "since": "24h",
    "until": "2027-01-15T08:00:00Z",
    "attempts": "2..5",
    "attribute": {"tenant": "a:b", "empty": ""},
    "payload": {"order.lines.0.sku": 17, "paid": True, "note": None},
    "text": "Zürich",
    "hold": False,
    "replay": 9,
}

SELECTED = Selection(
    ids=(3, 4),
    statuses=(FailureStatus.PERMANENT_FAILURE, FailureStatus.QUEUED_FOR_RETRY),
    reason="DECODE_ERROR",
    subscription="projects/other/subscriptions/orders.worker",
    topic="projects/shop/topics/orders",
    fingerprint="f00",
    message_id="m-1",
    since_ns=NOW_NS - 24 * HOUR_NS,
    until_ns=NOW_NS,
    fewest_attempts=2,
    most_attempts=5,
    attributes={"tenant": "a:b", "empty": ""},
    payload={"order.lines.0.sku": "17", "paid": "true", "note": "null"},
    text="Zürich",
    legal_hold=False,
    replay_id=9,
)


def test_everything_that_can_be_said() -> None:
    assert set(ALL) == NAMES
    assert selection_from_json(ALL, READING) == SELECTED
    assert selection_from_query(query_from_form(ALL), READING) == SELECTED


def test_nothing_said_means_every_failure() -> None:
    assert selection_from_query([], READING) == selection_from_json({}, READING) == Selection()
    assert selection_to_json(Selection()) == {}


def test_it_is_written_so_that_later_it_means_the_same() -> None:
    later = Reading(NOW_NS + HOUR_NS, "another")
    assert selection_from_json(selection_to_json(SELECTED), later) == SELECTED
    assert selection_to_json(SELECTED)["since"] == format_rfc3339(NOW_NS - 24 * HOUR_NS)


def test_repeated_parameters_of_a_query() -> None:
    pairs = [
        ("status", "replayed"),
        ("status", "retry_success"),
        ("id", "1,2"),
        ("attribute", "a:1"),
        ("attribute", "b:"),
    ]
    assert form_from_query(pairs) == {
        "status": ["replayed", "retry_success"],
        "id": ["1", "2"],
        "attribute": {"a": "1", "b": ""},
    }


@pytest.mark.parametrize(
    ("told", "meant"),
    [("90s", 90), ("15m", 900), ("24h", 86_400), ("7d", 604_800), ("2w", 1_209_600), ("999999999w", None)],
)
def test_relative_times(told: str, meant: int | None) -> None:
    wanted = 0 if meant is None else NOW_NS - meant * 10**9
    assert selection_from_json({"since": told}, READING).since_ns == wanted


@pytest.mark.parametrize(
    ("told", "meant"),
    [("3", (3, 3)), (3, (3, 3)), ("3..", (3, None)), ("..5", (None, 5)), ("0..5", (0, 5)), ("4..4", (4, 4))],
)
def test_attempts(told: object, meant: tuple[int | None, int | None]) -> None:
    found = selection_from_json({"attempts": told}, READING)
    assert (found.fewest_attempts, found.most_attempts) == meant
    assert selection_from_json(selection_to_json(found), READING) == found


def test_a_dot_within_a_key_of_a_payload() -> None:
    assert selection_from_json({"payload": {r"a\..b": "1"}}, READING).payload == {r"a\..b": "1"}


def test_a_topic_that_nobody_told_can_be_asked_for() -> None:
    assert selection_from_json({"topic": "unknown"}, READING).topic == "unknown"


@pytest.mark.parametrize("told", ["9999-12-31T23:59:59Z", "2300-01-01T00:00:00Z"])
def test_times_that_no_store_can_hold_are_cut(told: str) -> None:
    assert selection_from_json({"until": told}, READING).until_ns == LARGEST_NUMBER
    assert selection_from_json({"until": "0001-01-01T00:00:00+14:00"}, READING).until_ns == 0


@pytest.mark.parametrize(
    ("form", "named"),
    [
        ({"colour": "red"}, "colour: is not known here"),
        ({"status": "lost"}, "status: must be one of queued_for_retry"),
        ({"status": []}, "status: must be 1 to 4 values, not 0"),
        ({"status": [None]}, "status: "),
        ({"reason": ""}, "reason: must be a text that is not empty"),
        ({"reason": 7}, "reason: "),
        ({"reason": "a\0b"}, "reason: must be text in UTF-8, without NUL"),
        ({"text": "\ud800"}, "text: must be text in UTF-8"),
        ({"text": "x" * 1025}, "text: must not be longer than 1024"),
        ({"subscription": "a b"}, "subscription: "),
        (
            {"subscription": "projects/p/topics/orders"},
            "subscription: must look like projects/PROJECT/subscriptions/ID",
        ),
        ({"topic": "x"}, "topic: "),
        ({"since": "yesterday"}, "since: must be a time such as"),
        ({"since": "24"}, "since: "),
        ({"since": "٣h"}, "since: "),
        ({"since": "2026-13-01T00:00:00Z"}, "since: "),
        ({"since": "2026-01-01T00:00:00"}, "since: "),
        ({"until": 5}, "until: "),
        ({"attempts": ""}, "attempts: must look like 3"),
        ({"attempts": ".."}, "attempts: "),
        ({"attempts": "5..3"}, "attempts: must not end before it begins"),
        ({"attempts": "-1"}, "attempts: "),
        ({"attempts": True}, "attempts: "),
        ({"attempts": "9" * 400}, "attempts: "),
        ({"id": "0"}, "id: must be a whole number above 0"),
        ({"id": [1.5]}, "id: "),
        ({"id": "9" * 400}, "id: "),
        ({"id": list(range(1, 1002))}, "id: must be 1 to 1000 values"),
        ({"replay": "x"}, "replay: "),
        ({"hold": "yes"}, "hold: must be true or false"),
        ({"hold": 1}, "hold: must be true or false"),
        ({"attribute": {}}, "attribute: must be 1 to 20 names"),
        ({"attribute": ["a"]}, "attribute: "),
        ({"attribute": {"a": 1}}, "attribute: must be compared with a text"),
        ({"attribute": {"": "1"}}, "attribute: "),
        ({"payload": {str(number): 1 for number in range(21)}}, "payload: must be 1 to 20"),
        ({"payload": {"a..b": "1"}}, "payload: must begin with a path"),
        ({"payload": {"a": {}}}, "payload: 'a' must be compared with"),
        ([], "selection: must be a JSON object"),
        (None, "selection: "),
    ],
)
def test_bad_input_is_named(form: Any, named: str) -> None:
    with pytest.raises(BadInput) as caught:
        selection_from_json(form, READING)
    assert str(caught.value).startswith(named)


@pytest.mark.parametrize(
    ("pairs", "named"),
    [
        ([("reason", "A"), ("reason", "B")], "reason: 'reason' is given twice"),
        ([("attribute", "a:1"), ("attribute", "a:2")], "attribute: 'a' is given twice"),
        ([("payload", "a=1")], "payload: must look like NAME:VALUE"),
        ([("status", "")], "status: must be one of"),
        ([("id", "")], "id: "),
        ([("hold", "")], "hold: "),
        ([("reason", "")], "reason: must be a text that is not empty"),
    ],
)
def test_a_bad_query_is_named(pairs: Sequence[tuple[str, str]], named: str) -> None:
    with pytest.raises(BadInput) as caught:
        selection_from_query(pairs, READING)
    assert str(caught.value).startswith(named)


_ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(sorted(NAMES)), _ANY, max_size=4))
def test_whatever_is_said_is_read_or_refused(form: dict[str, Any]) -> None:
    try:
        found = selection_from_json(form, READING)
    except BadInput:
        return
    assert selection_from_json(selection_to_json(found), READING) == found
