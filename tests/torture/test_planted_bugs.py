"""A run finds what it is there to find: each bug of broken.py by the check that it is for.

Starting a world takes most of the time, so bugs share one where each of them has a check, or a subscription, to itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from holdfast.torture import parts, schedule, subscriptions
from holdfast.torture.run import Asked, torture
from holdfast.torture.schedule import Fault

SEED = 7
SECONDS = 6.0
SETTLE_SECONDS = 12.0

KILLS = (2.5, 4.5)


def kills(part: str, kind: str = schedule.KILL) -> list[Fault]:
    return [Fault(0, at, 0.0, kind, part, {"chance": number}) for number, at in enumerate(KILLS)]


def planted(*bugs: str) -> str:
    return ",".join(f"tests.torture.broken:{bug}" for bug in bugs)


ENDPOINT_FAILS = Fault(0, 0.5, SECONDS - 1, schedule.LYING, schedule.ENDPOINT_LANE, {"lie": "error"})


# Publishes are stored, and their answers lost: they are sent again.
ANSWERS_ARE_LOST = Fault(0, 0.3, 1.0, schedule.HALF_OPEN, parts.CLIENTS_TO_BROKER, {"directions": ["down"]})


@dataclass(frozen=True, slots=True)
class Sick:
    """`signs` are for each bug the check and a part of the text that nothing else in this world can give."""

    plant: Mapping[str, str]
    faults: Sequence[Fault]
    signs: Mapping[str, tuple[str, str]]


WORLDS = {
    "a consumer that acks before its commit, one that marks before its success, a desk that replays twice": Sick(
        {
            parts.PULLING_CONSUMER: planted("acked_before_commit"),
            parts.PUSHED_CONSUMER: planted("marked_before_success"),
            parts.DESK: planted("replayed_twice"),
        },
        [*kills(parts.PULLING_CONSUMER), *kills(parts.PUSHED_CONSUMER)],
        {
            "acked_before_commit": ("lost", f"for {subscriptions.PULLED}"),
            "marked_before_success": ("lost", f"for {subscriptions.PUSHED}"),
            "replayed_twice": ("twice", "was replayed"),
        },
    ),
    "a broker that loses retries, forgets attempts and ignores the order": Sick(
        {parts.BROKER: planted("retry_lost", "attempts_reset", "order_ignored")},
        [*kills(parts.BROKER), ENDPOINT_FAILS],
        {
            "retry_lost": ("lost", ""),
            "attempts_reset": ("attempts", ""),
            "order_ignored": ("order", ""),
        },
    ),
    "a broker that answers publishes before it has committed them": Sick(
        {parts.BROKER: planted("publish_answered_before_commit")},
        kills(parts.BROKER),
        {"publish_answered_before_commit": ("lost", "")},
    ),
    "a broker that does not sync, a consumer that does not deduplicate": Sick(
        {parts.BROKER: planted("not_synced"), parts.PULLING_CONSUMER: planted("not_deduplicated")},
        [*kills(parts.BROKER, schedule.POWER_CUT), ANSWERS_ARE_LOST],
        {
            "not_synced": ("lost", ""),
            "not_deduplicated": ("twice", f"by {subscriptions.PULLED}"),
        },
    ),
}


@pytest.mark.parametrize("world", WORLDS)
async def test_planted_bugs_are_found(tmp_path: Path, world: str) -> None:
    sick = WORLDS[world]
    faults = sorted(sick.faults, key=lambda fault: fault.at)
    asked = Asked(SEED, SECONDS, faults=faults, with_postgres=False, plant=sick.plant, settle_seconds=SETTLE_SECONDS)
    result = await torture(asked, tmp_path, lambda _: None)
    violations = result.verdict.violations
    not_found = {
        bug: sign
        for bug, sign in sick.signs.items()
        if not any(violation.check == sign[0] and sign[1] in violation.text for violation in violations)
    }
    assert not not_found, violations
