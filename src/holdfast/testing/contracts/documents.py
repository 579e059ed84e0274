"""The promises of the DocumentStore port as tests: a backend subclasses the suite and gives it a `store`."""

from __future__ import annotations

import abc
import asyncio
import random
from collections.abc import Mapping
from typing import Any

import pytest

from holdfast.clock import NANOSECONDS
from holdfast.consumer.changes import Change, Count, Upsert
from holdfast.consumer.documents import DocumentStore, Mark, Result, Write
from holdfast.errors import BadInput, StorageUnavailable
from holdfast.model.document import EventOrder
from holdfast.model.outcome import Applied, Duplicate, Stale

NOW = 1_700_000_000 * NANOSECONDS
WEEK = 7 * 86_400 * NANOSECONDS
MARKS = "seen"  # the collection of the dedupe marks


def a_write(
    message_id: str = "m1",
    *,
    document_id: str = "doc",
    collection: str = "things",
    event_time: int = 100,
    sequence: int = 0,
    publish_time: int = 0,
    fields: Mapping[str, Any] | None = None,
    changes: tuple[Change, ...] | None = None,
    keys: tuple[str, ...] | None = None,
    now: int = NOW,
) -> Write:
    if changes is None:
        changes = (Upsert(collection, document_id, {"by": message_id} if fields is None else fields),)
    return Write(
        changes=changes,
        order=EventOrder(event_time, sequence, publish_time, message_id),
        marks=tuple(Mark(MARKS, key) for key in ((f"message:{message_id}",) if keys is None else keys)),
        mark_until_ns=now + WEEK,
        now_ns=now,
    )


def a_count(
    message_id: str, numbers: Mapping[str, int], fields: Mapping[str, Any] | None = None, *, event_time: int = 100
) -> Write:
    return a_write(message_id, event_time=event_time, changes=(Count("totals", "t", numbers, fields or {}),))


async def one(store: DocumentStore, write: Write) -> Result:
    (result,) = await store.apply([write])
    return result


async def fields_of(store: DocumentStore, collection: str, document_id: str) -> Mapping[str, Any] | None:
    document = await store.get(collection, document_id)
    return None if document is None else document.fields


class Oracle:
    """What one write after the other does, written down once more and as plainly as possible."""

    def __init__(self) -> None:
        self.documents: dict[tuple[str, str], dict[str, Any]] = {}
        self._orders: dict[tuple[str, str], EventOrder] = {}
        self._marks: set[Mark] = set()

    def apply(self, write: Write) -> Result:
        for mark in write.marks:
            if mark in self._marks:
                return Duplicate(mark.path)
        upserts = [change for change in write.changes if isinstance(change, Upsert)]
        known = [self._orders.get((change.collection, change.id)) for change in upserts]
        if any(order == write.order for order in known):
            return Duplicate(upserts[0].path)
        self._marks.update(write.marks)
        changed = [change.path for change in upserts if self._replace(change, write.order)]
        changed += [self._count(change, write.order) for change in write.changes if isinstance(change, Count)]
        return Applied(tuple(changed)) if changed or not upserts else Stale(upserts[0].path)

    def _replace(self, change: Upsert, order: EventOrder) -> bool:
        path = (change.collection, change.id)
        if path in self._orders and self._orders[path] >= order:
            return False
        self._orders[path], self.documents[path] = order, dict(change.fields)
        return True

    def _count(self, change: Count, order: EventOrder) -> str:
        path = (change.collection, change.id)
        document = self.documents.setdefault(path, {})
        if path not in self._orders or self._orders[path] < order:
            self._orders[path] = order
            document.update(change.fields)
        for name, number in change.numbers.items():
            document[name] = document.get(name, 0) + number
        return change.path


def _random_write(chosen: random.Random) -> Write:
    number = chosen.randint(1, 60)
    changes: list[Change] = [Upsert("things", f"d{chosen.randint(1, 5)}", {"n": number})]
    if chosen.random() < 0.3:
        changes.append(Count("totals", f"t{chosen.randint(1, 2)}", {"events": 1}, {"last": number}))
    keys = [f"message:{number}"]
    if chosen.random() < 0.3:  # the same event published again under another id
        keys.append(f"event:{chosen.randint(1, 20)}")
    return a_write(str(number), event_time=chosen.randint(1, 20), changes=tuple(changes), keys=tuple(keys))


