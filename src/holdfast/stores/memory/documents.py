"""Documents in memory: the twin of the SQLite store for tests and `--memory`. Gone with the process."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

from holdfast.consumer.documents import Mark, MarkRecord, Page, Result, Write
from holdfast.consumer.guard import Path, Stored, judge, needed_for
from holdfast.errors import StorageUnavailable
from holdfast.model.document import Document
from holdfast.stores.page_token import last_id_of, token_after

LARGEST_BATCH = 1000


class MemoryDocumentStore:
    """Use from one event loop: no method gives way in its middle, and that makes each a transaction."""

    def __init__(self) -> None:
        self.largest_batch = LARGEST_BATCH
        self._collections: dict[str, dict[str, Stored]] = {}
        self._marks: dict[Mark, MarkRecord] = {}
        self._closed = False

    async def apply(self, writes: Sequence[Write]) -> Sequence[Result]:
        if self._closed:
            raise StorageUnavailable("the memory store is closed")
        documents = {path: found for path in _paths(writes) if (found := self._stored(path)) is not None}
        needed = needed_for(writes).marks
        marks = {mark: self._marks[mark].expire_ns for mark in needed if mark in self._marks}
        judged = judge(writes, marks, documents)
        self._marks |= judged.marks
        for (collection, document_id), stored in judged.documents.items():
            # A copy: what a caller does to its fields later must not reach the store.
            kept = Stored(copy.deepcopy(stored.fields), stored.order)
            self._collections.setdefault(collection, {})[document_id] = kept
        return judged.results

    async def find_mark(self, marks: Sequence[Mark], now_ns: int) -> Mark | None:
        made = await self.made(marks)
        return next((mark for mark, record in made.items() if record.expire_ns > now_ns), None)

    async def made(self, marks: Sequence[Mark]) -> Mapping[Mark, MarkRecord]:
        return {mark: self._marks[mark] for mark in marks if mark in self._marks}

    def _stored(self, path: Path) -> Stored | None:
        collection, document_id = path
        return self._collections.get(collection, {}).get(document_id)

    async def get(self, collection: str, document_id: str) -> Document | None:
        stored = self._collections.get(collection, {}).get(document_id)
        return None if stored is None else _document(collection, document_id, stored)

    async def list(self, collection: str, page_size: int, page_token: str = "") -> Page:
        after = last_id_of(page_token)
        stored = self._collections.get(collection, {})
        ids = sorted(document_id for document_id in stored if document_id > after)
        page = [_document(collection, document_id, stored[document_id]) for document_id in ids[:page_size]]
        return Page(page, token_after(page[-1].id) if len(ids) > page_size else "")

    async def collections(self) -> Sequence[str]:
        return sorted(self._collections)

    async def forget_expired(self, now_ns: int) -> int:
        expired = [mark for mark, record in self._marks.items() if record.expire_ns <= now_ns]
        for mark in expired:
            del self._marks[mark]
        return len(expired)

    async def check(self) -> None:
        if self._closed:
            raise StorageUnavailable("the memory store is closed")

    async def close(self) -> None:
        self._closed = True


def _document(collection: str, document_id: str, stored: Stored) -> Document:
    # A copy: what a caller does to it must not reach the store.
    return Document(collection, document_id, copy.deepcopy(stored.fields))


def _paths(writes: Sequence[Write]) -> frozenset[Path]:
    needed = needed_for(writes)
    return needed.documents | needed.counted
