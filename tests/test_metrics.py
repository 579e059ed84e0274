"""The metrics: their table against the documentation, the registry, and what push reports."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from holdfast.broker.push import answers
from holdfast.broker.push.metrics import push_metrics
from holdfast.broker.push.status import LATENCY_BOUNDS, PushStatus
from holdfast.clock import NANOSECONDS
from holdfast.metrics import push
from holdfast.metrics.bounded import MOST_NAMES, OTHER
from holdfast.metrics.metric import Family, Histogram, Kind, Metric, Sample
from holdfast.metrics.registry import MetricsRegistry
from holdfast.metrics.table import METRICS
from holdfast.outgoing.answers import Answer
from tests.support.push_status import BEFORE, NOW_NS, a_status, latencies

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "metrics.md"
SCRIPT = ROOT / "scripts" / "metrics-table"
PUSH = {value for value in vars(push).values() if isinstance(value, Metric)}


# The table.


def told() -> list[list[str]]:
    """The rows of the page's table."""
    section = PAGE.read_text(encoding="utf-8").partition("## All of them\n")[2]
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_the_page_has_every_metric_and_no_other() -> None:
    assert told() == [
        [f"`{one.name}`", str(one.kind), ", ".join(f"`{label}`" for label in one.labels), one.doc] for one in METRICS
    ]


def test_no_two_metrics_have_one_name() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_a_name_follows_prometheus_rules(metric: Metric) -> None:
    assert re.fullmatch(r"(holdfast|dlq|process)_[a-z_]+[a-z]", metric.name)
    assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER)
    assert ("seconds" in metric.doc) == metric.name.endswith("_seconds")
    assert metric.doc.endswith(".")


def test_the_script_that_writes_the_table_changes_nothing() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == load_script(SCRIPT).with_table(page), f"run {SCRIPT.relative_to(ROOT)} --write"


def load_script(path: Path) -> ModuleType:
    """A script has no .py at its end, so the loader must be named; and it must leave no cache beside it."""
    loader = importlib.machinery.SourceFileLoader("metrics_table", str(path))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    exec(compile(path.read_text(encoding="utf-8"), path, "exec"), module.__dict__)
    return module


def test_the_page_explains_the_results_of_every_status() -> None:
    page = PAGE.read_text(encoding="utf-8")
    results = {answers.result_name(Answer(status, {})) for status in range(100, 1000)}
    hundreds = {f"status_{hundred}xx" for hundred in range(2, 6)}
    assert results == {"acknowledged", "status_other"} | hundreds
    for result in results - {"status_3xx", "status_4xx"}:  # between the two that the row names
        assert f"`{result}`" in page


# The registry.


def gauge(value: float = 1, *labels: str) -> Family:
    return Family(push.DUE, [Sample(labels or ("a",), value)])


async def test_sources_are_asked_at_each_scrape_and_only_then() -> None:
    registry = MetricsRegistry()
    asked: list[int] = []

    def source() -> list[Family]:
        asked.append(1)
        return [gauge(len(asked))]

    registry.register(source)
    assert asked == []
    assert await registry.collect() == [gauge(1)]
    assert await registry.collect() == [gauge(2)]


async def test_families_come_once_each_in_the_order_of_the_table() -> None:
    registry = MetricsRegistry()
    window = Family(push.WINDOW, [Sample(("a",), 4)])
    registry.register(lambda: [gauge(1, "a"), window])
    registry.register(lambda: [gauge(2, "b")])
    both = Family(push.DUE, [Sample(("a",), 1), Sample(("b",), 2)])
    assert await registry.collect() == [window, both]


@pytest.mark.parametrize(
    ("family", "why"),
    [
        (Family(Metric("holdfast_other", Kind.GAUGE, (), "x"), []), "holdfast_other is not in the table"),
        (gauge(1, "a", "b"), "holdfast_push_due has the labels"),
        (Family(push.LATENCY, [Sample(("a",), 1)]), "holdfast_push_latency_seconds is a histogram"),
        (Family(push.DUE, [Sample(("a",), Histogram((), [1], 1))]), "holdfast_push_due is a gauge"),
    ],
)
async def test_only_what_the_table_has_can_be_reported(family: Family, why: str) -> None:
    registry = MetricsRegistry()
    registry.register(lambda: [family])
    with pytest.raises(ValueError, match=why):
        await registry.collect()


# Push.


async def reported(*found: PushStatus) -> dict[Metric, dict[tuple[str, ...], float | Histogram]]:
    registry = MetricsRegistry()
    registry.register(lambda: push_metrics(found, NOW_NS))
    return {metric: dict(samples) for metric, samples in await registry.collect()}


