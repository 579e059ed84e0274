"""All jobs of a desk: takes over those that nobody works on, each in a task of its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Sequence
from dataclasses import replace

from holdfast.clock import NANOSECONDS
from holdfast.deadletter.replay.jobs import ACTIVE, Job, JobState
from holdfast.deadletter.replay.run import LEASE_SECONDS, JobRun, Parts
from holdfast.deadletter.replay.waiting import until
from holdfast.errors import HoldfastError

log = logging.getLogger("holdfast.replay")

# How often it looks for jobs whose desk has died. Those of this desk's own people wake it.
SCAN_SECONDS = 2.0

# More would only take turns.
MOST_JOBS = 50

STOP_SECONDS = 5.0


# A desk that dies while such a job is its own may leave messages claimed.
RESTING = frozenset({JobState.PAUSED, JobState.CANCELLED})


class ReplayRunner:
    """Runs once."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._runs: dict[int, JobRun] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._woken = asyncio.Event()

    async def run(self) -> None:
        """Until it is cancelled. Jobs that are under way then are let go, for the next process."""
        try:
            while True:
                await self._take_over()
                await self._wait()
        finally:
            await self._stop()

    def wake(self, job_id: int) -> None:
        """A person has started or changed this job."""
        if run := self._runs.get(job_id):
            run.wake()
        self._woken.set()

    def running(self, job_id: int) -> JobRun | None:
        """None where this desk does not work on it."""
        return self._runs.get(job_id)

    async def _take_over(self) -> None:
        try:
            for job in [*await self._jobs(ACTIVE), *filter(_was_left, await self._jobs(RESTING))]:
                if job.id not in self._runs and not job.is_leased(self._parts.clock.now_ns()):
                    await self._take(job)
        except HoldfastError as error:
            log.warning("cannot look for replays: %s", error)
        except Exception:
            log.exception("cannot look for replays")

    async def _jobs(self, states: Collection[JobState]) -> Sequence[Job]:
        return (await self._parts.store.list_jobs(sorted(states), MOST_JOBS)).jobs

    async def _take(self, job: Job) -> None:
        until = self._parts.clock.now_ns() + round(LEASE_SECONDS * NANOSECONDS)
        leased = job.lease(self._parts.name, until)
        if not await self._parts.store.save_job(leased):
            return  # another desk was first
        run = JobRun(replace(leased, version=job.version + 1), self._parts)
        self._runs[job.id] = run
        task = asyncio.create_task(self._run(run), name=f"replay {job.id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, run: JobRun) -> None:
        try:
            await run.run()
        finally:
            del self._runs[run.job.id]
            self._woken.set()  # it may have been resumed just now

    async def _wait(self) -> None:
        clock = self._parts.clock
        await until(clock, clock.now_ns() + round(SCAN_SECONDS * NANOSECONDS), self._woken)

    async def _stop(self) -> None:
        for run in self._runs.values():
            run.stop()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=STOP_SECONDS)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)


def _was_left(job: Job) -> bool:
    """Whoever worked on it has not let it go."""
    return bool(job.runner)
