"""Whose child the consumer's work is, where several could be its parent: in somebody else's app, on a real server."""

from __future__ import annotations

import asyncio
import base64
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
import uvicorn
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.asgi import PushApp
from holdfast.consumer import Consumer, Event, Upsert
from holdfast.settings import GeneralSettings, Settings, TraceSettings
from holdfast.tracing.context import ATTRIBUTE
from tests.support.otlp import Collector, collector

__all__ = ["collector"]

CARRIED = f"00-{'ab' * 16}-{'cd' * 8}-01"
DEEPER = f"00-{'ab' * 16}-{'ef' * 8}-01"
ELSEWHERE = f"00-{'12' * 16}-{'34' * 8}-01"


def shop() -> Consumer:
    app = Consumer()

    @app.on("orders")
    async def order(event: Event) -> Upsert:
        return Upsert("orders", event.data["id"], {})

    return app


@asynccontextmanager
async def served(app: ASGIApp) -> AsyncIterator[aiohttp.ClientSession]:
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, lifespan="off", ws="none", log_config=None))
    running = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{listening.getsockname()[1]}") as session:
            yield session
    finally:
        server.should_exit = True
        await running
        listening.close()


async def push(
    push_app: PushApp, attributes: Mapping[str, str], headers: Mapping[str, str], data: bytes = b'{"id": "1"}'
) -> None:
    """As Pub/Sub does it for a subscription without a dead-letter policy."""
    message = {"data": base64.b64encode(data).decode(), "messageId": "7", "attributes": dict(attributes)}
    async with served(push_app) as session:
        envelope = {"message": message, "subscription": "projects/p/subscriptions/worker"}
        async with session.post("/pubsub/push", json=envelope, headers=headers) as answer:
            assert answer.status == 200
    await push_app.stop()


@pytest.fixture
def push_app(collector: Collector, tmp_path: Path) -> PushApp:
    return PushApp(shop(), Settings(GeneralSettings(str(tmp_path)), traces=TraceSettings(endpoint=collector.url)))


@pytest.mark.parametrize(
    ("carried", "told", "parent", "links"),
    [
        ("", "", "", []),
        ("", ELSEWHERE, ELSEWHERE, []),
        (CARRIED, "", CARRIED, []),
        (CARRIED, DEEPER, DEEPER, []),
        (CARRIED, ELSEWHERE, CARRIED, [ELSEWHERE]),  # a front end with traces of its own
        ("nothing", "nothing", "", []),
    ],
)
async def test_parent_and_links(
    push_app: PushApp, collector: Collector, carried: str, told: str, parent: str, links: list[str]
) -> None:
    await push(push_app, {ATTRIBUTE: carried} if carried else {}, {"traceparent": told} if told else {})
    process = collector.one("process worker")
    assert process.parent_id == parent[36:52]
    assert not parent or process.trace_id == parent[3:35]
    assert process.links == tuple((link[3:35], link[36:52]) for link in links)
    assert {span.trace_id for span in collector.spans} == {process.trace_id}


async def test_a_host_that_makes_traces_stays_in_between(push_app: PushApp, collector: Collector) -> None:
    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("host")
    seen: list[int] = []

    async def host(scope: Scope, receive: Receive, send: Send) -> None:
        with tracer.start_as_current_span("POST /pubsub/push") as span:
            seen.append(span.get_span_context().span_id)
            await push_app(scope, receive, send)
        assert trace.get_current_span() is trace.INVALID_SPAN

    async with served(host) as session:
        message = {"data": base64.b64encode(b'{"id": "1"}').decode(), "messageId": "7"}
        async with session.post("/pubsub/push", json={"message": message}, headers={"traceparent": CARRIED}) as answer:
            assert answer.status == 200
    await push_app.stop()
    assert collector.found("process")[0].parent_id == f"{seen[0]:016x}"


async def test_what_a_consumer_captures_itself_is_recorded_within_its_work(
    push_app: PushApp, collector: Collector
) -> None:
    await push(push_app, {ATTRIBUTE: CARRIED}, {}, data=b"no JSON")
    process, record = collector.one("process worker"), collector.one("record worker")
    assert record.parent_id == process.span_id
    assert (process.failed, process.attributes["error.type"]) == (True, "DECODE_ERROR")
