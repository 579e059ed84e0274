"""Documents in Firestore: documents and dedupe marks change in one commit that holds only for what was read.

`apply` reads, has guard.py judge, and commits with one condition a document: that it is still the version that was
read, or still absent. If one is not, nothing is written and all is done again. This is how Firestore's own libraries
for browsers and phones make transactions. Unlike a transaction of the server it holds no locks: two that touch the
same document find out at once, where two transactions that both have read it wait for each other until both time out.
What was read and is not written needs no condition: that a mark is there, and that a document is newer, stays true.

Mostly no mark is there yet, and a document is as this process wrote it last. So this is guessed at first and not read;
the conditions of the commit are then what finds out. All that was guessed must be written, so that it has a condition.
Where that is not so, or a guess was wrong, all is read.

A dedupe mark is a document as well, with `createdAt`, `messageId` and `expireAt`, a timestamp that a TTL policy of
Firestore can use. The collections that hold marks are remembered in the document MARK_COLLECTIONS: `forget_expired`
looks only there and so can never remove a document, and `collections` leaves them out.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.backoff import backoff_seconds
from holdfast.consumer.documents import Mark, MarkRecord, Page, Result, Write
from holdfast.consumer.guard import Judged, Needed, Path, Stored, judge, needed_for
from holdfast.errors import BadInput, StorageUnavailable
from holdfast.model.document import Document
from holdfast.model.strict_json import LARGEST_INTEGER
from holdfast.stores.firestore.database import MOST_WRITES, Conflict, FirestoreDatabase, RawQuery, RawWrite
from holdfast.stores.firestore.names import is_possible_id, is_shortened, mark_document_id
from holdfast.stores.firestore.remembered import Remembered, Version
from holdfast.stores.firestore.turns import Turns
from holdfast.stores.firestore.values import (
    MICROSECOND,
    ORDER_FIELDS,
    RESERVED,
    RawDocument,
    document_of,
    fields_of,
    put_time,
    stored_in,
    time_of,
)
from holdfast.stores.page_token import last_id_of, token_after

# A commit has MOST_WRITES. An event changes a document or two, and has a mark or two; one more is to spare.
LARGEST_BATCH = MOST_WRITES // 5

# Between processes somebody always wins, so this is enough unless many of them write one document all the time.
MOST_ATTEMPTS = 10
SHORTEST_WAIT_SECONDS = 0.02
LONGEST_WAIT_SECONDS = 0.5

# With all attempts, and the wait for others of this process that write the same document.
LONGEST_APPLY_SECONDS = 30.0

FORGOTTEN_AT_ONCE = 300

# A mark without an expiry, as other programs make them, is one for ever.
NEVER_NS = LARGEST_INTEGER

# The document whose field of the same name lists the collections that hold marks.
MARK_COLLECTIONS = (RESERVED, "mark_collections")


@dataclass(frozen=True, slots=True)
class _Found:
    """What is there of what an `apply` needs; of documents by name also which version it is."""

    marks: dict[Mark, int]
    documents: dict[Path, Stored]
    versions: dict[str, Any]


class FirestoreDocumentStore:
    """Opened by `open`. Any number of them, in any number of processes, may use one database."""

    def __init__(self, database: FirestoreDatabase) -> None:
        self.largest_batch = LARGEST_BATCH
        self._database = database
        self._turns = Turns()
        self._remembered = Remembered()
        # By what was read last. Both come in rows: when a subscription is replayed, when others share the work.
        self._marks_are_there = False
        self._others_write = False
        self._known: frozenset[str] = frozenset()  # collections that are in MARK_COLLECTIONS for sure

    @classmethod
    async def open(cls, project: str, database: str = "(default)") -> FirestoreDocumentStore:
        """Uses the machine's own credentials, or the emulator that FIRESTORE_EMULATOR_HOST names. Raises Misconfigured
        when there are no credentials; whether they suffice shows with the first call."""
        return cls(await FirestoreDatabase.connect(project, database))

    async def apply(self, writes: Sequence[Write]) -> Sequence[Result]:
        """As the port says. Raises BadInput also when the writes are too many, or too large, for one commit.

        A commit whose answer got lost may have been done. Applying it again is then told to be a duplicate.
        """
        needed = needed_for(writes)
        self._check(needed)
        names = self._names(needed)
        try:
            async with asyncio.timeout(LONGEST_APPLY_SECONDS), self._turns.of(names):
                return await self._apply(writes, needed)
        except TimeoutError as error:
            raise StorageUnavailable(f"Firestore took longer than {LONGEST_APPLY_SECONDS:g} seconds") from error

    async def find_mark(self, marks: Sequence[Mark], now_ns: int) -> Mark | None:
        found = await self._database.read([self._mark_name(mark) for mark in marks], ["expireAt"]) if marks else {}
        until = self._expiries(marks, found)
        return next((mark for mark in marks if until.get(mark, now_ns) > now_ns), None)

    async def made(self, marks: Sequence[Mark]) -> Mapping[Mark, MarkRecord]:
        fields = ["messageId", "createdAt", "expireAt"]
        found = await self._database.read([self._mark_name(mark) for mark in marks], fields) if marks else {}
        return {mark: _record(found[name]) for mark in marks if (name := self._mark_name(mark)) in found}

    async def get(self, collection: str, document_id: str) -> Document | None:
        if not (is_possible_id(collection) and is_possible_id(document_id)):
            return None
        found = await self._database.read([self._name(collection, document_id)])
        return next((Document(collection, document_id, fields_of(document)) for document in found.values()), None)

    async def list(self, collection: str, page_size: int, page_token: str = "") -> Page:
        after = last_id_of(page_token)
        if after and not is_possible_id(after):
            raise BadInput("pageToken", "was not given by a list of this kind")
        if not is_possible_id(collection):
            return Page([])
        # One more than asked for tells whether there is a next page.
        wanted = _documents_by_id(collection, page_size + 1)
        if after:
            wanted.start_at.values.add(reference_value=self._name(collection, after))
            wanted.start_at.before = False
        found = [
            Document(collection, document.name.rpartition("/")[2], fields_of(document))
            for document in await self._database.find(wanted)
        ]
        page = found[:page_size]
        return Page(page, token_after(page[-1].id) if len(found) > page_size else "")

    async def collections(self) -> Sequence[str]:
        """All of the database, whoever wrote them, but for those that hold nothing but bookkeeping."""
        own = {MARK_COLLECTIONS[0], *await self._mark_collections()}
        return sorted(set(await self._database.collection_ids()) - own)

    async def forget_expired(self, now_ns: int) -> int:
        total = 0
        for collection in await self._mark_collections():
            total += await self._forget_in(collection, now_ns)
        return total

    async def check(self) -> None:
        """Reads one document, the cheapest thing that Firestore answers."""
        await self._database.read([self._name(*MARK_COLLECTIONS)])

    async def close(self) -> None:
        await self._database.close()

    # Applying.

    def _check(self, needed: Needed) -> None:
        """A document must not replace a mark, nor a list of ours."""
        own = {MARK_COLLECTIONS[0], *self._known, *(mark.collection for mark in needed.marks)}
        for collection, document_id in needed.documents | needed.counted:
            if collection in own:
                raise BadInput(f"{collection}/{document_id}", "is in a collection that is kept for dedupe marks")

    async def _apply(self, writes: Sequence[Write], needed: Needed) -> Sequence[Result]:
        results = None if self._marks_are_there else await self._apply_guessing(writes, needed)
        return await self._apply_reading(writes, needed) if results is None else results

    async def _apply_guessing(self, writes: Sequence[Write], needed: Needed) -> Sequence[Result] | None:
        """None when the guess was wrong, or cannot be told to be right. Nothing was done then."""
        guessed = {} if self._others_write else self._remembered.of(needed.documents)
        found = await self._read(Needed(frozenset(), needed.documents - guessed.keys(), needed.counted))
        documents = {path: Stored({}, version.order) for path, version in guessed.items()}
        versions = {self._name(*path): version.update_time for path, version in guessed.items()}
        try:
            judged = judge(writes, {}, {**documents, **found.documents})
            if needed.marks <= judged.marks.keys() and guessed.keys() <= judged.documents.keys():
                await self._commit(judged, {**versions, **found.versions})
                return judged.results
        except (Conflict, BadInput):  # what is refused may be a duplicate, and then there is nothing to refuse
            pass
        return None

    async def _apply_reading(self, writes: Sequence[Write], needed: Needed) -> Sequence[Result]:
        for attempt in range(1, MOST_ATTEMPTS + 1):
            found = await self._read(needed)
            judged = judge(writes, found.marks, found.documents)
            try:
                await self._commit(judged, found.versions)
            except Conflict:
                # Anywhere up to the wait, so that two that met do not meet again.
                wait = backoff_seconds(SHORTEST_WAIT_SECONDS, LONGEST_WAIT_SECONDS, attempt)
                await asyncio.sleep(random.uniform(0, wait))
            else:
                return judged.results
        raise StorageUnavailable(f"others changed the same documents {MOST_ATTEMPTS} times in a row")

    async def _read(self, needed: Needed) -> _Found:
        names = self._names(needed)
        # Whole documents only where something is counted up.
        only = () if needed.counted else (*ORDER_FIELDS, "expireAt")
        found = await self._database.read(names, only) if names else {}
        paths = {self._name(*path): path for path in needed.documents | needed.counted}
        answer = _Found(
            marks=self._expiries(needed.marks, found),
            documents={paths[name]: stored_in(document) for name, document in found.items() if name in paths},
            versions={name: document.update_time for name, document in found.items()},
        )
        self._learn(needed, answer)
        return answer

    def _learn(self, needed: Needed, found: _Found) -> None:
        """Whether the guesses would have been right, of what was read."""
        if needed.marks:
            self._marks_are_there = bool(found.marks)
        if remembered := self._remembered.of(needed.documents):
            self._others_write = any(
                found.versions.get(self._name(*path)) != version.update_time for path, version in remembered.items()
            )

    async def _commit(self, judged: Judged, versions: Mapping[str, Any]) -> None:
        documents = [
            document_of(self._name(*path), "/".join(path), stored) for path, stored in judged.documents.items()
        ]
        documents += [self._mark_document(mark, record) for mark, record in judged.marks.items()]
        if not documents:
            return
        await self._make_known({mark.collection for mark in judged.marks})
        times = await self._database.commit(_put(document, versions.get(document.name)) for document in documents)
        written = zip(judged.documents.items(), times, strict=False)  # the times of the marks come after
        self._remembered.note({path: Version(stored.order, time) for (path, stored), time in written})

    # Marks.

    def _mark_document(self, mark: Mark, record: MarkRecord) -> Any:
        document = RawDocument(name=self._mark_name(mark))
        document.fields["messageId"].string_value = record.message_id
        put_time(document.fields["createdAt"], record.created_ns)
        # Up to the next microsecond: a mark may count a little too long, never too short.
        put_time(document.fields["expireAt"], record.expire_ns + MICROSECOND - 1)
        if is_shortened(mark.id):
            document.fields["id"].string_value = mark.id
        return document

    def _expiries(self, marks: Iterable[Mark], found: Mapping[str, Any]) -> dict[Mark, int]:
        return {mark: _expiry(found[name]) for mark in marks if (name := self._mark_name(mark)) in found}

    async def _make_known(self, collections: Iterable[str]) -> None:
        """Before the first mark is made in a collection: one that nobody knows of would stay for ever."""
        new = frozenset(collections) - self._known
        if not new:
            return
        addition = RawWrite()
        addition.update.name = self._name(*MARK_COLLECTIONS)
        addition.update_mask.SetInParent()  # leaves all else as it is
        union = addition.update_transforms.add(field_path=MARK_COLLECTIONS[1])
        for collection in sorted(new):
            union.append_missing_elements.values.add(string_value=collection)
        await self._database.commit([addition])
        self._known |= new

    async def _mark_collections(self) -> Sequence[str]:
        """Those of all processes."""
        found = await self._database.read([self._name(*MARK_COLLECTIONS)])
        return [name for document in found.values() for name in fields_of(document).get(MARK_COLLECTIONS[1], [])]

    async def _forget_in(self, collection: str, now_ns: int) -> int:
        total = 0
        while True:
            expired = await self._database.find(_expired_marks(collection, now_ns))
            # Only the version that has expired: it may have been made anew since.
            forgotten = await self._database.write_each(_delete(document) for document in expired) if expired else 0
            total += forgotten
            if forgotten < FORGOTTEN_AT_ONCE:
                return total

    # Names.

    def _names(self, needed: Needed) -> Sequence[str]:
        names = [self._name(*path) for path in needed.documents | needed.counted]
        names += [self._mark_name(mark) for mark in needed.marks]
        return names

    def _name(self, collection: str, document_id: str) -> str:
        return f"{self._database.documents}/{collection}/{document_id}"

    def _mark_name(self, mark: Mark) -> str:
        return self._name(mark.collection, mark_document_id(mark.id))


def _put(document: Any, version: Any | None) -> Any:
    """Writes it whole, if what is there is still that version, or still nothing."""
    write = RawWrite(update=document)
    if version is None:
        write.current_document.exists = False
    else:
        write.current_document.update_time.CopyFrom(version)
    return write


def _delete(document: Any) -> Any:
    write = RawWrite(delete=document.name)
    write.current_document.update_time.CopyFrom(document.update_time)
    return write


def _expiry(mark: Any) -> int:
    until_ns = time_of(mark.fields["expireAt"]) if "expireAt" in mark.fields else None
    return NEVER_NS if until_ns is None else until_ns


def _record(mark: Any) -> MarkRecord:
    """Other programs may leave out who made it, or when."""
    created_ns = time_of(mark.fields["createdAt"]) if "createdAt" in mark.fields else None
    message_id = mark.fields["messageId"].string_value if "messageId" in mark.fields else ""
    return MarkRecord(message_id, created_ns or 0, _expiry(mark))


def _documents_by_id(collection: str, most: int) -> Any:
    """Firestore sorts ids by their UTF-8 bytes, and that is by code point, as all stores do."""
    wanted = RawQuery(limit={"value": most})
    wanted.from_.add(collection_id=collection)
    wanted.order_by.add(field={"field_path": "__name__"}, direction="ASCENDING")
    return wanted


def _expired_marks(collection: str, now_ns: int) -> Any:
    """Some of them, the oldest first. Needs no index but the one that Firestore makes of every field by itself."""
    wanted = RawQuery(limit={"value": FORGOTTEN_AT_ONCE})
    wanted.from_.add(collection_id=collection)
    wanted.select.fields.add(field_path="expireAt")
    wanted.where.field_filter.field.field_path = "expireAt"
    wanted.where.field_filter.op = "LESS_THAN_OR_EQUAL"
    put_time(wanted.where.field_filter.value, now_ns)
    wanted.order_by.add(field={"field_path": "expireAt"}, direction="ASCENDING")
    return wanted
