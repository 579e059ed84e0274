"""Bytes to delivery to event: what is accepted, and that every refusal is a Poison naming its field."""

from __future__ import annotations

import base64
import gzip
import json
import random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.clock import NANOSECONDS
from holdfast.consumer.decode import LARGEST_UNPACKED_BYTES, decode_envelope, decode_event, unpacked
from holdfast.consumer.event import Event
from holdfast.consumer.event_time import event_time_ns
from holdfast.errors import Poison
from holdfast.model.message import Delivery, Message
from holdfast.model.replay_attributes import ORIGINAL_PUBLISH_TIME, REPLAY_ID

PUBLISHED = 1_767_875_696 * NANOSECONDS  # 2026-01-08T12:34:56Z


def envelope(**changes: Any) -> dict[str, Any]:
    message = {
        "data": base64.b64encode(b'{"a":1}').decode(),
        "messageId": "123",
        "publishTime": "2026-01-08T12:34:56.123456789Z",
        "attributes": {"topic": "orders"},
        "orderingKey": "k",
    }
    return {"message": message | changes, "subscription": "projects/p/subscriptions/s", "deliveryAttempt": 3}


def decoded(value: object) -> Delivery:
    return decode_envelope(json.dumps(value).encode())


def event(payload: bytes | dict[str, Any], **message: Any) -> Event:
    data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    made = Message(data, message_id="m1", publish_time_ns=PUBLISHED, **message)
    return decode_event(Delivery("projects/p/subscriptions/s", made, attempt=2), unpacked(made.data))


def time_of(payload: bytes | dict[str, Any], *, strict: bool = True) -> int:
    decoded_event = event(payload)
    return event_time_ns(decoded_event.data, decoded_event.publish_time_ns, strict=strict)


# The envelope.


def test_a_push_envelope_becomes_a_delivery() -> None:
    assert decoded(envelope()) == Delivery(
        subscription="projects/p/subscriptions/s",
        message=Message(
            data=b'{"a":1}',
            attributes={"topic": "orders"},
            ordering_key="k",
            message_id="123",
            publish_time_ns=PUBLISHED + 123_456_789,
        ),
        attempt=3,
    )


def test_cloud_pubsub_sends_both_spellings() -> None:
    both = envelope(message_id="123", publish_time="2026-01-08T12:34:56.123456789Z")
    assert decoded(both) == decoded(envelope())


def test_snake_case_alone_is_enough() -> None:
    message = {"message_id": "7", "publish_time": "2026-01-08T12:34:56Z"}
    assert decoded({"message": message}).message == Message(b"", message_id="7", publish_time_ns=PUBLISHED)


def test_only_the_message_id_is_required_and_null_is_absent() -> None:
    nulls = {"messageId": "7", "data": None, "attributes": None, "publishTime": None, "orderingKey": None}
    bare = decoded({"message": {"messageId": "7"}})
    assert bare == decoded({"message": nulls, "subscription": None, "deliveryAttempt": None})
    assert bare == Delivery("", Message(b"", message_id="7"))


def test_unknown_fields_are_no_error() -> None:
    assert decoded(envelope(newField=1) | {"another": {}}).message.message_id == "123"


