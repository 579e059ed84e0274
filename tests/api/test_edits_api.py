"""/api/v1/failures/{id}: edits, differences and validation, on a real server over a real store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.consumer.app import Consumer
from holdfast.consumer.changes import Upsert
from holdfast.consumer.event import Event
from holdfast.consumer.rehearsal import Rehearsal
from holdfast.deadletter.edits.route_check import RouteCheck
from holdfast.deadletter.store import DeskStore
from holdfast.errors import Poison
from holdfast.model.failed_message import FailureStatus
from holdfast.settings import Settings
from tests.support.desk import Api, open_store
from tests.support.mending import recorded as record
from tests.support.mending import serving

PAYLOAD = b'{"amount": "many",  "big": 12345678901234567890.10, "lines": [{"sku": "a"}]}'

called: list[str] = []


def consumer() -> Consumer:
    app = Consumer()

    @app.on("orders")
    def order(event: Event) -> Upsert:
        if not isinstance(event.data["amount"], int):
            raise Poison("amount: must be a whole number")
        return Upsert("orders", "1", event.data)

    @app.on("mails", side_effects=True)
    def mail(event: Event) -> Upsert:
        called.append(event.message_id)
        return Upsert("mails", "1", {})

    return app


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[DeskStore]:
    opened = await open_store(tmp_path)
    yield opened
    await opened.close()


@pytest.fixture
async def api(store: DeskStore) -> AsyncIterator[Api]:
    topics = {"projects/local/subscriptions/orders.worker": "orders"}
    async with serving(store, [RouteCheck(Rehearsal(consumer(), Settings().consumer, topics))]) as served:
        yield served


async def recorded(store: DeskStore, *ids: str, **changes: Any) -> list[int]:
    return await record(store, *ids, **({"data": PAYLOAD, "attributes": {"kind": "web"}} | changes))


async def edit(api: Api, failure_id: int, body: Any, **headers: str) -> Any:
    status, answer = await api.post(f"/failures/{failure_id}:edit", body, **headers)
    assert status == 201, answer
    return answer


async def payload(api: Api, failure_id: int, number: int) -> dict[str, Any]:
    revisions = (await api.ok(f"/failures/{failure_id}/revisions"))["revisions"]
    found: dict[str, Any] = revisions[number]
    assert found["number"] == number
    return found


# Editing.

WAYS: dict[str, Any] = {
    "patch": {"patch": [{"op": "replace", "path": "/json/amount", "value": 17}]},
    "merge": {"merge": {"json": {"amount": 17}}},
    "set": {"set": {"/json/amount": 17}},
}


@pytest.mark.parametrize("body", WAYS.values(), ids=WAYS)
async def test_each_way_makes_a_revision_and_leaves_the_original(api: Api, store: DeskStore, body: Any) -> None:
    (failure_id,) = await recorded(store)
    edited = await edit(api, failure_id, body | {"comment": "a number"}, Holdfast_Actor="anna")
    assert edited["revision"] == 1
    assert edited["version"] == 2
    assert edited["differences"] == [{"path": "/json/amount", "kind": "changed", "old": "many", "new": 17}]
    assert edited["findings"] == [{"check": "route", "ok": True, "skipped": "", "complaints": []}]
    assert (await payload(api, failure_id, 0))["text"] == PAYLOAD.decode()
    after = await payload(api, failure_id, 1)
    assert after["text"] == '{"amount":17,"big":12345678901234567890.10,"lines":[{"sku":"a"}]}'
    assert (after["author"], after["comment"], after["attributes"]) == ("anna", "a number", {"kind": "web"})
    failure = await store.get(failure_id)
    assert failure
    assert failure.data == PAYLOAD


async def test_what_an_edit_is_not_about_keeps_its_bytes(api: Api, store: DeskStore) -> None:
    (failure_id,) = await recorded(store)
    edited = await edit(api, failure_id, {"set": {"/attributes/kind": "app", "/orderingKey": "k"}})
    assert [one["path"] for one in edited["differences"]] == ["/attributes/kind", "/orderingKey"]
    (revision,) = await store.revisions(failure_id)
    assert revision.content.data == PAYLOAD
    assert revision.content.ordering_key == "k"


CONTENTS: dict[str, tuple[dict[str, Any], bytes]] = {
    "as JSON": ({"json": {"a": 1}}, b'{"a":1}'),
    "as text": ({"text": '{"a":  1}'}, b'{"a":  1}'),
    "in base64": ({"data": "AP8="}, b"\x00\xff"),
    "as nothing": ({"text": ""}, b""),
}


@pytest.mark.parametrize(("content", "data"), CONTENTS.values(), ids=CONTENTS)
async def test_the_whole_payload_anew(api: Api, store: DeskStore, content: Any, data: bytes) -> None:
    (failure_id,) = await recorded(store)
    await edit(api, failure_id, {"content": content})
    (revision,) = await store.revisions(failure_id)
    assert revision.content.data == data
    assert revision.content.attributes == {"kind": "web"}


async def test_edits_build_on_each_other_and_can_be_undone(api: Api, store: DeskStore) -> None:
    (failure_id,) = await recorded(store)
    await edit(api, failure_id, {"set": {"/json/amount": 17}})
    await edit(api, failure_id, {"set": {"/json/lines/0/sku": "b"}})
    undone = await edit(api, failure_id, {"undo": 0})
    assert undone["revision"] == 3
    assert (await store.revisions(failure_id))[-1].content.data == PAYLOAD
    between = await api.ok(f"/failures/{failure_id}/diff", ("from", "1"), ("to", "2"))
    assert between["differences"] == [{"path": "/json/lines/0/sku", "kind": "changed", "old": "a", "new": "b"}]
    assert (await api.ok(f"/failures/{failure_id}/diff"))["differences"] == []


async def test_of_two_who_edit_the_same_version_one_is_told(api: Api, store: DeskStore) -> None:
    (failure_id,) = await recorded(store)
    answers = await asyncio.gather(
        *(
            api.post(f"/failures/{failure_id}:edit", {"set": {"/json/amount": number}}, If_Match='"1"')
            for number in range(8)
        )
    )
    assert sorted(status for status, _ in answers) == [201] + [409] * 7
    assert {body["error"]["status"] for status, body in answers if status == 409} == {"ABORTED"}
    assert len(await store.revisions(failure_id)) == 1


async def test_an_edit_is_audited_without_its_content(api: Api, store: DeskStore) -> None:
    (failure_id,) = await recorded(store)
    await edit(api, failure_id, {"set": {"/json/amount": 4711}, "comment": "canary"}, Holdfast_Actor="anna")
    (entry,) = (await api.ok("/audit"))["entries"]
    assert (entry["actor"], entry["action"], entry["target"]) == ("anna", "failure.edit", f"failures/{failure_id}")
    assert entry["details"] == {"revision": 1}


REFUSED: dict[str, tuple[Any, str]] = {
    "nothing": ({}, "exactly one"),
    "two ways": ({"set": {"/json/a": 1}, "merge": {}}, "exactly one"),
    "what does not apply": (
        {"patch": [{"op": "remove", "path": "/json/x"}]},
        "operation 0 (remove): there is no /json/x",
    ),
    "a test that fails": ({"patch": [{"op": "test", "path": "/json/amount", "value": 1}]}, "is not the value"),
    "no change": ({"set": {"/json/amount": "many"}}, "nothing would change"),
    "two payloads": ({"set": {"/text": "x"}}, "must be under one of"),
    "an attribute that is no text": ({"set": {"/attributes/kind": 1}}, "/attributes/kind must be text"),
    "another part": ({"merge": {"messageId": "1"}}, "nothing but"),
    "a revision that is not there": ({"undo": 7}, "no revision 7"),
    "half a revision": ({"undo": 0.5}, "number of a revision"),
    "bad base64": ({"content": {"data": "!"}}, "not base64"),
    "an unknown field": ({"sett": {}}, "not known here"),
    "no payload": ({"merge": {"json": None}}, "must be under one of"),
    "a key twice": (b'{"set": {"/json/a": 1, "/json/a": 2}}', "twice"),
}


@pytest.mark.parametrize(("body", "why"), REFUSED.values(), ids=REFUSED)
async def test_what_is_refused_changes_nothing(api: Api, store: DeskStore, body: Any, why: str) -> None:
    (failure_id,) = await recorded(store)
    if isinstance(body, bytes):
        headers = {"Content-Type": "application/json"}
        async with api.session.post(f"/api/v1/failures/{failure_id}:edit", data=body, headers=headers) as response:
            status, answer = response.status, await response.json()
    else:
        status, answer = await api.post(f"/failures/{failure_id}:edit", body)
    assert status in (400, 404), answer
    assert why in answer["error"]["message"]
    failure = await store.get(failure_id)
    assert failure
    assert failure.version == 1


async def test_what_has_ended_is_not_edited(api: Api, store: DeskStore) -> None:
    (failure_id,) = await recorded(store, status=FailureStatus.REPLAYED)
    status, answer = await api.post(f"/failures/{failure_id}:edit", {"set": {"/json/amount": 1}})
    assert (status, answer["error"]["status"]) == (400, "FAILED_PRECONDITION")


async def test_an_unknown_failure(api: Api) -> None:
    for path in ("/failures/7/revisions", "/failures/7/diff"):
        assert (await api.get(path))[0] == 404
    for path in ("/failures/7:edit", "/failures/7:validate"):
        assert (await api.post(path, {"set": {"/json/a": 1}}))[0] == 404


# Validating.


async def test_the_handler_says_what_is_wrong_where(api: Api, store: DeskStore) -> None:
    (failure_id,) = await recorded(store)
    status, answer = await api.post(f"/failures/{failure_id}:validate")
    assert status == 200
    assert not answer["ok"]
    (finding,) = answer["findings"]
    assert finding["complaints"] == [{"path": "/json/amount", "expected": "must be a whole number", "actual": '"many"'}]


async def test_a_change_is_validated_without_being_kept(api: Api, store: DeskStore) -> None:
    (failure_id,) = await recorded(store)
    _, answer = await api.post(f"/failures/{failure_id}:validate", {"set": {"/json/amount": 1}})
    assert answer["ok"]
    assert await store.revisions(failure_id) == []


async def test_a_revision_is_validated(api: Api, store: DeskStore) -> None:
    (failure_id,) = await recorded(store)
    await edit(api, failure_id, {"set": {"/json/amount": 17}})
    assert (await api.post(f"/failures/{failure_id}:validate"))[1]["ok"]
    assert not (await api.post(f"/failures/{failure_id}:validate", {"revision": 0}))[1]["ok"]
    assert (await api.post(f"/failures/{failure_id}:validate", {"revision": 5}))[0] == 404


async def test_a_message_of_another_consumer_is_not_judged_here(api: Api, store: DeskStore) -> None:
    elsewhere = {"subscription": "projects/local/subscriptions/refunds.worker"}
    theirs, ours = await recorded(
        store, "theirs", "ours", source_topic="projects/local/topics/refunds", attributes={}, **elsewhere
    )
    _, answer = await api.post(f"/failures/{theirs}:validate")
    assert answer["findings"][0]["skipped"] == "the consumer here has no handler for refunds"
    await edit(api, ours, {"set": {"/attributes/topic": "orders", "/json/amount": 17}})
    assert (await api.post(f"/failures/{ours}:validate"))[1]["findings"][0]["ok"] is True
    (unrouted,) = await recorded(store, "unrouted", attributes={}, **elsewhere)  # of orders, and does not say so
    _, answer = await api.post(f"/failures/{unrouted}:validate")
    assert answer["findings"][0]["complaints"][0]["path"] == "/json/topic"


async def test_a_handler_with_side_effects_is_not_called(api: Api, store: DeskStore) -> None:
    (failure_id,) = await recorded(store, attributes={"topic": "mails"})
    _, answer = await api.post(f"/failures/{failure_id}:validate")
    assert answer["findings"] == [
        {
            "check": "route",
            "ok": None,
            "skipped": "mail has side effects, so it is not called",
            "complaints": [],
        }
    ]
    assert called == []
