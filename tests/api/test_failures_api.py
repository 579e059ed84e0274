"""/api/v1/failures on a real server, over a real socket and a real store."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from holdfast.clock import SystemClock
from holdfast.deadletter.audit import Action
from holdfast.deadletter.failures import Edit
from holdfast.deadletter.reporting import Processing
from holdfast.deadletter.selection import Selection
from holdfast.deadletter.store import DeskStore
from holdfast.errors import StorageUnavailable
from holdfast.model.failed_message import Content, FailedMessage, FailureStatus, Revision
from holdfast.model.timestamps import format_rfc3339
from holdfast.settings import Settings
from holdfast.testing import ManualClock
from holdfast.wiring.desk.serving import looking_routes
from tests.support.desk import HOUR_NS, NOW_NS, SECOND_NS, SUBSCRIPTION, Api, a_clock, a_failure, served, store
from tests.support.postgres import database_url, postgres

BILLING = "projects/local/subscriptions/billing"

# What somebody might write to get out of a statement.
INJECTIONS = (
    "' OR '1'='1",
    "'; DROP TABLE failed_messages; --",
    '" OR 1=1 --',
    "%",
    "_",
    "\\",
    "$.a",
    "a') OR ('1'='1",
)


__all__ = ["database_url", "postgres", "store"]


@pytest.fixture
def clock() -> ManualClock:
    return a_clock()


@pytest.fixture
async def api(store: DeskStore, clock: ManualClock) -> AsyncIterator[Api]:
    async with served(looking_routes(store, clock, Settings())) as running:
        yield running


async def listed(api: Api, *pairs: tuple[str, str]) -> list[str]:
    body = await api.ok("/failures", *pairs)
    found = [failure["messageId"] for failure in body["failures"]]
    assert body["count"] == len(found)
    assert body["countIsExact"] is True
    return found


async def test_an_empty_desk(api: Api) -> None:
    assert await api.ok("/failures") == {
        "failures": [],
        "nextPageToken": "",
        "count": 0,
        "countIsExact": True,
        "counts": {"queued_for_retry": 0, "permanent_failure": 0, "retry_success": 0, "replayed": 0},
    }


async def test_a_row_of_the_list_has_everything_but_the_payload(api: Api, store: DeskStore) -> None:
    failure = a_failure(
        attributes={"tenant": "Zürich"},
        ordering_key="k",
        delivery_attempt=5,
        publish_time_ns=1_700_000_000_123_456_789,
        failed_at_ns=NOW_NS - SECOND_NS,
    )
    await store.record([failure])
    assert (await api.ok("/failures"))["failures"] == [
        {
            "id": 1,
            "messageId": "m-1",
            "subscription": SUBSCRIPTION,
            "sourceTopic": "projects/local/topics/orders",
            "failureReason": "SCHEMA_VALIDATION_ERROR",
            "failureClass": "poison",
            "group": "f00d",
            "errorDetails": "amount: must be a number",
            "retryCount": 0,
            "status": "permanent_failure",
            "deliveryAttempt": 5,
            "attributes": {"tenant": "Zürich"},
            "orderingKey": "k",
            "publishTime": "2023-11-14T22:13:20.123456789Z",
            "createdAt": "2027-01-15T08:00:00Z",
            "retryAt": None,
            "retrySuccessAt": None,
            "failedAt": "2027-01-15T07:59:59Z",
            "sentAt": None,
            "sentMessageId": "",
            "generation": 0,
            "originId": None,
            "replayId": None,
            "revision": 0,
            "legalHold": False,
            "version": 1,
        }
    ]


async def test_what_can_be_selected(api: Api, store: DeskStore) -> None:
    await store.record(
        [
            a_failure("1", failure_reason="A", delivery_attempt=1, created_at_ns=NOW_NS - 30 * HOUR_NS),
            a_failure("2", failure_reason="B", fingerprint="beef", delivery_attempt=5),
            a_failure("3", failure_reason="B", subscription=BILLING, attributes={"tenant": "a:b", "empty": ""}),
            a_failure("4", data=b'{"order": {"lines": [{"sku": "x"}], "paid": true}}', source_topic="unknown"),
            a_failure(
                "5", status=FailureStatus.QUEUED_FOR_RETRY, retry_at_ns=NOW_NS, error_details="Z\u00dcRICH is down"
            ),
        ]
    )
    await store.hold(Selection(ids=(2,)), True, Action("t", "failure.hold", "x"))
    expected = {
        (): ["5", "4", "3", "2", "1"],
        ("id=2,4",): ["4", "2"],
        ("status=queued_for_retry",): ["5"],
        ("status=queued_for_retry", "status=replayed"): ["5"],
        ("reason=B",): ["3", "2"],
        ("subscription=billing",): ["3"],
        (f"subscription={BILLING}",): ["3"],
        ("topic=unknown",): ["4"],
        ("topic=orders",): ["5", "3", "2", "1"],
        ("group=beef",): ["2"],
        ("messageId=4",): ["4"],
        ("since=24h",): ["5", "4", "3", "2"],
        ("until=24h",): ["1"],
        ("attempts=1..4",): ["1"],
        ("attempts=5..",): ["2"],
        ("attribute=tenant:a:b",): ["3"],
        ("attribute=tenant:a:b", "attribute=empty:"): ["3"],
        ("payload=order.lines.0.sku:x",): ["4"],
        ("payload=order.paid:true", "payload=order.lines.0.sku:x"): ["4"],
        ("text=zürich",): ["5"],
        ("hold=true",): ["2"],
        ("hold=false", "reason=B"): ["3"],
        ("replay=7",): [],
        ("reason=B", "subscription=billing", "attribute=tenant:a:b"): ["3"],
    }
    for query, found in expected.items():
        pairs = [(one.partition("=")[0], one.partition("=")[2]) for one in query]
        assert await listed(api, *pairs) == found, query


async def test_pages_go_on_whatever_is_recorded_in_between(api: Api, store: DeskStore) -> None:
    await store.record([a_failure(str(number)) for number in range(1, 6)])
    first = await api.ok("/failures", ("pageSize", "2"))
    await store.record([a_failure("late")])
    second = await api.ok("/failures", ("pageSize", "2"), ("pageToken", first["nextPageToken"]))
    third = await api.ok("/failures", ("pageSize", "2"), ("pageToken", second["nextPageToken"]))
    pages = [[failure["messageId"] for failure in page["failures"]] for page in (first, second, third)]
    assert pages == [["5", "4"], ["3", "2"], ["1"]]
    assert third["nextPageToken"] == ""
    assert (first["count"], third["count"]) == (5, 6)


async def test_counting_is_bounded(api: Api, store: DeskStore) -> None:
    for start in range(0, 10_001, 1000):
        failures = [a_failure(str(number)) for number in range(start, min(start + 1000, 10_001))]
        await store.record(failures)
    body = await api.ok("/failures", ("pageSize", "1"))
    assert (body["count"], body["countIsExact"]) == (10_000, False)
    body = await api.ok("/failures", ("pageSize", "1"), ("id", "1,2"))
    assert (body["count"], body["countIsExact"]) == (2, True)


async def test_counts_by_status_and_reason(api: Api, store: DeskStore) -> None:
    await store.record(
        [
            a_failure("1", failure_reason="A"),
            a_failure("2", failure_reason="B"),
            a_failure("3", failure_reason="B", status=FailureStatus.QUEUED_FOR_RETRY),
        ]
    )
    nothing = {"queued_for_retry": 0, "permanent_failure": 0, "retry_success": 0, "replayed": 0}
    assert await api.ok("/failures/counts") == {
        "byStatus": nothing | {"permanent_failure": 2, "queued_for_retry": 1},
        "byReason": {
            "A": nothing | {"permanent_failure": 1},
            "B": nothing | {"permanent_failure": 1, "queued_for_retry": 1},
        },
    }


@pytest.mark.parametrize(
    ("pair", "named"),
    [
        (("status", "lost"), "status: must be one of queued_for_retry, permanent_failure"),
        (("subscription", "a b"), "subscription: 'a b' is not a valid id"),
        (("pageToken", "nonsense"), "pageToken"),
        (("pageToken", "9" * 5000), "pageToken"),
        (("pageSize", "0"), "pageSize"),
        (("pageSize", "1001"), "pageSize"),
        (("pageSize", "1e3"), "pageSize"),
        (("colour", "red"), "colour: is not known here"),
        (("since", "yesterday"), "since: must be a time"),
        (("attempts", "many"), "attempts: must look like"),
        (("payload", "a"), "payload: must look like NAME:VALUE"),
        (("reason", ""), "reason: must be a text that is not empty"),
        (("text", "a\0b"), "text: must be text in UTF-8, without NUL"),
        (("replay", "-1"), "replay"),
    ],
)
async def test_bad_input_names_its_field(api: Api, pair: tuple[str, str], named: str) -> None:
    assert named in await api.refused("/failures", pair)


@pytest.mark.parametrize("hostile", INJECTIONS)
async def test_what_is_searched_for_is_never_sql(api: Api, store: DeskStore, hostile: str) -> None:
    await store.record([a_failure("1"), a_failure("2", failure_reason=hostile, attributes={hostile: hostile})])
    for name in ("reason", "group", "messageId", "text"):
        found = await listed(api, (name, hostile))
        assert found == (["2"] if name == "reason" else []), name
    if ":" not in hostile:
        assert await listed(api, ("attribute", f"{hostile}:{hostile}")) == ["2"]
        path = hostile.replace("\\", "\\\\")  # a key with a backslash
        assert await listed(api, ("payload", f"{path}:{hostile}")) == []
    assert await listed(api) == ["2", "1"]


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
    api: Api, store: DeskStore, data: bytes, readable: Mapping[str, Any]
) -> None:
    await store.record([a_failure("m1", data=data)])
    body = await api.ok("/failures/1")
    assert body["messageId"] == "m1"
    assert base64.b64decode(body["data"]) == data
    assert {name: body[name] for name in ("text", "json") if name in body} == readable
    assert (body["revisions"], body["lineage"]) == ([], [1])


async def test_one_failure_with_its_edits(api: Api, store: DeskStore) -> None:
    await store.record([a_failure()])
    failure = await store.get(1)
    assert failure
    revision = Revision(1, 1, Content(b"{}"), "anna", "without it", NOW_NS)
    edit = Edit(failure.revise(), revision, Action("anna", "failure.edit", "failures/1"))
    assert await store.revise([edit]) == [True]
    body = await api.ok("/failures/1")
    assert body["revision"] == 1
    shown = {"number": 1, "author": "anna", "comment": "without it", "createdAt": "2027-01-15T08:00:00Z"}
    assert shown.items() <= body["revisions"][0].items()


async def test_lineage_tells_of_all_failures_of_one_message(api: Api, store: DeskStore) -> None:
    await store.record([a_failure("1"), a_failure("other")])
    await store.record([a_failure("2", generation=1, origin_id=1), a_failure("3", generation=2, origin_id=1)])
    for failure_id in (1, 3, 4):
        assert (await api.ok(f"/failures/{failure_id}"))["lineage"] == [1, 3, 4]
    assert (await api.ok("/failures/2"))["lineage"] == [2]


@pytest.mark.parametrize("failure_id", ["2", "0", "-1", "abc", "1.0", "9" * 19, "9" * 400, "%D9%A1"])
async def test_a_failure_that_does_not_exist(api: Api, store: DeskStore, failure_id: str) -> None:
    await store.record([a_failure("m1")])
    await api.refused(f"/failures/{failure_id}", code=404)


async def test_a_store_that_is_down_is_unavailable(api: Api, store: DeskStore, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: object) -> object:
        raise StorageUnavailable("disk full")

    with monkeypatch.context() as patched:
        patched.setattr(store, "list", broken)
        assert "disk full" in await api.refused("/failures", code=503)
    assert await listed(api) == []


async def test_failures_cannot_be_written(api: Api) -> None:
    async with api.session.post("/api/v1/failures", json={}) as answer:
        assert answer.status == 405


# Statistics.


def ended(failure: FailedMessage, retries: int, seconds: int) -> FailedMessage:
    """Its last automatic retry succeeded so many seconds after it was recorded."""
    return replace(
        failure,
        status=FailureStatus.RETRY_SUCCESS,
        retry_count=retries,
        retry_success_at_ns=failure.created_at_ns + seconds * SECOND_NS,
    )


async def fill(store: DeskStore, now_ns: int = NOW_NS) -> None:
    def limited(message_id: str, detected: int, **changes: Any) -> FailedMessage:
        told = {"failure_reason": "LIMIT", "created_at_ns": now_ns, "failed_at_ns": now_ns - detected * SECOND_NS}
        return a_failure(message_id, **(told | changes))

    await store.record(
        [
            ended(limited("1", detected=1), retries=2, seconds=10),
            ended(limited("2", detected=3), retries=1, seconds=5),
            ended(limited("3", detected=2), retries=1, seconds=6),
            limited("4", detected=1, retry_count=3),
            a_failure("5", failure_reason="SCHEMA", created_at_ns=now_ns),
            a_failure("old", created_at_ns=now_ns - 200 * HOUR_NS),
        ]
    )


async def test_statistics(api: Api, store: DeskStore) -> None:
    await fill(store)
    report = await api.ok("/failures/stats")
    assert (report["since"], report["until"]) == ("2027-01-08T08:00:00Z", "2027-01-15T08:00:00Z")
    assert report["failed"] == 5
    assert report["byStatus"] == {
        "queued_for_retry": 0,
        "permanent_failure": 2,
        "retry_success": 3,
        "replayed": 0,
    }
    assert report["byReason"] == [
        {
            "reason": "LIMIT",
            "count": 4,
            "share": 0.8,
            "averageRetries": 1.75,
            "recovered": 3,
            "successRate": 0.75,
        },
        {"reason": "SCHEMA", "count": 1, "share": 0.2, "averageRetries": 0.0, "recovered": 0, "successRate": 0.0},
    ]
    assert report["retries"] == {
        "ended": 4,
        "succeeded": 3,
        "successRate": 0.75,
        "averageBeforeSuccess": pytest.approx(4 / 3),
    }
    assert report["medianRecoverySeconds"] == 6.0
    assert report["medianDetectionSeconds"] in (1.0, 1.5, 2.0)
    assert 2.0 <= report["p95DetectionSeconds"] <= 3.0
    assert report["reviewQueue"] == 3  # the old one too waits for somebody
    assert (report["lost"], report["lossRate"], report["processed"]) == (0, 0.0, None)
    assert [(promise["name"], promise["met"]) for promise in report["sla"]] == [
        ("message loss rate", True),
        ("retry success rate", False),
        ("time to detection", True),
        ("manual review queue", True),
    ]


async def test_what_is_not_known_is_not_made_up(api: Api) -> None:
    report = await api.ok("/failures/stats", ("since", "24h"))
    assert (report["failed"], report["byReason"]) == (0, [])
    assert report["retries"]["successRate"] is report["medianRecoverySeconds"] is None
    assert [promise["met"] for promise in report["sla"]] == [True, None, None, True]


async def test_loss_is_what_was_erased_unresolved(store: DeskStore) -> None:
    """By the real clock: the database counts what is deleted, whoever does it."""
    clock = SystemClock()
    now_ns = clock.now_ns()
    await fill(store, now_ns)
    processing = Processing("the consumer", now_ns - HOUR_NS, lambda: 95)
    async with served(looking_routes(store, clock, Settings(), processing)) as api:
        before = await api.ok("/failures/stats", ("since", "24h"))
        await store.erase(Selection(ids=(1, 4)), Action("anna", "failure.erase", "selection", {}, now_ns))
        report = await api.ok("/failures/stats", ("since", "24h"))
    assert before["processed"] == {
        "by": "the consumer",
        "since": format_rfc3339(now_ns - HOUR_NS),
        "total": 100,
        "failed": 5,
        "failureRate": 0.05,
        "lost": 0,
    }
    assert report["lost"] == report["processed"]["lost"] == 1
    assert report["lossRate"] == pytest.approx(1 / 98)
    assert report["sla"][0]["met"] is False


async def test_reasons_that_somebody_made_up_do_not_flood_an_answer(api: Api, store: DeskStore) -> None:
    made_up = [a_failure(f"m-{number}", failure_reason=f"R{number:03}") for number in range(150)]
    await store.record([a_failure("1"), a_failure("2"), *made_up])
    counts = await api.ok("/failures/counts")
    assert list(counts["byReason"])[:2] == ["SCHEMA_VALIDATION_ERROR", "R000"]
    assert counts["byReason"]["(other reasons)"]["permanent_failure"] == 51
    report = await api.ok("/failures/stats")
    assert len(report["byReason"]) == 101
    assert (report["byReason"][0]["count"], report["byReason"][-1]["count"], report["failed"]) == (2, 51, 152)


@pytest.mark.parametrize("pairs", [[("since", "soon")], [("since", "")], [("until", "1h")], [("since", "1h")] * 2])
async def test_statistics_refuse_what_they_do_not_know(api: Api, pairs: Sequence[tuple[str, str]]) -> None:
    assert pairs[0][0] in await api.refused("/failures/stats", *pairs)
