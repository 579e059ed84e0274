"""PORT: where documents live. One contract suite (holdfast.testing.contracts.documents) holds for every backend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from holdfast.model.document import Document, EventOrder
from holdfast.model.outcome import Applied, Duplicate, Stale


@dataclass(frozen=True, slots=True)
class Write:
    """What one event wants to change, and what makes doing it again harmless.

    `dedupe_keys`: if any of them was seen and has not expired, the event is a duplicate. All of them are marked in the
    same transaction as the document. `fields` hold JSON values or datetimes; the whole document is replaced.
    """

    collection: str
    document_id: str
    fields: Mapping[str, Any]
    order: EventOrder
    dedupe_keys: tuple[str, ...]
    dedupe_until_ns: int
    now_ns: int

    @property
    def path(self) -> str:
        return f"{self.collection}/{self.document_id}"


@dataclass(frozen=True, slots=True)
class Page:
    documents: Sequence[Document]
    next_page_token: str = ""


class DocumentStore(Protocol):
    async def apply(self, write: Write) -> Applied | Duplicate | Stale:
        """Claims the dedupe keys, checks the order and writes the document in one transaction, durable at return.

        A seen key or an order equal to the stored one is a duplicate; a lower order is stale. A stale event's keys are
        claimed too, so that its redelivery is a duplicate; a duplicate changes nothing at all.
        Raises StorageUnavailable, with nothing changed, when it could not be done now.
        """
        ...

    async def get(self, collection: str, document_id: str) -> Document | None: ...

    async def list(self, collection: str, page_size: int, page_token: str = "") -> Page:
        """By id, ascending. The token of a page continues right after it, whatever is written in between."""
        ...

    async def collections(self) -> Sequence[str]: ...

    async def forget_expired(self, now_ns: int) -> int:
        """Removes dedupe marks whose time has passed; gives their number."""
        ...

    async def close(self) -> None: ...
