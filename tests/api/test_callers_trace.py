"""The header by which callers tell their trace: read once, checked as all headers are, and given to who asks for it."""

from __future__ import annotations

import pytest

from holdfast.api.grpc.methods import Method
from holdfast.api.http2.request_head import Malformed, RequestHead, request_head

HEAD = [
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/google.pubsub.v1.Publisher/Publish"),
    (b"content-type", b"application/grpc"),
    (b"holdfast-once", b"true"),
]
TRACEPARENT = f"00-{'ab' * 16}-{'cd' * 8}-01".encode()
VARYING = [(b"grpc-timeout", b"5S"), (b"traceparent", TRACEPARENT), (b"tracestate", b"a=b")]


def test_a_trace_is_told_and_the_rest_is_as_without_it() -> None:
    plain = request_head(HEAD)
    assert plain.traceparent == b""
    assert plain.own == ((b"holdfast-once", b"true"),)
    for varying in (VARYING, VARYING[::-1]):
        head = request_head([*HEAD[:4], *varying, *HEAD[4:]])
        assert head == plain._replace(timeout=b"5S", traceparent=TRACEPARENT)


@pytest.mark.parametrize("name", [b"grpc-timeout", b"traceparent", b"tracestate"])
def test_a_bad_value_is_refused(name: bytes) -> None:
    with pytest.raises(Malformed):
        request_head([*HEAD, (name, b"a\r\nb")])


async def test_only_who_asks_for_it_is_told() -> None:
    async def handle(_: object, headers: dict[str, str]) -> dict[str, str]:
        return headers

    given = [*RequestHead(b"", b"", True, b"", b"", -1, own=((b"holdfast-once", b"true"),)).own]
    given.append((b"traceparent", TRACEPARENT))
    asking = Method(None, handle, headers=True, traced=True)
    assert await asking.call(b"", given) == {"holdfast-once": "true", "traceparent": TRACEPARENT.decode()}
    # A change of a deadline with a header that it knows would be a nack.
    assert await Method(None, handle, headers=True).call(b"", given[1:]) == {}
