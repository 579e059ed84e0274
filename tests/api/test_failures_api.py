"""/api/v1/failures on a real server, over a real socket."""

from __future__ import annotations

import asyncio
import base64
import socket
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp
import pytest
import uvicorn
from starlette.applications import Starlette

from holdfast.api.http.failures import routes
from holdfast.deadletter.failures import Filter, Page
from holdfast.deadletter.service import Desk
from holdfast.errors import StorageUnavailable
from holdfast.model.failed_message import FailureStatus
from holdfast.stores.memory.failures import MemoryFailureStore
from holdfast.testing.contracts.failures import BILLING, ORDERS, a_failure


class Store(MemoryFailureStore):
    broken: Exception | None = None

    async def list(self, wanted: Filter, page_size: int, page_token: str = "") -> Page:
        if self.broken:
            raise self.broken
        return await super().list(wanted, page_size, page_token)


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
async def client(store: Store) -> AsyncIterator[aiohttp.ClientSession]:
    # Bound here, so that the port is known and calls wait in the socket until the server takes them.
    listener = socket.create_server(("127.0.0.1", 0))
    app = Starlette(routes=routes(Desk(store)))
    server = uvicorn.Server(uvicorn.Config(app, lifespan="off", ws="none", log_level="warning"))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    async with aiohttp.ClientSession(f"http://127.0.0.1:{listener.getsockname()[1]}") as session:
        yield session
    server.should_exit = True
    await serving
    listener.close()


async def get(client: aiohttp.ClientSession, path: str, **query: str) -> tuple[int, Any]:
    async with client.get(path, params=query) as answer:
        assert answer.content_type == "application/json"
        return answer.status, await answer.json()


async def listed(client: aiohttp.ClientSession, **query: str) -> list[str]:
    status, body = await get(client, "/api/v1/failures", **query)
    assert status == 200, body
    return [failure["messageId"] for failure in body["failures"]]


async def test_an_empty_desk(client: aiohttp.ClientSession) -> None:
    assert await get(client, "/api/v1/failures") == (
        200,
        {
            "failures": [],
            "nextPageToken": "",
            "counts": {"queued_for_retry": 0, "permanent_failure": 0, "retry_success": 0, "replayed": 0},
        },
    )


async def test_a_row_of_the_list_has_everything_but_the_payload(client: aiohttp.ClientSession, store: Store) -> None:
    await store.record(
        a_failure(
            "m1",
            attributes={"tenant": "Zürich"},
            ordering_key="k",
            delivery_attempt=5,
            publish_time_ns=1_700_000_000_123_456_789,
            created_at_ns=1_700_000_001_000_000_000,
        )
    )
    _, body = await get(client, "/api/v1/failures")
    assert body["failures"] == [
        {
            "id": 1,
            "messageId": "m1",
            "subscription": ORDERS,
            "sourceTopic": "projects/local/topics/orders",
            "failureReason": "SCHEMA_VALIDATION_ERROR",
            "errorDetails": "amount: must be a number",
            "retryCount": 0,
            "status": "permanent_failure",
            "deliveryAttempt": 5,
            "attributes": {"tenant": "Zürich"},
            "orderingKey": "k",
            "publishTime": "2023-11-14T22:13:20.123456789Z",
            "createdAt": "2023-11-14T22:13:21Z",
            "retryAt": None,
            "retrySuccessAt": None,
        }
    ]
    assert body["counts"]["permanent_failure"] == 1


async def test_filters(client: aiohttp.ClientSession, store: Store) -> None:
    await store.record(a_failure("1", failure_reason="A"))
    await store.record(a_failure("2", failure_reason="B", status=FailureStatus.REPLAYED))
    await store.record(a_failure("3", failure_reason="B", subscription=BILLING))
    assert await listed(client) == ["3", "2", "1"]
    assert await listed(client, status="permanent_failure") == ["3", "1"]
    assert await listed(client, reason="B") == ["3", "2"]
    assert await listed(client, subscription=BILLING) == ["3"]
    assert await listed(client, reason="B", subscription=ORDERS, status="replayed") == ["2"]
    assert await listed(client, reason="no such reason") == []


async def test_pages(client: aiohttp.ClientSession, store: Store) -> None:
    for number in range(1, 6):
        await store.record(a_failure(str(number)))
    _, first = await get(client, "/api/v1/failures", pageSize="2")
    await store.record(a_failure("late"))
    _, second = await get(client, "/api/v1/failures", pageSize="2", pageToken=first["nextPageToken"])
    _, third = await get(client, "/api/v1/failures", pageSize="2", pageToken=second["nextPageToken"])
    pages = [[failure["messageId"] for failure in page["failures"]] for page in (first, second, third)]
    assert pages == [["5", "4"], ["3", "2"], ["1"]]
    assert third["nextPageToken"] == ""


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ({"status": "lost"}, "status: must be one of queued_for_retry, permanent_failure"),
        ({"subscription": "orders"}, "subscription: must look like projects/PROJECT/subscriptions/ID"),
        ({"pageToken": "nonsense"}, "pageToken"),
        ({"pageSize": "0"}, "pageSize"),
        ({"pageSize": "many"}, "pageSize"),
    ],
)
async def test_bad_input_names_its_field(client: aiohttp.ClientSession, query: Mapping[str, str], named: str) -> None:
    status, body = await get(client, "/api/v1/failures", **query)
    assert status == 400
    assert body["error"]["status"] == "INVALID_ARGUMENT"
    assert named in body["error"]["message"]


@pytest.mark.parametrize(
    ("data", "readable"),
    [
        (b'{"amount": "many"}', {"text": '{"amount": "many"}', "json": {"amount": "many"}}),
        (b"null", {"text": "null", "json": None}),
        ("grün".encode(), {"text": "grün"}),
        (b"\x00\xff\xfe", {}),
        (b"", {"text": ""}),
        (b"[1e999, NaN]", {"text": "[1e999, NaN]"}),
        (rb'"\ud800"', {"text": r'"\ud800"'}),
        (b"[" * 900 + b"]" * 900, {"text": "[" * 900 + "]" * 900}),
    ],
)
async def test_one_failure_with_its_payload(
    client: aiohttp.ClientSession, store: Store, data: bytes, readable: Mapping[str, Any]
) -> None:
    await store.record(a_failure("m1", data=data))
    status, body = await get(client, "/api/v1/failures/1")
    assert status == 200
    assert body["messageId"] == "m1"
    assert base64.b64decode(body["data"]) == data
    assert {name: body[name] for name in ("text", "json") if name in body} == readable


@pytest.mark.parametrize("failure_id", ["2", "0", "-1", "abc", "1.0", "9" * 19, "9" * 400, "%D9%A1"])
async def test_a_failure_that_does_not_exist(client: aiohttp.ClientSession, store: Store, failure_id: str) -> None:
    await store.record(a_failure("m1"))
    status, body = await get(client, f"/api/v1/failures/{failure_id}")
    assert status == 404
    assert body["error"]["status"] == "NOT_FOUND"


async def test_a_store_that_is_down_is_unavailable(client: aiohttp.ClientSession, store: Store) -> None:
    store.broken = StorageUnavailable("disk full")
    status, body = await get(client, "/api/v1/failures")
    assert status == 503
    assert "disk full" in body["error"]["message"]
    store.broken = None
    assert await listed(client) == []


async def test_failures_cannot_be_written(client: aiohttp.ClientSession) -> None:
    async with client.post("/api/v1/failures", json={}) as answer:
        assert answer.status == 405
