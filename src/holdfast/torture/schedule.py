"""Which faults come when: made from the seed alone, before anything runs.

Each fault belongs to a lane (a part, a hop, the endpoint, PostgreSQL). Lanes run beside each other, so faults of
different lanes overlap; in one lane they come one after the other.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast.torture.endpoint import LIES
from holdfast.torture.parts import HOPS, PARTS

# Kinds of faults, as the table shows them.
KILL = "kill -9"
FREEZE = "stop and continue"
DISK_FULL = "disk full"
SYNC_ERROR = "fsync error"
POWER_CUT = "power cut"
CLOCK = "clock jump"
CLOSED = "closed connections"
HALF_OPEN = "half-open connections"
SLOW = "slow connections"
REFUSED = "refused connections"
TORN = "torn connections"
LYING = "lying endpoint"
POSTGRES = "PostgreSQL restart"

KINDS = (
    KILL,
    FREEZE,
    DISK_FULL,
    SYNC_ERROR,
    POWER_CUT,
    CLOCK,
    CLOSED,
    HALF_OPEN,
    SLOW,
    REFUSED,
    TORN,
    LYING,
    POSTGRES,
)
OF_PARTS = (KILL, FREEZE, DISK_FULL, SYNC_ERROR, POWER_CUT, CLOCK)
OF_HOPS = (CLOSED, HALF_OPEN, SLOW, REFUSED, TORN)

# Seconds of quiet in a lane between two faults: short enough that lanes overlap, long enough that work is done.
QUIET_SECONDS = (1.5, 7.0)
# Before the first fault, so that something is under way.
FIRST_SECONDS = 1.0

ENDPOINT_LANE = "endpoint"
POSTGRES_LANE = "PostgreSQL"
LANES = (*PARTS, *HOPS, ENDPOINT_LANE, POSTGRES_LANE)


@dataclass(frozen=True, slots=True)
class Fault:
    number: int
    at: float  # seconds after the start
    seconds: float  # how long it lasts
    kind: str
    target: str
    details: Mapping[str, Any] = field(default_factory=dict)


def make_schedule(
    seed: int, seconds: float, kinds: Collection[str] = KINDS, lanes: Collection[str] = LANES
) -> list[Fault]:
    """All of them are over when so many seconds are. A lane that is left out leaves the others as they are."""
    faults = [
        fault
        for lane in LANES
        if lane in lanes and (of_lane := [kind for kind in _kinds_of(lane) if kind in kinds])
        for fault in _faults_of(lane, of_lane, seed, seconds)
    ]
    faults.sort(key=lambda fault: (fault.at, fault.target))
    return [replace(fault, number=number) for number, fault in enumerate(faults, 1)]


def _faults_of(lane: str, kinds: Sequence[str], seed: int, seconds: float) -> Iterator[Fault]:
    chance = random.Random(f"{seed} {lane}")
    at = FIRST_SECONDS + chance.uniform(0, QUIET_SECONDS[1])
    while at < seconds:
        kind = chance.choice(kinds)
        lasts, details = _extent(kind, chance)
        if at + lasts <= seconds:
            yield Fault(0, round(at, 3), round(lasts, 3), kind, lane, details)
        at += lasts + chance.uniform(*QUIET_SECONDS)


def _kinds_of(lane: str) -> Sequence[str]:
    if lane in PARTS:
        return OF_PARTS
    if lane in HOPS:
        return OF_HOPS
    return (LYING,) if lane == ENDPOINT_LANE else (POSTGRES,)


def _extent(kind: str, chance: random.Random) -> tuple[float, dict[str, Any]]:
    """How long it lasts, and what else there is to say."""
    match kind:
        case "kill -9":
            return chance.choice((0.0, chance.uniform(0, 2))), {}
        case "power cut":
            return chance.uniform(0, 1), {"chance": chance.randrange(10**9)}
        case "stop and continue":
            # Now and then longer than an ack deadline.
            return chance.choice((chance.uniform(0.2, 4), chance.uniform(0.2, 4), chance.uniform(10, 13))), {}
        case "disk full" | "fsync error":
            return chance.uniform(0.5, 5), {}
        case "clock jump":
            jump = chance.choice((-3600, -600, -30, 30, 600, 3600))
            return chance.uniform(1, 6), {"jump": jump}
        case "closed connections":
            return 0.0, {"reset": chance.random() < 0.5}
        case "half-open connections":
            return chance.uniform(1, 8), {"directions": chance.choice((["up"], ["down"], ["up", "down"]))}
        case "slow connections":
            return chance.uniform(2, 6), {"delay": round(chance.uniform(0.05, 1.0), 3)}
        case "refused connections":
            return chance.uniform(0.5, 5), {}
        case "torn connections":
            return chance.uniform(0.5, 3), {"after": chance.randrange(1, 3000)}
        case "lying endpoint":
            return chance.uniform(1, 6), {"lie": chance.choice(LIES)}
        case "PostgreSQL restart":
            return chance.uniform(0, 3), {"signal": chance.choice(("SIGINT", "SIGQUIT", "SIGKILL"))}
        case _:
            raise ValueError(kind)
