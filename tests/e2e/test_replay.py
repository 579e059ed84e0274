"""Replays by a real desk over a real broker. `make proof ARGS=replay` is the long form of the first one."""

from __future__ import annotations

from tests.proof.replay import most_within, prove_replay
from tests.support.process import Launcher


def test_each_failure_arrives_once_at_the_failing_subscription_at_its_rate_though_the_desk_is_killed(
    launcher: Launcher,
) -> None:
    replayed = prove_replay(launcher, failures=1500, per_second=150, kills=2, within=60)
    assert not replayed.problems, f"\n{replayed}"


def test_the_count_within_a_second_is_right() -> None:
    assert most_within([], 1.0) == 0
    assert most_within([0.0, 0.5, 0.999, 1.0, 1.4], 1.0) == 4
