"""What selecting failed messages must do, in every store. Subclass SelectionContract with a `store` fixture."""

from __future__ import annotations

import json

import pytest

from holdfast.deadletter.selection import Selection
from holdfast.deadletter.store import DeskStore
from holdfast.model.failed_message import FailureStatus
from holdfast.testing.contracts.failures import BILLING, ORDERS, a_failure, message_ids

QUEUED, PERMANENT, REPLAYED = (
    FailureStatus.QUEUED_FOR_RETRY,
    FailureStatus.PERMANENT_FAILURE,
    FailureStatus.REPLAYED,
)

SECOND = 1_000_000_000

# What an attacker would try, and what a careless quoting breaks on.
HOSTILE = [
    "' OR '1'='1",
    '" OR 1=1 --',
    "'; DROP TABLE failed_messages; --",
    "\\",
    "\\'",
    "%",
    "_",
    "{}",
    "$.x",
    ":before",
    "%(before)s",
    "a.b",
    'quo"te',
    "💥",
    "\x00",
    "\uf8ff0",
    " ",
]

ROWS = [
    a_failure(
        "1",
        status=QUEUED,
        failure_reason="A",
        created_at_ns=1 * SECOND,
        delivery_attempt=1,
        attributes={"tenant": "acme", "region": "eu"},
        data=b'{"order": {"id": 17, "lines": [{"sku": "X-1"}, {"sku": "X-2"}]}, "note": null, "vip": true}',
        fingerprint="f1",
        origin_id=7,
    ),
    a_failure(
        "2",
        subscription=BILLING,
        failure_reason="B",
        created_at_ns=2 * SECOND,
        delivery_attempt=5,
        attributes={"tenant": "acme"},
        data=b'{"order": {"id": "17"}, "price": 1.5}',
        fingerprint="f2",
        legal_hold=True,
    ),
    a_failure(
        "3",
        status=REPLAYED,
        failure_reason="A",
        created_at_ns=3 * SECOND,
        delivery_attempt=9,
        error_details="Connection REFUSED by Zürich",
        data="plain text of ÉTÉ".encode(),
        source_topic="projects/local/topics/other",
        replay_id=4,
    ),
    a_failure("4", failure_reason="B", created_at_ns=4 * SECOND, attributes={"tenant": "Acme"}, data=b"\xff refused"),
]


