"""The parts of `holdfast top`: reading metrics, rates over restarts, and pictures that fit a terminal."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from holdfast.cli.output import width_of
from holdfast.cli.top import cells, exposition
from holdfast.cli.top.asking import Look
from holdfast.cli.top.cells import Cell, Column
from holdfast.cli.top.drawing import ORDERS, View, drawn, plain, styled
from holdfast.cli.top.history import WINDOW_SECONDS, History, quantile
from holdfast.cli.top.picture import Picture, SubscriptionRow, picture
from holdfast.metrics import alerts, broker, consumer, desk, process

ORDERS_BY_NAME = {order.name: order for order in ORDERS}
URL = "http://127.0.0.1:8080"


# Reading.


def test_samples_are_read_as_prometheus_reads_them() -> None:
    text = (
        "# HELP holdfast_x Help.\n# TYPE holdfast_x gauge\n"
        'holdfast_x{a="1",b="back\\\\slash \\"quoted\\" and\\nline}, é"} 2.5e3\n'
        "holdfast_y 4\n"
        'holdfast_z_bucket{le="+Inf"} 7\n'
    )
    found = exposition.read(text)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            assert found[sample.name][tuple(sample.labels.values())] == sample.value
    assert found["holdfast_x"] == {("1", 'back\\slash "quoted" and\nline}, é'): 2500.0}


def test_what_is_not_metrics_is_refused() -> None:
    with pytest.raises(ValueError, match="<html>"):
        exposition.read("<html>")


def test_metrics_that_are_not_wanted_are_left_out() -> None:
    assert exposition.read("holdfast_a 1\nholdfast_push_b 2\n", without="holdfast_push_") == {"holdfast_a": {(): 1.0}}


# Rates.


def look(at: float, values: Mapping[Any, Mapping[tuple[str, ...], float]], started: float = 1.0, **rows: Any) -> Look:
    metrics = {metric.name if hasattr(metric, "name") else metric: samples for metric, samples in values.items()}
    metrics[process.STARTED.name] = {(): started}
    metrics[process.BUILD.name] = {("0.1.0", "up"): 1.0}
    return Look(at, metrics, **rows)


def saw(*looks: Look) -> History:
    history = History(URL)
    for one in looks:
        history.saw(one)
    return history


A = ("projects/local/subscriptions/orders",)


def acked(at: float, count: float, started: float = 1.0) -> Look:
    return look(at, {broker.ACKED: {A: count}}, started)


def test_a_rate_needs_two_looks() -> None:
    assert saw(acked(0, 5)).rate(broker.ACKED, A) is None
    assert saw(acked(0, 5), acked(2, 25)).rate(broker.ACKED, A) == 10


def test_a_rate_is_over_the_last_seconds_alone() -> None:
    looks = [acked(at, at * 10) for at in range(20)] + [acked(20, 690)]
    assert saw(*looks).rate(broker.ACKED, A) == (690 - 150) / WINDOW_SECONDS


def test_a_restart_begins_anew_and_never_gives_a_rate_below_0() -> None:
    history = saw(acked(0, 5000), acked(1, 5100), acked(2, 3, started=2.0))
    assert history.rate(broker.ACKED, A) is None
    history.saw(acked(3, 13, started=2.0))
    assert history.rate(broker.ACKED, A) == 10


def test_a_counter_that_fell_without_a_restart_was_made_anew() -> None:
    """As a subscription that is deleted and created again."""
    assert saw(acked(0, 500), acked(1, 7)).rate(broker.ACKED, A) == 7


def test_a_counter_that_appears_began_at_0() -> None:
    assert saw(look(0, {}), acked(1, 7)).rate(broker.ACKED, A) == 7


def test_what_a_process_said_before_it_went_away_is_not_told_as_now() -> None:
    history = saw(acked(0, 5), acked(1, 6))
    history.lost("Connection refused")
    assert (history.rate(broker.ACKED, A), history.value(broker.ACKED, A)) == (None, None)
    history.saw(acked(9, 7))
    assert history.error == ""
    assert history.rate(broker.ACKED, A) is None


@pytest.mark.parametrize(
    ("share", "counts", "expected"),
    [
        (0.5, [0, 0, 0], None),
        (0.5, [10, 10, 10], 0.5),
        (0.5, [0, 10, 10], 1.5),
        (0.99, [0, 0, 10], 2.0),  # above all bounds
    ],
)
def test_quantiles(share: float, counts: list[float], expected: float | None) -> None:
    assert quantile(share, list(zip((1.0, 2.0, float("inf")), counts, strict=True))) == expected


# The picture.


def whole_look(at: float, step: float) -> Look:
    """A broker with two subscriptions, a consumer and a desk, `step` messages further on."""
    orders, stock = A, ("projects/local/subscriptions/stock",)
    both: dict[tuple[str, ...], float] = {orders: 10 * step, stock: 0.0}
    return look(
        at,
        {
            broker.PUBLISHED: {("projects/local/topics/orders",): 12 * step},
            broker.PUBLISHED_BYTES: {("projects/local/topics/orders",): 1200 * step},
            broker.DELIVERED: both,
            broker.ACKED: both,
            broker.NACKED: {orders: step, stock: 0.0},
            broker.EXPIRED: {orders: 0.0, stock: 0.0},
            broker.DEAD_LETTERED: {orders: step, stock: 0.0},
            broker.BACKLOG: {orders: step, stock: 5000.0},
            broker.OUTSTANDING: {orders: 0.0, stock: 0.0},
            broker.OLDEST_UNACKED: {orders: 0.5, stock: 901.0},
            broker.PAUSED: {orders: 1.0, stock: 0.0},
            consumer.OUTCOMES: {("orders", "applied"): 9 * step, ("orders", "poison"): step, ("other", "applied"): 0.0},
            f"{consumer.HANDLING.name}_bucket": {("orders", "0.001"): 5 * step, ("orders", "+Inf"): 10 * step},
            consumer.ANSWERS: {("200",): 9 * step, ("422",): step, ("503",): 0.0},
            consumer.QUEUE_DEPTH: {(): 3.0},
            consumer.IN_HANDS: {(): 4.0},
            consumer.STORE_RETRIES: {(): 0.0},
            consumer.STORE_ERRORS: {("transient",): step},
            desk.FAILURES: {("permanent_failure",): 4.0, ("queued_for_retry",): 1.0},
            desk.DLQ_MESSAGES: {("DECODE_ERROR",): 5.0, ("UNROUTABLE",): 0.0},
            desk.GROUPS: {("open",): 1.0},
            desk.DLQ_RETRY_SUCCESS_RATE: {(): 0.75},
            alerts.FIRING: {("warning",): 0.0, ("critical",): 2.0},
        },
        push=[
            {
                "subscription": orders[0],
                "state": "paused",
                "window": 8,
                "inFlight": 2,
                "attempts": {"acknowledged": 90, "status_5xx": 7},
                "lastError": "it said\x1b[2J no",
                "pausedBecause": "9 of 10 failed",
            }
        ],
        groups=[
            {"fingerprint": "aabbccddee", "count": 4, "waiting": 3, "failureReason": "DECODE_ERROR",
             "subscription": orders[0], "example": "not JSON \x1b[31m"}
        ],
        alerts=[
            {"rule": "OldestUnacked", "state": "firing", "summary": "stock is old"},
            {"rule": "BacklogGrows", "state": "pending", "summary": "it grows"},
            {"rule": "StoreErrors", "state": "firing", "silencedUntil": "2026-11-20T00:00:00Z", "summary": "known"},
        ],
        replays=[
            {"id": 7, "state": "running", "total": 100, "counts": {"succeeded": 40, "failed": 2}, "ratePerSecond": 50.0}
        ],
    )  # fmt: skip


def a_picture() -> Picture:
    return picture([saw(whole_look(0, 10), whole_look(1, 20))])


def test_the_picture_has_rates_of_every_part() -> None:
    found = a_picture()
    orders, stock = found.subscriptions
    assert (orders.delivered, orders.acked, orders.nacked, orders.dead_lettered) == (100, 100, 10, 10)
    # What left, 110 a second, and 10 a second that it has more of.
    assert orders.incoming == 120
    assert (stock.backlog, stock.incoming) == (5000, 0)
    [topic] = found.topics
    assert (topic.published, topic.bytes) == (120, 12_000)
    [row] = found.consumers  # of the other topic there was none
    assert (row.handled, row.outcomes) == (200, {"applied": 90, "poison": 10})
    assert row.p50 == pytest.approx(0.001)
    assert found.work is not None
    assert found.work.answers == {"2xx": 90, "4xx": 10, "5xx": 0}
    assert found.desk is not None
    assert found.desk.reasons == {"DECODE_ERROR": 5}
    assert found.alerts == {"warning": 0, "critical": 2}


def test_several_processes_are_one_picture() -> None:
    """Counters are added up. What is in the desk's store is told by each desk and counts once."""
    one, two = saw(whole_look(0, 10), whole_look(1, 20)), saw(whole_look(0, 1), whole_look(2, 2))
    found = picture([one, two])
    assert found.subscriptions[0].acked == 100 + 5
    assert found.desk is not None
    assert found.desk.statuses == {"permanent_failure": 4, "queued_for_retry": 1}
    assert len(found.desk.open_groups) == len(found.desk.replays) == 1


