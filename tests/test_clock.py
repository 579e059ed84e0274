"""The system's clock, when somebody sets it while Holdfast runs."""

from __future__ import annotations

import time
from dataclasses import dataclass

import pytest

from holdfast import clock
from holdfast.clock import NANOSECONDS, SystemClock

START_NS = 1_770_000_000 * NANOSECONDS
HOUR = 3600.0


@dataclass
class Machine:
    """`wall` may be set; `steady` only goes on."""

    wall: int = START_NS
    steady: int = 5 * NANOSECONDS

    def pass_on(self, seconds: float) -> None:
        self.wall += round(seconds * NANOSECONDS)
        self.steady += round(seconds * NANOSECONDS)

    def set_by(self, seconds: float) -> None:
        self.wall += round(seconds * NANOSECONDS)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()
    monkeypatch.setattr(time, "time_ns", lambda: machine.wall)
    monkeypatch.setattr(clock, "_steady_ns", lambda: machine.steady)
    return machine


def told(system: SystemClock) -> float:
    """Seconds since the start."""
    return (system.now_ns() - START_NS) / NANOSECONDS


def test_it_is_the_time_of_day(machine: Machine) -> None:
    system = SystemClock()
    assert system.now_ns() == machine.wall
    machine.pass_on(1e6)
    machine.set_by(0.4)  # as time servers correct it
    assert system.now_ns() == machine.wall


def test_a_leap_that_is_taken_back_was_none(machine: Machine) -> None:
    system = SystemClock()
    for hours in (1, -1):
        machine.set_by(hours * HOUR)
        for _ in range(20):
            machine.pass_on(1)
            system.now_ns()
        machine.set_by(-hours * HOUR)
    assert told(system) == pytest.approx(40, abs=20)  # half speed, while the other was behind
    machine.pass_on(60)
    assert system.now_ns() == machine.wall


def test_a_leap_forward_that_lasts_is_believed(machine: Machine) -> None:
    system = SystemClock()
    machine.set_by(HOUR)
    assert told(system) == 0
    machine.pass_on(29)
    assert told(system) == 29
    machine.pass_on(1)
    assert told(system) == HOUR + 30


def test_a_leap_that_is_believed_says_nothing_of_another(machine: Machine) -> None:
    system = SystemClock()
    machine.set_by(5)
    assert told(system) == 0
    machine.pass_on(29)
    system.now_ns()
    machine.set_by(HOUR)
    machine.pass_on(2)
    assert told(system) == 31
    machine.set_by(-HOUR)
    machine.pass_on(30)
    system.now_ns()
    machine.pass_on(30)
    assert system.now_ns() == machine.wall


def test_when_it_was_set_back_time_goes_on_slowly_until_they_meet(machine: Machine) -> None:
    system = SystemClock()
    machine.set_by(-HOUR)
    machine.pass_on(10)
    assert told(system) == 5
    machine.pass_on(2 * HOUR)
    assert told(system) == pytest.approx(HOUR + 10)
    assert system.now_ns() == machine.wall


def test_it_never_goes_back(machine: Machine) -> None:
    system = SystemClock()
    before = system.now_ns()
    for step in (HOUR, -2 * HOUR, 0.1, -0.2, 40, -HOUR, 3 * HOUR):
        machine.set_by(step)
        machine.pass_on(7)
        now = system.now_ns()
        assert now > before
        before = now


async def test_a_sleep_ends_though_the_clock_was_set_back(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        machine.pass_on(seconds)

    monkeypatch.setattr("asyncio.sleep", sleep)
    system = SystemClock()
    machine.set_by(-HOUR)
    await system.sleep_until(START_NS + 10 * NANOSECONDS)
    assert sum(slept) == pytest.approx(20, abs=1)
