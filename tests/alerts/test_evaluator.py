"""The evaluator over its real store: the same minutes as Prometheus, kills in between, and trouble of all kinds."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pytest

from holdfast.alerts.alert import Alert, Severity
from holdfast.alerts.evaluator import Evaluator
from holdfast.alerts.rule import Level, Rule
from holdfast.alerts.selector import Selector
from holdfast.alerts.tuning import rules_from
from holdfast.clock import NANOSECONDS
from holdfast.errors import StorageUnavailable
from holdfast.metrics import alerts as metrics
from holdfast.metrics.metric import Family, Sample
from holdfast.metrics.table import METRICS
from holdfast.settings import AlertSettings
from holdfast.stores.sqlite.alert_states import SqliteAlertStates
from holdfast.stores.sqlite.alerts_schema import SCHEMA
from holdfast.stores.sqlite.database import Database
from holdfast.testing import ManualClock
from tests.alerts.timelines import (
    BACKLOG,
    OF_SUBSCRIPTION,
    OLDEST,
    OPEN,
    OTHER,
    PATH,
    PAUSED,
    PERMANENT,
    RECORDED,
    TIMELINES,
    Timeline,
    answers,
)
from tests.support.waiting import comes_about

MINUTE = 60.0


class Told:
    """A sink that keeps what it was told."""

    def __init__(self) -> None:
        self.alerts: list[Alert] = []
        self.broken = False

    async def accept(self, alerts: Sequence[Alert]) -> None:
        if self.broken:
            raise StorageUnavailable("the outbox is full")
        self.alerts += alerts

    def of(self, rule: str) -> list[Alert]:
        return [alert for alert in self.alerts if alert.rule == rule]


class Watch:
    """Something that is watched minute by minute, by one evaluator after the other over one file."""

    def __init__(self, path: Path, rules: Sequence[Rule]) -> None:
        self.clock = ManualClock()
        self.sink = Told()
        self.says: Mapping[str, float | None] = {}
        self.broken = False
        self._path = path
        self._rules = rules
        self._database: Database | None = None
        self.evaluator: Evaluator

    async def start(self, *told: Alert) -> None:
        self._database = await Database.open(self._path, SCHEMA)
        states = SqliteAlertStates(self._database)
        self.evaluator = Evaluator(self._rules, self.read, states, self.sink, self.clock, MINUTE, "runbook")
        await self.evaluator.resume(told)

    async def stop(self) -> None:
        """What it has saved is all that remains, as after a kill."""
        assert self._database
        await self._database.close()

    async def restart(self, *told: Alert) -> None:
        await self.stop()
        await self.start(*told)

    async def read(self) -> Iterable[Family]:
        if self.broken:
            raise StorageUnavailable("locked")
        return families(self.says)

    async def saved(self) -> None:
        """The look that is under way is over: it saves last, and this waits behind it."""
        assert self._database
        await self._database.submit(lambda connection: connection.execute("SELECT 1").fetchone())

    def firing(self, rule: str) -> list[dict[str, str]]:
        states = self.evaluator.states.items()
        return [dict(one.labels) for one, state in states if one.rule == rule and state.firing_ns is not None]

    async def minute(self, says: Mapping[str, float | None], minutes: int = 1) -> None:
        self.says = says
        for _ in range(minutes):
            await self.evaluator.evaluate()
            self.clock.advance(MINUTE)


def families(says: Mapping[str, float | None]) -> list[Family]:
    """As sources report them: a metric without a series is there all the same."""
    found: dict[str, Family] = {}
    by_name = {metric.name: metric for metric in METRICS}
    for text, value in says.items():
        selector = Selector.parse(text)
        metric = by_name[selector.metric]
        labels = {matcher.label: matcher.value for matcher in selector.matchers}
        family = found.setdefault(metric.name, Family(metric, []))
        if value is not None:
            family.samples.append(Sample(tuple(labels[name] for name in metric.labels), value))
    return [*found.values()]


async def watch(path: Path, settings: AlertSettings | None = None) -> Watch:
    watched = Watch(path / "alerts.db", rules_from(settings or AlertSettings(), "local"))
    await watched.start()
    return watched


# The same minutes.


@pytest.mark.parametrize("killed", [False, True], ids=["", "killed again and again"])
@pytest.mark.parametrize("timeline", TIMELINES, ids=lambda one: f"{one.rule}: {one.what}")
async def test_the_evaluator_fires_at_its_minutes(timeline: Timeline, killed: bool, tmp_path: Path) -> None:
    watched = await watch(tmp_path, timeline.settings)
    found: list[list[dict[str, str]]] = []
    for minute in range(timeline.minutes):
        if killed and minute % 3 == 0:
            await watched.restart()
        await watched.minute(timeline.at(minute))
        found.append(watched.firing(timeline.rule))
    await watched.stop()
    assert found == [[dict(timeline.labels)] if timeline.firing_at(minute) else [] for minute in range(len(found))]
    # And people are told each of it once.
    start = watched.clock.now_ns() - round(timeline.minutes * MINUTE * NANOSECONDS)
    told = [
        (alert.started_at_ns - start, None if alert.ended_at_ns is None else alert.ended_at_ns - start)
        for alert in watched.sink.of(timeline.rule)
    ]
    expected: list[tuple[int, int | None]] = []
    for first, last in timeline.fires:
        begun, ended = (round(minute * MINUTE * NANOSECONDS) for minute in (first, last + 1))
        expected += [(begun, None), (begun, ended)] if last + 1 < timeline.minutes else [(begun, None)]
    assert told == expected


async def test_what_people_are_told(tmp_path: Path) -> None:
    watched = await watch(tmp_path)
    began = watched.clock.now_ns()
    await watched.minute({OLDEST: 301.5})
    await watched.minute({OLDEST: 0})
    await watched.stop()
    begun, ended = watched.sink.alerts
    assert begun == Alert(
        "OldestUnacked",
        Severity.WARNING,
        OF_SUBSCRIPTION,
        f"The oldest message of {PATH} has not been acked for more than 5 minutes",
        began,
        value=301.5,
        details={
            "runbook": "runbook#oldest-unacked",
            "measured": "301.5 seconds",
            "limit": "5 minutes",
            "next": f"holdfast subscriptions show {PATH}",
        },
    )
    assert (ended.key, ended.started_at_ns, ended.ended_at_ns) == (begun.key, began, began + 60 * NANOSECONDS)


# Restarts and gaps.


async def test_time_in_which_nobody_looked_does_not_count(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    watched = await watch(tmp_path)
    await watched.minute({OPEN: 2}, 4)  # pending for 3 minutes at the last look
    watched.clock.advance(20 * MINUTE)
    await watched.restart()
    await watched.minute({OPEN: 2})  # 4 that somebody saw
    assert watched.firing("DeadLettersWait") == []
    assert "nobody judged the alerts for a while" in caplog.text
    await watched.minute({OPEN: 2})
    assert watched.firing("DeadLettersWait") == [OF_SUBSCRIPTION]
    await watched.stop()


async def test_what_happened_while_nobody_looked_is_not_told_to_be_of_now(tmp_path: Path) -> None:
    """The desk's counters go on while this process is down: another one writes to its store."""
    watched = await watch(tmp_path)
    await watched.minute({RECORDED: 5, PERMANENT: 5}, 15)
    watched.clock.advance(40 * MINUTE)
    await watched.restart()
    await watched.minute({RECORDED: 500, PERMANENT: 9}, 15)
    assert watched.sink.alerts == []
    await watched.stop()


