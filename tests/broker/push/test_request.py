"""What is POSTed: byte for byte what an HTTP parser and a JSON parser must understand."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.broker.push.request import RequestBuilder
from holdfast.broker.wire import PubsubMessage
from holdfast.model.resources import DeadLetterPolicy, OidcToken, PushConfig, Subscription
from holdfast.outgoing.targets import parse_target
from tests.broker.helpers import SUBSCRIPTION, TOPIC

URL = "http://example.com/push?a=b"


def stored(**fields: Any) -> bytes:
    message = PubsubMessage(message_id="17", **fields)
    message.publish_time.seconds = 1_700_000_000
    message.publish_time.nanos = 120_000_000
    return bytes(message.SerializeToString())


def build(
    message: bytes, attempt: int = 1, authorization: str = "", traceparent: str = "", **config: Any
) -> tuple[list[str], bytes]:
    """The lines of the head, and the body."""
    push = PushConfig(
        URL, **{name: config.pop(name) for name in ("oidc", "wrapped", "write_metadata") if name in config}
    )
    subscription = Subscription(SUBSCRIPTION, TOPIC, push=push, **config)
    builder = RequestBuilder(subscription, push, parse_target("url", URL))
    request = b"".join(builder.build(message, attempt, authorization, traceparent))
    head, _, body = request.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert f"Content-Length: {len(body)}" in lines
    return lines, body


def unwrapped(message: bytes, **config: Any) -> tuple[dict[str, str], bytes]:
    lines, body = build(message, wrapped=False, write_metadata=True, **config)
    return dict(line.split(": ", 1) for line in lines[1:]), body


def test_the_request_line_and_host_are_the_endpoints() -> None:
    lines, _ = build(stored(data=b"x"))
    assert lines[0] == "POST /push?a=b HTTP/1.1"
    assert "Host: example.com" in lines
    assert "Content-Type: application/json" in lines


@given(
    data=st.binary(max_size=200),
    attributes=st.dictionaries(st.text(max_size=10), st.text(max_size=20), max_size=4),
    key=st.text(max_size=10),
    attempt=st.integers(1, 100),
)
def test_whatever_is_in_a_message_arrives(data: bytes, attributes: dict[str, str], key: str, attempt: int) -> None:
    message = stored(data=data, attributes=attributes, ordering_key=key)
    _, body = build(message, attempt, dead_letter=DeadLetterPolicy("projects/local/topics/dead"))
    envelope = json.loads(body)
    inner = envelope["message"]
    assert base64.b64decode(inner["data"]) == data
    assert inner.get("attributes", {}) == attributes
    assert inner.get("orderingKey", "") == key
    assert inner["messageId"] == inner["message_id"] == "17"
    assert inner["publishTime"] == inner["publish_time"] == "2023-11-14T22:13:20.120Z"
    assert envelope["subscription"] == SUBSCRIPTION
    assert envelope["deliveryAttempt"] == attempt


def test_the_attempt_is_not_told_without_a_dead_letter_policy() -> None:
    _, body = build(stored(data=b"x"), 3)
    assert "deliveryAttempt" not in json.loads(body)


def test_a_token_goes_into_its_header() -> None:
    lines, _ = build(stored(), authorization="Bearer abc")
    assert "Authorization: Bearer abc" in lines


def test_a_delivery_in_a_trace_tells_it() -> None:
    lines, _ = build(stored(data=b"x"), traceparent="00-aa-bb-01")
    assert "traceparent: 00-aa-bb-01" in lines
    lines, _ = build(stored(data=b"x"), wrapped=False, traceparent="00-aa-bb-01")
    assert "traceparent: 00-aa-bb-01" in lines
    lines, _ = build(stored(data=b"x"))
    assert not [line for line in lines if line.startswith("traceparent")]


def test_a_publisher_that_names_a_trace_itself_is_not_contradicted() -> None:
    message = stored(data=b"x", attributes={"Traceparent": "mine"})
    lines, _ = build(message, wrapped=False, write_metadata=True, traceparent="00-aa-bb-01")
    assert [line for line in lines if line.lower().startswith("traceparent")] == ["Traceparent: mine"]


def test_unwrapped_is_the_data_alone() -> None:
    lines, body = build(stored(data=b"\x00\xff", attributes={"a": "b"}), wrapped=False)
    assert body == b"\x00\xff"
    names = {line.partition(":")[0].lower() for line in lines[1:]}
    assert names == {"host", "user-agent", "content-length"}


def test_unwrapped_with_metadata_has_the_rest_in_headers() -> None:
    headers, body = unwrapped(stored(data=b"x", attributes={"Content-Type": "text/plain", "n": "ü"}, ordering_key="k"))
    assert body == b"x"
    assert headers["x-goog-pubsub-subscription-name"] == SUBSCRIPTION
    assert headers["x-goog-pubsub-message-id"] == "17"
    assert headers["x-goog-pubsub-publish-time"] == "2023-11-14T22:13:20.120Z"
    assert headers["x-goog-pubsub-ordering-key"] == "k"
    assert headers["Content-Type"] == "text/plain"
    assert headers["n"] == "ü"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("a", "b\r\nInjected: yes"),
        ("a", "b\nInjected: yes"),
        ("a", "b\x00"),
        ("a\r\nInjected", "yes"),
        ("a: b", "c"),
        ("", "empty"),
        ("ü", "not ASCII"),
        ("Content-Length", "0"),
        ("content-length", "0"),
        ("Transfer-Encoding", "chunked"),
        ("Host", "other.example.com"),
        ("Connection", "close"),
        ("Proxy-Authorization", "x"),
        ("X-Goog-Pubsub-Message-Id", "18"),
    ],
)
def test_an_attribute_that_could_bend_the_request_is_no_header(name: str, value: str) -> None:
    clean = unwrapped(stored(data=b"x"))
    assert unwrapped(stored(data=b"x", attributes={name: value})) == clean


def test_an_ordering_key_that_could_bend_the_request_is_no_header() -> None:
    headers, _ = unwrapped(stored(data=b"x", ordering_key="k\r\nInjected: yes"))
    assert "x-goog-pubsub-ordering-key" not in headers
    assert "Injected" not in headers


def test_a_message_cannot_take_the_place_of_the_brokers_token() -> None:
    message = stored(attributes={"authorization": "Bearer forged"})
    headers, _ = unwrapped(message, oidc=OidcToken("a@b.c"), authorization="Bearer ours")
    assert headers["Authorization"] == "Bearer ours"
    assert "authorization" not in headers


def test_without_a_token_of_the_brokers_a_message_may_bring_its_own() -> None:
    headers, _ = unwrapped(stored(attributes={"Authorization": "Key abc"}))
    assert headers["Authorization"] == "Key abc"
