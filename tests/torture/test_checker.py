"""The checker on histories made by hand: what is right has no violation, and each thing that is wrong has its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.torture.checker import check
from holdfast.torture.history import History, read_history
from holdfast.torture.subscriptions import ALL, CONSUMED, ENDPOINT, IN_ORDER, ONCE, PULLED, PUSHED, RECEIVED


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    with History(tmp_path / "history.ndjson") as history:
        yield history


def publish(history: History, *names: str, first_id: int = 1) -> None:
    history.publishing(names)
    history.published(names, [str(first_id + number) for number in range(len(names))])


def receive(
    history: History, sub: str, name: str, message_id: str, attempt: int = 1, replay: str = "", original: str = "1"
) -> None:
    told = {"holdfast-replay-id": replay, "holdfast-original-message-id": original} if replay else {}
    history.delivery(sub, message_id, attempt, name.partition("-")[0], {"name": name, **told})


def ack(history: History, sub: str, name: str, message_id: str) -> None:
    history.acking(sub, message_id, name)
    history.acked(sub, message_id, name)


def handle(history: History, sub: str, name: str, message_id: str) -> None:
    receive(history, sub, name, message_id)
    ack(history, sub, name, message_id)


def end(history: History, *names: str, owed: int = 0) -> None:
    """As it is when each was applied once."""
    for sub in CONSUMED:
        for name in names:
            history.add("document", consumer=sub, name=name, times=1)
        for key in {name.partition("-")[0] for name in names}:
            numbers = [int(name.partition("-")[2]) for name in names if name.startswith(key)]
            history.add("total", consumer=sub, key=key, events=len(numbers), sum=sum(numbers))
    for sub in ALL:
        history.add("owed", sub=sub, count=owed)


def found(history: History) -> list[tuple[str, str]]:
    return [(violation.check, violation.text) for violation in check(read_history(history.path)).violations]


def right(history: History) -> None:
    """Two messages of one key, everywhere once."""
    publish(history, "a-1", "a-2")
    for sub in RECEIVED:
        handle(history, sub, "a-1", "1")
        handle(history, sub, "a-2", "2")


def test_all_is_right(history: History) -> None:
    right(history)
    end(history, "a-1", "a-2")
    assert found(history) == []


def test_at_least_once_is_allowed_to_come_again(history: History) -> None:
    right(history)
    receive(history, ENDPOINT, "a-1", "1", attempt=2)
    receive(history, IN_ORDER, "a-1", "1", attempt=2)
    end(history, "a-1", "a-2")
    assert found(history) == []


def test_lost(history: History) -> None:
    publish(history, "a-1")
    for sub in (ENDPOINT, ONCE):
        handle(history, sub, "a-1", "1")
    end(history, "a-1")
    assert found(history) == [("lost", f"a-1 for {IN_ORDER}")]


def test_an_effect_is_lost(history: History) -> None:
    right(history)
    end(history, "a-1")
    assert found(history) == [("lost", f"a-2 for {PUSHED}"), ("lost", f"a-2 for {PULLED}")]


def test_what_is_owed_is_not_lost_but_stuck(history: History) -> None:
    publish(history, "a-1")
    end(history, "a-1", owed=1)
    assert {name for name, _ in found(history)} == {"stuck"}
    assert len(found(history)) == len(ALL)


def test_what_the_desk_has_is_not_lost_but_stuck(history: History) -> None:
    publish(history, "a-1")
    for sub in RECEIVED:
        handle(history, sub, "a-1", "1")
    history.add("failure", id=7, status="permanent_failure", sub=PUSHED, name="a-1", reason="X")
    end(history)
    assert found(history) == [("stuck", "failure 7 of a-1 is still permanent_failure")]


def test_a_publish_without_an_answer_may_be_lost_or_not(history: History) -> None:
    history.publishing(["a-1"])
    history.publish_unclear(["a-1"], "DeadlineExceeded")
    end(history)
    assert found(history) == []
    receive(history, ENDPOINT, "a-1", "1")
    assert found(history) == []


def test_counted_twice(history: History) -> None:
    right(history)
    end(history, "a-1", "a-2")
    history.add("document", consumer=PULLED, name="a-1", times=2)
    assert ("twice", f"a-1 counted 2 times by {PULLED}") in found(history)


def test_half_of_a_transaction(history: History) -> None:
    right(history)
    end(history, "a-1", "a-2")
    history.add("total", consumer=PUSHED, key="a", events=1, sum=1)
    [(name, text)] = found(history)
    assert name == "twice"
    assert "their total says 1" in text


def test_again_after_its_ack_was_confirmed(history: History) -> None:
    right(history)
    receive(history, ONCE, "a-1", "1", attempt=2)
    end(history, "a-1", "a-2")
    assert found(history) == [("twice", f"a-1 came to {ONCE} after its ack was confirmed")]


def test_again_after_an_ack_without_an_answer(history: History) -> None:
    publish(history, "a-1")
    for sub in (ENDPOINT, IN_ORDER):
        handle(history, sub, "a-1", "1")
    receive(history, ONCE, "a-1", "1")
    history.acking(ONCE, "1", "a-1")
    receive(history, ONCE, "a-1", "1", attempt=2)
    end(history, "a-1")
    assert found(history) == []


@pytest.mark.parametrize(
    ("second", "text"),
    [
        (("r1", "6"), f"replay of a-1 was sent to {ENDPOINT} as two messages"),
        (("r2", "6"), f"a-1 was replayed to {ENDPOINT} again"),
    ],
)
def test_replayed_twice(history: History, second: tuple[str, str], text: str) -> None:
    right(history)
    receive(history, ENDPOINT, "a-1", "5", replay="r1")
    receive(history, ENDPOINT, "a-1", second[1], replay=second[0])
    end(history, "a-1", "a-2")
    assert found(history) == [("twice", text)]


def test_a_replay_that_failed_is_sent_again(history: History) -> None:
    right(history)
    receive(history, ENDPOINT, "a-1", "5", replay="r1")
    receive(history, ENDPOINT, "a-1", "5", attempt=2, replay="r1")
    history.refused(ENDPOINT, "5", "a-1")
    receive(history, ENDPOINT, "a-1", "6", replay="r2")
    end(history, "a-1", "a-2")
    assert found(history) == []


def test_two_messages_that_carry_one_event_are_replayed_each(history: History) -> None:
    right(history)
    receive(history, ENDPOINT, "a-1", "5", replay="r1", original="1")
    receive(history, ENDPOINT, "a-1", "6", replay="r2", original="2")
    end(history, "a-1", "a-2")
    assert found(history) == []


def test_out_of_order(history: History) -> None:
    publish(history, "a-1", "a-2")
    for sub in (ENDPOINT, ONCE):
        handle(history, sub, "a-1", "1")
        handle(history, sub, "a-2", "2")
    handle(history, IN_ORDER, "a-2", "2")
    handle(history, IN_ORDER, "a-1", "1")
    end(history, "a-1", "a-2")
    assert found(history) == [("order", f"a-1 came to {IN_ORDER} after a-2")]


def test_too_early(history: History) -> None:
    publish(history, "a-1", "a-2")
    for sub in (IN_ORDER, ONCE):
        handle(history, sub, "a-1", "1")
        handle(history, sub, "a-2", "2")
    receive(history, ENDPOINT, "a-1", "1")
    receive(history, ENDPOINT, "a-2", "2")
    ack(history, ENDPOINT, "a-1", "1")
    ack(history, ENDPOINT, "a-2", "2")
    end(history, "a-1", "a-2")
    assert found(history) == [("order", f"a-2 came to {ENDPOINT}: a-1 was not acked")]


def test_what_was_dead_lettered_lets_the_next_one_go(history: History) -> None:
    publish(history, "a-1", "a-2")
    for sub in (IN_ORDER, ONCE):
        handle(history, sub, "a-1", "1")
        handle(history, sub, "a-2", "2")
    receive(history, ENDPOINT, "a-1", "1")
    history.refused(ENDPOINT, "1", "a-1")
    handle(history, ENDPOINT, "a-2", "2")
    receive(history, ENDPOINT, "a-1", "9", replay="r1")
    ack(history, ENDPOINT, "a-1", "9")
    end(history, "a-1", "a-2")
    assert found(history) == []


def test_attempts_gone_back(history: History) -> None:
    right(history)
    receive(history, ENDPOINT, "a-2", "2", attempt=3)
    receive(history, ENDPOINT, "a-2", "2", attempt=3)
    receive(history, ENDPOINT, "a-2", "2", attempt=2)
    end(history, "a-1", "a-2")
    assert found(history) == [("attempts", f"a-2 came to {ENDPOINT}: attempt 2 after 3")]


def test_what_nobody_published(history: History) -> None:
    right(history)
    handle(history, ENDPOINT, "b-1", "8")
    end(history, "a-1", "a-2")
    history.add("document", consumer=PULLED, name="b-2", times=1)
    history.add("total", consumer=PULLED, key="b", events=1, sum=2)
    assert found(history) == [
        ("unexpected", f"b-1 came to {ENDPOINT}; nobody published it"),
        ("unexpected", f"{PULLED} has counted b-2; nobody published it"),
    ]


def test_one_id_for_two_messages(history: History) -> None:
    right(history)
    publish(history, "a-3", first_id=2)
    for sub in RECEIVED:
        handle(history, sub, "a-3", "3")
    end(history, "a-1", "a-2", "a-3")
    assert ("unexpected", "id 2 was given to a-2 and to a-3") in found(history)


def test_trouble_is_told_as_it_is(history: History) -> None:
    right(history)
    history.trouble("unexpected", "broker ended by itself with 1")
    history.trouble("stuck", "desk does not stop")
    end(history, "a-1", "a-2")
    assert found(history) == [("unexpected", "broker ended by itself with 1"), ("stuck", "desk does not stop")]
