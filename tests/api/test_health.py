"""What /readyz says of dependencies that answer, fail, hang, and come back."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from holdfast.api.http import health
from holdfast.api.http.app import make_app
from holdfast.errors import StorageUnavailable


class Store:
    def __init__(self) -> None:
        self.error: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.asked = self.under_way = self.most_under_way = 0

    async def check(self) -> None:
        self.asked += 1
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            await self.gate.wait()
        finally:
            self.under_way -= 1
        if self.error:
            raise self.error


class Stubborn(Store):
    """As a call that cannot be cancelled."""

    async def check(self) -> None:
        work = asyncio.ensure_future(super().check())
        while not work.done():
            try:
                await asyncio.shield(work)
            except asyncio.CancelledError:
                continue


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def other() -> Store:
    return Store()


@pytest.fixture
def web(store: Store, other: Store) -> httpx.AsyncClient:
    return client(store, other)


def client(store: Store, other: Store) -> httpx.AsyncClient:
    app: Any = make_app([], {"store": store.check, "other": other.check})
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://holdfast")


async def ready(web: httpx.AsyncClient) -> tuple[int, dict[str, str]]:
    answer = await web.get("/readyz")
    return answer.status_code, answer.json()["dependencies"]


@pytest.fixture
def no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "GOOD_FOR_SECONDS", 0.0)


async def test_all_that_answer_are_named(web: httpx.AsyncClient) -> None:
    assert await ready(web) == (200, {"store": "ok", "other": "ok"})
    assert (await web.get("/healthz")).json() == {"status": "ok"}


@pytest.mark.usefixtures("no_memory")
async def test_who_fails_is_named_with_the_reason_until_it_is_back(web: httpx.AsyncClient, store: Store) -> None:
    store.error = StorageUnavailable("broker.db: database or disk is full")
    assert await ready(web) == (503, {"store": "broker.db: database or disk is full", "other": "ok"})
    assert (await web.get("/healthz")).status_code == 200  # it is alive
    store.error = None
    assert await ready(web) == (200, {"store": "ok", "other": "ok"})


async def test_an_error_that_nobody_foresaw_is_not_quoted(
    web: httpx.AsyncClient, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    store.error = RuntimeError("password hunter2")
    assert await ready(web) == (503, {"store": "RuntimeError", "other": "ok"})
    assert "hunter2" in caplog.text


@pytest.mark.usefixtures("no_memory")
@pytest.mark.parametrize("kind", [Store, Stubborn])
async def test_who_hangs_is_waited_for_a_bounded_time_and_asked_again(
    kind: type[Store], other: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "LONGEST_WAIT_SECONDS", 0.2)
    store = kind()
    web = client(store, other)
    store.gate.clear()
    hanging = {"store": "no answer within 0.2 s", "other": "ok"}
    for _ in range(3):
        assert await ready(web) == (503, hanging)
    assert store.most_under_way == 1
    store.gate.set()
    await asyncio.sleep(0)
    await ready(web)  # the call that hung has ended, and this may be its answer
    assert await ready(web) == (200, {"store": "ok", "other": "ok"})


async def test_however_many_ask_the_dependency_is_asked_once(web: httpx.AsyncClient, store: Store) -> None:
    store.gate.clear()
    asking = [asyncio.create_task(ready(web)) for _ in range(20)]
    while not store.asked:
        await asyncio.sleep(0)
    store.gate.set()
    assert {status for status, _ in await asyncio.gather(*asking)} == {200}
    await ready(web)
    assert store.asked == 1


async def test_one_that_gives_up_waiting_takes_the_answer_from_nobody(web: httpx.AsyncClient, store: Store) -> None:
    store.gate.clear()
    gone, patient = asyncio.create_task(ready(web)), asyncio.create_task(ready(web))
    while not store.asked:
        await asyncio.sleep(0)
    gone.cancel()
    store.gate.set()
    assert (await patient)[0] == 200
