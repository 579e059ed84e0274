"""A request's head holds what it was given, and nothing can be smuggled into it."""

from __future__ import annotations

import pytest

import holdfast
from holdfast.errors import BadInput
from holdfast.outgoing.request_head import request_head
from holdfast.outgoing.targets import parse_target

TARGET = parse_target("url", "https://example.com:8443/push?token=a")


def test_the_head_is_ready_for_content_length_and_body() -> None:
    assert request_head("POST", TARGET, {"Content-Type": "application/json", "X-Tab": "a\tb"}) == (
        b"POST /push?token=a HTTP/1.1\r\n"
        b"Host: example.com:8443\r\n"
        b"User-Agent: holdfast-push/" + holdfast.__version__.encode() + b"\r\n"
        b"Content-Type: application/json\r\n"
        b"X-Tab: a\tb\r\n"
    )


def test_a_user_agent_of_ones_own() -> None:
    head = request_head("POST", TARGET, {"user-agent": "CloudPubSub-Google"})
    assert head.lower().count(b"user-agent") == 1
    assert b"user-agent: CloudPubSub-Google\r\n" in head


def test_letters_beyond_ascii_are_utf8() -> None:
    assert "X-Name: Zoë\r\n".encode() in request_head("POST", TARGET, {"X-Name": "Zoë"})


@pytest.mark.parametrize("name", ["", "a b", "a:", "a\r\nb", "ä", "a\x00", "(a)", "a\n"])
def test_a_name_must_be_a_token(name: str) -> None:
    with pytest.raises(BadInput) as refused:
        request_head("POST", TARGET, {name: "x"})
    assert repr(name) in refused.value.field


@pytest.mark.parametrize("value", ["a\r\nX: y", "a\n", "\r", "a\x00b", "\x1b[0m", "\x7f", "\x85", "\ud800"])
def test_a_value_cannot_end_its_line(value: str) -> None:
    with pytest.raises(BadInput) as refused:
        request_head("POST", TARGET, {"X-Mine": value})
    assert refused.value.field == "header X-Mine"


@pytest.mark.parametrize(
    "name", ["Host", "content-length", "Transfer-Encoding", "CONNECTION", "Upgrade", "Expect", "Keep-Alive"]
)
def test_headers_that_frame_a_message_are_not_for_others(name: str) -> None:
    with pytest.raises(BadInput) as refused:
        request_head("POST", TARGET, {name: "x"})
    assert refused.value.field == f"header {name}"


@pytest.mark.parametrize("method", ["", "PO ST", "POST / HTTP/1.1\r\nX: y\r\n\r\nGET"])
def test_a_method_must_be_a_token(method: str) -> None:
    with pytest.raises(BadInput):
        request_head(method, TARGET, {})
