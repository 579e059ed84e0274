"""A document behind a URL, read whole."""

from __future__ import annotations

from holdfast.errors import Unreachable
from holdfast.outgoing.client import NoAnswer, OutgoingClient
from holdfast.outgoing.request_head import request_head
from holdfast.outgoing.targets import Target

FETCH_SECONDS = 10.0


async def fetch(client: OutgoingClient, target: Target, most_bytes: int) -> bytes:
    """Raises Unreachable when there is no answer, or another one than 200."""
    request = request_head("GET", target, {"Accept": "application/json"}) + b"\r\n"
    answer = await client.send(target, request, FETCH_SECONDS, most_body_bytes=most_bytes)
    if isinstance(answer, NoAnswer):
        raise Unreachable(answer.error)
    if answer.status != 200:
        raise Unreachable(f"{target.authority} answered {answer.status}")
    return answer.body
