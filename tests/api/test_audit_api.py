"""/api/v1/audit on a real server over a real store: the trail, and what was done to it in the file."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from holdfast.deadletter.audit import NOTHING_BEFORE, Action
from holdfast.deadletter.store import DeskStore
from holdfast.settings import Settings
from holdfast.wiring.desk.serving import looking_routes
from tests.support.desk import HOUR_NS, NOW_NS, Api, a_clock, open_store, served


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[DeskStore]:
    opened = await open_store(tmp_path)
    yield opened
    await opened.close()


@pytest.fixture
async def api(store: DeskStore) -> AsyncIterator[Api]:
    async with served(looking_routes(store, a_clock(), Settings())) as running:
        yield running


@pytest.fixture
async def trail(store: DeskStore) -> None:
    for number in range(1, 6):
        who, what = ("anna", "group.resolve") if number % 2 else ("ben", "failure.hold")
        await store.append(Action(who, what, f"groups/{number}", {"n": number}, NOW_NS - number * HOUR_NS))


def tamper(data: Path, statement: str) -> None:
    """As somebody who can write to the file: what guards the table there goes first."""
    with closing(sqlite3.connect(data / "failures.db")) as file:
        guards = file.execute("SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name LIKE '%audit%'")
        for (name,) in guards.fetchall():
            file.execute(f'DROP TRIGGER "{name}"')
        file.execute(statement)
        file.commit()


async def test_the_trail_newest_first(api: Api, trail: None) -> None:
    first = await api.ok("/audit", ("pageSize", "3"))
    second = await api.ok("/audit", ("pageSize", "3"), ("pageToken", first["nextPageToken"]))
    entries: list[dict[str, Any]] = first["entries"] + second["entries"]
    assert [entry["number"] for entry in entries] == [5, 4, 3, 2, 1]
    assert second["nextPageToken"] == ""
    assert entries[-1].pop("hash")
    assert entries[-1] == {
        "number": 1,
        "at": "2027-01-15T07:00:00Z",
        "actor": "anna",
        "action": "group.resolve",
        "target": "groups/1",
        "details": {"n": 1},
        "previous": NOTHING_BEFORE,
    }


async def test_entries_by_what_they_tell(api: Api, trail: None) -> None:
    async def found(*pairs: tuple[str, str]) -> list[int]:
        return [entry["number"] for entry in (await api.ok("/audit", *pairs))["entries"]]

    assert await found(("actor", "ben")) == [4, 2]
    assert await found(("action", "group.resolve")) == [5, 3, 1]
    assert await found(("target", "groups/2")) == [2]
    assert await found(("since", "150m")) == [2, 1]
    assert await found(("until", "150m")) == [5, 4, 3]
    assert await found(("actor", "' OR 1=1 --")) == []
    for pair in (("colour", "red"), ("since", "soon"), ("pageToken", "x" * 5000), ("pageSize", "0")):
        assert pair[0] in await api.refused("/audit", pair)


async def test_a_whole_trail(api: Api, trail: None) -> None:
    verdict = await api.ok("/audit/verify")
    newest = (await api.ok("/audit", ("pageSize", "1")))["entries"][0]
    assert verdict == {"ok": True, "entry": 5, "head": newest["hash"], "problem": ""}
    assert (await api.ok("/audit/verify", ("head", newest["hash"])))["ok"]


async def test_an_empty_trail(api: Api) -> None:
    assert await api.ok("/audit/verify") == {"ok": True, "entry": 0, "head": NOTHING_BEFORE, "problem": ""}


async def test_a_changed_entry_is_named(api: Api, trail: None, tmp_path: Path) -> None:
    tamper(tmp_path, "UPDATE audit_entries SET actor = 'nobody' WHERE number = 3")
    verdict = await api.ok("/audit/verify")
    assert (verdict["ok"], verdict["entry"], verdict["problem"]) == (False, 3, "entry 3 was changed")


async def test_a_missing_entry_is_named(api: Api, trail: None, tmp_path: Path) -> None:
    tamper(tmp_path, "DELETE FROM audit_entries WHERE number = 2")
    verdict = await api.ok("/audit/verify")
    assert (verdict["ok"], verdict["entry"], verdict["problem"]) == (False, 2, "entry 2 is missing: the next one is 3")


async def test_an_end_that_was_cut_off_shows_to_whoever_noted_it(api: Api, trail: None, tmp_path: Path) -> None:
    noted = (await api.ok("/audit/verify"))["head"]
    tamper(tmp_path, "DELETE FROM audit_entries WHERE number >= 4")
    assert (await api.ok("/audit/verify"))["ok"]
    verdict = await api.ok("/audit/verify", ("head", noted))
    assert (verdict["ok"], verdict["entry"]) == (False, 3)
    assert "cut off" in verdict["problem"]


async def test_the_trail_cannot_be_written(api: Api) -> None:
    for method in ("POST", "PUT", "DELETE"):
        async with api.session.request(method, "/api/v1/audit") as answer:
            assert answer.status == 405
