"""Sends the requests: as fast as answers come back (closed loop), or at a rate whatever comes back (open loop).

In an open loop every request has a time at which it is due, and its latency counts from then. One that has to wait
because all connections wait for a slow endpoint is as slow as its sender would see it, instead of not being measured.
"""

from __future__ import annotations

import asyncio
import gc
import math
import resource
import time
from dataclasses import dataclass
from pathlib import Path

from holdfast.cli.load.endpoint import Endpoint
from holdfast.cli.load.latencies import Latencies
from holdfast.cli.load.messages import Messages
from holdfast.cli.load.tally import Tally
from holdfast.clock import NANOSECONDS
from holdfast.outgoing.answers import Answer

# Timers of the loop tick in milliseconds. A request leaves up to one tick early, so that none is late only for that.
_TICK_NS = 1_000_000

# Where nobody listens, or every connection is closed at once, asking again at once tells nothing new.
_PAUSE_SECONDS = 0.02

_SCHEDSTAT = Path("/proc/thread-self/schedstat")

# Files of the process besides its connections.
_OTHER_FILES = 64


@dataclass(frozen=True, slots=True)
class Plan:
    """How much: until so many requests or seconds, whichever is first; `rate` a second, or as answers come (None)."""

    concurrency: int
    timeout_seconds: float
    requests: int | None = None
    seconds: float | None = None
    rate: float | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """How it went."""

    plan: Plan
    tally: Tally
    started_at_ns: int
    """Since 1970."""
    seconds: float
    """Until the last answer."""
    cpu_seconds: float
    """Of this process."""
    starved_seconds: float
    """It had something to do, and other processes had the processors."""
    most_at_once: int
    """Requests that waited for their answers at the same time."""
    sent: int
    redelivered: int
    unsent: int
    """Were due, and all connections were busy to the end."""
    given_up: int
    """Were under way when it was interrupted."""
    late: Latencies
    """How late the generator itself was: it had a free connection, and no time."""
    interrupted: bool


class Load:
    """One run. `told_to_stop` ends it early."""

    def __init__(self, endpoint: Endpoint, messages: Messages, plan: Plan, told_to_stop: asyncio.Event) -> None:
        self._endpoint = endpoint
        self._messages = messages
        self._told_to_stop = told_to_stop
        self.plan = plan
        self.tally = Tally()
        self.at_once = 0
        self.started_ns = time.perf_counter_ns()
        self._most_at_once = 0
        self._taken = 0
        self._last_end_ns = 0
        self._late = Latencies()

    async def run(self) -> Run:
        started_at_ns, cpu, starved = time.time_ns(), time.process_time(), _starved_seconds()
        redelivered = self._messages.redelivered
        self.started_ns = time.perf_counter_ns()
        await self._until_done_or_told()
        return Run(
            plan=self.plan,
            tally=self.tally,
            started_at_ns=started_at_ns,
            seconds=(self._last_end_ns or self._since_start()) / NANOSECONDS,
            cpu_seconds=time.process_time() - cpu,
            starved_seconds=_starved_seconds() - starved,
            most_at_once=self._most_at_once,
            sent=self.tally.ended + self.at_once,
            redelivered=self._messages.redelivered - redelivered,
            unsent=self._unsent(),
            given_up=self.at_once,
            late=self._late,
            interrupted=self._told_to_stop.is_set(),
        )

    async def _until_done_or_told(self) -> None:
        workers = [asyncio.ensure_future(self._work()) for _ in range(self._workers())]
        all_done = asyncio.ensure_future(asyncio.wait(workers))
        told = asyncio.ensure_future(self._told_to_stop.wait())
        try:
            await asyncio.wait([all_done, told], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (*workers, told):
                task.cancel()
            await all_done
        for worker in workers:
            if not worker.cancelled():
                worker.result()  # raises what went wrong in it

    def _workers(self) -> int:
        """As many connections as may be used at once."""
        return min(self.plan.concurrency, self.plan.requests or self.plan.concurrency)

    async def _work(self) -> None:
        while (due := self._take()) is not None:
            if due > (now := self._since_start()) + _TICK_NS:
                await asyncio.sleep((due - now - _TICK_NS // 2) / NANOSECONDS)
                self._late.add(max(self._since_start() - due, 0))
            await self._send(min(due, self._since_start()))

    def _take(self) -> int | None:
        """When the next request is due, in nanoseconds since the start; None when there is no next one."""
        plan, number = self.plan, self._taken
        if plan.requests is not None and number >= plan.requests:
            return None
        now = self._since_start()
        due = now if plan.rate is None else round(number / plan.rate * NANOSECONDS)
        if plan.seconds is not None and max(due, now) >= plan.seconds * NANOSECONDS:
            return None
        self._taken += 1
        return due

    async def _send(self, since_ns: int) -> None:
        body = self._messages.next()
        self.at_once += 1
        self._most_at_once = max(self._most_at_once, self.at_once)
        outcome = await self._endpoint.post(body, self.plan.timeout_seconds)
        self.at_once -= 1  # not when it was cancelled: those are the ones that were given up
        self._last_end_ns = end = self._since_start()
        if isinstance(outcome, Answer):
            self.tally.answer(outcome, end, end - since_ns)
        else:
            self.tally.no_answer(outcome, end)
            if outcome.kind != "timeout":
                await asyncio.sleep(_PAUSE_SECONDS)

    def _unsent(self) -> int:
        """Only a plan with an end in time leaves requests behind."""
        plan = self.plan
        if plan.rate is None or plan.seconds is None or self._told_to_stop.is_set():
            return 0
        due = math.ceil(plan.seconds * plan.rate - 1e-6)
        return max(min(due, plan.requests or due) - self._taken, 0)

    def _since_start(self) -> int:
        return time.perf_counter_ns() - self.started_ns


def _starved_seconds() -> float:
    """As Linux counts it for this thread since its start; where it does not, 0."""
    try:
        return int(_SCHEDSTAT.read_text(encoding="ascii").split()[1]) / NANOSECONDS
    except (OSError, ValueError, IndexError):
        return 0.0


def prepare_process(connections: int) -> None:
    """A pause for garbage would look like one of the endpoint; and each connection is an open file."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    wanted = connections + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