class DocumentStoreContract:
    """Subclasses define the fixture `store`."""

    # Writing.

    async def test_a_new_event_writes_its_document(self, store: DocumentStore) -> None:
        outcome = await one(store, a_write(fields={"a": 1, "b": [True, None, "ü"], "c": {"d": 1.5}}))
        assert outcome == Applied(("things/doc",))
        document = await store.get("things", "doc")
        assert document is not None
        assert document.path == "things/doc"
        assert document.fields == {"a": 1, "b": [True, None, "ü"], "c": {"d": 1.5}}

    async def test_a_newer_event_replaces_the_whole_document(self, store: DocumentStore) -> None:
        await one(store, a_write("m1", event_time=1, fields={"old": 1, "both": 1}))
        assert await one(store, a_write("m2", event_time=2, fields={"both": 2})) == Applied(("things/doc",))
        await self._expect(store, {"both": 2})

    async def test_what_a_caller_does_to_its_fields_later_is_not_stored(self, store: DocumentStore) -> None:
        fields: dict[str, Any] = {"list": [1]}
        await one(store, a_write(fields=fields))
        fields["list"].append(2)
        document = await store.get("things", "doc")
        assert document is not None
        document.fields["list"].append(3)
        await self._expect(store, {"list": [1]})

    async def test_a_document_that_is_not_there_is_none(self, store: DocumentStore) -> None:
        await one(store, a_write())
        assert await store.get("things", "other") is None
        assert await store.get("others", "doc") is None

    # Duplicates.

    async def test_a_redelivery_is_a_duplicate_and_changes_nothing(self, store: DocumentStore) -> None:
        await one(store, a_write(fields={"n": 1}))
        assert await one(store, a_write(fields={"n": 2})) == Duplicate("seen/message:m1")
        await self._expect(store, {"n": 1})

    async def test_a_redelivery_counts_as_seen_even_for_another_document(self, store: DocumentStore) -> None:
        await one(store, a_write(document_id="one"))
        assert isinstance(await one(store, a_write(document_id="two")), Duplicate)
        assert await store.get("things", "two") is None

    @pytest.mark.parametrize("seen", ["message:m1", "event:e1"])
    async def test_each_key_alone_makes_a_duplicate(self, store: DocumentStore, seen: str) -> None:
        await one(store, a_write("m1", keys=("message:m1", "event:e1"), fields={"n": 1}))
        again = a_write("m9", event_time=200, keys=("message:m9", seen), fields={"n": 2})
        assert await one(store, again) == Duplicate(f"seen/{seen}")
        await self._expect(store, {"n": 1})

    async def test_a_duplicate_claims_none_of_its_other_keys(self, store: DocumentStore) -> None:
        await one(store, a_write("m1", keys=("event:e1",)))
        await one(store, a_write("m2", event_time=200, keys=("message:m2", "event:e1")))
        fresh = a_write("m3", event_time=300, keys=("message:m2",))
        assert isinstance(await one(store, fresh), Applied)

    async def test_an_equal_order_is_a_duplicate_and_claims_nothing(self, store: DocumentStore) -> None:
        await one(store, a_write("m1", keys=("first",), fields={"n": 1}))
        assert await one(store, a_write("m1", keys=("second",), fields={"n": 2})) == Duplicate("things/doc")
        await self._expect(store, {"n": 1})
        assert isinstance(await one(store, a_write("m2", event_time=200, keys=("second",))), Applied)

    # Order.

    async def test_an_older_event_is_stale_and_changes_nothing(self, store: DocumentStore) -> None:
        await one(store, a_write("m2", event_time=2, fields={"n": 2}))
        assert await one(store, a_write("m1", event_time=1, fields={"n": 1})) == Stale("things/doc")
        await self._expect(store, {"n": 2})

    async def test_the_redelivery_of_a_stale_event_is_a_duplicate(self, store: DocumentStore) -> None:
        await one(store, a_write("m2", event_time=2))
        await one(store, a_write("m1", event_time=1))
        assert await one(store, a_write("m1", event_time=1)) == Duplicate("seen/message:m1")

    async def test_a_stale_event_does_not_lower_the_stored_order(self, store: DocumentStore) -> None:
        await one(store, a_write("m3", event_time=3))
        await one(store, a_write("m1", event_time=1))
        assert isinstance(await one(store, a_write("m2", event_time=2)), Stale)

    @pytest.mark.parametrize(
        ("lower", "higher"),
        [
            pytest.param({"event_time": 1, "sequence": 9}, {"event_time": 2}, id="event time first"),
            pytest.param({"sequence": 1, "publish_time": 9}, {"sequence": 2}, id="then the sequence"),
            pytest.param({"publish_time": 1}, {"publish_time": 2}, id="then the publish time"),
            pytest.param({"sequence": -1}, {}, id="a negative sequence is below none"),
        ],
    )
    async def test_ties_are_broken_part_by_part(
        self, store: DocumentStore, lower: dict[str, int], higher: dict[str, int]
    ) -> None:
        # The message ids point the other way, so that they cannot decide.
        low, high = a_write("m9", **lower), a_write("m1", **higher)  # type: ignore[arg-type]
        await one(store, high)
        assert isinstance(await one(store, low), Stale)

    async def test_the_message_id_breaks_the_last_tie_as_text(self, store: DocumentStore) -> None:
        await one(store, a_write("9"))
        assert isinstance(await one(store, a_write("10")), Stale)
        assert isinstance(await one(store, a_write("90")), Applied)

    async def test_times_may_use_all_of_64_bits(self, store: DocumentStore) -> None:
        await one(store, a_write("m1", event_time=-(2**63), sequence=-(2**63)))
        newest = a_write("m2", event_time=2**63 - 1, sequence=2**63 - 1, publish_time=2**63 - 1)
        assert isinstance(await one(store, newest), Applied)
        assert isinstance(await one(store, a_write("m3")), Stale)

    # Concurrency.

    async def test_of_a_hundred_deliveries_at_once_one_is_applied(self, store: DocumentStore) -> None:
        outcomes = await asyncio.gather(*(one(store, a_write()) for _ in range(100)))
        assert sorted(outcome.name for outcome in outcomes) == ["applied"] + ["duplicate"] * 99

    async def test_events_in_any_order_at_once_end_with_the_newest(self, store: DocumentStore) -> None:
        writes = [a_write(f"m{n}", event_time=n, fields={"n": n}) for n in range(100)] * 2
        random.Random(7).shuffle(writes)
        outcomes = await asyncio.gather(*(one(store, write) for write in writes))
        await self._expect(store, {"n": 99})
        assert sum(isinstance(outcome, Duplicate) for outcome in outcomes) == 100

    async def test_documents_do_not_disturb_each_other(self, store: DocumentStore) -> None:
        writes = [a_write(f"m{n}", document_id=f"d{n}", event_time=-n) for n in range(50)]
        outcomes = await asyncio.gather(*(one(store, write) for write in writes))
        assert all(isinstance(outcome, Applied) for outcome in outcomes)

    # Several changes of one event.

    async def test_all_changes_of_an_event_happen(self, store: DocumentStore) -> None:
        changes = (Upsert("things", "a", {"n": 1}), Upsert("things", "b", {"n": 2}), Count("totals", "t", {"n": 1}))
        assert await one(store, a_write(changes=changes)) == Applied(("things/a", "things/b", "totals/t"))
        assert [await fields_of(store, *path) for path in (("things", "a"), ("things", "b"), ("totals", "t"))] == [
            {"n": 1},
            {"n": 2},
            {"n": 1},
        ]

    async def test_of_several_documents_only_the_older_ones_are_replaced(self, store: DocumentStore) -> None:
        await one(store, a_write("m2", document_id="a", event_time=2, fields={"n": 2}))
        changes = (Upsert("things", "a", {"n": 1}), Upsert("things", "b", {"n": 1}))
        assert await one(store, a_write("m1", event_time=1, changes=changes)) == Applied(("things/b",))
        assert await fields_of(store, "things", "a") == {"n": 2}
        assert await fields_of(store, "things", "b") == {"n": 1}

    async def test_no_changes_are_applied_once(self, store: DocumentStore) -> None:
        assert await one(store, a_write(changes=())) == Applied(())
        assert isinstance(await one(store, a_write(changes=())), Duplicate)

    # Counting.

    async def test_each_event_counts_once(self, store: DocumentStore) -> None:
        for message_id in ("m1", "m2", "m1", "m3", "m2"):
            await one(store, a_count(message_id, {"events": 1, "bytes": 10}))
        assert await fields_of(store, "totals", "t") == {"events": 3, "bytes": 30}

    async def test_a_stale_event_still_counts(self, store: DocumentStore) -> None:
        for number in (3, 1, 2):
            changes = (Upsert("things", "doc", {"n": number}), Count("totals", "t", {"events": 1}))
            await one(store, a_write(f"m{number}", event_time=number, changes=changes))
        await self._expect(store, {"n": 3})
        assert await fields_of(store, "totals", "t") == {"events": 3}

    async def test_fields_beside_a_count_are_the_newest_events(self, store: DocumentStore) -> None:
        for number in (1, 3, 2):
            await one(store, a_count(f"m{number}", {"events": 1}, {"last": number}, event_time=number))
        assert await fields_of(store, "totals", "t") == {"events": 3, "last": 3}

    async def test_counts_at_once_are_exact(self, store: DocumentStore) -> None:
        writes = [a_count(f"m{number}", {"events": 1}) for number in range(60)] * 2
        await asyncio.gather(*(one(store, write) for write in writes))
        assert await fields_of(store, "totals", "t") == {"events": 60}

    async def test_what_cannot_be_counted_is_refused_and_leaves_nothing(self, store: DocumentStore) -> None:
        await one(store, a_write("m1", collection="totals", document_id="t", fields={"text": "x", "most": 2**63 - 1}))
        for name in ("text", "most"):
            with pytest.raises(BadInput, match=name):
                await one(store, a_count("m2", {"fine": 1, name: 1}, event_time=200))
        assert await fields_of(store, "totals", "t") == {"text": "x", "most": 2**63 - 1}
        assert isinstance(await one(store, a_count("m2", {"fine": 1}, event_time=200)), Applied)

    # Batches.

    async def test_a_batch_is_as_if_one_after_the_other(self, store: DocumentStore) -> None:
        writes = [
            a_write("m1", event_time=1, fields={"n": 1}),
            a_write("m3", event_time=3, fields={"n": 3}),
            a_write("m2", event_time=2, fields={"n": 2}),
            a_write("m1", event_time=1, fields={"n": 1}),
            a_write("m4", document_id="other", fields={"n": 4}),
        ]
        applied = Applied(("things/doc",))
        expected = [applied, applied, Stale("things/doc"), Duplicate("seen/message:m1"), Applied(("things/other",))]
        assert list(await store.apply(writes)) == expected
        await self._expect(store, {"n": 3})
        assert {(await one(store, write)).name for write in writes} == {"duplicate"}

    @pytest.mark.parametrize("seed", range(5))
    async def test_random_batches_end_as_one_by_one(self, store: DocumentStore, seed: int) -> None:
        chosen = random.Random(seed)
        writes = [_random_write(chosen) for _ in range(120)]
        oracle = Oracle()
        results: list[Result] = []
        at = 0
        while at < len(writes):
            size = chosen.randint(1, 30)
            results += await store.apply(writes[at : at + size])
            at += size
        assert results == [oracle.apply(write) for write in writes]
        for (collection, document_id), fields in oracle.documents.items():
            assert await fields_of(store, collection, document_id) == fields

    async def test_a_batch_of_many_for_one_document(self, store: DocumentStore) -> None:
        writes = [a_write(f"m{n:03}", event_time=n, fields={"n": n}) for n in range(min(store.largest_batch, 300))]
        results = await store.apply(writes)
        assert {result.name for result in results} == {"applied"}
        await self._expect(store, {"n": len(writes) - 1})

    async def test_one_that_is_refused_leaves_nothing_of_its_batch(self, store: DocumentStore) -> None:
        await one(store, a_write("m1", collection="totals", document_id="t", fields={"text": "x"}))
        with pytest.raises(BadInput):
            await store.apply([a_write("m2"), a_count("m3", {"text": 1}), a_write("m4", document_id="other")])
        assert await store.get("things", "doc") is None
        assert await store.get("things", "other") is None
        assert isinstance(await one(store, a_write("m2")), Applied)

    async def test_batches_at_once_do_not_undo_each_other(self, store: DocumentStore) -> None:
        writes = [a_write(f"m{n}", document_id=f"d{n % 7}", event_time=n, fields={"n": n}) for n in range(140)]
        chosen = random.Random(3)
        batches = []
        for _ in range(3):
            chosen.shuffle(writes)
            batches += [writes[at : at + 20] for at in range(0, len(writes), 20)]
        results = [result for batch in await asyncio.gather(*map(store.apply, batches)) for result in batch]
        assert sum(isinstance(result, Duplicate) for result in results) == 2 * 140
        for number in range(7):
            assert await fields_of(store, "things", f"d{number}") == {"n": 133 + number}

    async def test_an_empty_batch_is_nothing(self, store: DocumentStore) -> None:
        assert list(await store.apply([])) == []

    # Marks.

    async def test_a_mark_is_found_until_it_expires(self, store: DocumentStore) -> None:
        await one(store, a_write("m1", keys=("one",)))
        wanted = [Mark(MARKS, "other"), Mark(MARKS, "one")]
        assert await store.find_mark(wanted, NOW) == Mark(MARKS, "one")
        assert await store.find_mark(wanted, NOW + WEEK) is None
        assert await store.find_mark([Mark("elsewhere", "one")], NOW) is None

    # Forgetting.

    async def test_an_expired_key_no_longer_counts(self, store: DocumentStore) -> None:
        await one(store, a_write("m1", keys=("event:e1",)))
        just_before = a_write("m2", event_time=200, keys=("event:e1",), now=NOW + WEEK - 1)
        assert isinstance(await one(store, just_before), Duplicate)
        expired = a_write("m3", event_time=300, keys=("event:e1",), now=NOW + WEEK)
        assert isinstance(await one(store, expired), Applied)
        # And it was claimed anew.
        again = a_write("m4", event_time=400, keys=("event:e1",), now=NOW + WEEK)
        assert isinstance(await one(store, again), Duplicate)

    async def test_forgetting_removes_what_expired_and_only_that(self, store: DocumentStore) -> None:
        await one(store, a_write("old", keys=("old", "old too"), document_id="a"))
        await one(store, a_write("new", keys=("new",), document_id="b", now=NOW + 1))
        assert await store.forget_expired(NOW + WEEK - 1) == 0
        assert await store.forget_expired(NOW + WEEK) == 2
        assert await store.forget_expired(NOW + WEEK) == 0
        assert isinstance(await one(store, a_write("x", keys=("new",), document_id="c")), Duplicate)
        assert await store.get("things", "a") is not None

    async def test_a_mark_tells_who_made_it_and_when(self, store: DocumentStore) -> None:
        await one(store, a_write("m1", keys=("one", "größe/2"), now=NOW))
        await one(store, a_write("m2", keys=("one", "three"), now=NOW + 1000))  # a duplicate, which makes none
        await one(store, a_write("m3", keys=("four",), now=NOW + 2000, event_time=1))  # a stale one
        wanted = [Mark(MARKS, name) for name in ("one", "größe/2", "three", "four")]
        made = await store.made([*wanted, Mark("elsewhere", "one")])
        assert {mark.id: (record.message_id, record.created_ns) for mark, record in made.items()} == {
            "one": ("m1", NOW),
            "größe/2": ("m1", NOW),
            "four": ("m3", NOW + 2000),
        }
        assert dict(await store.made([])) == {}

    async def test_a_mark_that_was_forgotten_tells_nothing(self, store: DocumentStore) -> None:
        await one(store, a_write("m1", keys=("one",)))
        assert list(await store.made([Mark(MARKS, "one")])) == [Mark(MARKS, "one")]
        await store.forget_expired(NOW + WEEK)
        assert dict(await store.made([Mark(MARKS, "one")])) == {}

    async def test_many_marks_are_all_forgotten(self, store: DocumentStore) -> None:
        for first in range(0, 1200, 100):
            await one(store, a_write(f"m{first}", keys=tuple(f"k{n}" for n in range(first, first + 100))))
        assert await store.forget_expired(NOW + WEEK) == 1200

    # Reading.

    async def test_pages_follow_each_other_by_id(self, store: DocumentStore) -> None:
        ids = ["a", "b", "c", "Z", "é", "😀", "10", "9"]
        for document_id in ids:
            await one(store, a_write(f"m-{document_id}", document_id=document_id))
        await one(store, a_write("other", collection="others", document_id="b2"))
        assert await self._ids_by_page(store, 3) == sorted(ids)
        assert await self._ids_by_page(store, 8) == sorted(ids)

    async def test_a_page_continues_right_after_the_last_whatever_is_written(self, store: DocumentStore) -> None:
        for document_id in "bdf":
            await one(store, a_write(f"m-{document_id}", document_id=document_id))
        first = await store.list("things", 2)
        assert [document.id for document in first.documents] == ["b", "d"]
        for document_id in "ace":
            await one(store, a_write(f"m-{document_id}", document_id=document_id))
        rest = await store.list("things", 2, first.next_page_token)
        assert [document.id for document in rest.documents] == ["e", "f"]
        assert rest.next_page_token == ""

    async def test_an_empty_collection_is_an_empty_page(self, store: DocumentStore) -> None:
        page = await store.list("nothing", 10)
        assert list(page.documents) == []
        assert page.next_page_token == ""

    async def test_a_made_up_page_token_is_refused(self, store: DocumentStore) -> None:
        with pytest.raises(BadInput, match="pageToken"):
            await store.list("things", 10, "no token!")

    async def test_collections_are_named_once_each_in_order(self, store: DocumentStore) -> None:
        assert list(await store.collections()) == []
        for number, collection in enumerate(["b", "a", "b", "c"]):
            await one(store, a_write(f"m{number}", collection=collection, document_id=f"d{number}"))
        assert list(await store.collections()) == ["a", "b", "c"]

    # Failing.

    async def test_a_check_changes_nothing(self, store: DocumentStore) -> None:
        await one(store, a_write(fields={"a": 1}))
        await store.check()
        assert list(await store.collections()) == ["things"]

    async def test_a_closed_store_says_that_it_is_unavailable(self, store: DocumentStore) -> None:
        await store.close()
        with pytest.raises(StorageUnavailable):
            await store.check()
        with pytest.raises(StorageUnavailable):
            await one(store, a_write())

    # Helpers.

    async def _expect(self, store: DocumentStore, fields: Mapping[str, Any]) -> None:
        document = await store.get("things", "doc")
        assert document is not None
        assert document.fields == fields

    async def _ids_by_page(self, store: DocumentStore, page_size: int) -> list[str]:
        ids: list[str] = []
        token = ""
        while True:
            page = await store.list("things", page_size, token)
            assert len(page.documents) <= page_size
            ids += [document.id for document in page.documents]
            token = page.next_page_token
            if not token:
                return ids


class DurableDocumentStoreContract(DocumentStoreContract, abc.ABC):
    """For a store that outlives its process."""

    @abc.abstractmethod
    async def reopened(self, store: DocumentStore) -> DocumentStore:
        """Closes the store and opens the same data again."""

    async def test_documents_marks_and_order_outlive_a_restart(self, store: DocumentStore) -> None:
        await one(store, a_write("m2", event_time=2, fields={"n": 2}))
        store = await self.reopened(store)
        await self._expect(store, {"n": 2})
        assert await one(store, a_write("m2", event_time=2)) == Duplicate("seen/message:m2")
        assert await one(store, a_write("m1", event_time=1)) == Stale("things/doc")