async def test_what_fired_before_a_gap_goes_on_without_being_told_again(tmp_path: Path) -> None:
    watched = await watch(tmp_path)
    await watched.minute({OLDEST: 400})
    watched.clock.advance(90 * MINUTE)
    await watched.restart()
    await watched.minute({OLDEST: 400})
    assert len(watched.sink.alerts) == 1
    watched.clock.advance(90 * MINUTE)
    await watched.restart()
    await watched.minute({OLDEST: 4})
    assert [alert.ended_at_ns is None for alert in watched.sink.alerts] == [True, False]
    await watched.stop()


async def test_a_clock_that_is_set_back(tmp_path: Path) -> None:
    watched = await watch(tmp_path)
    await watched.minute({OPEN: 2, answers(500): 0}, 3)
    watched.clock.advance(-60 * MINUTE)
    await watched.minute({OPEN: 2, answers(500): 0}, 5)
    assert watched.firing("DeadLettersWait") == []
    await watched.minute({OPEN: 2, answers(500): 0})
    assert watched.firing("DeadLettersWait") == [OF_SUBSCRIPTION]
    await watched.stop()


async def test_a_rule_that_is_taken_away_ends_its_alert(tmp_path: Path) -> None:
    watched = await watch(tmp_path)
    await watched.minute({OLDEST: 400})
    await watched.stop()
    off = await watch(tmp_path, AlertSettings(rules=({"rule": "OldestUnacked", "enabled": False},)))
    await off.minute({OLDEST: 400})
    [ended] = off.sink.alerts
    assert ended.ended_at_ns is not None
    assert ended.key == watched.sink.alerts[0].key
    await off.stop()


