"""The desk's store over a week of failures: 1.25 million rows in SQLite and in PostgreSQL, asked what operators ask,
and taking in more meanwhile. Both are asked in this process, through the port that the desk itself uses."""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from statistics import quantiles

from bench import procfs
from bench.figures import Bar, Better, Comparison, Series
from bench.generator import Load, LoadFailed
from bench.missing import Missing
from bench.session import Session
from holdfast.deadletter.fingerprints import in_group
from holdfast.deadletter.groups import GroupFilter
from holdfast.deadletter.selection import Selection
from holdfast.deadletter.store import DeskStore
from holdfast.model.failed_message import FailedMessage, FailureStatus
from holdfast.stores.postgres.desk import PostgresDeskStore
from holdfast.stores.sqlite.desk import SqliteDeskStore
from holdfast.torture.postgres import find_binaries
from tests.support.postgres import running_postgres

ROWS = 1_250_000
TENANTS = 1_000
CAUSES = 2_000
QUEUED = 1_000
BATCH = 500
FILLED_AT_ONCE = 5_000

ASKED = 200  # times in a round, for a p95
CAPTURED = 20  # batches in a round

SECOND_NS = 1_000_000_000
WEEK_NS = 7 * 24 * 3600 * SECOND_NS
BEGAN_NS = 1_760_000_000 * SECOND_NS
ENDED_NS = BEGAN_NS + WEEK_NS

REASONS = (
    "API_RATE_LIMIT_EXCEEDED",
    "SCHEMA_VALIDATION_ERROR",
    "DATABASE_CONNECTION_ERROR",
    "KAFKA_BROKER_UNAVAILABLE",
    "DUPLICATE_MESSAGE",
)
SHARES = (61, 28, 9, 1, 1)

# What a server gets that is meant for work, and not for tests: it keeps what it has told.
POSTGRES = {
    "fsync": "on",
    "synchronous_commit": "on",
    "wal_writer_delay": "200ms",
    "shared_buffers": "1GB",
    "max_wal_size": "4GB",
    "checkpoint_timeout": "30min",
}


@dataclass(frozen=True, slots=True)
class Question:
    name: str
    title: str
    milliseconds: float
    ask: Callable[[DeskStore, random.Random], Awaitable[object]]


def run(session: Session) -> list[Comparison]:
    if find_binaries() is None:
        raise Missing("PostgreSQL was found neither on the PATH nor in /usr/lib/postgresql")
    path = str(session.scratch / "failures.db")
    with running_postgres(POSTGRES) as server, server.database() as url:
        places = [Place("SQLite", path), Place("PostgreSQL", url, server.pid)]
        fill_all(places)
        return [comparison for place in places for comparison in asyncio.run(_measured(session, place))]


async def _measured(session: Session, place: Place) -> list[Comparison]:
    store = await place.open()
    try:
        comparisons = [await _asked(session, store, place, question) for question in QUESTIONS]
        return [*comparisons, await _captured(session, store, place)]
    finally:
        await store.close()


# A week.


def fill_all(places: Sequence[Place]) -> None:
    """Takes minutes and is not what is measured: all at once, each in a process of its own."""
    processes = [get_context("spawn").Process(target=fill, args=(place,)) for place in places]
    try:
        for process in processes:
            process.start()
        for place, process in zip(places, processes, strict=True):
            process.join()
            if process.exitcode != 0:
                raise LoadFailed(f"{place.name} could not be filled")
    finally:
        for process in processes:
            if process.is_alive():
                process.kill()


def fill(place: Place) -> None:
    started = time.monotonic()
    asyncio.run(_opened_and_filled(place))
    print(f"   {place.name}: {ROWS:,} rows in {time.monotonic() - started:.0f} s", flush=True)


async def _opened_and_filled(place: Place) -> None:
    store = await place.open()
    try:
        await _fill(store, random.Random(7))
    finally:
        await store.close()


async def _fill(store: DeskStore, chance: random.Random) -> None:
    for start in range(0, ROWS, FILLED_AT_ONCE):
        await store.record([_failure(number, chance) for number in range(start, start + FILLED_AT_ONCE)])
    if sum((await store.count_by_status()).values()) != ROWS:
        raise LoadFailed("the store does not have all rows")


