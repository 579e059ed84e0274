"""PORT: where documents live. One contract suite (holdfast.testing.contracts.documents) holds for every backend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from holdfast.consumer.changes import Change
from holdfast.model.document import Document, EventOrder
from holdfast.model.outcome import Applied, Duplicate, Stale


class Mark(NamedTuple):
    """Where a dedupe record is kept: a document of its own in stores that have nothing but documents."""

    collection: str
    id: str

    @property
    def path(self) -> str:
        return f"{self.collection}/{self.id}"


@dataclass(frozen=True, slots=True)
class MarkRecord:
    """`message_id` is the message that made it. Stores keep times to the microsecond at least."""

    message_id: str
    created_ns: int
    expire_ns: int


@dataclass(frozen=True, slots=True)
class Write:
    """What one event wants to change, and what makes doing it again harmless.

    `marks`: if any of them was made and has not expired, the event is a duplicate. All of them are made in the same
    transaction as the changes. No two changes are of the same document, and all fields hold JSON values only.
    """

    changes: tuple[Change, ...]
    order: EventOrder
    marks: tuple[Mark, ...]
    mark_until_ns: int
    now_ns: int


Result = Applied | Duplicate | Stale


@dataclass(frozen=True, slots=True)
class Page:
    documents: Sequence[Document]
    next_page_token: str = ""


class DocumentStore(Protocol):
    largest_batch: int
    """Writes that one call of `apply` may have."""

    async def apply(self, writes: Sequence[Write]) -> Sequence[Result]:
        """Does them as if one after the other, in one transaction that is durable at return. What each does is
        guard.py's to say: the same for every store.

        Raises, with nothing changed: BadInput when a write can never be stored, StorageUnavailable when it could not
        be done now, Misconfigured when it cannot be done until an operator acts.
        """
        ...

    async def find_mark(self, marks: Sequence[Mark], now_ns: int) -> Mark | None:
        """One of them that was made and has not expired."""
        ...

    async def made(self, marks: Sequence[Mark]) -> Mapping[Mark, MarkRecord]:
        """Those of them that were made and are not forgotten yet, expired or not."""
        ...

    async def get(self, collection: str, document_id: str) -> Document | None: ...

    async def list(self, collection: str, page_size: int, page_token: str = "") -> Page:
        """By id, ascending. The token of a page continues right after it, whatever is written in between."""
        ...

    async def collections(self) -> Sequence[str]: ...

    async def forget_expired(self, now_ns: int) -> int:
        """Removes dedupe marks whose time has passed; gives their number."""
        ...

    async def check(self) -> None:
        """Raises as `apply` would when the store is not there. Cheap, and changes nothing."""
        ...

    async def close(self) -> None: ...
