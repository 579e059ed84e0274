"""The Firestore document store against its contract on Google's emulator, and what only Firestore can get wrong."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import grpc
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from google.cloud import firestore
from google.cloud.firestore_v1.services.firestore import FirestoreAsyncClient

from holdfast.consumer.changes import Change, Count, Upsert
from holdfast.consumer.documents import DocumentStore, Mark, Result
from holdfast.errors import BadInput, HoldfastError, Misconfigured, StorageUnavailable
from holdfast.model.document import EventOrder
from holdfast.model.outcome import Applied, Duplicate, Stale
from holdfast.stores.firestore import database as database_module
from holdfast.stores.firestore import documents as documents_module
from holdfast.stores.firestore.database import FirestoreDatabase
from holdfast.stores.firestore.documents import FirestoreDocumentStore
from holdfast.stores.firestore.names import is_possible_id, mark_document_id
from holdfast.stores.firestore.remembered import MOST_REMEMBERED, Remembered, Version
from holdfast.stores.firestore.turns import Turns
from holdfast.stores.page_token import token_after
from holdfast.testing.contracts.documents import (
    MARKS,
    NOW,
    WEEK,
    DurableDocumentStoreContract,
    Oracle,
    a_count,
    a_write,
    fields_of,
    one,
)
from tests.support.firestore_emulator import FirestoreEmulator, firestore_emulator

__all__ = ["firestore_emulator"]

MIB = 1024 * 1024
NOW_TIME = datetime.fromtimestamp(NOW // 10**9, UTC)


@pytest.fixture
def project(firestore_emulator: FirestoreEmulator, monkeypatch: pytest.MonkeyPatch) -> str:
    """A project of its own: an empty database."""
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", firestore_emulator.address)
    return f"p-{uuid.uuid4().hex[:20]}"


@pytest.fixture
async def store(project: str) -> AsyncIterator[FirestoreDocumentStore]:
    async with opened(project) as store:
        yield store


@pytest.fixture
async def other(project: str) -> AsyncIterator[FirestoreDocumentStore]:
    """As another process has it: the same database over another connection."""
    async with opened(project) as store:
        yield store


@pytest.fixture
def plain(project: str) -> firestore.Client:
    """Google's own client: what everybody else sees of the database."""
    return firestore.Client(project=project)


@asynccontextmanager
async def opened(project: str) -> AsyncIterator[FirestoreDocumentStore]:
    store = await FirestoreDocumentStore.open(project)
    try:
        yield store
    finally:
        await store.close()


class TestFirestoreDocuments(DurableDocumentStoreContract):
    project: str
    opened: list[FirestoreDocumentStore]

    @pytest.fixture
    async def store(self, project: str) -> AsyncIterator[DocumentStore]:
        self.project, self.opened = project, []
        yield await self._open()
        for store in self.opened:
            await store.close()

    async def reopened(self, store: DocumentStore) -> DocumentStore:
        await store.close()
        return await self._open()

    async def _open(self) -> FirestoreDocumentStore:
        self.opened.append(await FirestoreDocumentStore.open(self.project))
        return self.opened[-1]


# What others see.


async def test_a_document_has_its_fields_and_its_order(store: DocumentStore, plain: firestore.Client) -> None:
    fields = {"a": 1, "b": [True, None, "ü"], "c": {"d": 1.5, "empty": {}}, "none": []}
    await one(store, a_write("m1", event_time=2**63 - 1, sequence=-(2**63), publish_time=7, fields=fields))
    assert seen(plain, "things/doc") == {
        **fields,
        "_holdfast": {
            "event_time_ns": 2**63 - 1,
            "sequence": -(2**63),
            "publish_time_ns": 7,
            "message_id": "m1",
        },
    }
    assert await fields_of(store, "things", "doc") == fields


