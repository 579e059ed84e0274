"""The messages that a job has to send next, in their order; for a canary, a few that differ as much as possible."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import chain, islice, zip_longest

from holdfast.deadletter.replay.claiming import FIRST_ONES, Pending
from holdfast.deadletter.replay.screening import Key, key_of
from holdfast.deadletter.store import DeskStore

PAGE = 500


class Upcoming:
    """Read page by page. A row that changes after that is noticed when it is claimed."""

    def __init__(self, store: DeskStore, job_id: int) -> None:
        self._store = store
        self._job_id = job_id
        self._read: deque[Pending] = deque()

    def __bool__(self) -> bool:
        return bool(self._read)

    async def take(self, count: int) -> list[Pending]:
        """What is taken must be sent or skipped before more is read. Fewer than asked for: those are the last ones, or
        more will come with the next call."""
        if not self._read:
            self._read.extend(await self._store.pending(self._job_id, PAGE))
        return [self._read.popleft() for _ in range(min(count, len(self._read)))]

    async def take_differing(self, count: int) -> list[Pending]:
        """Of the first ones, `count` from as many subscriptions and groups as there are."""
        self.forget()
        return differing(await self._store.pending(self._job_id, FIRST_ONES), count)

    def forget(self) -> None:
        """What was taken and not sent is read again."""
        self._read.clear()


def differing(pending: Sequence[Pending], count: int) -> list[Pending]:
    """In turn one of each subscription and group; of an ordering key only the first."""
    seen: set[Key] = set()
    by_cause: dict[tuple[str, str], list[Pending]] = {}
    for item, failure in pending:
        key = failure and key_of(failure)
        if key in seen:
            continue
        if key:
            seen.add(key)
        cause = (failure.subscription, failure.fingerprint) if failure else ("", "")
        by_cause.setdefault(cause, []).append((item, failure))
    in_turn = chain.from_iterable(zip_longest(*by_cause.values()))
    return list(islice((one for one in in_turn if one is not None), count))
