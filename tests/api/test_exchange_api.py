"""/api/v1/failures:export and :import on a real server: from desk to desk, over SQLite and PostgreSQL."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.clock import SystemClock
from holdfast.deadletter.exchange import service
from holdfast.deadletter.exchange.lines import read_line, write_line
from holdfast.deadletter.exchange.service import Exchange, lines_of, taken_over
from holdfast.deadletter.redaction import NOTHING_HIDDEN, Redaction
from holdfast.deadletter.selection import Selection
from holdfast.deadletter.store import DeskStore
from holdfast.model.failed_message import Content, FailedMessage, FailureClass, FailureStatus, Revision
from holdfast.settings import load_settings
from holdfast.stores.sqlite.desk import SqliteDeskStore
from holdfast.wiring.stores import open_failures
from tests.support.desk import NOW_NS, Api, a_failure, open_store
from tests.support.mending import actions, recorded, serving
from tests.support.postgres import PostgresServer, database_url, postgres

__all__ = ["PostgresServer", "database_url", "postgres"]


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


@pytest.fixture
async def empty() -> AsyncIterator[Api]:
    """Another desk."""
    other = await SqliteDeskStore.in_memory()
    async with serving(other) as served:
        yield served
    await other.close()


async def exported(api: Api, *pairs: tuple[str, str], **headers: str) -> bytes:
    async with api.session.get("/api/v1/failures:export", params=list(pairs), headers=headers) as answer:
        assert answer.status == 200
        assert answer.content_type == "application/x-ndjson"
        return await answer.read()


async def imported(api: Api, body: Any) -> Any:
    headers = {"Content-Type": "application/x-ndjson"}
    async with api.session.post("/api/v1/failures:import", data=body, headers=headers) as answer:
        assert answer.status == 200
        return await answer.json()


async def rows(store: DeskStore) -> list[tuple[FailedMessage, Sequence[Revision]]]:
    """Without what is a store's own."""
    found = await store.walk(Selection(), 0, 1000)
    return [
        (
            replace(row, id=0, version=1, origin_id=0),
            [replace(revision, failure_id=0) for revision in await store.revisions(row.id)],
        )
        for row in found
    ]


# There and back.

_texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
_times = st.integers(1, 2**63 // 1000 - 1).map(lambda micros: micros * 1000)
_contents = st.builds(
    Content,
    data=st.binary(max_size=50) | st.sampled_from([b'{"a": 1.10}', b"\x00", b""]),
    attributes=st.dictionaries(_texts, _texts, max_size=3),
    ordering_key=_texts,
)


@st.composite
def _rows(draw: st.DrawFn) -> tuple[FailedMessage, list[Revision]]:
    content, status = draw(_contents), draw(st.sampled_from(FailureStatus))
    queued = status is FailureStatus.QUEUED_FOR_RETRY
    edits = draw(st.lists(_contents, max_size=3))
    revisions = [
        Revision(0, number, edit, draw(_texts), draw(_texts), draw(_times)) for number, edit in enumerate(edits, 1)
    ]
    row = FailedMessage(
        message_id=draw(st.uuids()).hex,
        subscription=draw(_texts),
        source_topic=draw(_texts),
        failure_reason=draw(_texts),
        error_details=draw(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=200)),
        data=content.data,
        attributes=content.attributes,
        ordering_key=content.ordering_key,
        publish_time_ns=draw(st.integers(0, 2**63 - 1)),
        delivery_attempt=draw(st.integers(0, 100)),
        retry_count=draw(st.integers(0, 5)),
        status=status,
        created_at_ns=draw(_times),
        failed_at_ns=draw(_times),
        retry_at_ns=draw(st.none() | _times) if queued else None,
        retry_success_at_ns=draw(st.none() | _times),
        failure_class=draw(st.sampled_from(FailureClass)),
        fingerprint=draw(st.sampled_from(["", "f00d"])),
        generation=draw(st.integers(0, 5)),
        revision=len(revisions),
        legal_hold=draw(st.booleans()),
        sent_at_ns=draw(st.none() | _times) if queued else None,
        sent_message_id=draw(_texts),
    )
    return row, revisions


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(_rows())
async def test_a_line_says_everything(row: tuple[FailedMessage, list[Revision]]) -> None:
    line = read_line(write_line(row[0], row[1], None, NOTHING_HIDDEN).encode())
    assert (line.failure, line.revisions, line.origin) == (row[0], row[1], None)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(_rows(), max_size=5), st.integers(1, 40))