class SelectionContract:
    @pytest.fixture
    async def filled(self, store: DeskStore) -> DeskStore:
        await store.record(ROWS)
        return store

    @pytest.mark.parametrize(
        ("selection", "expected"),
        [
            (Selection(), "4321"),
            (Selection(statuses=[QUEUED]), "1"),
            (Selection(statuses=[QUEUED, REPLAYED]), "31"),
            (Selection(reason="A"), "31"),
            (Selection(subscription=ORDERS), "431"),
            (Selection(topic="projects/local/topics/other"), "3"),
            (Selection(fingerprint="f2"), "2"),
            (Selection(message_id="3"), "3"),
            (Selection(since_ns=2 * SECOND), "432"),
            (Selection(until_ns=2 * SECOND), "1"),
            (Selection(since_ns=2 * SECOND, until_ns=4 * SECOND), "32"),
            (Selection(fewest_attempts=5), "32"),
            (Selection(most_attempts=1), "41"),
            (Selection(attributes={"tenant": "acme"}), "21"),
            (Selection(attributes={"tenant": "acme", "region": "eu"}), "1"),
            (Selection(attributes={"region": "acme"}), ""),
            (Selection(payload={"order.id": "17"}), "21"),
            (Selection(payload={"order.lines.1.sku": "X-2"}), "1"),
            (Selection(payload={"order.lines.0.sku": "X-2"}), ""),
            (Selection(payload={"note": "null"}), "1"),
            (Selection(payload={"vip": "true"}), "1"),
            (Selection(payload={"price": "1.5"}), "2"),
            (Selection(payload={"order.id": "17", "vip": "true"}), "1"),
            (Selection(payload={"no.such.path": "17"}), ""),
            (Selection(text="refused"), "3"),
            (Selection(text="zÜRICH"), "3"),
            (Selection(text="été"), "3"),
            (Selection(text="x-2"), "1"),
            (Selection(text="must be a NUMBER"), "421"),
            (Selection(legal_hold=True), "2"),
            (Selection(legal_hold=False), "431"),
            (Selection(replay_id=4), "3"),
            (Selection(origin_id=7), "1"),
            (Selection(statuses=[QUEUED], reason="A", attributes={"tenant": "acme"}, payload={"vip": "true"}), "1"),
            (Selection(reason="B", attributes={"tenant": "acme"}, since_ns=SECOND, text="NUMBER"), "2"),
            (Selection(reason="B", attributes={"tenant": "acme"}, fewest_attempts=6), ""),
        ],
    )
    async def test_a_selection_means_these(self, filled: DeskStore, selection: Selection, expected: str) -> None:
        assert "".join(await message_ids(filled, selection)) == expected
        assert await filled.count(selection, 100) == len(expected)
        assert "".join(row.message_id for row in await filled.walk(selection, 0, 100)) == expected[::-1]

    async def test_ids_may_be_many(self, filled: DeskStore) -> None:
        rows = (await filled.list(Selection(), 10)).failures
        wanted = Selection(ids=[*range(10**6, 10**6 + 5000), rows[0].id, rows[2].id])
        assert await message_ids(filled, wanted) == ["4", "2"]

    async def test_counting_stops_where_it_is_told(self, filled: DeskStore) -> None:
        assert await filled.count(Selection(), 3) == 3
        assert await filled.count(Selection(reason="A"), 1) == 1

    async def test_pages_of_an_attribute_are_in_order_and_whole(self, store: DeskStore) -> None:
        await store.record([a_failure(str(n), attributes={"odd": str(n % 2), "k": "v"}) for n in range(10)])
        seen: list[str] = []
        token = ""
        while not seen or token:
            page = await store.list(Selection(attributes={"odd": "1", "k": "v"}), 2, token)
            seen += [row.message_id for row in page.failures]
            token = page.next_page_token
        assert seen == ["9", "7", "5", "3", "1"]

    async def test_whoever_walks_meets_all_whatever_changes(self, filled: DeskStore) -> None:
        seen: list[str] = []
        after = 0
        while rows := await filled.walk(Selection(reason="A"), after, 1):
            seen += [row.message_id for row in rows]
            after = rows[-1].id
            await filled.record([a_failure(f"new {len(seen)}", failure_reason="B")])
        assert seen == ["1", "3"]

    @pytest.mark.parametrize("text", HOSTILE)
    async def test_hostile_text_is_only_ever_a_value(self, store: DeskStore, text: str) -> None:
        key = text.replace("\x00", "nul")  # no JSON key of PostgreSQL has one
        path = key.replace("\\", "\\\\").replace(".", "\\.")
        payload = json.dumps({key: {key: key}}).encode()
        mine = a_failure(
            "mine",
            failure_reason=text,
            subscription=text,
            source_topic=text,
            attributes={text: text},
            ordering_key=text,
            error_details=f"before {key} after",
            data=payload,
            fingerprint=text,
        )
        await store.record([mine, a_failure("other", attributes={"x": "y"}, data=b'{"x": "y"}')])
        for selection in (
            Selection(reason=text),
            Selection(subscription=text),
            Selection(topic=text),
            Selection(fingerprint=text),
            Selection(attributes={text: text}),
            Selection(payload={f"{path}.{path}": key}),
            Selection(reason=text, attributes={text: text}, payload={f"{path}.{path}": key}, text=key),
        ):
            assert await message_ids(store, selection) == ["mine"], selection
        for nobody in (Selection(message_id=text), Selection(payload={text: "y"}), Selection(attributes={text: "y"})):
            assert await message_ids(store, nobody) == []
        [kept] = (await store.list(Selection(reason=text), 10)).failures
        assert (kept.attributes, kept.ordering_key, kept.fingerprint) == ({text: text}, text, text)

    async def test_a_very_long_attribute_is_found_by_the_whole_of_it(self, store: DeskStore) -> None:
        long = "x" * 5000
        await store.record([a_failure("1", attributes={"k": long}), a_failure("2", attributes={"k": long + "y"})])
        assert await message_ids(store, Selection(attributes={"k": long})) == ["1"]
        assert await message_ids(store, Selection(attributes={"k": long + "y"})) == ["2"]
        assert await message_ids(store, Selection(attributes={"k": "x"})) == []

    async def test_a_page_of_large_payloads_ends_early(self, store: DeskStore) -> None:
        for number in range(5):
            await store.record([a_failure(str(number), data=bytes([number]) * 23_000_000)])
        first = await store.list(Selection(), 100)
        assert [row.message_id for row in first.failures] == ["4", "3", "2"]
        rest = await store.list(Selection(), 100, first.next_page_token)
        assert ([row.message_id for row in rest.failures], rest.next_page_token) == (["1", "0"], "")
