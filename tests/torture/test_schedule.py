"""A seed reproduces what is done and what is published; and every kind of fault gets its turn."""

from __future__ import annotations

from itertools import groupby, islice, pairwise

from holdfast.torture import parts, schedule, traffic
from holdfast.torture.schedule import KINDS, LANES, make_schedule


def test_the_same_seed_gives_the_same_faults() -> None:
    assert make_schedule(3, 120) == make_schedule(3, 120)
    assert make_schedule(3, 120) != make_schedule(4, 120)


def test_a_longer_run_begins_as_a_shorter_one() -> None:
    short = make_schedule(3, 60)
    begins_alike = [(fault.at, fault.target) for fault in make_schedule(3, 600) if fault.at < 40]
    assert begins_alike == [(fault.at, fault.target) for fault in short if fault.at < 40]


def test_a_lane_that_is_left_out_leaves_the_others_as_they_are() -> None:
    def of_the_desk(lanes: tuple[str, ...]) -> list[float]:
        return [fault.at for fault in make_schedule(3, 120, lanes=lanes) if fault.target == parts.DESK]

    assert of_the_desk(LANES) == of_the_desk((parts.DESK,)) != []


def test_every_kind_and_every_lane_has_its_turn() -> None:
    faults = make_schedule(1, 300)
    assert {fault.kind for fault in faults} == set(KINDS)
    assert {fault.target for fault in faults} == set(LANES)
    assert [fault.number for fault in faults] == list(range(1, len(faults) + 1))


def test_in_one_lane_they_come_one_after_the_other_and_all_end_in_time() -> None:
    faults = sorted(make_schedule(5, 200), key=lambda fault: fault.target)
    for _, of_lane in groupby(faults, key=lambda fault: fault.target):
        assert all(before.at + before.seconds < after.at for before, after in pairwise(of_lane))
    assert max(fault.at + fault.seconds for fault in faults) <= 200


def test_only_some_kinds() -> None:
    faults = make_schedule(1, 60, kinds=(schedule.POWER_CUT,))
    assert {fault.kind for fault in faults} == {schedule.POWER_CUT}
    assert len(faults) > 20


def test_the_same_seed_gives_the_same_messages() -> None:
    def first(seed: int) -> list[traffic.Planned]:
        return [planned for _, batch in islice(traffic.batches(seed, "k1"), 300) for planned in batch]

    assert first(8) == first(8) != first(9)
    assert [planned.n for planned in first(8)] == list(range(1, len(first(8)) + 1))
    assert any(planned.poison for planned in first(8))
    assert any(planned.flaky for planned in first(8))


def test_a_whim_depends_on_what_it_is_about_alone() -> None:
    assert traffic.whim(1, "sub", "a-1", 1) == traffic.whim(1, "sub", "a-1", 1)
    assert traffic.whim(1, "sub", "a-1", 1) != traffic.whim(1, "sub", "a-1", 2)