def _failure(number: int, chance: random.Random) -> FailedMessage:
    status = FailureStatus.QUEUED_FOR_RETRY if number % (ROWS // QUEUED) == 0 else _ended(chance)
    at_ns = BEGAN_NS + WEEK_NS // ROWS * number
    cause = _cause(int(CAUSES * chance.random() ** 3))  # a few causes make most of the failures
    payload = {"latitude": 192.5847, "longitude": -121.6219, "brightness": 328.4, "id": number, "note": "x" * 150}
    return FailedMessage(
        message_id=str(10**12 + number),
        subscription=cause.subscription,
        source_topic=cause.source_topic,
        failure_reason=cause.failure_reason,
        error_details=cause.error_details,
        fingerprint=cause.fingerprint,
        data=json.dumps(payload).encode(),
        attributes={"tenant": f"t{chance.randrange(TENANTS)}", "region": f"r{number % 5}", "eventId": f"e{number}"},
        publish_time_ns=at_ns - SECOND_NS,
        delivery_attempt=5,
        retry_count=3,
        status=status,
        created_at_ns=at_ns,
        failed_at_ns=at_ns - SECOND_NS,
        retry_at_ns=at_ns if status is FailureStatus.QUEUED_FOR_RETRY else None,
        retry_success_at_ns=at_ns + 5 * SECOND_NS if status is FailureStatus.RETRY_SUCCESS else None,
    )


@cache
def _cause(number: int) -> FailedMessage:
    """What all failures of one cause have in common, with the fingerprint that the desk gives them: made once for each,
    since a million of them would take longer than all the rest."""
    [reason] = random.Random(number).choices(REASONS, SHARES)
    return in_group(
        FailedMessage(
            message_id="any",
            data=b"",
            subscription=f"projects/fire/subscriptions/detections-{number % 4}",
            source_topic="projects/fire/topics/detections",
            failure_reason=reason,
            error_details=f"the field {_word(number)} of detection 17 has a value that no sensor gives",
        )
    )


def _ended(chance: random.Random) -> FailureStatus:
    [status] = chance.choices((FailureStatus.RETRY_SUCCESS, FailureStatus.PERMANENT_FAILURE), (4, 1))
    return status


def _word(number: int) -> str:
    """A word: a number would be taken for a value, and all causes for one."""
    return "".join(chr(ord("a") + int(digit)) for digit in f"{number:04}") + "ness"


# Questions.


async def _asked(session: Session, store: DeskStore, place: Place, question: Question) -> Comparison:
    chance = random.Random(11)
    values, loads = [], []
    for number in range(-1, session.rounds):  # one round is not counted: caches fill
        before = place.usage()
        took = [await _milliseconds(question.ask(store, chance)) for _ in range(ASKED)]
        if number >= 0:
            values.append(quantiles(took, n=20)[-1])
            loads.append(place.load(ASKED, before))
    bar = Bar(at_most=question.milliseconds)
    return _comparison(question.name, f"{question.title}, p95", "ms", "lower", bar, place, values, loads)


async def _milliseconds(asked: Awaitable[object]) -> float:
    started = time.perf_counter()
    await asked
    return (time.perf_counter() - started) * 1000


async def _search(store: DeskStore, chance: random.Random) -> object:
    """For a few hundred rows, for a single one, for a fifth of all, and together with other conditions."""
    tenant = {"tenant": f"t{chance.randrange(TENANTS)}"}
    wanted = chance.choice(
        (
            Selection(attributes=tenant),
            Selection(attributes={"eventId": f"e{chance.randrange(ROWS)}"}),
            Selection(attributes={"region": f"r{chance.randrange(5)}"}),
            Selection(attributes=tenant | {"region": f"r{chance.randrange(5)}"}),
            Selection(attributes=tenant, reason=chance.choice(REASONS), statuses=[FailureStatus.PERMANENT_FAILURE]),
        )
    )
    return await store.list(wanted, 50)


QUESTIONS = (
    Question("retry_queue", "retry queue, 100 due", 5, lambda store, _: store.due_for_retry(ENDED_NS, 100)),
    Question("by_reason", "failures by reason", 10, lambda store, _: store.count_by_reason()),
    Question("recent", "recent failures, a page of 50", 8, lambda store, _: store.list(Selection(), 50)),
    Question("groups", "group list, a page of 100", 50, lambda store, _: store.list_groups(GroupFilter(), 100)),
    Question("attribute", "search by attribute, a page of 50", 100, _search),
)


# Capture.


async def _captured(session: Session, store: DeskStore, place: Place) -> Comparison:
    chance = random.Random(13)
    values, loads = [], []
    next_number = ROWS
    for number in range(-1, session.rounds):
        rows = [_failure(next_number + n, chance) for n in range(BATCH * CAPTURED)]
        next_number += len(rows)
        before = place.usage()
        started = time.monotonic()
        for start in range(0, len(rows), BATCH):
            await store.record(rows[start : start + BATCH])
        if number >= 0:
            values.append(len(rows) / (time.monotonic() - started))
            loads.append(place.load(len(rows), before))
    title, bar = f"capture in batches of {BATCH}", Bar(at_least=5_000)
    return _comparison("capture", title, "failures/s", "higher", bar, place, values, loads)


# Figures.


@dataclass(frozen=True, slots=True)
class Usage:
    """What was used so far: seconds of the clock, of the CPU by the store, and of the CPU by everybody."""

    seconds: float
    store: float
    machine: float


@dataclass(frozen=True, slots=True)
class Place:
    """`where` is a file or PostgreSQL's URL. `server` is PostgreSQL's first process; the store is in this one."""

    name: str
    where: str
    server: int | None = None

    async def open(self) -> DeskStore:
        if self.server is None:
            return await SqliteDeskStore.open(Path(self.where))
        return await PostgresDeskStore.open(self.where)

    def usage(self) -> Usage:
        server = 0.0 if self.server is None else procfs.family_cpu_seconds(self.server)
        return Usage(time.monotonic(), time.process_time() + server, procfs.machine_cpu_seconds())

    def load(self, count: int, before: Usage) -> Load:
        now = self.usage()
        return Load(
            messages=count,
            seconds=now.seconds - before.seconds,
            per_second=count / (now.seconds - before.seconds),
            complete=True,
            duplicates=0,
            generator_cpu_seconds=0.0,
            server_cpu_seconds=now.store - before.store,
            server_peak_rss_mb=procfs.peak_rss_mb(os.getpid()),
            machine_cpu_seconds=now.machine - before.machine,
        )


def _comparison(
    name: str, title: str, unit: str, better: Better, bar: Bar, place: Place, values: list[float], loads: list[Load]
) -> Comparison:
    print(f"   {title}, {place.name}: {', '.join(f'{value:,.2f}' for value in values)} {unit}", flush=True)
    series = Series.of(f"Holdfast, {place.name}", values, loads, procfs.cores())
    return Comparison(f"{name}_{place.name.lower()}", f"{title}, {place.name}", unit, better, bar, series, None)