async def test_push_reports_every_metric_of_a_subscription() -> None:
    status = a_status(
        "orders",
        window=8,
        in_flight=3,
        due=20,
        oldest_due_ns=NOW_NS - 90 * NANOSECONDS,
        waiting=5,
        dropped=2,
        attempts={"timeout": 1, "acknowledged": 40},
        **latencies(0.2, 0.3, 99),
    )
    name = BEFORE + "orders"
    assert await reported(status) == {
        push.ATTEMPTS: {(name, "acknowledged"): 40, (name, "timeout"): 1},
        push.LATENCY: {(name,): Histogram(LATENCY_BOUNDS, status.latency_buckets, 99.5)},
        push.IN_FLIGHT: {(name,): 3},
        push.WINDOW: {(name,): 8},
        push.DUE: {(name,): 20},
        push.OLDEST_DUE: {(name,): 90},
        push.WAITING: {(name,): 5},
        push.DROPPED: {(name,): 2},
    }
    assert set(await reported(status)) == PUSH


@pytest.mark.parametrize(
    ("due", "oldest_due_ns", "seconds"),
    [
        (0, None, [0]),
        (1, NOW_NS - NANOSECONDS // 2, [0.5]),
        (1, NOW_NS + NANOSECONDS, [0]),  # a clock that was set back
        (1, None, []),  # due, but nobody knows since when: 0 would be a lie
    ],
)
async def test_the_age_of_what_is_due(due: int, oldest_due_ns: int | None, seconds: list[float]) -> None:
    found = (await reported(a_status(due=due, oldest_due_ns=oldest_due_ns)))[push.OLDEST_DUE]
    assert list(found.values()) == seconds


async def test_a_deleted_subscription_takes_its_series_with_it() -> None:
    name = BEFORE + "gone"
    found = [a_status("kept", attempts={"timeout": 1}), a_status("gone", attempts={"timeout": 1})]
    registry = MetricsRegistry()
    registry.register(lambda: push_metrics(found, NOW_NS))

    async def reporting() -> set[Metric]:
        return {
            family.metric for family in await registry.collect() for sample in family.samples if name in sample.labels
        }

    assert await reporting() == PUSH
    del found[1]
    assert await reporting() == set()


async def test_subscriptions_beyond_the_bound_are_summed_up() -> None:
    """In any order: it is the name that counts."""
    first = [a_status(f"s{number:04}") for number in range(MOST_NAMES)]
    late = a_status(
        "z1",
        window=1,
        in_flight=2,
        due=3,
        waiting=4,
        dropped=5,
        oldest_due_ns=NOW_NS - 10 * NANOSECONDS,
        attempts={"acknowledged": 1, "timeout": 2},
        **latencies(0.2, 0.3),
    )
    later = a_status(
        "z2",
        window=10,
        in_flight=20,
        due=30,
        waiting=40,
        dropped=50,
        oldest_due_ns=NOW_NS - 60 * NANOSECONDS,
        attempts={"acknowledged": 10},
        **latencies(0.2, 99),
    )
    latest = a_status("z3", window=100)
    found = await reported(latest, later, *first, late)
    rest = {
        metric: {labels: value for labels, value in samples.items() if OTHER in labels}
        for metric, samples in found.items()
    }
    counts = [one + two for one, two in zip(late.latency_buckets, later.latency_buckets, strict=True)]
    assert rest == {
        push.ATTEMPTS: {(OTHER, "acknowledged"): 11, (OTHER, "timeout"): 2},
        push.LATENCY: {(OTHER,): Histogram(LATENCY_BOUNDS, counts, late.latency_seconds + later.latency_seconds)},
        push.IN_FLIGHT: {(OTHER,): 22},
        push.WINDOW: {(OTHER,): 111},
        push.DUE: {(OTHER,): 33},
        push.OLDEST_DUE: {(OTHER,): 60},
        push.WAITING: {(OTHER,): 44},
        push.DROPPED: {(OTHER,): 55},
    }
    names = [labels[0] for labels in found[push.WINDOW]]
    assert names == [*sorted(status.subscription for status in first), OTHER]


async def test_as_many_as_may_have_their_own_series_leave_no_others() -> None:
    found = await reported(*[a_status(f"s{number}") for number in range(MOST_NAMES)])
    assert len(found[push.WINDOW]) == MOST_NAMES
    assert (OTHER,) not in found[push.WINDOW]
