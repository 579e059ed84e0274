"""One run: traffic and faults for so many minutes, then quiet until all is settled, then the verdict."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from holdfast.torture import faults, parts, postgres, schedule, subscriptions, traffic
from holdfast.torture.checker import Verdict, check
from holdfast.torture.clients import Connection, Publisher, Puller, connected
from holdfast.torture.disk import NoSqliteLibrary, sqlite_library
from holdfast.torture.history import History
from holdfast.torture.schedule import Fault, make_schedule
from holdfast.torture.world import World, a_world

# After the last fault: as long as the longest wait that anything may be in, and then some.
SETTLE_SECONDS = 90.0
LOOK_EVERY_SECONDS = 0.5
REPLAY_EVERY_SECONDS = 5.0

# The share of a run after which the bug that makes poison is mended, and replays begin.
MENDED_AFTER = 0.4

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Asked:
    """`plant` names for a part the function that breaks it: MODULE:FUNCTION."""

    seed: int
    seconds: float
    kinds: Collection[str] = schedule.KINDS
    faults: Sequence[Fault] | None = None  # instead of those that the seed makes
    with_postgres: bool = True
    plant: Mapping[str, str] = field(default_factory=dict)
    settle_seconds: float = SETTLE_SECONDS

    def planned(self) -> Sequence[Fault]:
        return self.faults if self.faults is not None else make_schedule(self.seed, self.seconds, self.kinds)


@dataclass(slots=True)
class Result:
    asked: Asked
    schedule: Sequence[Fault]
    not_run: Mapping[str, str]  # kind -> why
    verdict: Verdict
    counts: Mapping[str, int]
    seconds: float
    history: Path


async def torture(asked: Asked, folder: Path, progress: Progress) -> Result:
    """`folder` gets the history, the data and the logs."""
    left_out = not_run(asked)
    has_postgres = asked.with_postgres and not postgres.why_not()
    plan = [
        fault
        for fault in asked.planned()
        if fault.kind not in left_out and (has_postgres or fault.target != parts.CONSUMER_TO_POSTGRES)
    ]
    with (
        History(folder / "history.ndjson") as history,
        _postgres_folder() if has_postgres else contextlib.nullcontext() as postgres_folder,
    ):
        async with a_world(folder, history, asked.seed, postgres_folder, asked.plant, with_disk=has_disk()) as world:
            history.begin(asked.seed, asked.seconds)
            await _run(world, asked, plan, progress)
            seconds = history.now
        return Result(asked, plan, left_out, check(history.entries), _counts(history), seconds, history.path)


def not_run(asked: Asked) -> dict[str, str]:
    """By kind of fault: why there is none of it here."""
    left_out: dict[str, str] = {}
    if not has_disk():
        of_disk = (schedule.DISK_FULL, schedule.SYNC_ERROR, schedule.POWER_CUT)
        left_out |= dict.fromkeys(of_disk, "needs a Python whose SQLite is a library of its own")
    if not asked.with_postgres:
        left_out[schedule.POSTGRES] = "was left out"
    elif why := postgres.why_not():
        left_out[schedule.POSTGRES] = why
    return {kind: why for kind, why in left_out.items() if kind in asked.kinds}


def has_disk() -> bool:
    try:
        sqlite_library()
    except NoSqliteLibrary:
        return False
    return True


@contextlib.contextmanager
def _postgres_folder() -> Iterator[Path]:
    """Not below the run's own: the server may have to run as somebody else."""
    folder = Path(tempfile.mkdtemp(prefix="holdfast-torture-postgres-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def _run(world: World, asked: Asked, plan: Sequence[Fault], progress: Progress) -> None:
    stop = asyncio.Event()
    async with contextlib.AsyncExitStack() as stack:
        address = world.proxies[parts.CLIENTS_TO_BROKER].address
        connections = [
            await stack.enter_async_context(connected(address, subscriptions.PROJECT))
            for _ in (*traffic.keys(), subscriptions.ONCE, subscriptions.IN_ORDER)
        ]
        publishing = [
            asyncio.create_task(publisher.run(stop)) for publisher in _publishers(world, asked.seed, connections)
        ]
        pullers = [
            Puller(connection, sub, asked.seed, world.history)
            for connection, sub in zip(connections[-2:], (subscriptions.ONCE, subscriptions.IN_ORDER), strict=True)
        ]
        pulling = [asyncio.create_task(puller.run()) for puller in pullers]
        replaying = asyncio.create_task(_mend_and_replay(world, asked.seconds * MENDED_AFTER))
        everybody = [*publishing, *pulling, replaying]
        try:
            await _do_all(world, plan, asked.seconds, progress)
            stop.set()
            for puller in pullers:
                puller.is_calm = True
            await world.heal()
            progress("the last fault is over; waiting until all is settled")
            await _settle(world, publishing, asked.settle_seconds, progress)
            await world.write_down_the_end()
        finally:
            for task in everybody:
                task.cancel()
            ended = await asyncio.gather(*everybody, return_exceptions=True)
        await world.stop_parts()
        for outcome in ended:
            if isinstance(outcome, Exception):
                raise outcome


def _publishers(world: World, seed: int, connections: Sequence[Connection]) -> list[Publisher]:
    return [
        Publisher(connection, subscriptions.TOPIC, key, seed, world.history)
        for key, connection in zip(traffic.keys(), connections, strict=False)
    ]


async def _do_all(world: World, plan: Sequence[Fault], seconds: float, progress: Progress) -> None:
    under_way: list[asyncio.Task[None]] = []
    try:
        for fault in plan:
            await asyncio.sleep(fault.at - world.history.now)
            progress(f"{fault.number}/{len(plan)} {fault.kind}: {fault.target}")
            under_way.append(asyncio.create_task(faults.do(world, fault)))
        await asyncio.sleep(seconds - world.history.now)
        await asyncio.gather(*under_way)
    finally:
        for task in under_way:
            task.cancel()


async def _mend_and_replay(world: World, after: float) -> None:
    """The bug is mended, and from then on whatever failed for good is sent again, now and then."""
    await asyncio.sleep(after)
    world.mended.touch()
    world.history.add("mended")
    while True:
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):
            counts = await world.get(parts.DESK, "/api/v1/failures/counts")
            if counts["byStatus"]["permanent_failure"]:
                await _replay(world)
        await asyncio.sleep(REPLAY_EVERY_SECONDS)


async def _replay(world: World) -> None:
    made = await world.post(
        parts.DESK,
        "/api/v1/replays",
        {
            "selection": {"status": ["permanent_failure"]},
            "options": {"perSecond": 100, "concurrency": 0, "canary": 0, "stopAbove": 1.0},
        },
    )
    await world.post(parts.DESK, f"/api/v1/replays/{made['id']}:start", {})
    world.history.add("replay", id=made["id"], total=made["total"])


async def _settle(world: World, publishing: Sequence[asyncio.Task[None]], within: float, progress: Progress) -> None:
    """Until nobody owes anything, twice in a row: between two parts a message is nobody's for a moment."""
    quiet, end = 0, world.history.now + within
    while quiet < 2 and world.history.now < end:
        waits = await _waits_for(world, publishing)
        quiet = 0 if waits else quiet + 1
        world.history.add("settling", waits=waits)
        if waits:
            progress(f"waiting for {waits}")
        await asyncio.sleep(LOOK_EVERY_SECONDS)
    if quiet < 2:
        world.history.trouble("stuck", f"not settled after {within:g} seconds: {await _waits_for(world, publishing)}")


async def _waits_for(world: World, publishing: Sequence[asyncio.Task[None]]) -> str:
    """Empty when there is nothing."""
    if open_publishers := sum(not task.done() for task in publishing):
        return f"{open_publishers} publishers"
    try:
        if owed := {sub: count for sub, count in (await world.backlogs()).items() if count}:
            return ", ".join(f"{count} of {sub}" for sub, count in sorted(owed.items()))
        counts = (await world.get(parts.DESK, "/api/v1/failures/counts"))["byStatus"]
        if failed := counts["queued_for_retry"] + counts["permanent_failure"]:
            return f"{failed} failures"
        jobs = (await world.get(parts.DESK, "/api/v1/replays?state=running&state=canary&state=paused"))["replays"]
        if jobs:
            return f"{len(jobs)} replays"
    except (aiohttp.ClientError, TimeoutError) as error:
        return f"an answer: {error!r}"
    return ""


def _counts(history: History) -> dict[str, int]:
    counts = Counter(str(entry["what"]) for entry in history.entries)
    messages = sum(len(entry["names"]) for entry in history.entries if entry["what"] == "published")
    return {
        "messages": messages,
        "deliveries": counts["delivery"],
        "publishesUnclear": counts["publish_unclear"],
        "deadLetters": counts["failure"],
        "replays": counts["replay"],
        "starts": counts["started"],
    }
