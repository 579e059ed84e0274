"""What people can do with replay jobs. The API and the command line both come here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from holdfast.deadletter.audit import Action
from holdfast.deadletter.replay.claiming import release_claims
from holdfast.deadletter.replay.jobs import ItemPage, ItemState, Job, JobState, Options, Target
from holdfast.deadletter.replay.options import options_to_json
from holdfast.deadletter.replay.plan import Plan, make_plan
from holdfast.deadletter.replay.run import Parts
from holdfast.deadletter.replay.runner import ReplayRunner
from holdfast.deadletter.replay.screening import Screening
from holdfast.deadletter.replay.shadow import ShadowReport, foreseen_in
from holdfast.deadletter.selecting import selection_in_audit
from holdfast.deadletter.selection import Selection
from holdfast.errors import FailedPrecondition, NotFound

PAGE = 1000


@dataclass(frozen=True, slots=True)
class Progress:
    """`rate` is of now, and `seconds_left` what the job will still take at its own rate: None where nobody can tell.
    `trouble` is what it waits for, such as a broker that does not answer."""

    job: Job
    counts: Mapping[ItemState, int]
    rate: float = 0.0
    seconds_left: float | None = None
    trouble: str = ""


class Replays:
    """`defaults` are what nobody tells otherwise."""

    def __init__(self, parts: Parts, runner: ReplayRunner, defaults: Options) -> None:
        self.defaults = defaults
        self._parts = parts
        self._store = parts.store
        self._clock = parts.clock
        self._runner = runner

    async def plan(self, selection: Selection, options: Options) -> Plan:
        """Writes nothing."""
        self._check(options)
        return await make_plan(self._store, self._parts.outlet, selection, self._screening(options))

    async def create(self, selection: Selection, options: Options, actor: str) -> Progress:
        self._check(options)
        now = self._clock.now_ns()
        told = {"selection": selection_in_audit(selection), "options": options_to_json(options)}
        action = Action(actor, "replay.create", "replays", told, now)
        job = Job(selection, options, actor, created_at_ns=now)
        return await self._progress(await self._store.create_job(job, action))

    async def start(self, job_id: int, actor: str) -> Progress:
        now = self._clock.now_ns()
        return await self._change(job_id, actor, "replay.start", lambda job, _: job.start(now), only_planned=True)

    async def pause(self, job_id: int, actor: str) -> Progress:
        why = f"paused by {actor}"
        return await self._rested(await self._change(job_id, actor, "replay.pause", lambda job, _: job.pause(why)))

    async def resume(self, job_id: int, actor: str) -> Progress:
        """Whoever resumes has seen what failed: the canary and the share that may fail count from here."""
        return await self._change(job_id, actor, "replay.resume", _resumed)

    async def cancel(self, job_id: int, actor: str) -> Progress:
        """What is out stays out."""
        now = self._clock.now_ns()
        return await self._rested(await self._change(job_id, actor, "replay.cancel", lambda job, _: job.cancel(now)))

    async def _rested(self, progress: Progress) -> Progress:
        """Nobody who works on it sees to what it had claimed, where nobody does."""
        job = progress.job
        if not job.is_leased(self._clock.now_ns()):
            await release_claims(self._store, self._screening(job.options, job.id))
        return progress

    async def get(self, job_id: int) -> Progress:
        return await self._progress(await self._job(job_id))

    async def list(
        self, states: Sequence[JobState], page_size: int, page_token: str = ""
    ) -> tuple[Sequence[Progress], str]:
        """Newest first, with the token of the next page."""
        page = await self._store.list_jobs(states, page_size, page_token)
        return [await self._progress(job) for job in page.jobs], page.next_page_token

    async def items(self, job_id: int, states: Sequence[ItemState], page_size: int, page_token: str = "") -> ItemPage:
        await self._job(job_id)
        return await self._store.list_items(job_id, states, page_size, page_token)

    async def shadow_report(self, job_id: int) -> ShadowReport:
        """What a shadow job has found so far."""
        job = await self._job(job_id)
        if job.options.target is not Target.SHADOW:
            raise FailedPrecondition(f"replay {job_id} sends messages: only a shadow replay has a report")
        report, token = ShadowReport(), ""
        while True:
            page = await self._store.list_items(job_id, [], PAGE, token)
            for item in page.items:
                if foreseen := foreseen_in(item):
                    report.add(item.failure_id, foreseen)
            token = page.next_page_token
            if not token:
                return report

    async def _change(
        self,
        job_id: int,
        actor: str,
        name: str,
        change: Callable[[Job, Mapping[ItemState, int]], Job],
        *,
        only_planned: bool = False,
    ) -> Progress:
        """Tried again where the job's desk has changed it at the same moment: it renews its lease all the time."""
        while True:
            job = await self._job(job_id)
            if only_planned and job.state is not JobState.PLANNED:
                raise FailedPrecondition(f"replay {job_id} is {job.state}: only a planned one can be started")
            counts = await self._store.count_items(job_id)
            changed = change(job, counts)
            if await self._store.save_job(changed, self._action(actor, name, job, counts)):
                self._runner.wake(job_id)
                return await self._progress(replace(changed, version=job.version + 1))

    def _action(self, actor: str, name: str, job: Job, counts: Mapping[ItemState, int]) -> Action:
        told: dict[str, Any] = {"selection": selection_in_audit(job.selection), "total": job.total}
        told["counts"] = {str(state): count for state, count in counts.items()}
        return Action(actor, name, f"replays/{job.id}", told, self._clock.now_ns())

    async def _progress(self, job: Job) -> Progress:
        counts = await self._store.count_items(job.id)
        run = self._runner.running(job.id)
        left = counts.get(ItemState.PENDING, 0)
        known = job.options.per_second and not job.ended_at_ns
        seconds = left / job.options.per_second if known else None
        return Progress(job, counts, run.rate if run else 0.0, seconds, run.trouble if run else "")

    async def _job(self, job_id: int) -> Job:
        job = await self._store.get_job(job_id)
        if job is None:
            raise NotFound(f"there is no replay {job_id}")
        return job

    def _screening(self, options: Options, job_id: int = 0) -> Screening:
        return Screening(options, self._parts.most_generations, job_id)

    def _check(self, options: Options) -> None:
        if options.target is Target.SHADOW and self._parts.shadow is None:
            raise FailedPrecondition(
                "a shadow replay needs a consumer in the desk's process; `holdfast replay shadow` brings its own"
            )


def _resumed(job: Job, counts: Mapping[ItemState, int]) -> Job:
    failed = counts.get(ItemState.FAILED, 0)
    return job.resume(failed + counts.get(ItemState.SUCCEEDED, 0), failed)
