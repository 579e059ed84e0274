"""PORT and noun: a replay job, its legal changes, and the messages that it has to send.

planned ──start──▶ canary ──▶ running ◀──resume── paused
                      │  │       │  └──pause─────────▲
                      │  └───────┴──too many failed──┘   (it pauses by itself, and says why)
                      └──────────┴──▶ done │ cancelled
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol

from holdfast.deadletter.audit import Action
from holdfast.deadletter.selection import Selection
from holdfast.errors import FailedPrecondition
from holdfast.model.failed_message import FailedMessage


class Target(StrEnum):
    SUBSCRIPTION = "subscription"  # only the one that failed
    SOURCE_TOPIC = "source_topic"  # every subscription of the topic that it came from
    TOPIC = "topic"  # another one
    SHADOW = "shadow"  # nowhere: a handler is asked what it would do


class JobState(StrEnum):
    PLANNED = "planned"
    CANARY = "canary"  # the first few are out, and the rest waits for how they end
    RUNNING = "running"
    PAUSED = "paused"
    DONE = "done"
    CANCELLED = "cancelled"


LEGAL_CHANGES: Mapping[JobState, frozenset[JobState]] = {
    JobState.PLANNED: frozenset({JobState.CANARY, JobState.RUNNING, JobState.CANCELLED}),
    JobState.CANARY: frozenset({JobState.RUNNING, JobState.PAUSED, JobState.CANCELLED, JobState.DONE}),
    JobState.RUNNING: frozenset({JobState.PAUSED, JobState.CANCELLED, JobState.DONE}),
    JobState.PAUSED: frozenset({JobState.CANARY, JobState.RUNNING, JobState.CANCELLED}),
    JobState.DONE: frozenset(),
    JobState.CANCELLED: frozenset(),
}


ACTIVE = frozenset({JobState.CANARY, JobState.RUNNING})


class ItemState(StrEnum):
    PENDING = "pending"
    SENT = "sent"  # out, and nobody knows yet how it ends
    SUCCEEDED = "succeeded"
    FAILED = "failed"  # it was dead-lettered again, or would fail
    SKIPPED = "skipped"  # nothing was sent: `note` says why


ENDED = (ItemState.SUCCEEDED, ItemState.FAILED, ItemState.SKIPPED)


@dataclass(frozen=True, slots=True)
class Options:
    """`per_second` and `concurrency` (messages that are out at once) bound the job; 0 means no bound. It pauses by
    itself when more than `stop_above` of those that ended have failed, once `stop_after` have ended. `canary` messages
    go first, and the rest only when no more than that share of them failed."""

    target: Target = Target.SUBSCRIPTION
    topic: str = ""  # of Target.TOPIC, a full path
    per_second: float = 50.0
    concurrency: int = 100
    canary: int = 1
    stop_above: float = 0.5
    stop_after: int = 10


@dataclass(frozen=True, slots=True)
class Job:
    """`total` is how many messages it has. `why` says why it is paused.

    `runner` is the desk that works on it, and `leased_until_ns` when others may take it over; "" and 0 when nobody
    does. `ended_before` and `failed_before` are how many had ended, and of these failed, when a person last started or
    resumed it: whoever resumes has seen them, so canary and failure share count from there.
    """

    selection: Selection
    options: Options
    actor: str
    id: int = 0  # given by the store
    state: JobState = JobState.PLANNED
    total: int = 0
    why: str = ""
    created_at_ns: int = 0
    started_at_ns: int | None = None
    ended_at_ns: int | None = None
    canary_is_done: bool = False
    ended_before: int = 0
    failed_before: int = 0
    runner: str = ""
    leased_until_ns: int = 0
    version: int = 1

    @property
    def is_active(self) -> bool:
        """It sends."""
        return self.state in ACTIVE

    def is_leased(self, now_ns: int) -> bool:
        return bool(self.runner) and now_ns < self.leased_until_ns

    def start(self, at_ns: int) -> Job:
        first = JobState.CANARY if self.options.canary else JobState.RUNNING
        return replace(self._to(first), started_at_ns=self.started_at_ns or at_ns)

    def go_on(self) -> Job:
        """The canary came through."""
        return replace(self._to(JobState.RUNNING), canary_is_done=True)

    def pause(self, why: str) -> Job:
        return replace(self._to(JobState.PAUSED), why=why)

    def resume(self, ended: int, failed: int) -> Job:
        """`ended` and `failed` are how many did so far."""
        if self.state is not JobState.PAUSED:
            raise FailedPrecondition(f"replay {self.id} is {self.state} and not paused")
        again = JobState.RUNNING if self.canary_is_done or not self.options.canary else JobState.CANARY
        return replace(self._to(again), why="", ended_before=ended, failed_before=failed)

    def cancel(self, at_ns: int) -> Job:
        return replace(self._to(JobState.CANCELLED), ended_at_ns=at_ns)

    def finish(self, at_ns: int) -> Job:
        return replace(self._to(JobState.DONE), ended_at_ns=at_ns)

    def lease(self, runner: str, until_ns: int) -> Job:
        """A desk works on it; if it dies, another one may from `until_ns` on."""
        return replace(self, runner=runner, leased_until_ns=until_ns)

    def let_go(self) -> Job:
        return replace(self, runner="", leased_until_ns=0)

    def _to(self, wanted: JobState) -> Job:
        if wanted not in LEGAL_CHANGES[self.state]:
            raise FailedPrecondition(f"replay {self.id} is {self.state} and cannot become {wanted}")
        return replace(self, state=wanted)


@dataclass(frozen=True, slots=True)
class Item:
    """One message of a job. `position` is the order in which they are sent; `message_id` is the new one."""

    job_id: int
    position: int
    failure_id: int
    state: ItemState = ItemState.PENDING
    message_id: str = ""
    note: str = ""
    sent_at_ns: int | None = None


@dataclass(frozen=True, slots=True)
class ItemPage:
    items: Sequence[Item]
    next_page_token: str = ""


@dataclass(frozen=True, slots=True)
class JobPage:
    jobs: Sequence[Job]
    next_page_token: str = ""


class ReplayStore(Protocol):
    async def create_job(self, job: Job, action: Action) -> Job:
        """With all messages of its selection that can still be sent (permanent failures and queued ones, but for those
        that are out), oldest first by publish time, then id: so that those of one ordering key keep their order. The
        job comes back with `id` and `total`, and the action gets `job` and `count` as details."""
        ...

    async def get_job(self, job_id: int) -> Job | None: ...

    async def list_jobs(self, states: Sequence[JobState], page_size: int, page_token: str = "") -> JobPage:
        """Newest first; no states means any."""
        ...

    async def save_job(self, job: Job, action: Action | None = None) -> bool:
        """False when the job has another `version` by now."""
        ...

    async def pending(self, job_id: int, limit: int) -> Sequence[tuple[Item, FailedMessage | None]]:
        """The next ones to send, in their order; without the failure where it was erased."""
        ...

    async def sent(self, job_id: int, limit: int, after_position: int = 0) -> Sequence[Item]:
        """Those whose end is not known, in their order."""
        ...

    async def save_items(self, items: Sequence[Item], failures: Sequence[FailedMessage] = ()) -> Sequence[bool]:
        """Keeps items, and with them in the same transaction changed failures; of each failure whether it was kept, as
        FailureStore.save does."""
        ...

    async def items_of(self, failure_ids: Sequence[int], limit: int) -> Sequence[Item]:
        """Of all jobs, oldest job first."""
        ...

    async def count_items(self, job_id: int) -> Mapping[ItemState, int]: ...

    async def list_items(
        self, job_id: int, states: Sequence[ItemState], page_size: int, page_token: str = ""
    ) -> ItemPage: ...
