"""A client that leaves before its request is whole: nothing was asked, and nothing is wrong with us."""

from __future__ import annotations

import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message

from holdfast.api.http.errors import with_errors
from holdfast.api.http.requests import body


async def test_a_client_that_hangs_up_is_no_error_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    events: list[Message] = [
        {"type": "http.request", "body": b'{"half', "more_body": True},
        {"type": "http.disconnect"},
    ]
    done = []

    async def receive() -> Message:
        return events.pop(0)

    async def take(request: Request) -> Response:
        done.append(await body(request))
        return Response()

    scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": []}
    answer = await with_errors(take)(Request(scope, receive))
    assert answer.status_code == 400
    assert (done, caplog.records) == ([], [])