async def test_round_trip_is_exact(given_rows: list[tuple[FailedMessage, list[Revision]]], piece: int) -> None:
    """Wherever the file is cut into pieces."""
    one, other = await SqliteDeskStore.in_memory(), await SqliteDeskStore.in_memory()
    try:
        await one.restore(given_rows)
        lines = Exchange(one, SystemClock()).export(Selection(), NOTHING_HIDDEN, "anna")
        file = "".join([line async for line in lines]).encode()
        told = [item async for item in Exchange(other, SystemClock()).take_in(_pieces(file, piece), "anna")][-1]
        assert (getattr(told, "new", -1), getattr(told, "refused", -1)) == (len(given_rows), 0)
        assert await rows(one) == given_rows
        assert await rows(other) == [(taken_over(row), revisions) for row, revisions in given_rows]
    finally:
        await one.close()
        await other.close()


async def _pieces(file: bytes, size: int) -> AsyncIterator[bytes]:
    for start in range(0, len(file), size):
        yield file[start : start + size]


async def test_from_desk_to_desk_with_everything(api: Api, store: DeskStore, empty: Api) -> None:
    (binary,) = await recorded(store, "b", data=b"\x00\xff\n", attributes={"k": "v"}, ordering_key="o")
    (edited,) = await recorded(store, "e", data=b'{"a": 1}')
    await api.post(f"/failures/{edited}:edit", {"set": {"/json/a": 2}, "comment": "why"}, Holdfast_Actor="anna")
    await api.post("/failures:hold", {"selection": {"id": [binary]}})
    file = await exported(api)
    assert await imported(empty, file) == {"lines": 2, "new": 2, "known": 0, "refused": 0, "errors": []}
    again = await exported(empty)
    assert [_without_ids(line) for line in again.splitlines()] == [_without_ids(line) for line in file.splitlines()]
    assert (await empty.ok("/failures"))["counts"]["permanent_failure"] == 2


def _without_ids(line: bytes) -> Any:
    return {name: value for name, value in json.loads(line).items() if name not in ("id", "version")}


@pytest.mark.parametrize("sent", [NOW_NS, None])
async def test_a_retry_that_is_out_at_the_other_desk_is_due_here(empty: Api, sent: int | None) -> None:
    """Nobody would tell this desk how it ends."""
    queued = replace(a_failure("a"), status=FailureStatus.QUEUED_FOR_RETRY, sent_at_ns=sent, sent_message_id="7")
    await imported(empty, await _line(queued))
    (found,) = (await empty.ok("/failures"))["failures"]
    assert (found["sentAt"], found["sentMessageId"]) == (None, "7")
    assert found["retryAt"] is not None


async def test_what_a_replay_was_about_to_send_is_free_at_another_desk(empty: Api) -> None:
    await imported(empty, await _line(a_failure("a").claim_replay(NOW_NS, 3)))
    (found,) = (await empty.ok("/failures"))["failures"]
    assert found["sentAt"] is None
    await empty.post(f"/failures/{found['id']}:edit", {"set": {"/attributes/k": "v"}})
    assert (await empty.ok(f"/failures/{found['id']}"))["revision"] == 1


async def test_recording_twice_changes_nothing(api: Api, store: DeskStore) -> None:
    (failure_id,) = await recorded(store, data=b'{"a": 1}')
    file = await exported(api)
    await api.post(f"/failures/{failure_id}:edit", {"set": {"/json/a": 2}})
    before = await rows(store)
    assert await imported(api, file) == {"lines": 1, "new": 0, "known": 1, "refused": 0, "errors": []}
    assert await rows(store) == before


async def test_a_selection_is_exported(api: Api, store: DeskStore) -> None:
    await recorded(store, "a", failure_reason="X")
    await recorded(store, "b", failure_reason="Y")
    lines = (await exported(api, ("reason", "X"))).splitlines()
    assert [json.loads(line)["messageId"] for line in lines] == ["a"]
    status, answer = await api.get("/failures:export", ("raeson", "X"))
    assert (status, "raeson" in answer["error"]["message"]) == (400, True)


async def test_lineage_leads_to_the_same_failure_under_its_new_id(api: Api, store: DeskStore, empty: Api) -> None:
    for at in range(3):
        await imported(empty, await _line(a_failure(f"other-{at}")))  # so that ids differ
    (first,) = await recorded(store, "a")
    await recorded(store, "b", generation=1, origin_id=first)
    await imported(empty, await exported(api))
    found = {row["messageId"]: row for row in (await empty.ok("/failures"))["failures"]}
    assert found["b"]["originId"] == found["a"]["id"] != first
    assert found["b"]["generation"] == 1


async def _line(failure: FailedMessage) -> bytes:
    return write_line(failure, (), None, NOTHING_HIDDEN).encode()


# What is wrong is told by its line.


