"""What receivers are told and when: gathered, repeated, limited, silenced, tried again, and kept over kills."""

from __future__ import annotations

import asyncio
import logging

import pytest

from holdfast.alerts.alert import Severity
from holdfast.alerts.notify.channel import NotSent
from holdfast.errors import NotFound, StorageUnavailable
from tests.alerts.notify.telling import DAY, HOUR, MINUTE, Heard, Start, alert, receiver

# Gathering.


async def test_what_begins_together_is_told_together_and_so_is_its_end(start: Start) -> None:
    heard = Heard()
    telling = await start(receiver(heard))
    await telling.begin(alert(subscription="a"))
    await telling.after(9)
    assert heard.told == []
    await telling.begin(alert(subscription="b"))
    await telling.after(1)
    assert heard.told == [("change", 2, 0)]
    assert [one.summary for one in heard.taken[0].alerts] == ["a is late", "b is late"]
    await telling.end(alert(subscription="a"))
    await telling.after(59)
    assert len(heard.taken) == 1  # an interval between two of one group
    await telling.after(1)
    assert heard.told[1:] == [("change", 1, 1)]
    await telling.end(alert(subscription="b"))
    await telling.after(2 * MINUTE)
    assert heard.told[2:] == [("change", 0, 1)]
    await telling.after(DAY)
    assert len(heard.taken) == 3
    assert telling.notifier.ledger.notices == {}
    assert telling.notifier.ledger.groups == {}
    assert telling.notifier.ledger.alerts == {}


async def test_a_thousand_subscriptions_in_an_outage_are_one_message(start: Start) -> None:
    heard = Heard()
    telling = await start(receiver(heard))
    await telling.begin(*(alert(subscription=f"s{number}") for number in range(1000)))
    await telling.after(HOUR)
    [told] = heard.taken
    assert (told.firing, len(told.alerts), told.not_listed) == (1000, 50, 950)
    await telling.end(*(alert(subscription=f"s{number}") for number in range(1000)))
    await telling.after(HOUR)
    assert heard.told[1:] == [("change", 0, 1000)]


async def test_groups_are_by_the_labels_of_the_settings(start: Start) -> None:
    by_rule, by_subscription, all_in_one = Heard(), Heard(), Heard()
    telling = await start(
        receiver(by_rule, "a"),
        receiver(by_subscription, "b", group_by=("subscription", "severity")),
        receiver(all_in_one, "c", group_by=()),
    )
    await telling.begin(alert("One", "x"), alert("One", "y"), alert("Two", "x"))
    await telling.after(10)
    assert [dict(one.group) for one in by_rule.taken] == [{"rule": "One"}, {"rule": "Two"}]
    assert [one.group["subscription"].rpartition("/")[2] for one in by_subscription.taken] == ["x", "y"]
    assert [(one.firing, dict(one.group)) for one in all_in_one.taken] == [(3, {})]


async def test_receivers_hear_of_what_they_want(start: Start) -> None:
    critical, of_a, not_two = Heard(), Heard(), Heard()
    telling = await start(
        receiver(critical, "a", match=['severity="critical"']),
        receiver(of_a, "b", match=['subscription=~".*/a"']),
        receiver(not_two, "c", match=["rule!=Two"]),
    )
    await telling.begin(alert("One", "a"), alert("Two", "b", Severity.CRITICAL))
    await telling.after(10)
    assert [[one.rule for said in heard.taken for one in said.alerts] for heard in (critical, of_a, not_two)] == [
        ["Two"],
        ["One"],
        ["One"],
    ]


async def test_the_same_told_twice_tells_once(start: Start) -> None:
    heard = Heard()
    telling = await start(receiver(heard))
    await telling.begin(alert())
    await telling.begin(alert(at_ns=5), alert())  # after a crash it says a later time
    await telling.after(HOUR)
    await telling.end(alert())
    await telling.end(alert())
    await telling.after(HOUR)
    assert heard.told == [("change", 1, 0), ("change", 0, 1)]
    assert len(await telling.notifier.history(10)) == 1


async def test_what_fires_on_is_told_again_after_a_while(start: Start) -> None:
    heard = Heard()
    telling = await start(receiver(heard))
    await telling.begin(alert())
    await telling.after(4 * HOUR + 9)
    assert heard.told == [("change", 1, 0)]
    await telling.after(1)
    assert heard.told[1:] == [("reminder", 1, 0)]
    assert heard.taken[1].id != heard.taken[0].id
    assert heard.taken[1].key == heard.taken[0].key
    assert "still: " in heard.taken[1].title
    await telling.after(8 * HOUR)
    assert len(heard.taken) == 4


async def test_one_that_began_and_ended_while_nobody_could_be_told_is_told_all_the_same(start: Start) -> None:
    heard = Heard()
    telling = await start(receiver(heard))
    await telling.begin(alert())
    await telling.end(alert())
    await telling.after(10)
    assert heard.told == [("change", 0, 1)]
    assert heard.taken[0].opens