# Trouble.


async def test_a_sink_that_fails_is_told_again(tmp_path: Path) -> None:
    watched = await watch(tmp_path)
    watched.sink.broken = True
    with pytest.raises(StorageUnavailable):
        await watched.minute({OLDEST: 400})
    assert watched.firing("OldestUnacked") == []
    await watched.restart()
    watched.sink.broken = False
    await watched.minute({OLDEST: 400})
    assert [alert.rule for alert in watched.sink.alerts] == ["OldestUnacked"]
    await watched.stop()


@pytest.mark.parametrize("error", [StorageUnavailable("locked"), ValueError("a fault of ours")])
async def test_it_goes_on_after_an_evaluation_that_failed(
    error: Exception, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    told = asyncio.Event()
    clock = ManualClock()
    reads = 0

    class Sink(Told):
        async def accept(self, alerts: Sequence[Alert]) -> None:
            told.set()

    async def read() -> list[Family]:
        nonlocal reads
        reads += 1
        if reads == 1:
            raise error
        return families({OLDEST: 400})

    database = await Database.in_memory(SCHEMA)
    rules = rules_from(AlertSettings(), "local")
    evaluator = Evaluator(rules, read, SqliteAlertStates(database), Sink(), clock, 15)
    await evaluator.resume()
    task = asyncio.create_task(evaluator.run())
    while not told.is_set():
        clock.advance(1)
        await asyncio.sleep(0)
    assert reads >= 2
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert str(error) in caplog.text or str(error) in str(caplog.records[0].__dict__)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await database.close()


async def test_a_read_that_fails_changes_nothing(tmp_path: Path) -> None:
    watched = await watch(tmp_path)
    await watched.minute({OLDEST: 400})
    watched.broken = True
    with pytest.raises(StorageUnavailable):
        await watched.minute({})
    assert watched.firing("OldestUnacked") == [OF_SUBSCRIPTION]
    assert len(watched.sink.alerts) == 1
    await watched.stop()


async def test_what_a_source_cannot_tell_for_a_while_is_neither_over_nor_begun(tmp_path: Path) -> None:
    """As the desk's metrics, which are missing altogether while its database is away."""
    watched = await watch(tmp_path)
    other = f'holdfast_desk_open_failures{{subscription="{OTHER}"}}'
    await watched.minute({OPEN: 2, other: 0, BACKLOG: 1}, 4)
    await watched.minute({OPEN: 2, other: 3, BACKLOG: 1}, 4)
    assert watched.firing("DeadLettersWait") == [OF_SUBSCRIPTION]
    await watched.minute({BACKLOG: 1}, 10)
    assert watched.firing("DeadLettersWait") == [OF_SUBSCRIPTION]
    await watched.minute({OPEN: 2, other: 3, BACKLOG: 1})
    # Of its 15 minutes it has been seen for 8.
    assert watched.firing("DeadLettersStay") == []
    assert [alert.ended_at_ns for alert in watched.sink.alerts] == [None]
    await watched.minute({OPEN: 0, other: 3, BACKLOG: 1})
    assert watched.firing("DeadLettersWait") == [{"subscription": OTHER}]
    assert [alert.ended_at_ns is None for alert in watched.sink.of("DeadLettersWait")] == [True, True, False]
    await watched.stop()


async def test_what_another_process_has_told_and_this_one_never_does_is_over(tmp_path: Path) -> None:
    """`holdfast desk` goes on with the file that `holdfast up` has left, and knows nothing of its broker."""
    watched = await watch(tmp_path)
    await watched.minute({OLDEST: 400})
    await watched.restart()
    await watched.minute({OPEN: 0})
    assert watched.firing("OldestUnacked") == []
    await watched.stop()


# What it tells of itself.


async def test_its_own_metrics(tmp_path: Path) -> None:
    watched = await watch(tmp_path)

    def own() -> dict[str, dict[tuple[str, ...], object]]:
        return {metric.name: dict(samples) for metric, samples in watched.evaluator.families()}

    assert own() == {metrics.FIRING.name: {("warning",): 0, ("critical",): 0}}
    last = watched.clock.now_ns() / NANOSECONDS
    await watched.minute({OLDEST: 1000})
    assert own() == {
        metrics.FIRING.name: {("warning",): 1, ("critical",): 1},
        metrics.LAST_EVALUATION.name: {(): last},
    }
    await watched.stop()


async def test_the_largest_of_several_series_counts(tmp_path: Path) -> None:
    level = Level(Selector("holdfast_broker_oldest_unacked_seconds"))
    watched = Watch(tmp_path / "alerts.db", [Rule("Any", Severity.WARNING, level, 10, "x", "x")])
    await watched.start()
    other = OLDEST.replace("orders", "mail")
    await watched.minute({OLDEST: 5, other: 20})
    assert [alert.value for alert in watched.sink.alerts] == [20]
    await watched.minute({other: 5, OLDEST: 30})
    assert watched.firing("Any") == [{}]
    await watched.minute({other: 5, OLDEST: 6})
    assert watched.firing("Any") == []
    await watched.stop()


async def test_what_people_were_told_ends_also_where_a_kill_kept_it_from_being_noted(tmp_path: Path) -> None:
    watched = await watch(tmp_path)
    await watched.minute({PAUSED: 0})
    told = Alert("DeliveryPaused", Severity.WARNING, OF_SUBSCRIPTION, "it pauses", 5 * NANOSECONDS, value=1.0)
    await watched.restart(told)
    assert watched.firing("DeliveryPaused") == [OF_SUBSCRIPTION]
    await watched.minute({PAUSED: 1})
    assert watched.sink.alerts == []  # it fires, as everybody knows
    await watched.minute({PAUSED: 0})
    [ended] = watched.sink.alerts
    assert (ended.key, ended.started_at_ns, ended.ended_at_ns is None) == (told.key, told.started_at_ns, False)
    await watched.stop()


# Sooner than the interval.


async def running(watched: Watch) -> asyncio.Task[None]:
    task = asyncio.create_task(watched.evaluator.run())
    await settled()
    return task


async def settled() -> None:
    """Until everybody who need not wait for a file sleeps again."""
    for _ in range(20):
        await asyncio.sleep(0)


async def told(watched: Watch, *rules: str) -> None:
    async def are_told() -> bool:
        return sorted(one.rule for one in watched.sink.alerts) == sorted(rules)

    await comes_about(are_told)


async def test_it_looks_early_when_it_is_asked_to_and_once_in_an_interval(tmp_path: Path) -> None:
    watched = await watch(tmp_path)
    watched.says = {PERMANENT: 1}
    await watched.evaluator.evaluate()
    task = await running(watched)
    watched.says = {PERMANENT: 2}
    watched.evaluator.look_soon()
    await settled()
    assert watched.sink.alerts == []  # the desk's totals are some seconds old
    watched.clock.advance(3)
    await told(watched, "PermanentFailure")
    await watched.saved()
    watched.says = {PERMANENT: 2, OLDEST: 9999}
    watched.evaluator.look_soon()
    watched.clock.advance(50)
    await settled()
    assert len(watched.sink.alerts) == 1
    watched.clock.advance(7)  # the interval is over
    await told(watched, "PermanentFailure", "OldestUnacked", "OldestUnackedHigh")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await watched.stop()


async def test_a_look_that_is_due_anyway_is_not_made_twice(tmp_path: Path) -> None:
    watched = await watch(tmp_path)
    task = await running(watched)
    watched.clock.advance(58)
    watched.evaluator.look_soon()
    await settled()
    assert len(watched.evaluator.families()) == 1  # nobody has looked yet
    watched.clock.advance(2)

    async def has_looked() -> bool:
        return len(watched.evaluator.families()) == 2

    await comes_about(has_looked)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await watched.stop()