def text(width: int | None = None, height: int | None = None, view: View | None = None) -> list[str]:
    return [plain(line) for line in drawn(a_picture(), view or View(), 100.0, width, height)]


def test_everything_is_on_it() -> None:
    shown = "\n".join(text())
    for part in (
        "holdfast up 0.1.0 at http://127.0.0.1:8080, up for 99s",
        "2 subscriptions  backlog 5020  published 120/s (12 kB/s)",
        "alerts: 2 critical  stock is old\n",
        "paused",
        "2/8",
        "9 of 10 failed",
        "5xx 0/s",
        "store errors 10/s",
        "permanent_failure 4  queued_for_retry 1",
        "mended by retries 75%",
        "replay 7 running  42 of 100, 2 failed, 50.0/s",
        "aabbccddee",  # whole: `holdfast failures group show` takes nothing less
    ):
        assert part in shown


@given(st.integers(1, 200), st.integers(1, 60))
def test_it_fits_every_terminal(width: int, height: int) -> None:
    lines = text(width, height)
    assert len(lines) == height
    assert max(map(width_of, lines)) <= width


def test_what_an_endpoint_says_cannot_steer_the_terminal() -> None:
    for line in drawn(a_picture(), View(), 100.0, 160, 50):
        assert "\x1b[2J" not in styled(line)
        assert "\x1b[31m" not in styled(line)