async def test_who_does_not_want_to_hear_of_ends_does_not(start: Start) -> None:
    heard = Heard()
    telling = await start(receiver(heard, resolved=False))
    await telling.begin(alert())
    await telling.after(HOUR)
    await telling.end(alert())
    await telling.after(HOUR)
    assert heard.told == [("change", 1, 0)]
    assert telling.notifier.ledger.notices == {}


# Limits.


async def test_more_than_a_receiver_may_hear_becomes_one_message_and_nothing_is_lost(start: Start) -> None:
    heard = Heard()
    telling = await start(receiver(heard, per_minute=3))
    await telling.begin(*(alert(f"Rule{number}") for number in range(3)))
    await telling.after(10)
    assert [one.firing for one in heard.taken] == [1, 1, 1]
    await telling.begin(*(alert(f"More{number}") for number in range(40)))
    await telling.after(59)
    assert len(heard.taken) == 3
    assert telling.notifier.waiting("ops") == 40
    await telling.after(1)
    assert [one.firing for one in heard.taken[3:]] == [40]
    assert telling.notifier.waiting("ops") == 0
    await telling.end(*(alert(f"More{number}") for number in range(40)))
    await telling.after(5 * MINUTE)
    assert sum(one.resolved for one in heard.taken) == 40


async def test_incidents_are_never_joined_but_wait(start: Start) -> None:
    heard = Heard()
    telling = await start(receiver(heard, per_minute=3, joins=False))
    await telling.begin(*(alert(f"Rule{number}") for number in range(8)))
    await telling.after(10)
    assert len(heard.taken) == 3
    await telling.after(2 * MINUTE)
    assert [one.firing for one in heard.taken] == [1] * 8


# Trouble.


async def test_it_is_tried_again_ever_more_rarely_with_the_same_words(start: Start) -> None:
    heard = Heard()
    telling = await start(receiver(heard))
    heard.answers += [NotSent("away")] * 4
    await telling.begin(alert())
    await telling.after(10)
    began = telling.clock.now_ns()
    for wait in (5, 10, 20):
        tries = len(heard.tried)
        await telling.after(wait - 1)
        assert len(heard.tried) == tries
        await telling.after(1)
        assert len(heard.tried) == tries + 1
    await telling.begin(alert("Another"))
    await telling.after(39)
    assert len(heard.tried) == 4  # who is away is not asked for others either
    await telling.after(5 * MINUTE)
    assert len({one.id for one in heard.tried[:5]}) == 1
    assert heard.tried[4] == heard.tried[0]
    assert heard.told == [("change", 1, 0)] * 2
    assert telling.clock.now_ns() > began
    assert telling.counts() == {("ops", "sent"): 2, ("ops", "retried"): 4}


async def test_who_says_when_to_come_back_is_heeded(start: Start) -> None:
    heard = Heard()
    telling = await start(receiver(heard))
    heard.answers.append(NotSent("429", retry_after=90.0))
    await telling.begin(alert())
    await telling.after(10 + 89)
    assert len(heard.tried) == 1
    await telling.after(1)
    assert heard.told == [("change", 1, 0)]


async def test_a_refusal_holds_nobody_else_up(start: Start) -> None:
    heard = Heard()
    telling = await start(receiver(heard))
    heard.answers.append(NotSent("invalid_payload", refused=True))
    await telling.begin(alert("One"), alert("Two"))
    await telling.after(10)
    assert [one.alerts[0].rule for one in heard.taken] == ["Two"]
    await telling.after(MINUTE)
    assert [one.alerts[0].rule for one in heard.taken] == ["Two", "One"]
    assert telling.counts() == {("ops", "sent"): 2, ("ops", "refused"): 1}


