"""The consumer's HTTP face on a real server: push, documents, outcomes."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import logging
import socket
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import aiohttp
import pytest
import uvicorn
from starlette.applications import Starlette

from holdfast.api.http import documents, outcomes, push_endpoint
from holdfast.clock import SystemClock
from holdfast.consumer import Consumer, Event, Transient, Upsert
from holdfast.consumer.documents import DocumentStore
from holdfast.consumer.failure_sink import FailureSink
from holdfast.consumer.materializer import materializer
from holdfast.consumer.pipeline import Pipeline
from holdfast.consumer.push_auth import PushAuth, RemoteKeys
from holdfast.errors import StorageUnavailable
from holdfast.settings import ConsumerSettings
from holdfast.stores.memory.documents import MemoryDocumentStore
from holdfast.stores.sqlite.documents import SqliteDocumentStore
from holdfast.telemetry import JsonFormatter
from tests.support.failures import Captured, FullSink
from tests.support.push_tokens import AUDIENCE, EMAIL, ISSUER, OneKey, bearer, refused

SUBSCRIPTION = "projects/local/subscriptions/system.events.materializer"
SETTINGS = ConsumerSettings(max_workers=2, queue_size=2)


@asynccontextmanager
async def serving(
    app: Consumer, store: DocumentStore, auth: PushAuth | None = None, failures: FailureSink | None = None
) -> AsyncIterator[aiohttp.ClientSession]:
    topics = {"system.events.materializer": "system.events"}
    pipeline = Pipeline(app, store, failures or Captured(), SystemClock(), SETTINGS, topics)
    routes = [
        *push_endpoint.routes(pipeline, auth),
        *documents.routes(store),
        *outcomes.routes(pipeline.recent),
    ]
    # It listens before the server runs, so that nobody has to wait until the server is up.
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        Starlette(routes=routes),
        lifespan="off",
        ws="none",
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=5,  # a test that failed with a request under way must not hang
    )
    server = uvicorn.Server(config)
    running = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{listening.getsockname()[1]}") as session:
            yield session
    finally:
        server.should_exit = True
        await running
        listening.close()


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[aiohttp.ClientSession]:
    store = await SqliteDocumentStore.open(tmp_path / "documents.db")
    try:
        async with serving(materializer(SETTINGS), store) as session:
            yield session
    finally:
        await store.close()


def envelope(payload: dict[str, Any] | bytes, message_id: str = "m1", **attributes: str) -> dict[str, Any]:
    data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return {
        "message": {
            "data": base64.b64encode(data).decode(),
            "messageId": message_id,
            "message_id": message_id,
            "publishTime": "2026-01-08T12:34:56.123Z",
            "publish_time": "2026-01-08T12:34:56.123Z",
            "attributes": attributes,
        },
        "subscription": SUBSCRIPTION,
        "deliveryAttempt": 1,
    }


Answer = tuple[int, dict[str, Any], Mapping[str, str]]


async def push(
    client: aiohttp.ClientSession, body: Any, content_type: str = "application/json", authorization: str = ""
) -> Answer:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = ({"Content-Type": content_type} if content_type else {}) | (
        {"Authorization": authorization} if authorization else {}
    )
    # A file, because aiohttp warns of large bodies that are not one.
    skipped = [] if content_type else ["Content-Type"]
    request = client.post("/pubsub/push", data=io.BytesIO(data), headers=headers, skip_auto_headers=skipped)
    async with request as response:
        return response.status, await response.json(), response.headers


async def get(client: aiohttp.ClientSession, path: str) -> tuple[int, dict[str, Any]]:
    async with client.get(path) as response:
        return response.status, await response.json()


# Push.


async def test_a_pushed_message_becomes_a_document_once(client: aiohttp.ClientSession) -> None:
    event = envelope({"service": "api", "status": "healthy"})
    status, body, _ = await push(client, event)
    assert (status, body) == (
        200,
        {"outcome": "applied", "messageId": "m1", "documents": ["ops_services/local__api"]},
    )
    status, body, _ = await push(client, event)
    assert (status, body) == (200, {"outcome": "duplicate", "messageId": "m1", "key": "ops_dedupe/m1"})
    status, body = await get(client, "/api/v1/documents/ops_services/local__api")
    assert status == 200
    assert body["id"] == "local__api"
    assert body["path"] == "ops_services/local__api"
    assert body["fields"]["status"] == "healthy"


async def test_a_stale_message_is_acked(client: aiohttp.ClientSession) -> None:
    await push(client, envelope({"service": "api", "ts": 20}, "m2"))
    status, body, _ = await push(client, envelope({"service": "api", "ts": 10}, "m1"))
    assert (status, body["outcome"], body["document"]) == (200, "stale_ignored", "ops_services/local__api")


async def test_a_readable_poison_is_422_and_asks_for_the_dead_letter_topic(
    client: aiohttp.ClientSession,
) -> None:
    status, body, headers = await push(client, envelope({"status": "healthy"}))
    assert (status, body["outcome"], body["reason"]) == (422, "poison", "SCHEMA_VALIDATION_ERROR")
    assert headers["Holdfast-Dead-Letter"] == "now"
    assert headers["Holdfast-Failure-Reason"] == "SCHEMA_VALIDATION_ERROR"
    assert unquote(headers["Holdfast-Error"]) == body["error"] == "service: is missing or empty"


async def test_an_unreadable_payload_is_400(client: aiohttp.ClientSession) -> None:
    status, body, headers = await push(client, envelope(b"nonsense"))
    assert (status, body["reason"]) == (400, "DECODE_ERROR")
    assert headers["Holdfast-Dead-Letter"] == "now"


async def test_poison_without_a_dead_letter_policy_is_recorded_and_acked() -> None:
    failures = Captured()
    event = envelope({"status": "healthy"})
    del event["deliveryAttempt"]
    async with serving(materializer(SETTINGS), MemoryDocumentStore(), failures=failures) as client:
        for _ in range(2):  # recording it twice changes nothing
            status, body, headers = await push(client, event)
            assert (status, body["outcome"], body["recorded"]) == (200, "poison", "the failure store")
            assert "Holdfast-Dead-Letter" not in headers
    [failure] = await failures.all()
    assert (failure.message_id, failure.subscription) == ("m1", SUBSCRIPTION)
    assert failure.source_topic == "projects/local/topics/system.events"
    assert (failure.failure_reason, failure.error_details) == (
        "SCHEMA_VALIDATION_ERROR",
        "service: is missing or empty",
    )
    assert failure.data == b'{"status": "healthy"}'


async def test_poison_that_cannot_be_recorded_comes_again(caplog: pytest.LogCaptureFixture) -> None:
    event = envelope(b"nonsense")
    del event["deliveryAttempt"]
    async with serving(materializer(SETTINGS), MemoryDocumentStore(), failures=FullSink()) as client:
        status, body, headers = await push(client, event)
    assert (status, body["outcome"]) == (500, "poison")
    assert "recorded" not in body
    assert "Holdfast-Dead-Letter" not in headers
    [line] = [record for record in caplog.records if record.name == "holdfast.consumer"]
    logged = json.loads(JsonFormatter().format(line))
    assert (logged["http_status"], logged["record_error"]) == (500, "a full disk: no space left")


@pytest.mark.parametrize("body", [b"", b"nonsense", b"\xff\xfe", b"[]", b'{"message":{}}', b'{"message":{"data":"!"}}'])
async def test_what_is_no_envelope_is_400_logged_and_counted(
    client: aiohttp.ClientSession, body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    status, answer, headers = await push(client, body)
    assert status == 400
    assert answer["error"]["code"] == 400
    assert answer["error"]["status"] == "INVALID_ARGUMENT"
    assert unquote(headers["Holdfast-Error"]) == answer["error"]["message"]
    assert headers["Holdfast-Dead-Letter"] == "now"
    assert [record.levelno for record in caplog.records if record.name == "holdfast.consumer"] == [logging.ERROR]
    _, seen = await get(client, "/api/v1/outcomes")
    assert seen["totals"]["poison"] == 1
    # And the server lives on.
    status, _, _ = await push(client, envelope({"service": "api"}))
    assert status == 200


@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        ("application/json", 200),
        ("Application/JSON; charset=utf-8", 200),
        ("application/cloudevents+json", 200),
        ("", 200),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("application/jsonp", 415),
    ],
)
async def test_what_says_that_it_is_not_json_is_not_read(
    client: aiohttp.ClientSession, content_type: str, status: int
) -> None:
    """A page in a browser can send text/plain to a consumer on this machine."""
    answered, _, _ = await push(client, envelope({"service": "api"}), content_type=content_type)
    assert answered == status
    _, body = await get(client, "/api/v1/documents")
    assert bool(body["collections"]) == (status == 200)


LIMIT = push_endpoint.LARGEST_BODY_BYTES


async def test_a_body_above_the_limit_is_413_by_its_announcement(client: aiohttp.ClientSession) -> None:
    """Only the head is sent: the answer must come without the body."""
    url = client._base_url
    assert url is not None
    reader, writer = await asyncio.open_connection(url.host, url.port)
    writer.write(f"POST /pubsub/push HTTP/1.1\r\nHost: x\r\nContent-Length: {LIMIT + 1}\r\n\r\n".encode())
    status = await asyncio.wait_for(reader.readline(), 10)
    writer.close()
    await writer.wait_closed()
    assert status.startswith(b"HTTP/1.1 413 ")


async def test_a_body_above_the_limit_is_413_while_it_comes(client: aiohttp.ClientSession) -> None:
    """Chunked, so that nothing announces its size, and never ended: the answer must come before the end."""
    url = client._base_url
    assert url is not None
    reader, writer = await asyncio.open_connection(url.host, url.port)
    writer.write(b"POST /pubsub/push HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
    writer.write(b"%x\r\n" % (LIMIT + 1) + b" " * (LIMIT + 1) + b"\r\n")
    status = await asyncio.wait_for(reader.readline(), 10)
    writer.close()
    assert status.startswith(b"HTTP/1.1 413 ")
    _, seen = await get(client, "/api/v1/outcomes")
    assert seen["recent"][0]["error"] == f"body: is larger than {LIMIT} bytes"


async def test_the_largest_message_of_pubsub_passes(client: aiohttp.ClientSession) -> None:
    payload = {"service": "api", "version": "x" * 9_900_000}
    status, body, _ = await push(client, envelope(payload))
    assert (status, body["outcome"]) == (200, "applied")


async def test_a_sender_that_hangs_up_harms_nobody(client: aiohttp.ClientSession) -> None:
    url = client._base_url
    assert url is not None
    _, writer = await asyncio.open_connection(url.host, url.port)
    writer.write(b"POST /pubsub/push HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    status, _, _ = await push(client, envelope({"service": "api"}))
    assert status == 200


async def test_get_is_not_push(client: aiohttp.ClientSession) -> None:
    async with client.get("/pubsub/push") as response:
        assert response.status == 405


async def test_retries_and_backpressure() -> None:
    app = Consumer()
    gate = asyncio.Event()

    @app.on("busy")
    def busy(event: Event) -> Upsert:
        raise Transient("later", retry_after=7)

    @app.on("broken")
    def broken(event: Event) -> Upsert:
        raise ZeroDivisionError("oops")

    @app.on("slow")
    async def slow(event: Event) -> Upsert:
        await gate.wait()
        return Upsert("slow", event.message_id, {})

    async with serving(app, MemoryDocumentStore()) as client:
        status, body, headers = await push(client, envelope({}, topic="busy"))
        assert (status, headers["Retry-After"], body["error"]) == (503, "7", "later")
        status, body, headers = await push(client, envelope({}, topic="broken"))
        assert (status, body["outcome"]) == (500, "retry")
        assert "Holdfast-Dead-Letter" not in headers

        # Twenty at once into a house for four: while the gate is shut, only refusals can be answered.
        pushes = [asyncio.create_task(push(client, envelope({}, f"s{n}", topic="slow"))) for n in range(20)]
        refused: set[asyncio.Task[Answer]] = set()
        waiting: set[asyncio.Task[Answer]] = set(pushes)
        while len(refused) < 16:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            refused |= done
        answers = [task.result() for task in refused]
        assert {(status, body["error"]) for status, body, _ in answers} == {(429, "backpressure_queue_full")}
        gate.set()
        assert sorted(status for status, _, _ in await asyncio.gather(*pushes)) == [200] * 4 + [429] * 16


# Who may push.


@pytest.fixture
async def guarded() -> AsyncIterator[aiohttp.ClientSession]:
    auth = PushAuth(OneKey(), SystemClock(), audience=AUDIENCE, issuer=ISSUER, email=EMAIL)
    async with serving(materializer(SETTINGS), MemoryDocumentStore(), auth) as session:
        yield session


async def test_a_good_token_lets_messages_in(guarded: aiohttp.ClientSession) -> None:
    header = bearer(time.time())
    for number in range(3):
        event = envelope({"service": "api"}, f"m{number}")
        status, _, _ = await push(guarded, event, authorization=header)
        assert status == 200


async def test_every_other_token_is_401_and_nothing_is_applied(
    guarded: aiohttp.ClientSession, caplog: pytest.LogCaptureFixture
) -> None:
    for name, (header, what) in refused(time.time()).items():
        caplog.clear()
        status, body, headers = await push(guarded, envelope({"service": "api"}), authorization=header)
        assert (name, status, headers.get("WWW-Authenticate")) == (name, 401, "Bearer")
        assert body["error"]["status"] == "UNAUTHENTICATED"
        message = body["error"]["message"]
        assert (name, message.partition(":")[0]) == (name, what)
        assert "Holdfast-Dead-Letter" not in headers
        [line] = [record for record in caplog.records if record.name.startswith("holdfast")]
        shown = JsonFormatter().format(line)
        assert (line.levelno, json.loads(shown)["error"]) == (logging.WARNING, message)
        assert not [part for part in header.split(".") if len(part) > 10 and part in shown + message]
    assert await get(guarded, "/api/v1/documents") == (200, {"collections": []})
    assert (await get(guarded, "/api/v1/outcomes"))[1]["recent"] == []
    # And the server lives on.
    status, _, _ = await push(guarded, envelope({"service": "api"}), authorization=bearer(time.time()))
    assert status == 200


async def test_the_log_says_what_was_expected_and_the_answer_does_not(
    guarded: aiohttp.ClientSession, caplog: pytest.LogCaptureFixture
) -> None:
    _, body, _ = await push(guarded, b"", authorization=bearer(time.time(), email="x@example.com"))
    assert EMAIL not in str(body)
    [line] = caplog.records
    logged = json.loads(JsonFormatter().format(line))
    assert (logged["expected"], logged["client"]) == (EMAIL, "127.0.0.1")


async def test_two_tokens_are_as_bad_as_none(guarded: aiohttp.ClientSession) -> None:
    header = bearer(time.time())
    request = guarded.post("/pubsub/push", data=b"{}", headers=[("Authorization", header), ("Authorization", header)])
    async with request as response:
        assert response.status == 401


async def test_the_body_of_a_stranger_is_not_waited_for(guarded: aiohttp.ClientSession) -> None:
    """Only the head is sent: the answer must come without the body."""
    url = guarded._base_url
    assert url is not None
    reader, writer = await asyncio.open_connection(url.host, url.port)
    writer.write(b"POST /pubsub/push HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n")
    status = await asyncio.wait_for(reader.readline(), 10)
    writer.close()
    await writer.wait_closed()
    assert status.startswith(b"HTTP/1.1 401 ")


async def test_a_token_that_cannot_be_judged_now_is_503(caplog: pytest.LogCaptureFixture) -> None:
    async def fetch() -> bytes:
        raise ConnectionError("nobody there")

    auth = PushAuth(RemoteKeys(fetch, SystemClock()), SystemClock(), audience=AUDIENCE, issuer=ISSUER, email=EMAIL)
    async with serving(materializer(SETTINGS), MemoryDocumentStore(), auth) as client:
        status, body, headers = await push(client, envelope({"service": "api"}), authorization=bearer(time.time()))
        assert (status, body["error"]["status"], headers["Retry-After"]) == (503, "UNAVAILABLE", "5")
        assert await get(client, "/api/v1/documents") == (200, {"collections": []})
    assert "a push request was refused" in caplog.messages


async def test_who_asks_whether_we_want_to_be_pushed_to_hears_yes(guarded: aiohttp.ClientSession) -> None:
    asked = {"WebHook-Request-Origin": "broker.example"}
    async with guarded.options("/pubsub/push", headers=asked) as response:
        assert (response.status, await response.read()) == (200, b"")
        assert response.headers["WebHook-Allowed-Origin"] == "broker.example"
        assert response.headers["WebHook-Allowed-Rate"] == "*"
        assert response.headers["Allow"] == "POST, OPTIONS"


async def test_other_options_are_answered_without_a_consent(client: aiohttp.ClientSession) -> None:
    async with client.options("/pubsub/push") as response:
        assert response.status == 200
        assert response.headers["Allow"] == "POST, OPTIONS"
        assert not [name for name in response.headers if name.lower().startswith("webhook")]


# Documents.


async def test_documents_are_listed_by_page(client: aiohttp.ClientSession) -> None:
    for n in range(5):
        await push(client, envelope({"eventId": f"e{n}"}, f"m{n}", topic="market-ticks"))
    assert await get(client, "/api/v1/documents") == (200, {"collections": ["market_ticks"]})
    _, first = await get(client, "/api/v1/documents/market_ticks?pageSize=3")
    assert [document["id"] for document in first["documents"]] == ["e0", "e1", "e2"]
    assert first["documents"][0]["path"] == "market_ticks/e0"
    assert first["documents"][0]["fields"]["docId"] == "e0"
    _, second = await get(client, f"/api/v1/documents/market_ticks?pageSize=3&pageToken={first['nextPageToken']}")
    assert [document["id"] for document in second["documents"]] == ["e3", "e4"]
    assert second["nextPageToken"] == ""


async def test_an_unknown_collection_is_empty(client: aiohttp.ClientSession) -> None:
    assert await get(client, "/api/v1/documents/none") == (200, {"documents": [], "nextPageToken": ""})


async def test_an_unknown_document_is_404(client: aiohttp.ClientSession) -> None:
    message = "there is no document things/none"
    assert await get(client, "/api/v1/documents/things/none") == (
        404,
        {"error": {"code": 404, "message": message, "status": "NOT_FOUND"}},
    )


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("pageSize=0", "pageSize"),
        ("pageSize=1001", "pageSize"),
        ("pageSize=-1", "pageSize"),
        ("pageSize=ten", "pageSize"),
        ("pageSize=%D9%A3", "pageSize"),
        ("pageSize=" + "9" * 5000, "pageSize"),
        ("pageToken=%21", "pageToken"),
        ("pageToken=_____w==", "pageToken"),
    ],
)
async def test_bad_paging_is_400_and_named(client: aiohttp.ClientSession, query: str, field: str) -> None:
    status, body = await get(client, f"/api/v1/documents/things?{query}")
    assert (status, body["error"]["status"]) == (400, "INVALID_ARGUMENT")
    assert body["error"]["message"].startswith(f"{field}: ")


async def test_a_store_that_is_down_is_503() -> None:
    store = MemoryDocumentStore()

    async def down() -> list[str]:
        raise StorageUnavailable("documents.db: disk I/O error")

    store.collections = down  # type: ignore[method-assign]
    async with serving(Consumer(), store) as client:
        status, body = await get(client, "/api/v1/documents")
    assert (status, body["error"]["status"]) == (503, "UNAVAILABLE")


# Outcomes.


async def test_outcomes_tell_what_became_of_a_message(client: aiohttp.ClientSession) -> None:
    await push(client, envelope({"service": "api"}, "good"))
    await push(client, envelope({"status": "x"}, "bad"))
    _, every = await get(client, "/api/v1/outcomes")
    assert every["totals"] == {"applied": 1, "duplicate": 0, "stale_ignored": 0, "poison": 1, "retry": 0}
    assert [one["messageId"] for one in every["recent"]] == ["bad", "good"]
    _, one = await get(client, "/api/v1/outcomes?messageId=good")
    [good] = one["recent"]
    assert good.pop("time").endswith("Z")
    assert good == {
        "messageId": "good",
        "topic": "system.events",
        "subscription": SUBSCRIPTION,
        "outcome": "applied",
        "document": "ops_services/local__api",
        "error": "",
    }