@pytest.mark.parametrize(
    ("body", "named"),
    [
        pytest.param([], "envelope: must be a JSON object", id="list"),
        pytest.param({}, "message: is missing", id="no message"),
        pytest.param({"message": []}, "message: must be an object", id="message a list"),
        pytest.param({"message": {}}, "message.messageId: is missing", id="no id"),
        pytest.param(envelope(messageId=""), "message.messageId: is missing", id="empty id"),
        pytest.param(envelope(messageId=5), "message.messageId: must be text", id="id a number"),
        pytest.param(envelope(messageId="x" * 1501), "message.messageId: is longer", id="long id"),
        pytest.param(envelope(message_id="other"), "message.messageId: differs", id="two ids"),
        pytest.param(envelope(data="not base64!"), "message.data: is not base64", id="data"),
        pytest.param(envelope(data="YQ"), "message.data: is not base64", id="data without padding"),
        pytest.param(envelope(data="ü"), "message.data: is not base64", id="data not ascii"),
        pytest.param(envelope(data={}), "message.data: must be text", id="data an object"),
        pytest.param(envelope(attributes=[]), "message.attributes: must be", id="attributes a list"),
        pytest.param(envelope(attributes={"k": 1}), "message.attributes.k: must be text", id="attribute"),
        pytest.param(envelope(publishTime="yesterday"), "message.publishTime: ", id="time"),
        pytest.param(envelope(publishTime="0001-01-01T00:00:00Z"), "message.publishTime: ", id="early time"),
        pytest.param(envelope(publishTime=1.5), "message.publishTime: must be text", id="time a number"),
        pytest.param(envelope(orderingKey=1), "message.orderingKey: must be text", id="ordering key"),
        pytest.param(envelope() | {"subscription": 1}, "subscription: must be text", id="subscription"),
        pytest.param(envelope() | {"deliveryAttempt": "1"}, "deliveryAttempt: must be", id="attempt text"),
        pytest.param(envelope() | {"deliveryAttempt": True}, "deliveryAttempt: must be", id="attempt bool"),
        pytest.param(envelope() | {"deliveryAttempt": -1}, "deliveryAttempt: must be", id="attempt negative"),
    ],
)
def test_a_bad_envelope_names_its_field(body: object, named: str) -> None:
    with pytest.raises(Poison) as caught:
        decoded(body)
    assert str(caught.value).startswith(named)
    assert not caught.value.readable


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"\xef\xbb\xbf{}", b'{"message":{},"message":{}}', b"[" * 99999])
def test_a_body_that_is_not_strict_json_is_refused(body: bytes) -> None:
    with pytest.raises(Poison, match=r"^envelope: ") as caught:
        decode_envelope(body)
    assert not caught.value.readable


# The payload.


def test_a_payload_becomes_an_event() -> None:
    got = event({"eventId": "e1", "sequence": 4, "producedAt": "2026-01-01T00:00:00Z"}, attributes={"k": "v"})
    assert got.data["eventId"] == "e1"
    assert (got.message_id, got.subscription, got.attempt) == ("m1", "projects/p/subscriptions/s", 2)
    assert got.attributes == {"k": "v"}
    assert got.event_id == "e1"
    assert got.order[1:] == (4, PUBLISHED, "m1")  # the time is known with the topic


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (b"", "is empty"),
        (b"\xff", "is not UTF-8"),
        (b"nonsense", "is not JSON"),
        (b'{"a":1} x', "is not JSON"),
        (b'{"a":1,"a":2}', "the key 'a' twice"),
        (b'{"deep":{"a":1,"b":2,"a":3}}', "the key 'a' twice"),
        (b'{"a":NaN}', "NaN"),
        (b'{"a":-Infinity}', "-Infinity"),
        (b'{"a":1e400}', "beyond what a double can hold"),
        (b'{"a":9223372036854775808}', "beyond 64 bits"),
        (b'{"a":-9223372036854775809}', "beyond 64 bits"),
        (b'{"a":' + b"9" * 5000 + b"}", "beyond 64 bits"),
        (b'{"a":' + b"[" * 64 + b"]" * 64 + b"}", "deeper than 64"),
        (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "deeper than 64"),
        (b'{"a":"\\ud800"}', "surrogate"),
        (b'{"\\udfff":1}', "surrogate"),
    ],
)
def test_an_unreadable_payload_says_why(payload: bytes, why: str) -> None:
    with pytest.raises(Poison) as caught:
        event(payload)
    assert str(caught.value).startswith("data: ")
    assert why in str(caught.value)
    assert not caught.value.readable
    assert caught.value.reason == "DECODE_ERROR"


@pytest.mark.parametrize("text", ['"' + "0," * 10, '"', '\\"', "\\"])
def test_more_values_than_anyone_needs_are_refused_before_they_are_read(text: str) -> None:
    with pytest.raises(Poison, match=r"^data: has more than 200000 values$"):
        event({"a": text, "b": [0] * 200_000})