async def test_it_gives_up_only_after_long_and_loudly(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    heard = Heard()
    telling = await start(receiver(heard))
    heard.answers += [NotSent("away")] * 1000
    await telling.begin(alert())
    await telling.after(DAY - MINUTE)
    assert not [record for record in caplog.records if record.levelno >= logging.CRITICAL]
    await telling.after(10 * MINUTE)
    [record] = [record for record in caplog.records if record.levelno >= logging.CRITICAL]
    assert record.message == "nobody was told of alerts: given up"
    assert record.fields["title"] == "[WARNING] a is late"  # type: ignore[attr-defined]
    assert telling.counts()["ops", "given_up"] == 1


async def test_a_channel_that_breaks_is_a_refusal(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    heard = Heard()
    telling = await start(receiver(heard))
    heard.answers.append(ZeroDivisionError())
    await telling.begin(alert("One"), alert("Two"))
    await telling.after(10)
    assert [one.alerts[0].rule for one in heard.taken] == ["Two"]
    assert "ZeroDivisionError" in caplog.text


async def test_a_receiver_that_hangs_keeps_no_other_waiting(start: Start) -> None:
    stuck, well = Heard(), Heard()
    stuck.hangs = asyncio.Event()
    telling = await start(receiver(stuck, "stuck"), receiver(well, "well"))
    await telling.begin(alert())
    telling.clock.advance(10)
    running = asyncio.create_task(telling.notifier.run())
    async with asyncio.timeout(10):
        while not (well.taken and stuck.tried):
            await asyncio.sleep(0.01)
    assert stuck.taken == []
    stuck.hangs.set()
    async with asyncio.timeout(10):
        while not stuck.taken:
            await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_running_it_wakes_up_for_what_comes_in(start: Start) -> None:
    heard = Heard()
    telling = await start(receiver(heard, group_wait=0))
    running = asyncio.create_task(telling.notifier.run())
    await asyncio.sleep(0)
    await telling.begin(alert())
    async with asyncio.timeout(10):
        while not heard.taken:
            await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_trouble_with_forgetting_keeps_nobody_untold(
    start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    heard = Heard()
    telling = await start(receiver(heard, group_wait=0))

    async def faulty() -> None:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(telling.notifier, "_forget", faulty)
    running = asyncio.create_task(telling.notifier.run())
    async with asyncio.timeout(10):
        while "a fault of ours" not in caplog.text:
            await asyncio.sleep(0.01)
        await telling.begin(alert())
        while not heard.taken:
            await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


# Kills.


async def test_killed_before_anything_was_sent(start: Start) -> None:
    heard = Heard()
    telling = await start(receiver(heard))
    await telling.begin(alert())
    await telling.restart()
    await telling.after(10)
    assert heard.told == [("change", 1, 0)]


async def test_killed_between_sending_and_noting_it_sends_the_same_again(start: Start) -> None:
    heard = Heard()
    telling = await start(receiver(heard))
    await telling.begin(alert())
    heard.answers.append(asyncio.CancelledError())  # the process dies with the request out
    with pytest.raises(asyncio.CancelledError):
        await telling.after(10)
    await telling.end(alert())
    await telling.restart()
    await telling.after(HOUR)
    assert heard.tried[1] == heard.tried[0]
    assert heard.told == [("change", 1, 0), ("change", 0, 1)]


async def test_killed_while_it_waits_to_try_again(start: Start) -> None:
    heard = Heard()
    telling = await start(receiver(heard))
    heard.answers += [NotSent("away")] * 3
    await telling.begin(alert())
    await telling.after(26)
    await telling.restart()
    await telling.after(18)
    assert heard.told == []
    await telling.after(2)
    assert heard.told == [("change", 1, 0)]
    assert len({one.id for one in heard.tried}) == 1


async def test_what_was_told_is_not_told_again_after_a_restart(start: Start) -> None:
    heard = Heard()
    telling = await start(receiver(heard))
    await telling.begin(alert())
    await telling.after(10)
    await telling.restart()
    await telling.after(HOUR)
    await telling.end(alert())
    await telling.restart()
    await telling.after(HOUR)
    assert heard.told == [("change", 1, 0), ("change", 0, 1)]


async def test_a_new_receiver_hears_of_what_fires_and_one_that_is_gone_is_forgotten(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    old, new = Heard(), Heard()
    old.answers += [NotSent("away")] * 100
    telling = await start(receiver(old, "old"))
    await telling.begin(alert())
    await telling.after(10)
    telling.receivers = (receiver(new, "new"),)
    await telling.restart()
    await telling.after(HOUR)
    assert new.told == [("change", 1, 0)]
    assert len(old.tried) == 1
    assert "receivers of alerts are gone from the settings" in caplog.text
    await telling.restart()
    assert [one.receiver for one in telling.notifier.ledger.notices.values()] == ["new"]


async def test_what_cannot_be_kept_is_not_accepted(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    heard = Heard()
    telling = await start(receiver(heard))
    store = telling.notifier._store

    async def full(changes: object) -> None:
        raise StorageUnavailable("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(store, "save", full)
        with pytest.raises(StorageUnavailable):
            await telling.begin(alert())
    await telling.after(HOUR)
    assert heard.tried == []
    await telling.begin(alert())  # the evaluator tells it again
    await telling.after(HOUR)
    assert heard.told == [("change", 1, 0)]


async def test_history_is_by_page_and_forgets(start: Start) -> None:
    telling = await start(receiver(Heard()))
    for number in range(5):
        await telling.begin(alert(f"Rule{number}"))
    await telling.end(*(alert(f"Rule{number}") for number in range(4)))
    await telling.after(HOUR)
    first = await telling.notifier.history(2)
    assert [(one.rule, one.ended_at_ns is None) for _, one in first] == [("Rule4", True), ("Rule3", False)]
    assert [one.rule for _, one in await telling.notifier.history(9, first[-1][0])] == ["Rule2", "Rule1", "Rule0"]
    telling.clock.advance(31 * DAY)
    await telling.notifier._forget()
    assert [one.rule for _, one in await telling.notifier.history(9)] == ["Rule4"]


async def test_a_test_goes_out_at_once_and_is_not_kept(start: Start) -> None:
    heard = Heard()
    telling = await start(receiver(heard))
    assert await telling.notifier.test("ops", alert()) is None
    assert [one.kind for one in heard.taken] == ["test"]
    heard.answers.append(NotSent("no_service", refused=True))
    assert await telling.notifier.test("ops", alert()) == NotSent("no_service", refused=True)
    assert telling.notifier.ledger.sendings == {}
    with pytest.raises(NotFound, match="there is no receiver nobody; the settings have: ops"):
        await telling.notifier.test("nobody", alert())
