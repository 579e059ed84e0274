"""The pace of a replay: never above its rate and a tenth in any second, smooth, and not slower than it was set."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from holdfast.clock import NANOSECONDS
from holdfast.deadletter.replay.pacing import Pacer, RecentRate

START = 1_700_000_000 * NANOSECONDS
MILLISECOND = 1_000_000


def sending(per_second: float, seconds: float, took_ns: Callable[[], int], late_ns: Callable[[], int]) -> list[int]:
    """When each message went out, where a publish takes so long and a sleep ends so late."""
    now, end = START, START + round(seconds * NANOSECONDS)
    pacer = Pacer(per_second, now)
    sent: list[int] = []
    while now < end:
        if count := pacer.allowed(now):
            took = took_ns()
            # Nobody knows when, between the beginning and the end of a publish, the broker stamps a message.
            sent += [now + random.Random(now).randrange(took + 1)] * count
            pacer.sent(count, now, now + took)
            now += took
        else:
            now = max(now + 1, pacer.next_ns(now)) + late_ns()
    return sent


def most_in_a_second(sent: Sequence[int]) -> int:
    times, first, most = sorted(sent), 0, 0
    for last, when in enumerate(times):
        while when - times[first] >= NANOSECONDS:
            first += 1
        most = max(most, last - first + 1)
    return most


@pytest.mark.parametrize("per_second", [1, 5, 7.5, 50, 333, 2000, 20_000])
@pytest.mark.parametrize("slowest_ms", [1, 30, 400])
def test_no_second_has_more_than_a_tenth_above_the_rate(per_second: float, slowest_ms: int) -> None:
    chance = random.Random(int(per_second) + slowest_ms)
    sent = sending(
        per_second, 20, lambda: chance.randrange(slowest_ms * MILLISECOND), lambda: chance.randrange(2 * MILLISECOND)
    )
    assert most_in_a_second(sent) <= per_second * 1.1


@pytest.mark.parametrize("per_second", [5, 50, 2000, 20_000])
def test_the_rate_is_kept_although_sleeps_end_late_and_a_disk_is_slow_now_and_then(per_second: float) -> None:
    chance = random.Random(7)
    took = [3 * MILLISECOND] * 499 + [300 * MILLISECOND] if per_second >= 50 else [3 * MILLISECOND]
    sent = sending(per_second, 60, lambda: chance.choice(took), lambda: chance.randrange(2 * MILLISECOND))
    assert len(sent) / 60 == pytest.approx(per_second, rel=0.05)


def test_nothing_is_made_up_for_at_once() -> None:
    pacer = Pacer(100, START)
    assert pacer.allowed(START) == 0  # two go together
    later = START + 60 * NANOSECONDS
    assert pacer.allowed(later) <= 5


def test_without_a_rate_there_is_no_bound() -> None:
    pacer = Pacer(0, START)
    pacer.sent(1000, START, START)
    assert pacer.allowed(START) > 0
    assert pacer.next_ns(START) == START


def test_the_recent_rate_is_of_the_last_seconds() -> None:
    rate = RecentRate()
    assert rate.per_second(START) == 0
    for second in range(10):
        rate.sent(20, START + second * NANOSECONDS)
    assert rate.per_second(START + 10 * NANOSECONDS) == pytest.approx(20, rel=0.1)
    assert rate.per_second(START + 100 * NANOSECONDS) == 0
