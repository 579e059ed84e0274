"""The window, the rate and the shared capacity: how fast an endpoint is asked."""

from __future__ import annotations

from holdfast.broker.push.capacity import Capacity, Load
from holdfast.broker.push.pace import FIRST_WINDOW, Rate, Window
from holdfast.clock import NANOSECONDS

LONGEST_PAUSE = 1.0


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


def fill(capacity: Capacity, load: Load) -> None:
    while capacity.room(load)[0] > 0:
        capacity.take(load, 0)


def test_however_many_hang_there_is_room_for_one_more() -> None:
    capacity = Capacity(1000)
    taken = []
    for _ in range(8):
        load = Load()
        fill(capacity, load)
        taken.append(load.requests)
    assert taken == [500, 250, 125, 63, 31, 16, 8, 4]


def test_large_bodies_leave_room_too() -> None:
    capacity = Capacity(1000, 100)
    load = Load()
    while capacity.room(load)[1] > 0:
        capacity.take(load, 10)
    assert load.requests == 5
    assert capacity.room(Load()) == (995, 50)


def test_who_found_no_room_is_told_in_turn() -> None:
    capacity, told = Capacity(2), []
    first, second = Load(), Load()
    capacity.take(first, 0)
    capacity.take(second, 0)

    def a() -> None:
        told.append("a")

    def b() -> None:
        told.append("b")

    capacity.tell_when_free(a)
    capacity.tell_when_free(b)
    capacity.tell_when_free(a)
    capacity.give_back(first, 0)
    assert told == ["a"]
    capacity.give_back(second, 0)
    assert told == ["a", "b"]


def test_one_who_does_not_want_his_place_any_more_holds_up_nobody() -> None:
    capacity, told = Capacity(1), []
    load = Load()
    capacity.take(load, 0)
    capacity.tell_when_free(lambda: None)
    capacity.tell_when_free(lambda: told.append("b"))
    capacity.give_back(load, 0)
    capacity.take(load, 0)
    capacity.give_back(load, 0)
    assert told == ["b"]
