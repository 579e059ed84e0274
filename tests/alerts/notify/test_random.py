"""Whatever happens in whatever order (alerts begin and end, silences, trouble, kills): once all is quiet, everybody has
heard of every alert, and of its end after its beginning, and no incident is left open."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.alerts.alert import Alert
from holdfast.alerts.notify.channel import NotSent
from holdfast.alerts.notify.matching import parse_matchers
from holdfast.alerts.notify.notification import Notification
from tests.alerts.notify.telling import DAY, HOUR, Heard, Telling, alert, receiver

STEPS = 40


class Unreliable(Heard):
    """Takes a notification, refuses it, is away, or the process dies before or after it was taken."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self._chance = chance
        self.is_well = False

    async def send(self, notification: Notification) -> NotSent | None:
        fate = 0.0 if self.is_well else self._chance.random()
        if fate > 0.9:
            raise asyncio.CancelledError
        if fate > 0.7:
            return NotSent("away")
        if fate > 0.6:
            return NotSent("no", refused=True)
        await super().send(notification)
        if fate > 0.5:
            raise asyncio.CancelledError
        return None


class World:
    """What fires, as the evaluator knows it."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.firing: dict[str, Alert] = {}
        self.begun: list[Alert] = []

    async def step(self, telling: Telling) -> None:
        telling.clock.advance(0.001)  # nothing begins twice at one time
        now_ns = telling.clock.now_ns()
        names = [(f"Rule{rule}", f"s{number}") for rule in range(3) for number in range(3)]
        begun, ended = [], []
        for rule, subscription in self.chance.sample(names, self.chance.randint(0, 4)):
            one = alert(rule, subscription, at_ns=now_ns)
            if one.key in self.firing:
                ended.append(replace(self.firing.pop(one.key), ended_at_ns=now_ns))
            else:
                self.firing[one.key] = one
                begun.append(one)
        await telling.notifier.accept([*begun, *ended])
        self.begun += begun

    async def end_all(self, telling: Telling) -> None:
        now_ns = telling.clock.now_ns()
        await telling.notifier.accept([replace(one, ended_at_ns=now_ns) for one in self.firing.values()])
        self.firing.clear()


async def silence_something(telling: Telling, chance: random.Random) -> None:
    now_ns = telling.clock.now_ns()
    matchers = parse_matchers([f"rule=Rule{chance.randint(0, 2)}"])
    await telling.notifier.silence(matchers, now_ns, now_ns + chance.randint(1, 600) * 10**9, "a", "b")


async def go_on(telling: Telling, seconds: float) -> None:
    """Kills are what the channels raise."""
    end_ns = telling.clock.now_ns() + round(seconds * 1e9)
    while telling.clock.now_ns() < end_ns:
        try:
            await telling.after((end_ns - telling.clock.now_ns()) / 1e9)
        except asyncio.CancelledError:
            await telling.restart()


@pytest.mark.parametrize("silences", [False, True], ids=["", "silenced"])
@pytest.mark.parametrize("seed", range(4))
async def test_everybody_has_heard_of_everything(seed: int, silences: bool, tmp_path: Path) -> None:
    chance = random.Random(seed)
    joined, incidents = Unreliable(chance), Unreliable(chance)
    telling = await Telling(
        tmp_path,
        receiver(joined, "joined", per_minute=4, group_interval=30, give_up=7 * DAY),
        receiver(incidents, "incidents", joins=False, group_by=("rule", "subscription"), give_up=7 * DAY),
    ).start()
    world = World(chance)
    for _ in range(STEPS):
        await world.step(telling)
        if silences and chance.random() < 0.2:
            await silence_something(telling, chance)
        await go_on(telling, chance.choice([0, 1, 15, 120]))
    joined.is_well = incidents.is_well = True
    await go_on(telling, HOUR)
    await world.end_all(telling)
    await go_on(telling, DAY)
    await telling.stop()

    for heard in (joined, incidents):
        told = first_told(heard.taken)
        if not silences:
            assert told.keys() == {(one.key, one.started_at_ns) for one in world.begun}
        for key, states in told.items():
            assert states[-1] == "resolved", key
            assert "firing" not in states[states.index("resolved") :], key
    assert telling.notifier.ledger.notices == {}
    assert telling.notifier.ledger.sendings == {}
    assert open_incidents(incidents.taken) == set()


def first_told(taken: list[Notification]) -> dict[tuple[str, int], list[str]]:
    """What each alert was said to be, in order. Of an id that comes twice, the first one counts."""
    told: dict[tuple[str, int], list[str]] = defaultdict(list)
    for one in {notification.id: notification for notification in reversed(taken)}.values():
        for said in one.alerts:
            state = "firing" if said.ended_at_ns is None else "resolved"
            told[said.key, said.started_at_ns].insert(0, state)
    return told


def open_incidents(taken: list[Notification]) -> set[str]:
    found: set[str] = set()
    for one in taken:
        if one.firing:
            found.add(one.key)
        else:
            found.discard(one.key)
    return found
