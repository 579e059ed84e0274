"""Small HTTP calls to a process on this machine, by the standard library alone."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

CALL_SECONDS = 15.0

# No proxy, whatever the environment says: it is this machine.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    body: Any


def get(url: str) -> Reply:
    return _send(urllib.request.Request(url))


def text(url: str) -> str:
    """What is no JSON, such as metrics."""
    with _opener.open(url, timeout=CALL_SECONDS) as response:
        return str(response.read().decode())


def post(url: str, body: Any, headers: Mapping[str, str] | None = None) -> Reply:
    data = json.dumps(body).encode()
    return _send(urllib.request.Request(url, data, {"Content-Type": "application/json", **(headers or {})}))


def push(
    url: str, message_id: str, data: bytes, subscription: str = "system.events.materializer", attempt: int = 0
) -> Reply:
    """Delivers a message as Pub/Sub would: with an attempt where there is a dead-letter policy."""
    message = {"data": base64.b64encode(data).decode(), "messageId": message_id}
    envelope: dict[str, Any] = {"message": message, "subscription": f"projects/local/subscriptions/{subscription}"}
    if attempt:
        envelope["deliveryAttempt"] = attempt
    return post(f"{url}/pubsub/push", envelope)


def outcomes(url: str, message_id: str = "") -> list[dict[str, Any]]:
    """What the consumer made of a message, newest first; of all messages without an id."""
    found: list[dict[str, Any]] = get(f"{url}/api/v1/outcomes?messageId={message_id}").body["recent"]
    return found


def _send(request: urllib.request.Request) -> Reply:
    try:
        with _opener.open(request, timeout=CALL_SECONDS) as response:
            return Reply(response.status, dict(response.headers), json.load(response))
    except urllib.error.HTTPError as error:
        with error:
            return Reply(error.code, dict(error.headers), json.load(error))
