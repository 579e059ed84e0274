"""Any bytes can be shown, and what is shown as JSON can be sent as JSON."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.deadletter.payload import DEEPEST_JSON, Readable, read_payload
from holdfast.deadletter.presentation import failure_to_json, payload_to_json
from holdfast.deadletter.redaction import NOTHING_HIDDEN
from holdfast.model.failed_message import FailureStatus
from holdfast.testing.contracts.failures import a_failure


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"a": [1, null]}', Readable('{"a": [1, null]}', True, {"a": [1, None]})),
        (b"null", Readable("null", True, None)),
        (b"plain", Readable("plain")),
        (b"", Readable("")),
        (b"\xff\x00", Readable()),
        (b"\xef\xbb\xbf{}", Readable("\ufeff{}")),
        (b"NaN", Readable("NaN")),
        (b"[Infinity]", Readable("[Infinity]")),
        (b"1e999", Readable("1e999")),
        (rb'"\ud800"', Readable(r'"\ud800"')),
        (rb'{"\udfff": 1}', Readable(r'{"\udfff": 1}')),
        (b"9" * 5000, Readable("9" * 5000)),
        (b"[" * 100_000, Readable("[" * 100_000)),
    ],
)
def test_what_people_can_read(data: bytes, expected: Readable) -> None:
    assert read_payload(data) == expected


@pytest.mark.parametrize(
    ("depth", "is_json"), [(1, True), (DEEPEST_JSON, True), (DEEPEST_JSON + 1, False), (990, False)]
)
@pytest.mark.parametrize("kind", ["list", "object"])
def test_json_that_is_nested_too_deep_is_shown_as_text(depth: int, is_json: bool, kind: str) -> None:
    text = "[" * depth + "]" * depth if kind == "list" else '{"a":' * (depth - 1) + "{}" + "}" * (depth - 1)
    readable = read_payload(text.encode())
    assert readable.text == text
    assert readable.is_json is is_json


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(st.binary() | json_values.map(lambda value: json.dumps(value).encode()))
def test_any_payload_can_be_sent_and_keeps_its_bytes(data: bytes) -> None:
    sent = json.dumps(payload_to_json(data), allow_nan=False, ensure_ascii=False).encode()
    received: dict[str, Any] = json.loads(sent)
    assert base64.b64decode(received["data"]) == data
    if "json" in received:
        assert json.loads(received["text"]) == received["json"]


def test_a_failure_as_json() -> None:
    failure = a_failure(
        "m1",
        id=5,
        attributes={"tenant": "a"},
        ordering_key="k",
        publish_time_ns=1_700_000_000_123_456_789,
        delivery_attempt=4,
        status=FailureStatus.QUEUED_FOR_RETRY,
        created_at_ns=1_700_000_001_000_000_000,
        retry_at_ns=1_700_000_002_500_000_000,
    )
    shown = failure_to_json(failure, payload=False, redaction=NOTHING_HIDDEN)
    assert shown == {
        "id": 5,
        "messageId": "m1",
        "subscription": "projects/local/subscriptions/orders",
        "sourceTopic": "projects/local/topics/orders",
        "failureReason": "SCHEMA_VALIDATION_ERROR",
        "errorDetails": "amount: must be a number",
        "retryCount": 0,
        "status": "queued_for_retry",
        "deliveryAttempt": 4,
        "attributes": {"tenant": "a"},
        "orderingKey": "k",
        "publishTime": "2023-11-14T22:13:20.123456789Z",
        "createdAt": "2023-11-14T22:13:21Z",
        "retryAt": "2023-11-14T22:13:22.500Z",
        "retrySuccessAt": None,
        "failureClass": "unknown",
        "group": "",
        "failedAt": None,
        "sentAt": None,
        "sentMessageId": "",
        "generation": 0,
        "originId": None,
        "replayId": None,
        "revision": 0,
        "legalHold": False,
        "version": 1,
    }
    assert failure_to_json(failure, payload=True, redaction=NOTHING_HIDDEN) == shown | {
        "data": base64.b64encode(failure.data).decode(),
        "text": '{"amount": "many"}',
        "json": {"amount": "many"},
    }