def test_narrow_terminals_keep_what_matters_most() -> None:
    header = next(line for line in text(60, 30) if line.startswith("SUBSCRIPTION"))
    assert {"BACKLOG", "OLDEST"} <= set(header.split())
    assert "WINDOW" not in header
    assert "WHY" not in header


def test_low_terminals_say_less_of_each_part() -> None:
    shown = "\n".join(text(100, 12))
    assert "SUBSCRIPTION" in shown
    assert "by backlog" in shown


def names(view: View) -> list[str]:
    return [row.name.rpartition("/")[2] for row in view.rows(a_picture())]


def test_sorting_and_filtering() -> None:
    assert names(View()) == ["stock", "orders"]
    assert names(View(order=ORDERS_BY_NAME["failing"])) == ["orders", "stock"]
    assert names(View(order=ORDERS_BY_NAME["name"])) == ["orders", "stock"]
    assert names(View(order=ORDERS_BY_NAME["name"], reverse=True)) == ["stock", "orders"]
    assert names(View(filter="STO")) == ["stock"]


def test_the_foot_tells_all_keys_in_80_columns_too() -> None:
    view = View(order=ORDERS_BY_NAME["delivered"], reverse=True)
    assert text(120, 24)[-1].endswith("sort b:backlog o:oldest i:in d:delivered a:acked f:failing n:name")
    assert text(80, 24, view)[-1].endswith("r:reverse  sort b,o,i,d,a,f,n")


def test_scrolling_shows_the_rest() -> None:
    rows = [
        SubscriptionRow(f"s{number:02}", 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, False, None)
        for number in range(40)
    ]
    shown = [plain(line) for line in drawn(Picture([], rows), View(first=30), 1.0, 80, 12)]
    assert "s30" in shown[2] or "s30" in shown[3]
    assert not any("s29" in line for line in shown)
    assert any("s39" in plain(line) for line in drawn(Picture([], rows), View(first=99), 1.0, 80, 12))


def test_every_order_sorts_what_is_not_known_too() -> None:
    row = SubscriptionRow("a", None, None, None, None, None, None, None, None, None, paused=False, push=None)
    for order in ORDERS:
        assert View(order=order).rows(Picture([], [row])) == [row]


# Cells.


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, "-"), (0, "0"), (0.01, "<0.1"), (0.4, "0.4"), (12.3, "12"), (250_000, "250k"), (3e6, "3.0M")],
)
def test_rates_are_short(value: float | None, expected: str) -> None:
    assert cells.rate(value) == expected


def test_a_long_name_keeps_both_ends() -> None:
    columns = [Column("name", left=True, least=9, middle=True), Column("n")]
    [_, line] = cells.table(columns, [[Cell("orders.materializer.dlq"), Cell("1")]], 12)
    assert plain(line) == "orde….dlq  1"


def test_json_can_be_written() -> None:
    from dataclasses import asdict

    json.dumps(asdict(a_picture()))
