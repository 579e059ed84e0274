"""The consumer within somebody else's app, on real servers."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import uvicorn
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.types import ASGIApp

from holdfast.asgi import PushApp
from holdfast.consumer import Consumer, Event, Upsert
from holdfast.settings import AlertSettings, ConsumerSettings, GeneralSettings, Settings, TraceSettings
from holdfast.stores.sqlite.documents import SqliteDocumentStore
from tests.support.otlp import Collector, collector
from tests.support.waiting import comes_about
from tests.support.webhook import SECRET, webhook

__all__ = ["collector"]


def shop() -> Consumer:
    app = Consumer()

    @app.on("orders")
    def order(event: Event) -> Upsert:
        return Upsert("orders", event.data["id"], {"total": event.data["total"]})

    return app


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(general=GeneralSettings(data=str(tmp_path / "data")))


@asynccontextmanager
async def served(app: ASGIApp, lifespan: str = "on") -> AsyncIterator[aiohttp.ClientSession]:
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, lifespan=lifespan, ws="none", log_config=None, timeout_graceful_shutdown=5)  # type: ignore[arg-type]
    server = uvicorn.Server(config)
    running = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{listening.getsockname()[1]}") as session:
            yield session
    finally:
        server.should_exit = True
        await running
        listening.close()


async def post(session: aiohttp.ClientSession, path: str, payload: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    message = {"data": base64.b64encode(json.dumps(payload).encode()).decode(), "messageId": "m1"}
    async with session.post(path, json={"message": message, "subscription": "s", "deliveryAttempt": 1}) as response:
        return response.status, await response.json()


async def orders(settings: Settings) -> list[str]:
    """Opening it shows that the app has let go of it."""
    store = await SqliteDocumentStore.open(Path(settings.general.data, "documents.db"))
    try:
        return [document.id for document in (await store.list("orders", 10)).documents]
    finally:
        await store.close()


@pytest.mark.parametrize("kind", [FastAPI, Starlette])
async def test_mounted_with_a_lifespan(kind: Any, settings: Settings) -> None:
    push = PushApp(shop(), settings)
    app = kind(lifespan=push.lifespan)
    app.mount("/events", push)
    for number in range(2):  # an app may be started again, as test clients do
        async with served(app) as session:
            status, body = await post(session, "/events/pubsub/push", {"id": f"o{number}", "total": 5})
            assert (status, body["outcome"]) == (200, "applied" if number == 0 else "duplicate")
            async with session.get("/events/readyz") as response:
                ready = {"documents": "ok", "failures": "ok"}
                assert (response.status, (await response.json())["dependencies"]) == (200, ready)
        assert await orders(settings) == ["o0"]


async def test_mounted_without_a_lifespan_it_starts_at_the_first_request(settings: Settings) -> None:
    push = PushApp(shop(), settings)
    async with served(Starlette(routes=[Mount("/", push)]), lifespan="off") as session:
        answers = await asyncio.gather(*(post(session, "/pubsub/push", {"id": "o1", "total": 5}) for _ in range(10)))
    assert sorted(body["outcome"] for _, body in answers) == ["applied"] + ["duplicate"] * 9
    await push.stop()
    assert await orders(settings) == ["o1"]


async def test_it_can_be_the_servers_own_app(settings: Settings) -> None:
    async with served(PushApp(shop(), settings)) as session:
        status, _ = await post(session, "/pubsub/push", {"id": "o1", "total": 5})
        assert status == 200
    assert await orders(settings) == ["o1"]


async def test_documents_are_not_shown_to_whoever_reaches_the_host_app(settings: Settings) -> None:
    async with served(PushApp(shop(), settings)) as session, session.get("/api/v1/documents") as response:
        assert response.status == 404


async def test_without_a_consumer_it_is_the_materializer_with_the_declared_routes(settings: Settings) -> None:
    routes = ({"topic": "orders", "collection": "orders", "id": "id"},)
    push = PushApp(settings=replace(settings, consumer=ConsumerSettings(routes=routes)))
    async with served(push) as session:
        _, body = await post(session, "/pubsub/push", {"service": "api"})
        assert body["documents"] == ["ops_services/local__api"]
        _, body = await post(session, "/pubsub/push", {"topic": "orders", "id": "o1"})
    assert body == {"outcome": "duplicate", "messageId": "m1", "key": "ops_dedupe/m1"}


async def test_settings_are_read_as_the_command_reads_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_DATA", str(tmp_path / "from-environment"))
    async with served(PushApp(shop())) as session:
        await post(session, "/pubsub/push", {"id": "o1", "total": 5})
    assert (tmp_path / "from-environment" / "documents.db").exists()


async def test_a_store_that_cannot_be_opened_is_503_and_tried_again(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    holder = await SqliteDocumentStore.open(Path(settings.general.data, "documents.db"))
    push = PushApp(shop(), settings)
    async with served(push, lifespan="off") as session:
        status, body = await post(session, "/pubsub/push", {"id": "o1", "total": 5})
        assert (status, body["error"]["message"]) == (503, "the consumer cannot start; its log says why")
        assert "the consumer cannot start" in caplog.messages
        await holder.close()
        status, _ = await post(session, "/pubsub/push", {"id": "o1", "total": 5})
        assert status == 200
    await push.stop()


async def test_a_start_that_fails_leaves_nothing_open(settings: Settings, collector: Collector) -> None:
    traced = replace(settings, traces=TraceSettings(endpoint=collector.url))
    holder = await SqliteDocumentStore.open(Path(settings.general.data, "documents.db"))
    push = PushApp(shop(), traced)
    async with served(push, lifespan="off") as session:
        for _ in range(3):
            assert (await post(session, "/pubsub/push", {"id": "o1", "total": 5}))[0] == 503
            assert not [thread.name for thread in threading.enumerate() if thread.name == "holdfast traces"]
    await holder.close()


async def test_its_alerts_are_judged_and_told(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    with webhook() as hook:
        monkeypatch.setenv("HOOK_URL", hook.url)
        monkeypatch.setenv("HOOK_SECRET", SECRET)
        receiver = {"name": "hook", "kind": "webhook", "url_env": "HOOK_URL", "secret_env": "HOOK_SECRET"}
        rule = {"rule": "Runs", "measure": "level", "of": "holdfast_consumer_in_hands", "threshold": 0, "compare": ">="}
        alerts = AlertSettings(interval_seconds=1, rules=[rule], receivers=[{**receiver, "group_wait": 0}])
        async with served(PushApp(shop(), replace(settings, alerts=alerts))) as session:

            async def told() -> bool:
                return bool(hook.told("Runs", "firing"))

            await comes_about(told)
            async with session.get("/api/v1/alerts") as response:  # silences are not for everybody
                assert response.status == 404
