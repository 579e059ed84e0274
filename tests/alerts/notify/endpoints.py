"""Local servers of the documented forms of Slack, PagerDuty and Standard Webhooks, as strict as those are."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

ROUTING_KEY = "a1b2c3d4" * 4
SIGNING_KEY = base64.b64encode(b"a key that both sides know").decode()
SIGNING_SECRET = f"whsec_{SIGNING_KEY}"
SLACK_PATH = "/services/T000/B000/XXXXcanaryXXXX"

Judge = Callable[[Mapping[str, str], bytes], tuple[int, str]]


@dataclass
class Endpoint:
    """`answers` are given first, each a status, headers and a body; then what `judge` says of the request."""

    judge: Judge
    url: str = ""
    bodies: list[Any] = field(default_factory=list)
    taken: list[Any] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    answers: list[tuple[int, dict[str, str], str]] = field(default_factory=list)

    async def handle(self, request: web.Request) -> web.Response:
        body = await request.read()
        self.headers.append({name.lower(): text for name, text in request.headers.items()})
        self.bodies.append(json.loads(body))
        if self.answers:
            status, headers, text = self.answers.pop(0)
            return web.Response(status=status, headers=headers, text=text)
        status, text = self.judge(self.headers[-1], body)
        if status < 300:
            self.taken.append(self.bodies[-1])
        return web.Response(status=status, text=text)


@asynccontextmanager
async def endpoint(judge: Judge, path: str = "/") -> AsyncIterator[Endpoint]:
    found = Endpoint(judge)
    app = web.Application()
    app.router.add_post(path, found.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    found.url = f"http://127.0.0.1:{runner.addresses[0][1]}{path}"
    try:
        yield found
    finally:
        await runner.cleanup()


def slack(headers: Mapping[str, str], body: bytes) -> tuple[int, str]:
    """docs.slack.dev: incoming webhooks, and the limits of blocks."""
    told = json.loads(body)
    blocks = told.get("blocks", [])
    texts = [block.get("text", {}) for block in blocks]
    is_right = (
        headers["content-type"] == "application/json"
        and set(told) <= {"text", "blocks"}
        and isinstance(told.get("text"), str)
        and len(blocks) <= 50
        and all(block.get("type") == "section" for block in blocks)
        and all(text.get("type") == "mrkdwn" and 1 <= len(text["text"]) <= 3000 for text in texts)
    )
    return (200, "ok") if is_right else (400, "invalid_payload")


def pagerduty(headers: Mapping[str, str], body: bytes) -> tuple[int, str]:
    """developer.pagerduty.com: Events API v2, Send an Alert Event."""
    event = json.loads(body)
    errors = []
    if len(event.get("routing_key", "")) != 32:
        errors.append("Length of 'routing_key' is incorrect (should be 32 characters)")
    if event.get("event_action") not in ("trigger", "acknowledge", "resolve"):
        errors.append("'event_action' is invalid")
    if not 1 <= len(event.get("dedup_key", "")) <= 255:
        errors.append("'dedup_key' is invalid")
    if event.get("event_action") == "trigger":
        payload = event.get("payload", {})
        if not 1 <= len(payload.get("summary", "")) <= 1024 or not payload.get("source"):
            errors.append("'payload.summary' or 'payload.source' is missing or blank")
        if payload.get("severity") not in ("critical", "error", "warning", "info"):
            errors.append("'payload.severity' is invalid (must be one of the following: ...)")
        errors += ["'links' is invalid" for link in event.get("links", []) if not link["href"].startswith("http")]
    if errors:
        return 400, json.dumps({"status": "invalid event", "message": "Event object is invalid", "errors": errors})
    return 202, json.dumps({"status": "success", "message": "Event processed", "dedup_key": event["dedup_key"]})


def standard_webhook(headers: Mapping[str, str], body: bytes) -> tuple[int, str]:
    """As docs/alerts.md tells users to verify it."""
    signed = b".".join([headers["webhook-id"].encode(), headers["webhook-timestamp"].encode(), body])
    expected = base64.b64encode(hmac.new(base64.b64decode(SIGNING_KEY), signed, hashlib.sha256).digest()).decode()
    given = [one.removeprefix("v1,") for one in headers["webhook-signature"].split(" ") if one.startswith("v1,")]
    return (204, "") if any(hmac.compare_digest(expected, one) for one in given) else (401, "wrong signature")


class Incidents:
    """What PagerDuty makes of the events that it took: open incidents by dedup key, and all it has ever opened."""

    def __init__(self, events: list[Any]) -> None:
        self.open: set[str] = set()
        self.opened: list[str] = []
        for event in events:
            key = event["dedup_key"]
            if event["event_action"] == "trigger" and key not in self.open:
                self.open.add(key)
                self.opened.append(key)
            elif event["event_action"] == "resolve":
                self.open.discard(key)