async def test_the_times_of_the_sources_are_timestamps(store: DocumentStore, plain: firestore.Client) -> None:
    text = "2026-01-08T12:34:56.123Z"
    names = ["updatedAt", "lastHeartbeatAt", "eventTime", "producedAt", "publishedAt", "ingestedAt", "start", "end"]
    fields: dict[str, Any] = {
        **dict.fromkeys(names, text),
        "source": {"topic": "t", "messageId": "m", "publishedAt": text},
        "data": {"updatedAt": text},
        "version": text,
    }
    await one(store, a_write(fields=fields))
    document = seen(plain, "things/doc")
    when = datetime(2026, 1, 8, 12, 34, 56, 123000, UTC)
    assert {name: document[name] for name in names} == dict.fromkeys(names, when)
    assert document["source"] == {"topic": "t", "messageId": "m", "publishedAt": when}
    assert document["data"] == {"updatedAt": text}
    assert document["version"] == text
    assert "texts" not in document["_holdfast"]
    assert await fields_of(store, "things", "doc") == fields


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("2026-01-08T12:34:56.123456789Z", datetime(2026, 1, 8, 12, 34, 56, 123456, UTC)),
        ("2026-01-08T12:34:56+02:00", datetime(2026, 1, 8, 10, 34, 56, tzinfo=UTC)),
        ("2026-01-08T12:34:56.100000Z", datetime(2026, 1, 8, 12, 34, 56, 100000, UTC)),
        ("1969-12-31T23:59:59.999999999Z", datetime(1969, 12, 31, 23, 59, 59, 999999, UTC)),
        ("0001-01-01T00:00:00Z", datetime(1, 1, 1, tzinfo=UTC)),
        ("0001-01-01T00:00:00+01:00", "0001-01-01T00:00:00+01:00"),  # before Firestore's first
        ("9999-12-31T23:59:59.999999999Z", datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)),
        ("soon", "soon"),
        ("", ""),
        (5, 5),
        (None, None),
    ],
)
async def test_a_time_is_read_as_it_was_written(
    store: DocumentStore, plain: firestore.Client, text: object, kept: object
) -> None:
    fields = {"updatedAt": text, "source": {"publishedAt": text}}
    await one(store, a_write(fields=fields))
    document = seen(plain, "things/doc")
    assert (document["updatedAt"], document["source"]) == (kept, {"publishedAt": kept})
    assert await fields_of(store, "things", "doc") == fields


async def test_a_timestamp_that_was_changed_by_hand_counts(store: DocumentStore, plain: firestore.Client) -> None:
    text = "2026-01-08T12:34:56.123456789Z"
    await one(store, a_write(fields={"updatedAt": text, "start": text, "end": text}))
    plain.document("things/doc").update({"updatedAt": datetime(2027, 1, 1, tzinfo=UTC), "end": firestore.DELETE_FIELD})
    assert await fields_of(store, "things", "doc") == {"updatedAt": "2027-01-01T00:00:00Z", "start": text}


async def test_arrays_within_arrays_are_kept(store: DocumentStore, plain: firestore.Client) -> None:
    fields = {"data": {"bids": [[1, 2.5], [], [[{"a": [[]]}]], "x"]}}
    await one(store, a_write(fields=fields))
    assert await fields_of(store, "things", "doc") == fields
    assert seen(plain, "things/doc")["data"]["bids"][:2] == [{"_holdfast_array": [1, 2.5]}, {"_holdfast_array": []}]


async def test_what_only_firestore_has_is_read_as_json(store: DocumentStore, plain: firestore.Client) -> None:
    fields = {
        "bytes": b"\x00\xff",
        "point": firestore.GeoPoint(1.5, -2.0),
        "reference": plain.document("a/b"),
        "when": datetime(2026, 1, 8, tzinfo=UTC),
    }
    plain.document("theirs/doc").set(fields)
    expected = {
        "bytes": "AP8=",
        "point": {"latitude": 1.5, "longitude": -2.0},
        "reference": plain.document("a/b")._document_path,
        "when": "2026-01-08T00:00:00Z",
    }
    assert await fields_of(store, "theirs", "doc") == expected
    assert (await store.list("theirs", 5)).documents[0].fields == expected


