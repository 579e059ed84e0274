"""/api/v1/groups on a real server over a real store: looking, acting, and who was first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast.deadletter.store import DeskStore
from holdfast.settings import Settings
from holdfast.testing import ManualClock
from holdfast.wiring.desk.serving import looking_routes
from tests.support.desk import HOUR_NS, NOW_NS, SUBSCRIPTION, Api, a_clock, a_failure, served, store
from tests.support.postgres import database_url, postgres

GROUP = "/groups/f00d"


__all__ = ["database_url", "postgres", "store"]


@pytest.fixture
def clock() -> ManualClock:
    return a_clock()


@pytest.fixture
async def api(store: DeskStore, clock: ManualClock) -> AsyncIterator[Api]:
    async with served(looking_routes(store, clock, Settings())) as running:
        yield running


@pytest.fixture
async def group(store: DeskStore) -> None:
    await store.record([a_failure("1", created_at_ns=NOW_NS - 2 * HOUR_NS), a_failure("2"), a_failure("3")])


async def changed(api: Api, verb: str, body: object = None, **headers: str) -> Any:
    status, group = await api.post(f"{GROUP}:{verb}", body, **headers)
    assert status == 200, group
    return group


async def conflict(api: Api, verb: str, body: object, **headers: str) -> str:
    status, answer = await api.post(f"{GROUP}:{verb}", body, **headers)
    assert (status, answer["error"]["status"]) == (409, "ABORTED")
    return str(answer["error"]["message"])


# Looking.


async def test_one_group(api: Api, group: None) -> None:
    found = await api.ok(GROUP)
    assert found.pop("example")
    assert found == {
        "fingerprint": "f00d",
        "subscription": SUBSCRIPTION,
        "failureReason": "SCHEMA_VALIDATION_ERROR",
        "failureClass": "poison",
        "state": "open",
        "assignee": "",
        "count": 3,
        "waiting": 3,
        "firstSeen": "2027-01-15T06:00:00Z",
        "lastSeen": "2027-01-15T08:00:00Z",
        "version": 1,
        "countsByHour": [{"hour": "2027-01-15T06:00:00Z", "count": 1}, {"hour": "2027-01-15T08:00:00Z", "count": 2}],
        "comments": [],
    }
    assert len((await api.ok(GROUP, ("since", "1h")))["countsByHour"]) == 1
    assert "since" in await api.refused(GROUP, ("since", "x"))


async def test_groups_page_by_page(api: Api, store: DeskStore) -> None:
    for number in range(5):
        seen = NOW_NS + number * HOUR_NS
        await store.record([a_failure(str(number), fingerprint=f"f{number}", created_at_ns=seen)])
    first = await api.ok("/groups", ("pageSize", "3"))
    second = await api.ok("/groups", ("pageSize", "3"), ("pageToken", first["nextPageToken"]))
    found = [group["fingerprint"] for page in (first, second) for group in page["groups"]]
    assert found == ["f4", "f3", "f2", "f1", "f0"]
    assert second["nextPageToken"] == ""


async def test_groups_by_what_they_are(api: Api, store: DeskStore, group: None) -> None:
    await store.record([a_failure("4", fingerprint="beef", failure_reason="B")])
    await changed(api, "assign", {"assignee": "anna"})
    await changed(api, "acknowledge")

    async def found(*pairs: tuple[str, str]) -> list[str]:
        return sorted(group["fingerprint"] for group in (await api.ok("/groups", *pairs))["groups"])

    assert await found() == ["beef", "f00d"]
    assert await found(("state", "open")) == ["beef"]
    assert await found(("state", "open"), ("state", "acknowledged")) == ["beef", "f00d"]
    assert await found(("assignee", "anna")) == ["f00d"]
    assert await found(("reason", "B")) == ["beef"]
    assert await found(("subscription", "orders.worker"), ("reason", "B")) == ["beef"]
    assert await found(("reason", "' OR 1=1 --")) == []


@pytest.mark.parametrize(
    "pair",
    [("state", "lost"), ("colour", "red"), ("subscription", "x y"), ("pageToken", "nonsense"), ("pageSize", "-1")],
)
async def test_bad_queries_are_named(api: Api, pair: tuple[str, str]) -> None:
    assert pair[0] in await api.refused("/groups", pair)


# Acting.


async def test_the_life_of_a_group(api: Api, store: DeskStore, group: None) -> None:
    assert (await changed(api, "acknowledge", Holdfast_Actor="Zoë"))["state"] == "acknowledged"
    assert (await changed(api, "resolve"))["state"] == "resolved"
    await store.record([a_failure("4")])
    assert (await api.ok(GROUP))["state"] == "reopened"
    await changed(api, "resolve")
    reopened = await changed(api, "reopen")
    assert (reopened["state"], reopened["count"]) == ("open", 4)
    entries = (await api.ok("/audit"))["entries"]
    assert [(entry["actor"], entry["action"], entry["target"]) for entry in reversed(entries)] == [
        ("Zoë", "group.acknowledge", "groups/f00d"),
        ("api", "group.resolve", "groups/f00d"),
        ("api", "group.resolve", "groups/f00d"),
        ("api", "group.reopen", "groups/f00d"),
    ]


async def test_doing_it_again_changes_nothing(api: Api, group: None) -> None:
    first = await changed(api, "resolve")
    assert await changed(api, "resolve") == first
    assert len((await api.ok("/audit"))["entries"]) == 1


async def test_what_cannot_be_done_is_refused(api: Api, group: None) -> None:
    status, body = await api.post(f"{GROUP}:reopen")
    assert (status, body["error"]["status"]) == (400, "FAILED_PRECONDITION")
    for verb in ("acknowledge", "resolve", "reopen", "assign"):
        status, _ = await api.post(f"/groups/none:{verb}", {"assignee": "x"} if verb == "assign" else None)
        assert status == 404
    assert (await api.post("/groups/none/comments", {"text": "x"}))[0] == 404
    assert (await api.get("/groups/none"))[0] == 404


async def test_assigning(api: Api, group: None) -> None:
    assert (await changed(api, "assign", {"assignee": "anna"}))["assignee"] == "anna"
    assert (await changed(api, "assign", {"assignee": ""}))["assignee"] == ""
    for body in ({}, {"assignee": 5}, {"assignee": "x" * 201}, {"assignee": "a", "colour": "red"}, {"assignee": "a\0"}):
        assert (await api.post(f"{GROUP}:assign", body))[0] == 400, body


async def test_comments(api: Api, group: None, clock: ManualClock) -> None:
    status, first = await api.post(f"{GROUP}/comments", {"text": "looks like\nours"}, Holdfast_Actor="anna")
    assert (status, first) == (
        201,
        {"author": "anna", "text": "looks like\nours", "createdAt": "2027-01-15T08:00:00Z"},
    )
    clock.advance(1)
    await api.post(f"{GROUP}/comments", {"text": "it is"})
    assert [comment["text"] for comment in (await api.ok(GROUP))["comments"]] == ["looks like\nours", "it is"]
    for body in ({}, {"text": ""}, {"text": " \n"}, {"text": None}, {"text": "x" * 10_001}):
        assert (await api.post(f"{GROUP}/comments", body))[0] == 400, body
    entries = (await api.ok("/audit"))["entries"]
    assert [entry["action"] for entry in entries] == ["group.comment", "group.comment"]
    assert "ours" not in str(entries)


# Who was first.


async def test_a_version_that_is_not_the_current_one_is_refused(api: Api, group: None) -> None:
    assert (await changed(api, "acknowledge", {"version": 1}))["version"] == 2
    assert "version 2 by now, not 1" in await conflict(api, "resolve", {"version": 1})
    assert "version 2 by now, not 1" in await conflict(api, "resolve", {}, If_Match='"1"')
    assert (await changed(api, "resolve", {}, If_Match='"2"'))["state"] == "resolved"
    await conflict(api, "assign", {"assignee": "a", "version": 99})


@pytest.mark.parametrize("version", [0, -1, "1", 1.5, True])
async def test_what_is_no_version_is_named(api: Api, group: None, version: object) -> None:
    status, body = await api.post(f"{GROUP}:resolve", {"version": version})
    assert (status, body["error"]["message"].split(":")[0]) == (400, "version")
    assert (await api.post(f"{GROUP}:resolve", {}, If_Match="*"))[0] == 400


async def test_of_many_with_the_same_version_one_wins(api: Api, group: None) -> None:
    answers = await asyncio.gather(
        *(api.post(f"{GROUP}:assign", {"assignee": f"p{number}", "version": 1}) for number in range(10))
    )
    assert sorted(status for status, _ in answers) == [200] + [409] * 9
    [winner] = [body["assignee"] for status, body in answers if status == 200]
    assert (await api.ok(GROUP))["assignee"] == winner


async def test_without_a_version_the_last_one_wins_and_none_is_lost(api: Api, group: None) -> None:
    answers = await asyncio.gather(*(api.post(f"{GROUP}:assign", {"assignee": f"p{number}"}) for number in range(4)))
    assert [status for status, _ in answers] == [200] * 4
    assert (await api.ok(GROUP))["version"] == 5


async def test_a_method_that_a_path_does_not_have(api: Api, group: None) -> None:
    for method, path, allowed in (
        ("DELETE", f"{GROUP}:resolve", "POST"),
        ("DELETE", GROUP, "GET, HEAD"),
        ("POST", "/failures/1", "GET, HEAD"),
    ):
        async with api.session.request(method, f"/api/v1{path}") as answer:
            assert (answer.status, answer.headers["Allow"]) == (405, allowed)
            assert (await answer.json())["error"]["status"] == "METHOD_NOT_ALLOWED"


# Whose request it is.


async def test_pages_of_other_sites_may_not_act(api: Api, group: None) -> None:
    status, body = await api.post(f"{GROUP}:resolve", Origin="https://evil.example")
    assert (status, body["error"]["message"].split(":")[0]) == (400, "Origin")
    async with api.session.post(
        f"/api/v1{GROUP}:resolve", data=b"{}", headers={"Content-Type": "text/plain"}
    ) as answer:
        assert answer.status == 400
    assert (await api.ok(GROUP))["state"] == "open"


@pytest.mark.parametrize("actor", ["", " ", "a" * 201, "a\tb"])
async def test_an_actor_has_a_name(api: Api, group: None, actor: str) -> None:
    status, body = await api.post(f"{GROUP}:resolve", Holdfast_Actor=actor)
    assert (status, body["error"]["message"].split(":")[0]) == (400, "Holdfast-Actor")


@pytest.mark.parametrize("raw", [b"[]", b"{", b'{"version": 1, "version": 2}', b'{"version": NaN}', b"\xff", b"1"])
async def test_bodies_that_cannot_be_read_are_refused(api: Api, group: None, raw: bytes) -> None:
    json_type = {"Content-Type": "application/json"}
    async with api.session.post(f"/api/v1{GROUP}:resolve", data=raw, headers=json_type) as answer:
        assert answer.status == 400
        assert (await answer.json())["error"]["message"].startswith("body: ")
