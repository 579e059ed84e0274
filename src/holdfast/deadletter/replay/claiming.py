"""A job claims its messages before it sends them: from then on nobody edits them, retries them, or sends them with
another job. What somebody changed just before is read again, so nothing is sent stale."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from holdfast.clock import Clock
from holdfast.deadletter.replay.jobs import Item, ItemState
from holdfast.deadletter.replay.screening import KEY_FAILED, OUT_ON_RETRY, Key, Screening, key_of
from holdfast.deadletter.store import DeskStore
from holdfast.errors import StorageUnavailable
from holdfast.model.failed_message import FailedMessage

# Somebody who changes a row more often than this while it is claimed is waited for.
MOST_TRIES = 10

# Claims are made in the order of the job, or among this many of its first messages.
FIRST_ONES = 1000

Pending = tuple[Item, FailedMessage | None]


@dataclass(slots=True)
class Claims:
    """`claimed` in their order. `skipped` are not sent; those of them that were claimed before are to be let go."""

    claimed: list[tuple[Item, FailedMessage]] = field(default_factory=list)
    skipped: list[Pending] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Claiming:
    """Of one job. None of the messages of `failed_keys` is sent any more, nor one whose retry is being sent
    (`retrying`, of Sending)."""

    store: DeskStore
    clock: Clock
    screening: Screening
    failed_keys: set[Key]
    retrying: Collection[int] = ()

    async def claim(self, batch: Sequence[Pending]) -> Claims:
        claims = Claims()
        left = list(batch)
        for _ in range(MOST_TRIES):
            free = self._screened(left, claims)
            if not free:
                claims.claimed.sort(key=lambda pair: pair[0].position)
                return claims
            left = await self._try(free, claims)
        raise StorageUnavailable(f"failure {left[0][0].failure_id} is changed all the time")

    def _screened(self, batch: Sequence[Pending], claims: Claims) -> list[tuple[Item, FailedMessage]]:
        """Those that are to be claimed."""
        free: list[tuple[Item, FailedMessage]] = []
        for item, failure in batch:
            why_not = self._why_not(failure)
            if failure is None or why_not:
                claims.skipped.append((replace(item, state=ItemState.SKIPPED, note=why_not), failure))
            elif self.screening.has_claimed(failure):
                claims.claimed.append((item, failure))
            else:
                free.append((item, failure))
        return free

    def _why_not(self, failure: FailedMessage | None) -> str:
        why_not = self.screening.why_not(failure)
        if why_not or failure is None:
            return why_not
        if failure.id in self.retrying and not self.screening.has_claimed(failure):
            return OUT_ON_RETRY
        return KEY_FAILED if key_of(failure) in self.failed_keys else ""

    async def _try(self, free: Sequence[tuple[Item, FailedMessage]], claims: Claims) -> list[Pending]:
        """Gives those that were changed meanwhile, as they are now."""
        now = self.clock.now_ns()
        wanted = [failure.claim_replay(now, self.screening.job_id) for _, failure in free]
        kept = await self.store.save(wanted)
        changed: list[Pending] = []
        for (item, failure), claim, is_ours in zip(free, wanted, kept, strict=True):
            if is_ours:
                claims.claimed.append((item, replace(claim, version=failure.version + 1)))
            else:
                changed.append((item, await self.store.get(failure.id)))
        return changed


async def release_claims(store: DeskStore, screening: Screening) -> None:
    """Of a job that sends no more: what it had claimed may be edited and sent by others again."""
    first = await store.pending(screening.job_id, FIRST_ONES)
    claimed = [failure for _, failure in first if failure is not None and screening.has_claimed(failure)]
    if claimed:
        await store.save([failure.release_replay() for failure in claimed])
