"""The messages of a job that are out, and how they end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from holdfast.clock import NANOSECONDS, Clock
from holdfast.deadletter.outlet import Fate, Outlet
from holdfast.deadletter.replay.claiming import Pending
from holdfast.deadletter.replay.jobs import Item, ItemState
from holdfast.deadletter.replay.screening import Key, key_of
from holdfast.deadletter.selection import Selection
from holdfast.deadletter.store import DeskStore
from holdfast.errors import NotFound
from holdfast.model.failed_message import FailedMessage

# Asked after in one go, of each subscription.
AT_ONCE = 500
PAGE = 500

DEAD_LETTERED = "it was dead-lettered again"
EXPIRED = "it expired, and nobody may have seen it"


@dataclass(slots=True)
class _Out:
    item: Item
    failure: FailedMessage
    nobody_tells: bool = False


class Endings:
    """Of one job. `settle_seconds`: where the broker does not tell, a message that did not come back as a dead letter
    by then has succeeded."""

    def __init__(self, store: DeskStore, outlet: Outlet, clock: Clock, job_id: int, settle_seconds: float) -> None:
        self._store = store
        self._outlet = outlet
        self._clock = clock
        self._job_id = job_id
        self._settle_ns = round(settle_seconds * NANOSECONDS)
        self._out: dict[str, dict[str, _Out]] = {}  # by subscription and message id, the longest unasked first

    def __len__(self) -> int:
        return sum(map(len, self._out.values()))

    @property
    def counted(self) -> int:
        """How many are out as far as somebody tells: those that bound the concurrency."""
        return sum(not out.nobody_tells for some in self._out.values() for out in some.values())

    def add(self, item: Item, failure: FailedMessage) -> None:
        self._out.setdefault(failure.subscription, {})[item.message_id] = _Out(item, failure)

    async def recall(self, keep_job: Callable[[], Awaitable[None]]) -> None:
        """After a restart: what an earlier run has sent. A row that it could not mark any more is marked. There may be
        many, so `keep_job` says in between that somebody works on the job."""
        self._out.clear()
        after = 0
        while items := await self._store.sent(self._job_id, PAGE, after):
            after = items[-1].position
            for item in items:
                await keep_job()
                failure = await self._store.get(item.failure_id)
                if failure is None:  # erased: there is nobody left to ask for
                    await self._store.save_items([replace(item, state=ItemState.SUCCEEDED)])
                    continue
                if failure.is_out and failure.replay_id == self._job_id:
                    now = self._clock.now_ns()
                    await self._store.save([failure.mark_replayed(now, self._job_id, item.message_id)])
                self.add(item, failure)

    async def collect(self) -> list[Pending]:
        """Those that have ended, as they are kept."""
        ended: list[Pending] = []
        for subscription, some in self._out.items():
            ids = list(islice(some, AT_ONCE))
            fates = await self._fates(subscription, ids) if ids else {}
            for message_id in ids:
                out = some.pop(message_id)
                item = await self._ended(out, fates.get(message_id, Fate.UNKNOWN))
                if item is None:
                    some[message_id] = out  # behind those that were not asked after
                else:
                    ended.append((item, out.failure))
        if ended:
            await self._store.save_items([item for item, _ in ended])
        return ended

    async def _fates(self, subscription: str, ids: Sequence[str]) -> Mapping[str, Fate]:
        try:
            return await self._outlet.fates(subscription, ids)
        except NotFound:
            return {}

    async def _ended(self, out: _Out, fate: Fate) -> Item | None:
        match fate:
            case Fate.PENDING:
                return None
            case Fate.ACKED:
                return replace(out.item, state=ItemState.SUCCEEDED)
            case Fate.DEAD_LETTERED:
                return replace(out.item, state=ItemState.FAILED, note=DEAD_LETTERED)
            case Fate.EXPIRED:
                return replace(out.item, state=ItemState.FAILED, note=EXPIRED)
            case Fate.UNKNOWN:
                out.nobody_tells = True
                return await self._settled(out)

    async def _settled(self, out: _Out) -> Item | None:
        if self._clock.now_ns() < (out.item.sent_at_ns or 0) + self._settle_ns:
            return None
        origin = out.failure.origin_id or out.failure.id
        again = Selection(origin_id=origin, since_ns=out.item.sent_at_ns, subscription=out.failure.subscription)
        if await self._store.count(again, at_most=1):
            return replace(out.item, state=ItemState.FAILED, note=DEAD_LETTERED)
        note = f"it was not dead-lettered within {self._settle_ns / NANOSECONDS:g} s"
        return replace(out.item, state=ItemState.SUCCEEDED, note=note)


async def failed_keys(store: DeskStore, job_id: int, keep_job: Callable[[], Awaitable[None]]) -> set[Key]:
    """Those of which a message has failed in this job. `keep_job` as in `recall`."""
    keys: set[Key] = set()
    token = ""
    while True:
        page = await store.list_items(job_id, [ItemState.FAILED], PAGE, token)
        for item in page.items:
            await keep_job()
            failure = await store.get(item.failure_id)
            if failure is not None and (key := key_of(failure)):
                keys.add(key)
        token = page.next_page_token
        if not token:
            return keys
