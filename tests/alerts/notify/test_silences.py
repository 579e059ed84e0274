"""Silences that people make, and times of the week: who is not told, and what is told when they are over."""

from __future__ import annotations

from datetime import UTC, time
from zoneinfo import ZoneInfo

import pytest

from holdfast.alerts.alert import Severity
from holdfast.alerts.notify.matching import check_quick, parse_matchers
from holdfast.alerts.notify.silences import QuietTime
from holdfast.errors import NotFound
from holdfast.model.timestamps import parse_rfc3339
from tests.alerts.notify.telling import DAY, HOUR, MINUTE, Heard, Start, alert, receiver


async def test_a_silence_holds_back_and_what_still_fires_at_its_end_is_told(start: Start) -> None:
    heard = Heard()
    telling = await start(receiver(heard))
    now_ns = telling.clock.now_ns()
    matchers = parse_matchers(['subscription=~".*/a"'])
    made = await telling.notifier.silence(matchers, now_ns, now_ns + HOUR * 10**9, "anna", "deploy")
    await telling.begin(alert(subscription="a"), alert(subscription="b"))
    await telling.after(HOUR - 1)
    assert [[one.summary for one in said.alerts] for said in heard.taken] == [["b is late"]]
    await telling.restart()
    assert telling.notifier.ledger.silences == {made.id: made}
    await telling.after(1)
    assert heard.told[1:] == [("change", 2, 0)]


async def test_what_begins_and_ends_in_silence_is_never_told(start: Start) -> None:
    heard = Heard()
    telling = await start(receiver(heard))
    now_ns = telling.clock.now_ns()
    await telling.notifier.silence(parse_matchers(["rule=~.+"]), now_ns, now_ns + HOUR * 10**9, "anna", "deploy")
    await telling.begin(alert())
    await telling.after(MINUTE)
    await telling.end(alert())
    await telling.after(2 * HOUR)
    assert heard.tried == []
    assert telling.notifier.ledger.notices == {}
    assert telling.counts() == {("ops", "silenced"): 1}


async def test_the_end_of_what_was_told_is_told_in_silence_too_and_reminders_are_not(start: Start) -> None:
    heard = Heard()
    telling = await start(receiver(heard))
    await telling.begin(alert())
    await telling.after(10)
    now_ns = telling.clock.now_ns()
    await telling.notifier.silence(parse_matchers(["rule=~.+"]), now_ns, now_ns + DAY * 10**9, "anna", "known")
    await telling.after(12 * HOUR)
    assert heard.told == [("change", 1, 0)]
    await telling.end(alert())
    await telling.after(HOUR)
    assert heard.told[1:] == [("change", 0, 1)]


async def test_a_silence_that_is_lifted_tells_at_once(start: Start) -> None:
    heard = Heard()
    telling = await start(receiver(heard))
    now_ns = telling.clock.now_ns()
    made = await telling.notifier.silence(parse_matchers(["rule=~.+"]), now_ns, now_ns + DAY * 10**9, "a", "b")
    await telling.begin(alert())
    await telling.after(HOUR)
    assert heard.told == []
    over = await telling.notifier.unsilence(made.id)
    assert over.state(telling.clock.now_ns()) == "over"
    await telling.turn()
    assert heard.told == [("change", 1, 0)]
    with pytest.raises(NotFound, match="there is no silence 9"):
        await telling.notifier.unsilence(9)


# 1_700_000_000 is Tuesday, 2023-11-14 22:13:20 UTC; in Berlin it is 23:13:20.
NIGHT = QuietTime(parse_matchers(['severity="warning"']), frozenset({1}), time(22), time(6), ZoneInfo("Europe/Berlin"))


async def test_quiet_times_come_again_and_again(start: Start) -> None:
    heard = Heard()
    telling = await start(receiver(heard), quiet=[NIGHT])
    await telling.begin(alert(), alert("Bad", severity=Severity.CRITICAL))
    await telling.after(6 * HOUR)
    assert {one.alerts[0].rule for one in heard.taken} == {"Bad"}
    await telling.after(HOUR)  # it is past six in Berlin
    assert [one.alerts[0].rule for one in heard.taken if one.kind == "change"] == ["Bad", "OldestUnacked"]


SUNDAY = frozenset({6})


@pytest.mark.parametrize(
    ("quiet", "moment", "until"),
    [
        (QuietTime((), SUNDAY, time(0), time(0), UTC), "2023-11-19T23:59:59", "2023-11-20T00:00:00"),
        (QuietTime((), SUNDAY, time(0), time(0), UTC), "2023-11-18T23:59:59", None),
        (QuietTime((), SUNDAY, time(22), time(6), UTC), "2023-11-20T05:59:59", "2023-11-20T06:00:00"),
        (QuietTime((), SUNDAY, time(22), time(6), UTC), "2023-11-20T06:00:00", None),
        # The clocks went back at three in the morning.
        (
            QuietTime((), SUNDAY, time(1), time(4), ZoneInfo("Europe/Berlin")),
            "2023-10-29T02:59:59",
            "2023-10-29T03:00:00",
        ),
    ],
)
def test_when_a_quiet_time_is_over(quiet: QuietTime, moment: str, until: str | None) -> None:
    expected = None if until is None else parse_rfc3339(f"{until}Z")
    assert quiet.until_ns({}, parse_rfc3339(f"{moment}Z")) == expected


@pytest.mark.parametrize(
    "pattern", ["(a+)+x", "(a|aa)*x", "([a-z]+){2,}x", "a?" * 30 + "a" * 30, ".*.*.*.*x", "(a|a)" * 4]
)
def test_a_pattern_that_may_take_for_ever_is_none_for_a_silence(pattern: str) -> None:
    with pytest.raises(ValueError, match="may take too long"):
        check_quick(parse_matchers([f"subscription=~{pattern}"]))


@pytest.mark.parametrize(
    "pattern", [".+", "A|B|C", ".*/orders[.].*", ".*/(?:eu|us)-.*", r"a[()+*]{2}\(\)\+\*", r"[]*+?()]+"]
)
def test_a_pattern_that_is_quick_is_one(pattern: str) -> None:
    check_quick(parse_matchers([f"subscription=~{pattern}", "rule=((a+)+)+"]))