async def test_a_mark_is_a_document_with_timestamps(store: DocumentStore, plain: firestore.Client) -> None:
    await one(store, a_write("m1", keys=("one",), now=NOW + 1))
    mark = seen(plain, f"{MARKS}/one")
    until = datetime.fromtimestamp((NOW + WEEK) // 10**9, UTC).replace(microsecond=1)  # a little long, never short
    assert mark == {"messageId": "m1", "createdAt": NOW_TIME, "expireAt": until}


# Ids.

ODD_IDS = ["a/b", "a%2Fb", "%", "%25", ".", "..", "%2E", "__x__", "%5F_x__", "____", "___", "ü" * 750, "%" * 501]
LONG_IDS = ["ü" * 751, "ü" * 751 + "x", "a" * 1501, "/" * 501]


async def test_marks_of_any_id_are_kept_apart(store: DocumentStore) -> None:
    ids = ODD_IDS + LONG_IDS
    for number, mark_id in enumerate(ids):
        assert isinstance(await one(store, a_write(f"m{number}", event_time=number, keys=(mark_id,))), Applied), mark_id
    for mark_id in ids:
        assert await one(store, a_write("x", event_time=999, keys=(mark_id,))) == Duplicate(f"{MARKS}/{mark_id}")
        assert await store.find_mark([Mark(MARKS, mark_id)], NOW) == Mark(MARKS, mark_id)
    assert await store.forget_expired(NOW + WEEK) == len(ids)


def test_the_id_of_a_mark_can_be_read() -> None:
    for plain_id in ("1234567890", "message:m1", "event:ü", "prod__e-1", "__x", "a.b", "..."):
        assert mark_document_id(plain_id) == plain_id
    for odd in ODD_IDS[:-1]:
        assert unquote(mark_document_id(odd)) == odd
    encoded = [mark_document_id(odd) for odd in ODD_IDS + LONG_IDS]
    assert len(set(encoded)) == len(encoded)
    assert all(map(is_possible_id, encoded))


async def test_the_whole_id_of_a_long_mark_is_in_it(store: DocumentStore, plain: firestore.Client) -> None:
    long = "ü" * 751
    await one(store, a_write("m1", keys=(long,)))
    (mark,) = plain.collection(MARKS).stream()
    assert mark.get("id") == long


@pytest.mark.parametrize("impossible", ["a/b", ".", "..", "__x__", "", "x" * 1501])
async def test_what_cannot_be_there_is_not_there(store: DocumentStore, impossible: str) -> None:
    assert await store.get("things", impossible) is None
    assert await store.get(impossible, "doc") is None
    assert list((await store.list(impossible, 5)).documents) == []
    if impossible:
        with pytest.raises(BadInput, match="pageToken"):
            await store.list("things", 5, token_after(impossible))


async def test_ids_are_sorted_by_code_point(store: DocumentStore) -> None:
    # UTF-16, which some databases sort by, has these two the other way round.
    ids = ["\uff5e", "😀"]
    for document_id in ids:
        await one(store, a_write(f"m-{document_id}", document_id=document_id))
    first = await store.list("things", 1)
    second = await store.list("things", 1, first.next_page_token)
    assert [page.documents[0].id for page in (first, second)] == ids
    assert second.next_page_token == ""


# Collections, and what is forgotten.


async def test_collections_are_all_but_the_bookkeeping(
    store: DocumentStore, other: DocumentStore, plain: firestore.Client
) -> None:
    await one(store, a_write())
    plain.document("theirs/doc").set({"n": 1})
    assert {collection.id for collection in plain.collections()} == {"things", "theirs", MARKS, "_holdfast"}
    assert list(await store.collections()) == ["theirs", "things"]
    assert list(await other.collections()) == ["theirs", "things"]


async def test_only_marks_are_forgotten_whoever_made_them(
    store: DocumentStore, other: DocumentStore, plain: firestore.Client
) -> None:
    long_ago = {"createdAt": NOW_TIME, "messageId": "m", "expireAt": NOW_TIME}
    plain.document("theirs/doc").set(long_ago)
    await one(store, a_write("m1", fields={"expireAt": "2001-01-01T00:00:00Z"}))
    await one(other, a_write("m2", event_time=200, fields={}, keys=("two",)))
    assert await other.forget_expired(NOW + WEEK) == 2
    assert seen(plain, "theirs/doc") == long_ago
    assert await store.get("things", "doc") is not None


async def test_a_mark_that_is_made_anew_meanwhile_is_not_forgotten(
    store: FirestoreDocumentStore, other: DocumentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await one(store, a_write("m1", keys=("key",)))

    async def made_anew() -> None:
        await one(other, a_write("m2", event_time=200, keys=("key",), now=NOW + WEEK))

    after_each(monkeypatch, "find", made_anew, times=1)
    assert await store.forget_expired(NOW + WEEK) == 0
    assert await store.find_mark([Mark(MARKS, "key")], NOW + WEEK) == Mark(MARKS, "key")


async def test_a_document_must_not_replace_a_mark(store: DocumentStore) -> None:
    with pytest.raises(BadInput, match=rf"{MARKS}/message:m1"):
        await one(store, a_write("m1", collection=MARKS, document_id="message:m1"))
    await one(store, a_write("m1"))
    with pytest.raises(BadInput, match=MARKS):
        await one(store, a_write("m2", collection=MARKS, keys=()))
    with pytest.raises(BadInput, match="_holdfast/mark_collections"):
        await one(store, a_write("m2", collection="_holdfast", document_id="mark_collections"))


# Taking over a database from another program.


async def test_a_mark_of_another_program_counts_for_ever(store: DocumentStore, plain: firestore.Client) -> None:
    plain.document(f"{MARKS}/m1").set({"createdAt": firestore.SERVER_TIMESTAMP, "messageId": "m1"})
    assert await one(store, a_write("m1", keys=("m1",))) == Duplicate(f"{MARKS}/m1")
    await one(store, a_write("m2"))
    assert await store.forget_expired(2**62) == 1
    assert isinstance(await one(store, a_write("m3", event_time=200, keys=("m1",), now=2**62)), Duplicate)


async def test_a_document_of_another_program_has_an_order(store: DocumentStore, plain: firestore.Client) -> None:
    theirs = {
        "updatedAt": NOW_TIME,
        "lastHeartbeatAt": NOW_TIME.replace(year=2000),
        "source": {"messageId": "5", "publishedAt": NOW_TIME},
    }
    plain.document("things/doc").set(theirs)
    older = a_write("1", event_time=NOW, publish_time=NOW - 1)
    assert await one(store, older) == Stale("things/doc")
    assert await one(store, a_write("5", event_time=NOW, publish_time=NOW)) == Duplicate("things/doc")
    assert isinstance(await one(store, a_write("6", event_time=NOW, publish_time=NOW)), Applied)
    assert await fields_of(store, "things", "doc") == {"by": "6"}


async def test_a_document_without_any_time_is_older_than_all(store: DocumentStore, plain: firestore.Client) -> None:
    plain.document("totals/t").set({"events": 5, "kept": "x"})
    assert isinstance(await one(store, a_count("m1", {"events": 1}, event_time=-(2**63))), Applied)
    assert await fields_of(store, "totals", "t") == {"events": 6, "kept": "x"}


# What is guessed and not read.


async def test_what_is_new_is_not_read(store: DocumentStore, monkeypatch: pytest.MonkeyPatch) -> None:
    await store.apply([a_write(f"m{number}", document_id=f"d{number}") for number in range(3)])
    reads = counted(monkeypatch, "read")
    writes = [a_write(f"n{number}", document_id=f"d{number}", event_time=200) for number in range(3)]
    assert {type(result) for result in await store.apply(writes)} == {Applied}
    assert reads() == 0
    assert isinstance(await one(store, a_write("new", document_id="new")), Applied)
    assert reads() == 1
    assert await fields_of(store, "things", "d2") == {"by": "n2"}


async def test_what_is_not_new_is_read(store: DocumentStore) -> None:
    await one(store, a_write("m1"))
    older = a_write("m0", event_time=50)
    # All in one batch, so the newest write of the document is one whose condition the commit checks.
    results = await store.apply([older, a_write("m1"), a_write("m2", event_time=200), older])
    assert [type(result) for result in results] == [Stale, Duplicate, Applied, Duplicate]
    assert await fields_of(store, "things", "doc") == {"by": "m2"}


async def test_one_event_under_two_message_ids(store: DocumentStore) -> None:
    await one(store, a_write("m1", keys=("message:m1", "event:e")))
    again = a_write("m2", event_time=200, keys=("message:m2", "event:e"))
    assert await one(store, again) == Duplicate(f"{MARKS}/event:e")
    assert await fields_of(store, "things", "doc") == {"by": "m1"}


async def test_a_document_that_another_wrote_since(store: DocumentStore, other: DocumentStore) -> None:
    await one(store, a_write("m1"))
    await one(other, a_write("m3", event_time=300))
    assert await one(store, a_write("m2", event_time=200)) == Stale("things/doc")
    assert isinstance(await one(store, a_write("m4", event_time=400)), Applied)
    assert await one(other, a_write("m3b", event_time=350)) == Stale("things/doc")
    assert await fields_of(store, "things", "doc") == {"by": "m4"}


async def test_a_document_that_was_removed_since(store: DocumentStore, plain: firestore.Client) -> None:
    await one(store, a_write("m1"))
    plain.document("things/doc").delete()
    assert isinstance(await one(store, a_write("m0", event_time=50)), Applied)
    plain.document("things/doc").delete()
    assert isinstance(await one(store, a_write("m2", event_time=200)), Applied)
    assert await fields_of(store, "things", "doc") == {"by": "m2"}


async def test_what_is_refused_may_be_a_duplicate(store: DocumentStore, plain: firestore.Client) -> None:
    await one(store, a_count("m1", {"events": 1}))
    plain.document("totals/t").update({"events": "many"})
    assert isinstance(await one(store, a_count("m1", {"events": 1})), Duplicate)
    with pytest.raises(BadInput, match="events"):
        await one(store, a_count("m2", {"events": 1}))


async def test_after_duplicates_the_marks_are_read(store: DocumentStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replay costs a read a batch, and no commit that fails."""
    writes = [a_write(f"m{number}", document_id=f"d{number}") for number in range(4)]
    await store.apply(writes)
    assert isinstance(await one(store, writes[0]), Duplicate)
    commits = counted(monkeypatch, "commit")
    for write in writes:
        assert isinstance(await one(store, write), Duplicate)
    assert commits() == 0
    # And one that is new turns it back.
    assert isinstance(await one(store, a_write("new", document_id="d1", event_time=200)), Applied)
    reads = counted(monkeypatch, "read")
    assert isinstance(await one(store, a_write("newer", document_id="d1", event_time=300)), Applied)
    assert reads() == 0


async def test_with_others_documents_are_read(
    store: DocumentStore, other: DocumentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two that take turns at one document: after the first time each reads it, and no commit fails."""
    await one(store, a_write("m0", event_time=0))
    await one(other, a_write("m1", event_time=1))
    for number in range(2, 6):
        await one((store, other)[number % 2], a_write(f"m{number}", event_time=number))
    commits = counted(monkeypatch, "commit")
    for number in range(6, 10):
        await one((store, other)[number % 2], a_write(f"m{number}", event_time=number))
    assert commits() == 4


def test_only_so_much_is_remembered() -> None:
    remembered = Remembered()
    version = Version(EventOrder(1, 0, 0, "m"), None)
    paths = [("things", str(number)) for number in range(MOST_REMEMBERED)]
    remembered.note(dict.fromkeys(paths, version))
    remembered.note({paths[0]: version, ("things", "more"): version})
    assert remembered.of([paths[0], paths[1], paths[2]]).keys() == {paths[0], paths[2]}


# Several processes.


@pytest.mark.parametrize("seed", range(2))
async def test_two_at_once_end_as_one_by_one(store: DocumentStore, other: DocumentStore, seed: int) -> None:
    """Every event once, whatever the order: which one that was shows neither in the documents nor in the counts."""
    chosen = random.Random(seed)
    writes = []
    for number in range(80):
        changes: list[Change] = [Upsert("things", f"d{chosen.randint(1, 4)}", {"n": number})]
        if chosen.random() < 0.5:
            changes.append(Count("totals", f"t{chosen.randint(1, 2)}", {"events": 1}, {"last": number}))
        writes.append(a_write(str(number), event_time=chosen.randint(1, 20), changes=tuple(changes)))
    oracle = Oracle()
    for write in writes:
        oracle.apply(write)

    async def deliver(to: DocumentStore, order: random.Random) -> list[Result]:
        mine = order.sample(writes, len(writes))
        batches = [mine[at : at + 10] for at in range(0, len(mine), 10)]
        return [result for batch in await asyncio.gather(*map(to.apply, batches)) for result in batch]

    results = await asyncio.gather(deliver(store, random.Random(seed + 1)), deliver(other, random.Random(seed + 2)))
    assert sum(isinstance(result, Duplicate) for half in results for result in half) == len(writes)
    for (collection, document_id), fields in oracle.documents.items():
        assert await fields_of(store, collection, document_id) == fields


async def test_counts_of_two_at_once_are_exact(store: DocumentStore, other: DocumentStore) -> None:
    """No event is shared: only the document tells them that they met."""
    writes = [a_count(f"m{number}", {"events": 1}) for number in range(40)]
    halves = [one(store, write) for write in writes[:20]] + [one(other, write) for write in writes[20:]]
    assert {result.name for result in await asyncio.gather(*halves)} == {"applied"}
    assert await fields_of(store, "totals", "t") == {"events": 40}


async def test_what_another_does_between_reading_and_writing_is_seen(
    store: FirestoreDocumentStore, other: DocumentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await one(store, a_count("m0", {"events": 1}))

    async def meanwhile() -> None:
        await one(other, a_count("m1", {"events": 1}))
        await one(other, a_write("m2", event_time=2))

    after_each(monkeypatch, "read", meanwhile, times=1)
    results = await store.apply(
        [a_count("m1", {"events": 1}), a_count("m3", {"events": 1}), a_write("m4", event_time=1)]
    )
    assert list(results) == [Duplicate(f"{MARKS}/message:m1"), Applied(("totals/t",)), Stale("things/doc")]
    assert await fields_of(store, "totals", "t") == {"events": 3}
    assert await fields_of(store, "things", "doc") == {"by": "m2"}


async def test_one_that_always_loses_gives_up(
    store: FirestoreDocumentStore, plain: firestore.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents_module, "SHORTEST_WAIT_SECONDS", 0.0)
    numbers = iter(range(1000))

    async def meanwhile() -> None:
        plain.document("things/doc").set({"rival": next(numbers)})

    after_each(monkeypatch, "read", meanwhile)
    with pytest.raises(StorageUnavailable, match="10 times in a row"):
        await one(store, a_write())
    assert next(numbers) == 11  # with the guess that no mark is there
    assert seen(plain, "things/doc") == {"rival": 10}
    assert not plain.document(f"{MARKS}/message:m1").get().exists


# Limits.


async def test_a_document_of_one_mebibyte(store: DocumentStore) -> None:
    # By Firestore's own rules: name 16 + 7 + 4, document 32, the fields below, and our own.
    ours = 10 + 32 + (14 + 8) + (9 + 8) + (16 + 8) + (11 + 3)
    most = MIB - (16 + 7 + 4) - 32 - ours - (2 + 1) - 2
    largest = {"a": "x" * (most - 3), "b": "é"}
    with pytest.raises(BadInput, match=r"^things/doc: has 1,048,577 bytes"):
        await store.apply([a_write("m0", document_id="other"), a_write("m1", fields={**largest, "b": "éx"})])
    assert await store.get("things", "other") is None
    assert isinstance(await one(store, a_write("m1", fields=largest)), Applied)
    assert await fields_of(store, "things", "doc") == largest


@pytest.mark.parametrize("values", [[0] * 131_072, [{}] * 32_768], ids=["numbers", "empty maps"])
async def test_many_small_values_are_large_too(store: DocumentStore, values: list[Any]) -> None:
    with pytest.raises(BadInput, match="things/doc: has"):
        await one(store, a_write(fields={"values": values}))


def nested(levels: int) -> Any:
    value: Any = 1
    for level in range(levels):
        value = {"k": value} if level % 2 else [value]
    return value


async def test_twenty_levels_and_no_more(store: DocumentStore) -> None:
    with pytest.raises(BadInput, match="things/doc: is nested deeper than 20 levels"):
        await one(store, a_write(fields={"x": nested(21)}))
    assert isinstance(await one(store, a_write(fields={"x": nested(20)})), Applied)
    # An array within an array takes two.
    with pytest.raises(BadInput, match="deeper"):
        await one(store, a_write("m2", event_time=200, fields={"x": [nested(19)]}))
    assert isinstance(await one(store, a_write("m2", event_time=200, fields={"x": [nested(17)]})), Applied)


@pytest.mark.parametrize(
    "fields",
    [
        {"": 1},
        {"a": {"": 1}},
        {"__x__": 1},
        {"a": [{"__x__": 1}]},
        {"k" * 1501: 1},
        {"_holdfast": 1},
        {"a": {"_holdfast_array": [1]}},
        {"a": "\ud800"},
    ],
    ids=lambda fields: repr(fields)[:20],
)
async def test_a_name_that_firestore_refuses_is_refused_here(store: DocumentStore, fields: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=r"^things/doc: "):
        await one(store, a_write(fields=fields))
    assert await store.get("things", "doc") is None


async def test_odd_names_that_it_takes(store: DocumentStore) -> None:
    fields = {"a.b": 1, "`": 2, "__": 3, "k" * 1500: 4, "ü": {"/": 5, "_holdfast": 6}}
    await one(store, a_write(fields=fields))
    assert await fields_of(store, "things", "doc") == fields


async def test_five_hundred_changes_and_no_more(store: DocumentStore) -> None:
    changes = tuple(Upsert("things", f"d{number}", {}) for number in range(499))
    with pytest.raises(BadInput, match="501"):
        await one(store, a_write(changes=(*changes, Upsert("things", "more", {}))))
    assert await store.get("things", "d0") is None
    assert isinstance(await one(store, a_write(changes=changes)), Applied)
    assert len((await store.list("things", 1000)).documents) == 499


async def test_a_full_batch_of_usual_events_fits(store: DocumentStore) -> None:
    def event(number: int) -> Any:
        changes = (Upsert("things", f"d{number}", {}), Count("totals", f"t{number}", {"n": 1}))
        return a_write(f"m{number}", changes=changes, keys=(f"message:{number}", f"event:{number}"))

    results = await store.apply([event(number) for number in range(store.largest_batch)])
    assert {result.name for result in results} == {"applied"}


async def test_so_many_bytes_at_once_and_no_more(store: DocumentStore) -> None:
    # The emulator takes about 4 MiB; it refuses more with an error that would be taken for one that passes.
    large = {"text": "x" * 1_000_000}
    writes = [a_write(f"m{number}", document_id=f"d{number}", fields=large) for number in range(8)]
    with pytest.raises(BadInput, match="bytes together"):
        await store.apply(writes[:5])
    assert await store.get("things", "d0") is None
    await store.apply(writes[:4])
    await store.apply(writes[4:])
    # A page may have more than that.
    assert len((await store.list("things", 10)).documents) == 8


# Failing.


async def test_a_server_that_ends_and_comes_back(store: DocumentStore, firestore_emulator: FirestoreEmulator) -> None:
    await one(store, a_write("m1"))
    in_the_middle = asyncio.Event()

    async def deliver(name: str) -> None:
        for number in itertools.count():
            await one(store, a_write(f"{name}{number}", document_id=f"d{number % 3}", event_time=number))
            if number == 10:
                in_the_middle.set()

    tasks = [asyncio.create_task(deliver(name)) for name in "abcd"]
    await in_the_middle.wait()
    await asyncio.to_thread(firestore_emulator.stop)
    try:
        begun = time.monotonic()
        results = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 10)
        assert {type(result) for result in results} == {StorageUnavailable}
        for call in (store.get("things", "doc"), store.list("things", 5), store.collections(), store.forget_expired(0)):
            with pytest.raises(StorageUnavailable):
                await call
        assert time.monotonic() - begun < 5
    finally:
        await asyncio.to_thread(firestore_emulator.start)
    # The emulator has forgotten everything, and the store must find its way back to it.
    await eventually(lambda: one(store, a_write("m1")), within=15)
    assert await fields_of(store, "things", "doc") == {"by": "m1"}


async def test_a_server_that_does_not_answer(
    project: str, firestore_emulator: FirestoreEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_module, "CALL_SECONDS", 0.5)
    async with opened(project) as store:
        await one(store, a_write("m1"))
        with firestore_emulator.frozen():
            begun = time.monotonic()
            with pytest.raises(StorageUnavailable):
                await one(store, a_write("m2", event_time=200))
            with pytest.raises(StorageUnavailable):
                await store.find_mark([Mark(MARKS, "x")], NOW)
            assert time.monotonic() - begun < 3
        assert isinstance(await one(store, a_write("m2", event_time=200)), Applied | Duplicate)


async def test_an_apply_has_an_end(
    store: DocumentStore, firestore_emulator: FirestoreEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    await one(store, a_write("m1"))
    monkeypatch.setattr(documents_module, "LONGEST_APPLY_SECONDS", 0.3)
    with firestore_emulator.frozen():
        results = await asyncio.gather(*(one(store, a_write("m2")) for _ in range(3)), return_exceptions=True)
    assert [str(result) for result in results] == ["Firestore took longer than 0.3 seconds"] * 3


async def test_closing_ends_what_is_under_way(
    store: DocumentStore, firestore_emulator: FirestoreEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    await one(store, a_write("m1"))
    monkeypatch.setattr(database_module, "CLOSE_SECONDS", 0.1)
    asked = noted(monkeypatch, "commit")
    with firestore_emulator.frozen():
        under_way = asyncio.create_task(one(store, a_write("m2")))
        await asked.wait()
        await store.close()
        with pytest.raises(StorageUnavailable, match="closed"):
            await under_way


async def test_a_cancelled_apply_is_cancelled(
    store: DocumentStore, firestore_emulator: FirestoreEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    await one(store, a_write("m1"))
    # gRPC may not have noticed that a call was cancelled so early, and a closing channel then waits for it.
    monkeypatch.setattr(database_module, "CLOSE_SECONDS", 0.1)
    asked = noted(monkeypatch, "commit")
    with firestore_emulator.frozen():
        under_way = asyncio.create_task(one(store, a_write("m2", event_time=200)))
        await asked.wait()
        under_way.cancel()
        with pytest.raises(asyncio.CancelledError):
            await under_way
    assert isinstance(await one(store, a_write("m2", event_time=200)), Applied)


# Errors that the emulator does not make.

CODES = grpc.StatusCode


class FailingFirestore(grpc.GenericRpcHandler):
    """A server that refuses everything with one code, and notes what was asked."""

    def __init__(self, code: grpc.StatusCode) -> None:
        self.asked: list[str] = []
        self._code = code

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any]:
        self.asked.append(handler_call_details.method.rpartition("/")[2])

        async def refuse(_request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> None:
            await context.abort(self._code, "no")

        return grpc.unary_unary_rpc_method_handler(refuse)


@asynccontextmanager
async def failing_store(
    code: grpc.StatusCode, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[FirestoreDocumentStore, FailingFirestore]]:
    handler = FailingFirestore(code)
    server = grpc.aio.server(handlers=[handler])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", f"127.0.0.1:{port}")
    try:
        async with opened("some-project") as store:
            yield store, handler
    finally:
        await server.stop(None)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (CODES.UNAVAILABLE, StorageUnavailable),
        (CODES.DEADLINE_EXCEEDED, StorageUnavailable),
        (CODES.RESOURCE_EXHAUSTED, StorageUnavailable),
        (CODES.ABORTED, StorageUnavailable),
        (CODES.INTERNAL, StorageUnavailable),
        (CODES.CANCELLED, StorageUnavailable),
        (CODES.UNKNOWN, StorageUnavailable),
        (CODES.DATA_LOSS, StorageUnavailable),
        (CODES.PERMISSION_DENIED, Misconfigured),
        (CODES.UNAUTHENTICATED, Misconfigured),
        (CODES.NOT_FOUND, Misconfigured),
        (CODES.FAILED_PRECONDITION, Misconfigured),
        (CODES.INVALID_ARGUMENT, BadInput),
    ],
)
async def test_errors_are_ours_and_nothing_is_tried_twice(
    code: grpc.StatusCode, expected: type[HoldfastError], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with failing_store(code, monkeypatch) as (store, server):
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: one(store, a_write()),
            lambda: store.find_mark([Mark(MARKS, "x")], NOW),
            lambda: store.get("things", "doc"),
            lambda: store.list("things", 5),
            store.collections,
            lambda: store.forget_expired(NOW),
        ]
        for number, call in enumerate(calls, start=1):
            with pytest.raises(expected):
                await call()
            assert len(server.asked) == number


@pytest.mark.parametrize(
    ("code", "expected", "commits"),
    [
        (CODES.UNAVAILABLE, StorageUnavailable, 1),
        (CODES.PERMISSION_DENIED, Misconfigured, 1),
        # What is refused may be a duplicate, which shows when the marks are read.
        (CODES.INVALID_ARGUMENT, BadInput, 2),
    ],
)
async def test_a_commit_that_fails_is_not_tried_again(
    code: grpc.StatusCode, expected: type[HoldfastError], commits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with failing_store(code, monkeypatch) as (store, server):

        async def nothing_there(*_: object) -> dict[str, Any]:
            return {}

        monkeypatch.setattr(FirestoreDatabase, "read", nothing_there)
        with pytest.raises(expected):
            await one(store, a_write())
        assert server.asked == ["Commit"] * commits


async def test_without_credentials_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("FIRESTORE_EMULATOR_HOST", raising=False)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "absent.json"))
    with pytest.raises(Misconfigured, match=r"needs credentials, or FIRESTORE_EMULATOR_HOST.*absent\.json"):
        await FirestoreDocumentStore.open("some-project")


async def test_the_cloud_is_asked_with_the_credentials_of_the_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )
    account = {"type": "service_account", "client_email": "a@b.c", "token_uri": "http://127.0.0.1:1/"}
    file = tmp_path / "account.json"
    file.write_text(json.dumps({**account, "private_key": key.decode()}))
    monkeypatch.delenv("FIRESTORE_EMULATOR_HOST", raising=False)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    monkeypatch.setattr(FirestoreAsyncClient, "DEFAULT_ENDPOINT", "127.0.0.1:1")
    monkeypatch.setattr(database_module, "CALL_SECONDS", 3.0)
    async with opened("some-project") as store:
        with pytest.raises(StorageUnavailable):
            await one(store, a_write())


@pytest.mark.parametrize(("project_id", "database"), [("", "(default)"), ("a/b", "(default)"), ("p", ""), ("p", "a\n")])
async def test_an_impossible_project_or_database(project_id: str, database: str) -> None:
    with pytest.raises(Misconfigured, match="cannot be the name"):
        await FirestoreDocumentStore.open(project_id, database)


async def test_databases_of_a_project_are_apart(store: DocumentStore, project: str) -> None:
    await one(store, a_write())
    second = await FirestoreDocumentStore.open(project, "second")
    try:
        assert await second.get("things", "doc") is None
    finally:
        await second.close()


# Turns.


async def test_those_of_one_name_go_one_after_the_other() -> None:
    turns, ran = Turns(), []
    free = asyncio.Event()

    async def go(number: int, *names: str) -> None:
        async with turns.of(names):
            ran.append(number)
            await free.wait()

    tasks = [asyncio.create_task(go(number, *names)) for number, names in enumerate(["ab", "bc", "c", "d", "a"])]
    for _ in range(5):  # as far as they get
        await asyncio.sleep(0)
    assert ran == [0, 3]
    tasks[1].cancel()
    free.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert sorted(ran) == [0, 2, 3, 4]
    assert turns._last == {}


# Helpers.


def seen(plain: firestore.Client, path: str) -> dict[str, Any]:
    fields: dict[str, Any] | None = plain.document(path).get().to_dict()
    assert fields is not None
    return fields


def after_each(
    monkeypatch: pytest.MonkeyPatch, method: str, meanwhile: Callable[[], Awaitable[None]], times: int = 1000
) -> None:
    """Something happens elsewhere right after the database answered, but for what it itself asks."""
    real = getattr(FirestoreDatabase, method)
    left = times

    async def answered(self: FirestoreDatabase, *arguments: Any) -> Any:
        nonlocal left
        answer = await real(self, *arguments)
        if left > 0:
            now, left = left, 0
            await meanwhile()
            left = now - 1
        return answer

    monkeypatch.setattr(FirestoreDatabase, method, answered)


def noted(monkeypatch: pytest.MonkeyPatch, method: str) -> asyncio.Event:
    """Tells when the database is asked."""
    real = getattr(FirestoreDatabase, method)
    asked = asyncio.Event()

    def asking(self: FirestoreDatabase, *arguments: Any) -> Any:
        asked.set()
        return real(self, *arguments)

    monkeypatch.setattr(FirestoreDatabase, method, asking)
    return asked


def counted(monkeypatch: pytest.MonkeyPatch, method: str) -> Callable[[], int]:
    """Tells how often the database was asked since."""
    real = getattr(FirestoreDatabase, method)
    times = 0

    def asking(self: FirestoreDatabase, *arguments: Any) -> Any:
        nonlocal times
        times += 1
        return real(self, *arguments)

    monkeypatch.setattr(FirestoreDatabase, method, asking)
    return lambda: times


async def eventually(call: Callable[[], Awaitable[object]], within: float) -> None:
    """Until it is available."""
    end = time.monotonic() + within
    while True:
        try:
            await call()
            return
        except StorageUnavailable:
            assert time.monotonic() < end
            await asyncio.sleep(0.05)
