"""One desk's work on one job, from taking it over until it rests or is over.

Whatever goes wrong, the run begins again from what is stored: everything it does may be done twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from holdfast.backoff import backoff_seconds
from holdfast.clock import NANOSECONDS, Clock
from holdfast.deadletter.audit import Action
from holdfast.deadletter.outlet import Outlet
from holdfast.deadletter.redaction import NOTHING_HIDDEN, Redaction
from holdfast.deadletter.replay.claiming import Claiming, Pending, release_claims
from holdfast.deadletter.replay.dispatch import Dispatch, Dispatched
from holdfast.deadletter.replay.endings import Endings, failed_keys
from holdfast.deadletter.replay.jobs import ENDED, Item, ItemState, Job, JobState, Target
from holdfast.deadletter.replay.pacing import Pacer, RecentRate
from holdfast.deadletter.replay.screening import Screening, key_of
from holdfast.deadletter.replay.shadow import Shadow
from holdfast.deadletter.replay.upcoming import Upcoming
from holdfast.deadletter.replay.waiting import until
from holdfast.deadletter.sending import Sending
from holdfast.deadletter.store import DeskStore
from holdfast.errors import HoldfastError, StorageUnavailable

log = logging.getLogger("holdfast.replay")

ACTOR = "holdfast:replay"

# A desk that dies is followed by another one, or by its next process, after so long. It says that it lives far oftener,
# and looks then whether somebody has paused the job.
LEASE_SECONDS = 5.0
LOOK_SECONDS = 1.0

# How often what is out is asked after; sooner where no more may be out until one of them has ended.
ASK_SECONDS = 0.1
ASK_SOON_SECONDS = 0.02

# A job that rests is followed so long, so that its counts tell how the last ones ended.
LINGER_SECONDS = 60.0

SHORTEST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Parts:
    """What runs share. `name` is this process's. `shadow` is None where no consumer runs in it. What items tell is
    without what `redaction` hides. `ended` counts what items came to in this process."""

    store: DeskStore
    outlet: Outlet
    sending: Sending
    clock: Clock
    name: str
    most_generations: int
    settle_seconds: float
    shadow: Shadow | None = None
    redaction: Redaction = NOTHING_HIDDEN
    ended: Counter[ItemState] = field(default_factory=Counter)


class LostJob(Exception):
    """Another desk has it."""


class JobRun:
    def __init__(self, job: Job, parts: Parts) -> None:
        """`job` is leased to us."""
        self.job = job
        self.trouble = ""
        self._parts = parts
        self._store, self._clock = parts.store, parts.clock
        self._woken = asyncio.Event()
        self._stopping = asyncio.Event()
        self._failures = 0
        self._rate = RecentRate()
        self._counts: dict[ItemState, int] = {}
        self._look_ns = self._ask_ns = self._rests_since_ns = 0
        screening = Screening(job.options, parts.most_generations, job.id)
        self._screening = screening
        self._upcoming = Upcoming(parts.store, job.id)
        self._endings = Endings(parts.store, parts.outlet, parts.clock, job.id, parts.settle_seconds)
        self._claiming = Claiming(parts.store, parts.clock, screening, set(), parts.sending.retrying)
        self._dispatch = Dispatch(self._claiming, parts.outlet, parts.sending, parts.redaction)
        self._pacer = Pacer(job.options.per_second, parts.clock.now_ns())

    def wake(self) -> None:
        """The job was changed."""
        self._look_ns = 0
        self._woken.set()

    def stop(self) -> None:
        """Ends it between two batches. Whoever takes the job over goes on."""
        self._stopping.set()
        self._woken.set()

    @property
    def rate(self) -> float:
        """Messages a second, lately."""
        return self._rate.per_second(self._clock.now_ns())

    async def run(self) -> None:
        """Until the job is over, rests, or another desk has it."""
        while not self._stopping.is_set():
            try:
                await self._recall()
                while not self._stopping.is_set() and await self._turn():
                    pass
                if self._stopping.is_set():
                    await self._change(Job.let_go)
                return
            except LostJob:
                log.warning("replay %d: another desk goes on with it", self.job.id)
                return
            except Exception as error:  # noqa: BLE001 - whatever it is, the job waits for better times
                await self._wait_for_better(error)

    async def _wait_for_better(self, error: Exception) -> None:
        self._failures += 1
        self.trouble = str(error) or type(error).__name__
        log.warning(
            "replay %d waits and tries again: %s",
            self.job.id,
            self.trouble,
            exc_info=None if isinstance(error, HoldfastError) else error,
        )
        seconds = backoff_seconds(SHORTEST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, self._failures)
        await self._pause_until(self._clock.now_ns() + round(seconds * NANOSECONDS))

    async def _recall(self) -> None:
        self._upcoming.forget()
        self._claiming.failed_keys.clear()
        self._claiming.failed_keys.update(await failed_keys(self._store, self.job.id, self._look))
        await self._endings.recall(self._look)
        self._counts = dict(await self._store.count_items(self.job.id))
        if self._count(ItemState.SENT, ItemState.SUCCEEDED, ItemState.FAILED):
            # Nobody knows how many went out in the last second before this one.
            await self._clock.sleep_until(self._clock.now_ns() + NANOSECONDS)
        self._pacer = Pacer(self.job.options.per_second, self._clock.now_ns())

    async def _turn(self) -> bool:
        """False when there is nothing left to do here."""
        await self._look()
        await self._ask()
        if not self.job.is_active:
            return await self._rest()
        if await self._stops() or await self._send():
            return True
        if await self._finish():
            return False
        await self._pause_until(self._next_ns())
        return True

    # The job itself: others may change it at any time.

    async def _look(self) -> None:
        """Renews the lease, and sees what others have made of the job."""
        now = self._clock.now_ns()
        if now < self._look_ns:
            return
        self._look_ns = now + round(LOOK_SECONDS * NANOSECONDS)
        await self._change(lambda job: job.lease(self._parts.name, now + round(LEASE_SECONDS * NANOSECONDS)))

    async def _change(
        self, change: Callable[[Job], Job], action: Action | None = None, only_in: JobState | None = None
    ) -> bool:
        """False when it is not in that state any more."""
        while True:
            current = await self._store.get_job(self.job.id)
            if current is None or current.runner != self._parts.name:
                raise LostJob
            self.job = current
            if only_in is not None and current.state is not only_in:
                return False
            changed = change(current)
            if await self._store.save_job(changed, action):
                self.job = replace(changed, version=current.version + 1)
                return True

    async def _rest(self) -> bool:
        """Paused or over. What is out is followed for a while, and the job may be resumed meanwhile."""
        now = self._clock.now_ns()
        if not self._rests_since_ns:
            self._rests_since_ns = now
            self._upcoming.forget()
            await release_claims(self._store, self._screening)
        over = now >= self._rests_since_ns + round(LINGER_SECONDS * NANOSECONDS)
        if over or not self._endings.counted:
            return not await self._change(Job.let_go, only_in=self.job.state)
        await self._pause_until(min(self._look_ns, self._ask_ns))
        return True

    async def _stops(self) -> bool:
        """Pauses the job where too many failed, and lets it go on where the canary came through."""
        self._rests_since_ns = 0
        ended = self._count(ItemState.SUCCEEDED, ItemState.FAILED) - self.job.ended_before
        failed = self._count(ItemState.FAILED) - self.job.failed_before
        too_many = bool(ended) and failed / ended > self.job.options.stop_above
        if self.job.state is JobState.CANARY:
            if ended >= self.job.options.canary and not len(self._endings):
                if too_many:
                    return await self._stop(f"the canary failed: {failed} of {ended}")
                await self._go_on()
        elif too_many and ended >= self.job.options.stop_after:
            most = f"{self.job.options.stop_above:.0%}"
            return await self._stop(f"{failed} of {ended} that ended have failed, which is more than {most}")
        return False

    async def _stop(self, why: str) -> bool:
        if await self._change(lambda job: job.pause(why), self._action("replay.pause", why=why), self.job.state):
            log.warning("replay %d is paused: %s", self.job.id, why)
        return True

    async def _go_on(self) -> None:
        self._upcoming.forget()
        await self._change(Job.go_on, only_in=JobState.CANARY)

    async def _finish(self) -> bool:
        """Once nothing is pending or out."""
        if len(self._endings) or self._upcoming or await self._store.pending(self.job.id, 1):
            return False
        now = self._clock.now_ns()
        self._counts = dict(await self._store.count_items(self.job.id))
        counts = {str(state): count for state, count in self._counts.items()}
        action = self._action("replay.finish", counts=counts)
        return await self._change(lambda job: job.finish(now).let_go(), action, self.job.state)

    def _action(self, name: str, **details: object) -> Action:
        return Action(ACTOR, name, f"replays/{self.job.id}", details, self._clock.now_ns())

    # Its messages.

    async def _send(self) -> bool:
        """False when nothing may go now, or nothing is left."""
        batch = await self._next_batch()
        if not batch:
            return False
        began = self._clock.now_ns()
        dispatched = await self._dispatched(batch)
        self._pacer.sent(dispatched.sent, began, self._clock.now_ns())
        self._rate.sent(dispatched.sent, began)
        for item, failure in dispatched.items:
            self._note(item)
            if item.state is ItemState.SENT and failure is not None:
                self._endings.add(item, failure)
        if dispatched.trouble is not None:
            raise dispatched.trouble
        self.trouble, self._failures = "", 0
        return True

    async def _dispatched(self, batch: list[Pending]) -> Dispatched:
        if self.job.options.target is not Target.SHADOW:
            return await self._dispatch.send(batch)
        if self._parts.shadow is None:
            raise StorageUnavailable("a shadow replay needs a consumer in the desk's process")
        return await self._parts.shadow.send(batch)

    async def _next_batch(self) -> list[Pending]:
        allowed = min(self._pacer.allowed(self._clock.now_ns()), self._room())
        if allowed < 1:
            return []
        if self.job.state is not JobState.CANARY:
            return await self._upcoming.take(allowed)
        under_way = self._count(ItemState.SENT, ItemState.SUCCEEDED, ItemState.FAILED) - self.job.ended_before
        wanted = min(allowed, self.job.options.canary - under_way)
        return await self._upcoming.take_differing(wanted) if wanted > 0 else []

    def _room(self) -> int:
        """How many more may be out."""
        most = self.job.options.concurrency
        return most - self._endings.counted if most else 1_000_000

    async def _ask(self) -> None:
        now = self._clock.now_ns()
        if now < self._ask_ns or not len(self._endings):
            return
        for item, failure in await self._endings.collect():
            self._note(item, was=ItemState.SENT)
            if item.state is ItemState.FAILED and failure is not None and (key := key_of(failure)):
                self._claiming.failed_keys.add(key)
        self._ask_ns = now + round((ASK_SECONDS if self._room() else ASK_SOON_SECONDS) * NANOSECONDS)

    def _note(self, item: Item, was: ItemState = ItemState.PENDING) -> None:
        self._counts[was] = self._counts.get(was, 0) - 1
        self._counts[item.state] = self._counts.get(item.state, 0) + 1
        if item.state in ENDED:
            self._parts.ended[item.state] += 1

    def _count(self, *states: ItemState) -> int:
        return sum(self._counts.get(state, 0) for state in states)

    @property
    def counts(self) -> Mapping[ItemState, int]:
        return self._counts

    # Waiting.

    def _next_ns(self) -> int:
        now = self._clock.now_ns()
        times = [self._look_ns]
        if len(self._endings):
            times.append(self._ask_ns)
        if not self._pacer.allowed(now):
            times.append(self._pacer.next_ns(now))
        return min(times)

    async def _pause_until(self, when_ns: int) -> None:
        await until(self._clock, when_ns, self._woken)
