"""Documents in memory: the twin of the SQLite store for tests and `--memory`. Gone with the process."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.consumer.documents import Page, Write
from holdfast.consumer.fields import json_fields
from holdfast.errors import StorageUnavailable
from holdfast.model.document import Document, EventOrder
from holdfast.model.outcome import Applied, Duplicate, Stale
from holdfast.stores.page_token import last_id_of, token_after


@dataclass(frozen=True, slots=True)
class _Stored:
    fields: Mapping[str, Any]
    order: EventOrder


class MemoryDocumentStore:
    """Use from one event loop: no method gives way in its middle, and that makes each a transaction."""

    def __init__(self) -> None:
        self._collections: dict[str, dict[str, _Stored]] = {}
        self._seen_until: dict[str, int] = {}
        self._closed = False

    async def apply(self, write: Write) -> Applied | Duplicate | Stale:
        if self._closed:
            raise StorageUnavailable("the memory store is closed")
        # First, because it may refuse: nothing has changed then.
        fields = json_fields(write.fields)
        for key in write.dedupe_keys:
            if self._seen_until.get(key, write.now_ns) > write.now_ns:
                return Duplicate(key)
        documents = self._collections.get(write.collection, {})
        stored = documents.get(write.document_id)
        if stored is not None and stored.order == write.order:
            return Duplicate(write.path)
        for key in write.dedupe_keys:
            self._seen_until[key] = write.dedupe_until_ns
        if stored is not None and stored.order > write.order:
            return Stale(write.path)
        documents[write.document_id] = _Stored(fields, write.order)
        self._collections[write.collection] = documents
        return Applied((write.path,))

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
        expired = [key for key, until in self._seen_until.items() if until <= now_ns]
        for key in expired:
            del self._seen_until[key]
        return len(expired)

    async def close(self) -> None:
        self._closed = True


def _document(collection: str, document_id: str, stored: _Stored) -> Document:
    # A copy: what a caller does to it must not reach the store.
    return Document(collection, document_id, copy.deepcopy(stored.fields))
