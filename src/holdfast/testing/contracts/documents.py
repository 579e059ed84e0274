"""The promises of the DocumentStore port as tests: a backend subclasses the suite and gives it a `store`."""

from __future__ import annotations

import abc
import asyncio
import random
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.clock import NANOSECONDS
from holdfast.consumer.documents import DocumentStore, Write
from holdfast.errors import BadInput, StorageUnavailable
from holdfast.model.document import EventOrder
from holdfast.model.outcome import Applied, Duplicate, Stale

NOW = 1_700_000_000 * NANOSECONDS
WEEK = 7 * 86_400 * NANOSECONDS


def a_write(
    message_id: str = "m1",
    *,
    document_id: str = "doc",
    collection: str = "things",
    event_time: int = 100,
    sequence: int = 0,
    publish_time: int = 0,
    fields: Mapping[str, Any] | None = None,
    keys: tuple[str, ...] | None = None,
    now: int = NOW,
) -> Write:
    return Write(
        collection=collection,
        document_id=document_id,
        fields={"by": message_id} if fields is None else fields,
        order=EventOrder(event_time, sequence, publish_time, message_id),
        dedupe_keys=(f"message:{message_id}",) if keys is None else keys,
        dedupe_until_ns=now + WEEK,
        now_ns=now,
    )


