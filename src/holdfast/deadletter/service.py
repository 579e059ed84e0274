"""What people can ask the desk. The API and the command line both come here; neither talks to a store."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.deadletter.failures import FailureStore, Filter, Page
from holdfast.errors import BadInput, NotFound
from holdfast.model.failed_message import FailedMessage, FailureStatus
from holdfast.model.names import check_subscription

DEFAULT_PAGE_SIZE = 100


class Desk:
    def __init__(self, store: FailureStore) -> None:
        self._store = store

    async def list_failures(
        self,
        *,
        status: str = "",
        reason: str = "",
        subscription: str = "",
        page_size: int = DEFAULT_PAGE_SIZE,
        page_token: str = "",
    ) -> Page:
        """Newest first. An empty filter means any; `subscription` is a full path."""
        if subscription:
            # A short id would match nothing, which looks like "no failures".
            check_subscription("subscription", subscription)
        return await self._store.list(Filter(_status(status), reason, subscription), page_size, page_token)

    async def get_failure(self, failure_id: int) -> FailedMessage:
        failure = await self._store.get(failure_id)
        if failure is None:
            raise NotFound(f"there is no failure {failure_id}")
        return failure

    async def counts(self) -> Mapping[FailureStatus, int]:
        """How many failures have each status, every status named."""
        return await self._store.count_by_status()


def _status(text: str) -> FailureStatus | None:
    if not text:
        return None
    try:
        return FailureStatus(text)
    except ValueError:
        raise BadInput("status", f"must be one of {', '.join(FailureStatus)}, not {text[:64]!r}") from None
