"""PORT: where failed messages live. One contract suite (holdfast.testing.contracts.failures) holds for all backends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from holdfast.model.failed_message import FailedMessage, FailureStatus


@dataclass(frozen=True, slots=True)
class Filter:
    """Empty means any."""

    status: FailureStatus | None = None
    failure_reason: str = ""
    subscription: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    failures: Sequence[FailedMessage]
    next_page_token: str = ""


class FailureStore(Protocol):
    async def record(self, failure: FailedMessage) -> bool:
        """Durable at return. False, with nothing changed, when its key is recorded already."""
        ...

    async def get(self, failure_id: int) -> FailedMessage | None: ...

    async def list(self, wanted: Filter, page_size: int, page_token: str = "") -> Page:
        """Newest first. The token of a page continues right after it, whatever is recorded in between."""
        ...

    async def count_by_status(self) -> Mapping[FailureStatus, int]: ...

    async def close(self) -> None: ...