class DocumentStoreContract:
    """Subclasses define the fixture `store`."""

    # Writing.

    async def test_a_new_event_writes_its_document(self, store: DocumentStore) -> None:
        outcome = await store.apply(a_write(fields={"a": 1, "b": [True, None, "ü"], "c": {"d": 1.5}}))
        assert outcome == Applied(("things/doc",))
        document = await store.get("things", "doc")
        assert document is not None
        assert document.path == "things/doc"
        assert document.fields == {"a": 1, "b": [True, None, "ü"], "c": {"d": 1.5}}

    async def test_a_newer_event_replaces_the_whole_document(self, store: DocumentStore) -> None:
        await store.apply(a_write("m1", event_time=1, fields={"old": 1, "both": 1}))
        assert await store.apply(a_write("m2", event_time=2, fields={"both": 2})) == Applied(("things/doc",))
        await self._expect(store, {"both": 2})

    async def test_datetimes_become_rfc_3339_text(self, store: DocumentStore) -> None:
        when = datetime(2026, 1, 8, 12, 34, 56, 120_000, tzinfo=UTC)
        await store.apply(a_write(fields={"at": when, "in": {"list": [when]}}))
        text = "2026-01-08T12:34:56.120Z"
        await self._expect(store, {"at": text, "in": {"list": [text]}})

    async def test_what_a_caller_does_to_its_fields_later_is_not_stored(self, store: DocumentStore) -> None:
        fields: dict[str, Any] = {"list": [1]}
        await store.apply(a_write(fields=fields))
        fields["list"].append(2)
        document = await store.get("things", "doc")
        assert document is not None
        document.fields["list"].append(3)
        await self._expect(store, {"list": [1]})

    async def test_a_document_that_is_not_there_is_none(self, store: DocumentStore) -> None:
        await store.apply(a_write())
        assert await store.get("things", "other") is None
        assert await store.get("others", "doc") is None

    # Duplicates.

    async def test_a_redelivery_is_a_duplicate_and_changes_nothing(self, store: DocumentStore) -> None:
        await store.apply(a_write(fields={"n": 1}))
        assert await store.apply(a_write(fields={"n": 2})) == Duplicate("message:m1")
        await self._expect(store, {"n": 1})

    async def test_a_redelivery_counts_as_seen_even_for_another_document(self, store: DocumentStore) -> None:
        await store.apply(a_write(document_id="one"))
        assert isinstance(await store.apply(a_write(document_id="two")), Duplicate)
        assert await store.get("things", "two") is None

    @pytest.mark.parametrize("seen", ["message:m1", "event:e1"])
    async def test_each_key_alone_makes_a_duplicate(self, store: DocumentStore, seen: str) -> None:
        await store.apply(a_write("m1", keys=("message:m1", "event:e1"), fields={"n": 1}))
        again = a_write("m9", event_time=200, keys=("message:m9", seen), fields={"n": 2})
        assert await store.apply(again) == Duplicate(seen)
        await self._expect(store, {"n": 1})

    async def test_a_duplicate_claims_none_of_its_other_keys(self, store: DocumentStore) -> None:
        await store.apply(a_write("m1", keys=("event:e1",)))
        await store.apply(a_write("m2", event_time=200, keys=("message:m2", "event:e1")))
        fresh = a_write("m3", event_time=300, keys=("message:m2",))
        assert isinstance(await store.apply(fresh), Applied)

    async def test_an_equal_order_is_a_duplicate_and_claims_nothing(self, store: DocumentStore) -> None:
        await store.apply(a_write("m1", keys=("first",), fields={"n": 1}))
        assert await store.apply(a_write("m1", keys=("second",), fields={"n": 2})) == Duplicate("things/doc")
        await self._expect(store, {"n": 1})
        assert isinstance(await store.apply(a_write("m2", event_time=200, keys=("second",))), Applied)

    # Order.

    async def test_an_older_event_is_stale_and_changes_nothing(self, store: DocumentStore) -> None:
        await store.apply(a_write("m2", event_time=2, fields={"n": 2}))
        assert await store.apply(a_write("m1", event_time=1, fields={"n": 1})) == Stale("things/doc")
        await self._expect(store, {"n": 2})

    async def test_the_redelivery_of_a_stale_event_is_a_duplicate(self, store: DocumentStore) -> None:
        await store.apply(a_write("m2", event_time=2))
        await store.apply(a_write("m1", event_time=1))
        assert await store.apply(a_write("m1", event_time=1)) == Duplicate("message:m1")

    async def test_a_stale_event_does_not_lower_the_stored_order(self, store: DocumentStore) -> None:
        await store.apply(a_write("m3", event_time=3))
        await store.apply(a_write("m1", event_time=1))
        assert isinstance(await store.apply(a_write("m2", event_time=2)), Stale)

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
        await store.apply(high)
        assert isinstance(await store.apply(low), Stale)

    async def test_the_message_id_breaks_the_last_tie_as_text(self, store: DocumentStore) -> None:
        await store.apply(a_write("9"))
        assert isinstance(await store.apply(a_write("10")), Stale)
        assert isinstance(await store.apply(a_write("90")), Applied)

    async def test_times_may_use_all_of_64_bits(self, store: DocumentStore) -> None:
        await store.apply(a_write("m1", event_time=-(2**63), sequence=-(2**63)))
        newest = a_write("m2", event_time=2**63 - 1, sequence=2**63 - 1, publish_time=2**63 - 1)
        assert isinstance(await store.apply(newest), Applied)
        assert isinstance(await store.apply(a_write("m3")), Stale)

    # Concurrency.

    async def test_of_a_hundred_deliveries_at_once_one_is_applied(self, store: DocumentStore) -> None:
        outcomes = await asyncio.gather(*(store.apply(a_write()) for _ in range(100)))
        assert sorted(outcome.name for outcome in outcomes) == ["applied"] + ["duplicate"] * 99

    async def test_events_in_any_order_at_once_end_with_the_newest(self, store: DocumentStore) -> None:
        writes = [a_write(f"m{n}", event_time=n, fields={"n": n}) for n in range(100)] * 2
        random.Random(7).shuffle(writes)
        outcomes = await asyncio.gather(*(store.apply(write) for write in writes))
        await self._expect(store, {"n": 99})
        assert sum(isinstance(outcome, Duplicate) for outcome in outcomes) == 100

    async def test_documents_do_not_disturb_each_other(self, store: DocumentStore) -> None:
        writes = [a_write(f"m{n}", document_id=f"d{n}", event_time=-n) for n in range(50)]
        outcomes = await asyncio.gather(*(store.apply(write) for write in writes))
        assert all(isinstance(outcome, Applied) for outcome in outcomes)

    # Forgetting.

    async def test_an_expired_key_no_longer_counts(self, store: DocumentStore) -> None:
        await store.apply(a_write("m1", keys=("event:e1",)))
        just_before = a_write("m2", event_time=200, keys=("event:e1",), now=NOW + WEEK - 1)
        assert isinstance(await store.apply(just_before), Duplicate)
        expired = a_write("m3", event_time=300, keys=("event:e1",), now=NOW + WEEK)
        assert isinstance(await store.apply(expired), Applied)
        # And it was claimed anew.
        again = a_write("m4", event_time=400, keys=("event:e1",), now=NOW + WEEK)
        assert isinstance(await store.apply(again), Duplicate)

    async def test_forgetting_removes_what_expired_and_only_that(self, store: DocumentStore) -> None:
        await store.apply(a_write("old", keys=("old", "old too"), document_id="a"))
        await store.apply(a_write("new", keys=("new",), document_id="b", now=NOW + 1))
        assert await store.forget_expired(NOW + WEEK - 1) == 0
        assert await store.forget_expired(NOW + WEEK) == 2
        assert await store.forget_expired(NOW + WEEK) == 0
        assert isinstance(await store.apply(a_write("x", keys=("new",), document_id="c")), Duplicate)
        assert await store.get("things", "a") is not None

    async def test_many_marks_are_all_forgotten(self, store: DocumentStore) -> None:
        await store.apply(a_write(keys=tuple(f"k{n}" for n in range(2500))))
        assert await store.forget_expired(NOW + WEEK) == 2500

    # Reading.

    async def test_pages_follow_each_other_by_id(self, store: DocumentStore) -> None:
        ids = ["a", "b", "c", "Z", "é", "😀", "10", "9"]
        for document_id in ids:
            await store.apply(a_write(f"m-{document_id}", document_id=document_id))
        await store.apply(a_write("other", collection="others", document_id="b2"))
        assert await self._ids_by_page(store, 3) == sorted(ids)
        assert await self._ids_by_page(store, 8) == sorted(ids)

    async def test_a_page_continues_right_after_the_last_whatever_is_written(self, store: DocumentStore) -> None:
        for document_id in "bdf":
            await store.apply(a_write(f"m-{document_id}", document_id=document_id))
        first = await store.list("things", 2)
        assert [document.id for document in first.documents] == ["b", "d"]
        for document_id in "ace":
            await store.apply(a_write(f"m-{document_id}", document_id=document_id))
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
            await store.apply(a_write(f"m{number}", collection=collection, document_id=f"d{number}"))
        assert list(await store.collections()) == ["a", "b", "c"]

    # Failing.

    @pytest.mark.parametrize(
        "value",
        [object(), float("nan"), {1: 2}, {3}, 2**64, datetime(2026, 1, 1), "\ud800"],  # noqa: DTZ001
    )
    async def test_fields_that_are_not_json_are_refused_and_leave_nothing(
        self, store: DocumentStore, value: object
    ) -> None:
        with pytest.raises(BadInput, match="bad"):
            await store.apply(a_write(fields={"good": 1, "bad": value}))
        assert await store.get("things", "doc") is None
        assert isinstance(await store.apply(a_write()), Applied)

    async def test_a_closed_store_says_that_it_is_unavailable(self, store: DocumentStore) -> None:
        await store.close()
        with pytest.raises(StorageUnavailable):
            await store.apply(a_write())

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
        await store.apply(a_write("m2", event_time=2, fields={"n": 2}))
        store = await self.reopened(store)
        await self._expect(store, {"n": 2})
        assert await store.apply(a_write("m2", event_time=2)) == Duplicate("message:m2")
        assert await store.apply(a_write("m1", event_time=1)) == Stale("things/doc")