@pytest.mark.parametrize("payload", [b"[]", b"1", b'"text"', b"null", b"true"])
def test_a_payload_must_be_an_object(payload: bytes) -> None:
    with pytest.raises(Poison, match=r"^data: must be a JSON object") as caught:
        event(payload)
    assert caught.value.readable


def test_the_limits_themselves_are_allowed() -> None:
    event(b'{"a":' + b"[" * 63 + b"]" * 63 + b"}")
    event(b'{"a":' + b"[1," * 62 + b"[]" + b"]" * 62 + b',"b":[[],[],[],{}]}')
    assert event(b'{"a":[-9223372036854775808,9223372036854775807]}').data["a"] == [-(2**63), 2**63 - 1]
    text, many = '"' + "," * 250_000, [0] * 199_998
    assert event({"a": text, "b": many}).data == {"a": text, "b": many}
    assert event(b'{"a":"\\ud83d\\ude00"}').data["a"] == "\N{GRINNING FACE}"


@pytest.mark.parametrize(
    ("payload", "seconds"),
    [
        ({"producedAt": "1970-01-01T00:00:05Z", "publishedAt": 6, "timestamp": 7, "ts": 8, "time": 9}, 5),
        ({"publishedAt": 6, "timestamp": 7, "ts": 8, "time": 9}, 6),
        ({"timestamp": 7, "ts": 8, "time": 9}, 7),
        ({"ts": 8, "time": 9}, 8),
        ({"time": 9}, 9),
        ({"producedAt": None, "publishedAt": "", "time": 9}, 9),
        ({}, PUBLISHED // NANOSECONDS),
    ],
)
def test_the_event_time_is_the_first_that_is_told(payload: dict[str, Any], seconds: int) -> None:
    assert time_of(payload) == seconds * NANOSECONDS


@pytest.mark.parametrize(
    ("value", "nanoseconds"),
    [
        ("2026-01-08T13:34:56.5+01:00", PUBLISHED + 500_000_000),
        (1_767_875_696, PUBLISHED),
        (1_767_875_696.1, PUBLISHED + 100_000_000),
        (1_767_875_696_123, PUBLISHED + 123_000_000),
        (1_767_875_696_123_456, PUBLISHED + 123_456_000),
        (1_767_875_696_123_456_789, PUBLISHED + 123_456_789),
        (0, 0),
        (-5, -5 * NANOSECONDS),
    ],
)
def test_text_and_epoch_numbers_are_times(value: object, nanoseconds: int) -> None:
    assert time_of({"ts": value}) == nanoseconds


@pytest.mark.parametrize(
    "value",
    [
        "noon",
        "2025-01-08",
        "2025-01-08T12:00:00",
        "2025-13-01T00:00:00Z",
        "9999-12-31T23:59:59Z",
        "0001-01-01T00:00:00+23:59",
        99_999_999_999,  # seconds, in the year 5138: beyond 64 bits of nanoseconds
        1e300,
        True,
        [],
        {},
    ],
)
def test_a_bad_time_names_its_field_and_does_not_quote_it(value: object) -> None:
    with pytest.raises(Poison, match=r"^timestamp: ") as caught:
        time_of({"timestamp": value, "ts": 5})
    assert caught.value.readable
    assert caught.value.reason == "SCHEMA_VALIDATION_ERROR"
    assert str(value) not in str(caught.value)
    assert time_of({"timestamp": value, "ts": 5}, strict=False) == 5 * NANOSECONDS


@pytest.mark.parametrize(("value", "sequence"), [(7, 7), (-1, -1), (None, 0), ("7", 0), (True, 0), (1.0, 0)])
def test_only_a_whole_number_is_a_sequence(value: object, sequence: int) -> None:
    assert event({"sequence": value}).sequence == sequence


@pytest.mark.parametrize(("value", "event_id"), [("e", "e"), ("", ""), ("  ", ""), (None, ""), (17, "17")])
def test_event_ids(value: object, event_id: str) -> None:
    assert event({"eventId": value}).event_id == event_id


@pytest.mark.parametrize("value", [True, 1.5, [], {}, "x" * 1501])
def test_a_bad_event_id_is_poison(value: object) -> None:
    with pytest.raises(Poison, match=r"^eventId: "):
        event({"eventId": value})


# Anything at all.

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(st.binary())
@example(b'{"message":{"messageId":"1","data":"\\ud800"}}')
def test_any_bytes_are_a_delivery_or_poison(body: bytes) -> None:
    try:
        assert decode_envelope(body).message.message_id
    except Poison:
        return


fields = st.sampled_from(
    ["messageId", "message_id", "data", "attributes", "publishTime", "publish_time", "orderingKey"]
)


@given(st.dictionaries(fields, json_values), json_values, json_values)
def test_any_json_is_a_delivery_or_poison(message: dict[str, Any], subscription: object, attempt: object) -> None:
    whole = {"message": message, "subscription": subscription, "deliveryAttempt": attempt}
    try:
        assert decoded(whole).message.message_id
    except Poison:
        return


@given(st.binary() | st.dictionaries(st.sampled_from(["ts", "time", "eventId", "x"]), json_values))
def test_any_payload_is_an_event_or_poison(payload: bytes | dict[str, Any]) -> None:
    try:
        assert -(2**63) <= time_of(payload, strict=False) < 2**63
        assert -(2**63) <= time_of(payload) < 2**63
    except Poison:
        return


@given(st.dictionaries(st.text(), json_values))
def test_what_was_sent_is_what_is_read(payload: dict[str, Any]) -> None:
    payload = {f"_{key}": value for key, value in payload.items()}  # no field that has a meaning
    assert event(payload).data == payload


# Gzip.


def test_gzip_is_unpacked_also_in_several_members() -> None:
    assert event(gzip.compress(b'{"a":1}')).data == {"a": 1}
    assert event(gzip.compress(b'{"a"') + gzip.compress(b":1}")).data == {"a": 1}


def test_what_is_not_gzip_is_left_alone() -> None:
    assert unpacked(b"\x1f") == b"\x1f"
    assert unpacked(b"") == b""


def test_the_largest_payload_passes_and_one_byte_more_does_not() -> None:
    assert len(unpacked(gzip.compress(bytes(LARGEST_UNPACKED_BYTES)))) == LARGEST_UNPACKED_BYTES
    for bomb in (
        gzip.compress(bytes(LARGEST_UNPACKED_BYTES + 1)),
        gzip.compress(bytes(LARGEST_UNPACKED_BYTES)) + gzip.compress(b"x"),
    ):
        with pytest.raises(Poison, match="is larger than 10000000 bytes once decompressed") as caught:
            unpacked(bomb)
        assert (caught.value.reason, caught.value.readable) == ("DECODE_ERROR", False)


def test_damaged_gzip_is_poison() -> None:
    sound = gzip.compress(random.Random(1).randbytes(1000))
    damaged = [
        sound[:2],
        sound[:10],
        sound[:-1],
        sound + b"more",
        sound + b"\x1f\x8b",
        sound[:500] + b"\x00" * 20 + sound[520:],
        sound[:-8] + bytes(8),
    ]
    for data in damaged:
        with pytest.raises(Poison, match="data: is not valid gzip"):
            unpacked(data)


# What the desk sends again.


@pytest.mark.parametrize(
    ("attributes", "seconds"),
    [
        ({REPLAY_ID: "any", ORIGINAL_PUBLISH_TIME: "1970-01-01T00:00:05Z"}, 5),
        ({REPLAY_ID: "any", ORIGINAL_PUBLISH_TIME: "2200-01-01T00:00:00Z"}, PUBLISHED // NANOSECONDS),
        ({REPLAY_ID: "any", ORIGINAL_PUBLISH_TIME: "noon"}, PUBLISHED // NANOSECONDS),
        ({REPLAY_ID: "any"}, PUBLISHED // NANOSECONDS),
        ({ORIGINAL_PUBLISH_TIME: "1970-01-01T00:00:05Z"}, PUBLISHED // NANOSECONDS),
    ],
)
def test_an_old_event_that_is_sent_again_is_as_old_as_before(attributes: dict[str, str], seconds: int) -> None:
    assert event({}, attributes=attributes).order.publish_time_ns == seconds * NANOSECONDS
