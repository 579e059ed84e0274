"""/api/v1/failures:patch, :hold, :release and :erase on a real server, over SQLite and PostgreSQL."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.deadletter.edits import bulk
from holdfast.deadletter.store import DeskStore
from holdfast.model.failed_message import FailureStatus
from holdfast.settings import load_settings
from holdfast.wiring.stores import open_failures
from tests.support.desk import Api, open_store
from tests.support.mending import actions, recorded, serving
from tests.support.postgres import PostgresServer, database_url, postgres

__all__ = ["PostgresServer", "database_url", "postgres"]

UNIT = {"merge": {"json": {"unit": "K"}}}
ALL: dict[str, Any] = {"selection": {}}


@pytest.fixture(params=["sqlite", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[DeskStore]:
    if request.param == "sqlite":
        opened = await open_store(tmp_path)
    else:
        url = request.getfixturevalue("database_url")
        opened = await open_failures(load_settings({"desk.failures": url}, environ={}))
    yield opened
    await opened.close()


@pytest.fixture
async def api(store: DeskStore) -> AsyncIterator[Api]:
    async with serving(store) as served:
        yield served


async def done(api: Api, path: str, body: Any, **headers: str) -> Any:
    status, answer = await api.post(f"/failures:{path}", body, **headers)
    assert status == 200, answer
    return answer


async def refused(api: Api, path: str, body: Any, status: int = 400) -> str:
    found, answer = await api.post(f"/failures:{path}", body)
    assert found == status, answer
    return str(answer["error"]["message"])


async def newest_data(store: DeskStore, failure_id: int) -> bytes:
    return (await store.revisions(failure_id))[-1].content.data


# Patch.


async def test_a_preview_changes_nothing_and_tells_what_would(api: Api, store: DeskStore) -> None:
    a, b = await recorded(store, "a", "b", data=b'{"t": 1}')
    (same,) = await recorded(store, "c", data=b'{"unit":  "K"}')
    (text,) = await recorded(store, "d", data=b"plain")
    (over,) = await recorded(store, "e", data=b"{}", status=FailureStatus.REPLAYED)
    preview = await done(api, "patch", ALL | UNIT)
    assert (preview["matched"], preview["wouldChange"], preview["unchanged"]) == (5, 2, 1)
    assert preview["notApplied"] == [
        {"reason": "the payload must be under one of json, text, data", "count": 1, "examples": [text]},
        {"reason": "is replayed", "count": 1, "examples": [over]},
    ]
    assert [sample["id"] for sample in preview["samples"]] == [a, b]
    assert preview["samples"][0]["differences"] == [{"path": "/json/unit", "kind": "added", "new": "K"}]
    assert same
    for failure_id in (a, b, same, text, over):
        assert await store.revisions(failure_id) == []


async def test_what_is_applied_is_what_was_seen(api: Api, store: DeskStore) -> None:
    ids = await recorded(store, "a", "b", "c", "d", data=b'{"t": 1}')
    preview = await done(api, "patch", ALL | UNIT)
    # Meanwhile one is edited, one erased, and one is new.
    await api.post(f"/failures/{ids[1]}:edit", {"set": {"/json/t": 2}})
    await done(api, "erase", {"selection": {"id": [ids[2]]}, "confirm": 1})
    (late,) = await recorded(store, "late", data=b'{"t": 1}')
    applied = await done(
        api, "patch", ALL | UNIT | {"preview": False, "digest": preview["digest"]}, Holdfast_Actor="anna"
    )
    assert applied == {
        "changed": 2,
        "leftOut": [
            {"reason": "was erased since the preview", "count": 1, "examples": [ids[2]]},
            {"reason": "was changed since the preview", "count": 1, "examples": [ids[1]]},
        ],
    }
    assert await newest_data(store, ids[0]) == b'{"t":1,"unit":"K"}'
    assert await newest_data(store, ids[3]) == b'{"t":1,"unit":"K"}'
    assert await newest_data(store, ids[1]) == b'{"t":2}'
    assert await store.revisions(late) == []
    assert {one["target"] for one in await actions(api, "failure.edit")} == {
        f"failures/{failure_id}" for failure_id in (ids[0], ids[1], ids[3])
    }
    (entry,) = await actions(api, "failures.patch")
    assert entry["actor"] == "anna"
    assert entry["details"] == {"selection": {}, "changed": 2, "leftOut": 2}


async def test_applied_twice_it_changes_nothing_more(api: Api, store: DeskStore) -> None:
    (failure_id,) = await recorded(store, data=b"{}")
    digest = (await done(api, "patch", ALL | UNIT))["digest"]
    body = ALL | UNIT | {"preview": False, "digest": digest}
    assert (await done(api, "patch", body))["changed"] == 1
    assert (await done(api, "patch", body))["changed"] == 0
    assert len(await store.revisions(failure_id)) == 1


async def test_a_digest_is_of_its_selection_and_its_change(api: Api, store: DeskStore) -> None:
    await recorded(store, data=b"{}")
    digest = (await done(api, "patch", ALL | UNIT))["digest"]
    other = {"merge": {"json": {"unit": "C"}}}
    for body in (
        ALL | other | {"digest": digest},
        {"selection": {"reason": "X"}} | UNIT | {"digest": digest},
        ALL | UNIT | {"digest": "x" + digest},
        ALL | UNIT | {"digest": digest[:-4]},
        ALL | UNIT | {"digest": "a.é"},
    ):
        assert "digest" in await refused(api, "patch", body | {"preview": False})
    assert "digest" in await refused(api, "patch", ALL | UNIT | {"preview": False})


async def test_more_than_can_be_looked_at_is_refused(
    api: Api, store: DeskStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "MOST_ROWS", 2)
    await recorded(store, "a", "b", "c", data=b"{}")
    assert "narrow it" in await refused(api, "patch", ALL | UNIT)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (UNIT, "selection"),
        (ALL, "patch | merge | set"),
        (ALL | {"undo": 0}, "undo"),
        (ALL | UNIT | {"preview": "yes"}, "preview"),
        ({"selection": {"statsu": []}} | UNIT, "statsu"),
    ],
)
async def test_a_bad_patch_is_refused_by_its_field(api: Api, body: Any, field: str) -> None:
    assert (await refused(api, "patch", body)).startswith(field)


async def test_progress_comes_line_by_line(api: Api, store: DeskStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "STEP", 2)
    await recorded(store, *(f"m{number}" for number in range(5)), data=b"{}")
    headers = {"Accept": "application/x-ndjson"}
    async with api.session.post("/api/v1/failures:patch", json=ALL | UNIT, headers=headers) as answer:
        assert answer.content_type == "application/x-ndjson"
        lines = [json.loads(line) async for line in answer.content]
    assert [line.get("progress") for line in lines] == [
        {"done": 2, "total": 5},
        {"done": 4, "total": 5},
        {"done": 5, "total": 5},
        None,
    ]
    assert lines[-1]["result"]["wouldChange"] == 5


# Hold and erase.


async def test_what_is_held_is_not_erased(api: Api, store: DeskStore) -> None:
    ids = await recorded(store, "a", "b", "c")
    assert await done(api, "hold", {"selection": {"id": ids[:2]}, "preview": True}) == {
        "count": 2,
        "held": 0,
        "free": 2,
    }
    assert await done(api, "hold", {"selection": {"id": ids[:2]}}, Holdfast_Actor="legal") == {"changed": 2}
    assert await done(api, "erase", ALL | {"preview": True}) == {"count": 3, "held": 2, "free": 1}
    assert await done(api, "erase", ALL | {"confirm": 1}) == {"erased": 1}
    assert await store.get(ids[2]) is None
    assert await done(api, "release", {"selection": {"id": [ids[0]]}}) == {"changed": 1}
    assert await done(api, "erase", ALL | {"confirm": 1}) == {"erased": 1}
    (entry,) = await actions(api, "failures.hold")
    assert (entry["actor"], entry["details"]) == (
        "legal",
        {"selection": {"id": ids[:2]}, "count": 2, "failures": f"{ids[0]}-{ids[1]}"},
    )
    assert len(await actions(api, "failures.erase")) == 2


async def test_another_number_than_confirmed_erases_nothing(api: Api, store: DeskStore) -> None:
    ids = await recorded(store, "a", "b")
    for confirm in (0, 1, 3):
        await refused(api, "erase", ALL | {"confirm": confirm}, 409)
    assert await store.get(ids[0])
    assert await actions(api, "failures.erase") == []


@pytest.mark.parametrize("confirm", [None, "1", -1, 1.0, True])
async def test_erasing_needs_a_number(api: Api, confirm: object) -> None:
    assert "confirm" in await refused(api, "erase", ALL | {"confirm": confirm})


async def test_every_failure_is_meant_only_where_that_is_said(api: Api) -> None:
    for path in ("hold", "release", "erase"):
        assert "selection" in await refused(api, path, {"confirm": 0} if path == "erase" else {})


async def test_the_audit_does_not_say_what_was_searched_for(api: Api, store: DeskStore) -> None:
    await recorded(store, data=b'{"name": "canary"}', attributes={"kind": "canary"})
    await done(
        api, "hold", {"selection": {"payload": {"name": "canary"}, "attribute": {"kind": "canary"}, "text": "canary"}}
    )
    (entry,) = await actions(api, "failures.hold")
    told = {"selection": {"attribute": ["kind"], "payload": ["name"], "text": True}, "count": 1, "failures": "1"}
    assert entry["details"] == told
