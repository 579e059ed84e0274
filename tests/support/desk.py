"""The desk's API over a real store in a file, on a real server: what tests of it share."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import uvicorn
from starlette.routing import Route

from holdfast.api.http.app import make_app
from holdfast.deadletter.store import DeskStore
from holdfast.model.failed_message import FailedMessage, FailureClass
from holdfast.settings import load_settings
from holdfast.testing import ManualClock
from holdfast.wiring.stores import open_failures

SECOND_NS = 10**9
HOUR_NS = 3600 * SECOND_NS

# The beginning of an hour.
NOW_NS = 1_800_000_000 * SECOND_NS

SUBSCRIPTION = "projects/local/subscriptions/orders.worker"


def a_clock() -> ManualClock:
    return ManualClock(NOW_NS)


async def open_store(data: Path, url: str = "") -> DeskStore:
    return await open_failures(load_settings({"data": str(data), "desk.failures": url}, environ={}))


def a_failure(message_id: str = "m-1", **changes: Any) -> FailedMessage:
    told: dict[str, Any] = {
        "message_id": message_id,
        "subscription": SUBSCRIPTION,
        "source_topic": "projects/local/topics/orders",
        "failure_reason": "SCHEMA_VALIDATION_ERROR",
        "failure_class": FailureClass.POISON,
        "fingerprint": "f00d",
        "error_details": "amount: must be a number",
        "data": b'{"amount": "many"}',
        "created_at_ns": NOW_NS,
    }
    return FailedMessage(**(told | changes))


@pytest.fixture(params=["sqlite", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[DeskStore]:
    """On each kind of database that there is. The module needs the fixtures of tests/support/postgres.py as well."""
    url = request.getfixturevalue("database_url") if request.param == "postgres" else ""
    opened = await open_store(tmp_path, url)
    yield opened
    await opened.close()


@asynccontextmanager
async def served(routes: Sequence[Route]) -> AsyncIterator[Api]:
    # Bound here, so that the port is known and calls wait in the socket until the server takes them.
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(make_app(routes, {}), lifespan="off", ws="none", log_level="warning"))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{listener.getsockname()[1]}") as session:
            yield Api(session)
    finally:
        server.should_exit = True
        await serving
        listener.close()


class Api:
    """Status and body of each request."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self.session = session

    async def get(self, path: str, *pairs: tuple[str, str]) -> tuple[int, Any]:
        async with self.session.get(f"/api/v1{path}", params=list(pairs)) as answer:
            assert answer.content_type == "application/json"
            return answer.status, await answer.json()

    async def post(self, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.session.post(f"/api/v1{path}", json=body or {}, headers=named) as answer:
            assert answer.content_type == "application/json"
            return answer.status, await answer.json()

    async def ok(self, path: str, *pairs: tuple[str, str]) -> Any:
        status, body = await self.get(path, *pairs)
        assert status == 200, body
        return body

    async def refused(self, path: str, *pairs: tuple[str, str], code: int = 400) -> str:
        status, body = await self.get(path, *pairs)
        assert status == code, body
        return str(body["error"]["message"])
