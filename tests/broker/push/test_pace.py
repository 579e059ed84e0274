"""The window, the rate and the shared capacity: how fast an endpoint is asked."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from holdfast.broker.push import capacity as capacities
from holdfast.broker.push.capacity import SMALL_BYTES, Capacity, Load, Place
from holdfast.broker.push.pace import FIRST_WINDOW, Rate, Window
from holdfast.clock import NANOSECONDS
from tests.broker.helpers import settle_down

LONGEST_PAUSE = 1.0
LARGE = SMALL_BYTES + 1


def test_the_window_doubles_with_every_round_of_successes_up_to_its_limit() -> None:
    window = Window(100, LONGEST_PAUSE)
    sizes = [window.size]
    while window.size < 100:
        for _ in range(window.size):
            window.succeeded()
        sizes.append(window.size)
    assert sizes == [FIRST_WINDOW, 8, 16, 32, 64, 100]


def test_a_limit_below_the_first_window_holds_from_the_start() -> None:
    window = Window(2, LONGEST_PAUSE)
    window.succeeded()
    assert window.size == 2


def test_a_limit_that_is_lowered_holds_at_once() -> None:
    window = Window(100, LONGEST_PAUSE)
    window.limit(1)
    assert window.size == 1


def test_requests_of_one_round_that_fail_together_halve_the_window_once() -> None:
    window = Window(100, LONGEST_PAUSE)
    for _ in range(60):
        window.succeeded()
    sent_in = window.round
    for _ in range(64):
        window.failed(sent_in, 0)
    assert window.size == 32
    window.failed(window.round, 0)
    assert window.size == 16


def test_an_endpoint_that_fails_even_one_at_a_time_is_given_growing_pauses() -> None:
    window = Window(1, LONGEST_PAUSE)
    pauses = []
    for _ in range(6):
        window.failed(window.round, 0)
        pauses.append(window.paused_until_ns / NANOSECONDS)
    for pause, nominal in zip(pauses, [0.1, 0.2, 0.4, 0.8, 1.0, 1.0], strict=True):
        assert nominal * 0.89 <= pause <= nominal
    assert window.size == 1


def test_a_success_ends_the_pause_and_the_next_failure_starts_with_a_short_one() -> None:
    window = Window(1, LONGEST_PAUSE)
    for _ in range(5):
        window.failed(window.round, 0)
    window.succeeded()
    assert window.paused_until_ns == 0
    window.failed(window.round, 0)
    assert window.paused_until_ns <= 0.1 * NANOSECONDS


def test_a_rate_lets_through_what_it_says_over_a_long_time() -> None:
    rate, sent, now_ns = Rate(50, 0), 0, 0
    while now_ns < 10 * NANOSECONDS:
        room = rate.room(now_ns, 16)
        rate.took(room)
        sent += room
        if room == 0:
            assert rate.next_ns() > now_ns
            now_ns = rate.next_ns()
    assert 500 <= sent <= 506


def test_a_rate_below_one_a_second_waits_its_time() -> None:
    rate = Rate(0.5, 0)
    assert rate.room(0, 16) == 1
    rate.took(1)
    assert rate.room(NANOSECONDS, 16) == 0
    assert rate.room(2 * NANOSECONDS, 16) == 1


def test_a_long_silence_does_not_save_up_a_flood() -> None:
    rate = Rate(100, 0)
    assert rate.room(3600 * NANOSECONDS, 1000) == 10


def test_a_clock_that_is_set_back_stops_no_one_for_long() -> None:
    rate = Rate(10, 100 * NANOSECONDS)
    rate.took(rate.room(100 * NANOSECONDS, 1))
    assert rate.room(0, 1) == 0
    assert rate.room(NANOSECONDS // 9, 1) == 1


def test_no_rate_means_no_limit() -> None:
    assert Rate(0, 0).room(0, 1000) == 1000


def fill(capacity: Capacity, load: Load) -> list[Place]:
    places = []
    while capacity.room(load)[0] > 0:
        places.append(capacity.take(load))
    return places


async def test_the_first_to_hang_leaves_half_to_the_others() -> None:
    capacity, load = Capacity(1000), Load()
    fill(capacity, load)
    assert load.requests == 500
    capacity.stop()


async def test_room_that_is_taken_all_at_once_leaves_as_much() -> None:
    capacity, load = Capacity(1000), Load()
    for _ in range(capacity.room(load)[0]):
        capacity.take(load)
    assert load.requests == 500
    assert capacity.room(load)[0] <= 0
    capacity.stop()


async def test_however_many_hang_everyone_may_have_one_request() -> None:
    capacity = Capacity(16)
    loads = [Load() for _ in range(1000)]
    for load in loads:
        fill(capacity, load)
    assert [load.requests for load in loads[:6]] == [8, 4, 2, 1, 1, 1]
    assert {load.requests for load in loads[4:]} == {1}
    assert capacity.room(Load())[0] == 1
    assert capacity.room(loads[0])[0] < 0
    capacity.stop()


async def test_what_ended_is_free_again() -> None:
    capacity, load = Capacity(10), Load()
    places = fill(capacity, load)
    assert await capacity.take_bytes(places[0], LARGE, 1)
    for place in places:
        capacity.give_back(place)
    assert load == Load()
    assert capacity.room(load) == (5, 64_000_000)
    capacity.stop()


async def test_requests_that_take_long_no_longer_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or endpoints that hang would leave less and less for those that answer."""
    monkeypatch.setattr(capacities, "STUCK_SECONDS", 0.05)
    capacity, hanging = Capacity(10), [Load() for _ in range(30)]
    places = [place for load in hanging for place in fill(capacity, load)]
    told = asyncio.Event()
    capacity.tell_when_free(told.set)
    await asyncio.wait_for(told.wait(), 5)
    async with asyncio.timeout(5):
        while capacity.room(Load())[0] < 5:
            await asyncio.sleep(0.01)
    for place in places:
        capacity.give_back(place)
    assert capacity.room(Load())[0] == 5


async def test_who_found_no_room_is_told_in_turn() -> None:
    capacity, told = Capacity(2), list[str]()
    places = [capacity.take(Load()) for _ in range(3)]
    for name in "abcdefgh":
        capacity.tell_when_free(partial(told.append, name))
    capacity.give_back(places[0])
    assert told == list("abcd")
    capacity.give_back(places[1])
    capacity.give_back(places[2])
    assert told == list("abcdefgh")
    capacity.stop()


async def test_large_bodies_wait_for_each_other_and_small_ones_do_not() -> None:
    capacity, load = Capacity(1000, LARGE), Load()
    first, second, third, small = [capacity.take(load) for _ in range(4)]
    assert await capacity.take_bytes(first, LARGE, 1)
    waiting = asyncio.create_task(capacity.take_bytes(second, LARGE, 10))
    await settle_down()
    assert not waiting.done()
    assert await capacity.take_bytes(small, SMALL_BYTES, 0)
    assert not await capacity.take_bytes(third, LARGE, 0.01)  # it does not want to wait so long
    capacity.give_back(first)
    assert await waiting
    capacity.give_back(second)
    assert capacity.room(Load())[1] == (LARGE + 1) // 2
    capacity.stop()