async def test_what_is_wrong_is_told_by_its_line_and_the_others_are_imported(empty: Api) -> None:
    good, other = await _line(a_failure("a")), await _line(a_failure("b"))
    file = b"\n".join([good.strip(), b"", b"{", b"[]", b'{"id": 1}', other.strip()])
    told = await imported(empty, file)
    assert (told["lines"], told["new"], told["refused"]) == (6, 2, 3)
    assert [error["line"] for error in told["errors"]] == [3, 4, 5]


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown field": ({"extra": 1}, "extra"),
    "a status": ({"status": "lost"}, "status"),
    "a time": ({"createdAt": "yesterday"}, "createdAt"),
    "a time before 1970": ({"createdAt": "1960-01-01T00:00:00Z"}, "createdAt"),
    "a number": ({"retryCount": -1}, "retryCount"),
    "a number that is true": ({"retryCount": True}, "retryCount"),
    "an attribute": ({"attributes": {"a": 1}}, "attributes"),
    "base64": ({"data": "!"}, "data"),
    "no payload": ({"data": None}, "data"),
    "a retry of what is not queued": ({"retryAt": "2026-01-01T00:00:00Z"}, "retryAt"),
    "revisions that are not there": ({"revision": 2}, "revisions"),
    "a revision": ({"revision": 1, "revisions": [{"number": 1}]}, "revisions[0].data"),
    "an origin": ({"origin": ["a"]}, "origin"),
    "hold": ({"legalHold": "yes"}, "legalHold"),
    "redacted": ({"redacted": ["/json/a"]}, "redacted"),
}


@pytest.mark.parametrize(("change", "field"), BAD.values(), ids=BAD)
async def test_a_bad_field_is_named(empty: Api, change: dict[str, Any], field: str) -> None:
    line = json.loads(await _line(a_failure("a"))) | change
    told = await imported(empty, json.dumps(line).encode())
    assert told["new"] == 0
    assert told["errors"][0]["error"].startswith(field)


async def test_errors_are_bounded(empty: Api) -> None:
    told = await imported(empty, b"x\n" * 1000)
    assert (told["refused"], len(told["errors"])) == (1000, service.MOST_ERRORS)


async def test_a_redacted_export_is_marked_and_refused(store: DeskStore, empty: Api) -> None:
    await recorded(store, "a", data=b'{"card": "4111", "b": 1}')
    await recorded(store, "b", data=b'{"b": 1}')
    async with serving(store, redact="payload:card") as api:
        file = await exported(api)
    assert b"4111" not in file
    first, second = map(json.loads, file.splitlines())
    assert first["redacted"] == ["/json/card"]
    assert "data" not in first
    assert "redacted" not in second
    told = await imported(empty, file)
    assert (told["new"], told["refused"]) == (1, 1)
    assert "redacted" in told["errors"][0]["error"]


async def test_a_revision_that_is_redacted_is_marked_too() -> None:
    failure = a_failure("a", data=b"{}", revision=1)
    edit = Revision(0, 1, Content(b'{"card": "4111"}'), "anna", "4111 it is", NOW_NS)
    line = write_line(failure, [edit], None, Redaction(["payload:card"]))
    assert "4111" not in line
    assert json.loads(line)["revisions"][0]["redacted"] == ["/json/card"]


# Bounds.


async def test_lines_are_put_together_from_pieces_and_long_ones_are_passed_over() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for piece in (b"a\nb", b"c", b"\n\n", b"1234", b"5678", b"9\nd", b""):
            yield piece

    assert [line async for line in lines_of(pieces(), largest=8)] == [b"a", b"bc", b"", None, b"d"]


async def test_both_are_audited(api: Api, store: DeskStore) -> None:
    await recorded(store, "a")
    file = await exported(api, ("reason", "SCHEMA_VALIDATION_ERROR"), **{"Holdfast-Actor": "anna"})
    await imported(api, file + b"x\n")
    (entry,) = await actions(api, "failures.export")
    assert (entry["actor"], entry["details"]) == (
        "anna",
        {"selection": {"reason": "SCHEMA_VALIDATION_ERROR"}, "redacted": False},
    )
    (entry,) = await actions(api, "failures.import")
    assert entry["details"] == {"new": 0, "known": 1, "refused": 1}


async def test_a_page_of_another_site_imports_nothing(empty: Api) -> None:
    file = await _line(a_failure("a"))
    headers = {"Origin": "https://evil.example"}
    async with empty.session.post("/api/v1/failures:import", data=file, headers=headers) as answer:
        assert answer.status == 400
    assert (await empty.ok("/failures"))["failures"] == []


async def test_an_import_goes_on_while_it_is_sent(empty: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing waits for the end of the file."""
    monkeypatch.setattr(service, "BATCH_ROWS", 1)
    seen: list[int] = []

    async def file() -> AsyncIterator[bytes]:
        for at in range(3):
            yield await _line(a_failure(f"m{at}"))
            while len((await empty.ok("/failures"))["failures"]) <= at:
                pass
            seen.append(at)

    assert (await imported(empty, file()))["new"] == 3
    assert seen == [0, 1, 2]
