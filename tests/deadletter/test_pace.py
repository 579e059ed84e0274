"""No second sees more than its share, wherever it begins."""

from __future__ import annotations

import math

import pytest

from holdfast.clock import NANOSECONDS
from holdfast.deadletter.pace import Pace


def starts(per_second: float, seconds: float, step_ns: int) -> list[int]:
    """When each of endlessly many was let through, looking every `step_ns`."""
    pace, found = Pace(per_second), []
    for now_ns in range(0, round(seconds * NANOSECONDS), step_ns):
        room = pace.room(now_ns)
        pace.took(now_ns, room)
        found += [now_ns] * room
    return found


@pytest.mark.parametrize("per_second", [0.5, 1, 2.5, 7, 100, 1234, 50_000])
def test_no_second_has_too_many_and_the_whole_has_enough(per_second: float) -> None:
    found = starts(per_second, 10, 1_000_000)
    assert len(found) >= 0.9 * per_second * 10
    first = 0
    for last, at in enumerate(found):
        while found[first] <= at - NANOSECONDS:
            first += 1
        assert last - first + 1 <= math.ceil(per_second)


def test_it_tells_when_there_is_room_again() -> None:
    pace = Pace(10)
    pace.took(5, pace.room(5))
    assert pace.room(5) == 0
    assert pace.room(pace.next_ns() - 1) == 0
    assert pace.room(pace.next_ns()) == 1


def test_what_came_in_parts_is_counted_together() -> None:
    pace = Pace(100)
    assert pace.room(0) == 10
    pace.took(0, 4)
    assert pace.room(1) == 6
    pace.took(1, 7)  # somebody took more than there was room for
    assert pace.room(2) == 0
