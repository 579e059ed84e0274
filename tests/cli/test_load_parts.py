"""The parts of `holdfast load` that need no endpoint: percentiles, slices of time, payloads, and the search."""

from __future__ import annotations

import asyncio
import base64
import json
import math
import random
import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.cli.load import plots
from holdfast.cli.load.endpoint import Endpoint
from holdfast.cli.load.latencies import MILLISECOND, Latencies
from holdfast.cli.load.limit import Bounds, Ending, Limit, Search, Step, find_limit, why_too_much
from holdfast.cli.load.messages import Messages
from holdfast.cli.load.page import limit_page, run_page
from holdfast.cli.load.payloads import from_file, made_up
from holdfast.cli.load.progress import progress_line
from holdfast.cli.load.result import points
from holdfast.cli.load.run import Load, Plan, Run
from holdfast.cli.load.tally import MOST_SLICES, Kind, Tally, Timeline, kind_of
from holdfast.cli.load.text import percent, run_lines
from holdfast.cli.load.verdicts import exit_code, generator_of
from holdfast.errors import BadInput
from holdfast.outgoing.answers import Answer, NoAnswer
from holdfast.outgoing.targets import parse_target

SECOND = 1_000_000_000


def latencies(values: list[int]) -> Latencies:
    found = Latencies()
    for value in values:
        found.add(value)
    return found


def run_of(tally: Tally, **changes: object) -> Run:
    fields: dict[str, object] = {
        "plan": Plan(concurrency=10, timeout_seconds=1.0),
        "tally": tally,
        "started_at_ns": 1_700_000_000 * SECOND,
        "seconds": 1.0,
        "cpu_seconds": 0.1,
        "starved_seconds": 0.0,
        "most_at_once": 3,
        "sent": tally.ended,
        "redelivered": 0,
        "unsent": 0,
        "given_up": 0,
        "late": Latencies(),
        "interrupted": False,
    }
    return Run(**(fields | changes))  # type: ignore[arg-type]


def tally_of(statuses: list[int], took_ms: float = 1.0) -> Tally:
    tally = Tally()
    for status in statuses:
        tally.answer(Answer(status, {}), 0, int(took_ms * MILLISECOND))
    return tally


# Latencies.


@given(st.lists(st.integers(0, 10**11), min_size=1, max_size=300), st.floats(0.001, 1.0))
def test_a_percentile_is_right_to_within_one_percent(values: list[int], share: float) -> None:
    exact = sorted(values)[max(math.ceil(share * len(values) - 1e-9), 1) - 1]
    assert exact <= latencies(values).percentile(share) <= exact * 1.01


def test_percentiles_of_a_known_row() -> None:
    found = latencies([value * MILLISECOND for value in range(1, 1001)])
    summary = found.summary_ms()
    assert list(summary) == ["min", "p50", "p90", "p95", "p99", "p99.9", "max"]
    assert summary["min"] == 1.0
    assert summary["max"] == 1000.0
    expected = {"p50": 500, "p90": 900, "p95": 950, "p99": 990, "p99.9": 999}
    assert {name: summary[name] for name in expected} == pytest.approx(expected, rel=0.01)


def test_no_latencies_have_no_percentiles_and_no_bars() -> None:
    assert set(Latencies().summary_ms().values()) == {0.0}
    assert Latencies().bars() == []


@given(st.lists(st.integers(0, 10**10)), st.lists(st.integers(0, 10**10)))
def test_two_added_are_as_one(first: list[int], second: list[int]) -> None:
    together = latencies(first)
    together.add_all(latencies(second))
    whole = latencies(first + second)
    assert (together.summary_ms(), together.bars(), together.count) == (whole.summary_ms(), whole.bars(), whole.count)


@given(st.lists(st.integers(0, 10**11), min_size=1))
def test_bars_hold_everything_once(values: list[int]) -> None:
    bars = latencies(values).bars()
    assert sum(bar.count for bar in bars) == len(values)
    assert bars[0].count
    assert bars[-1].count
    assert all(bar.from_ms < bar.to_ms for bar in bars)
    assert all(one.to_ms == following.from_ms for one, following in pairwise(bars))
    for bar in bars:
        surely = [value for value in values if bar.from_ms * 1.01 <= value / MILLISECOND < bar.to_ms * 0.99]
        perhaps = [value for value in values if bar.from_ms * 0.99 <= value / MILLISECOND < bar.to_ms * 1.01]
        assert len(surely) <= bar.count <= len(perhaps)


def test_bars_have_round_edges() -> None:
    bars = latencies([1_200_000, 3_500_000, 4_900_000]).bars()
    assert [(bar.from_ms, bar.to_ms, bar.count) for bar in bars] == [(1, 1.5, 1), (1.5, 2, 0), (2, 3, 0), (3, 5, 2)]
    wide = latencies([10**place for place in range(12)]).bars()
    assert len(wide) <= 3 * 12


# Slices of time.


def test_slices_double_and_lose_nothing() -> None:
    timeline = Timeline()
    first_width = timeline.width_ns
    for second in range(200):
        timeline.at(second * SECOND).kinds[Kind.ACCEPTED] += 1
    assert timeline.width_ns > first_width
    assert len(timeline.slices) <= MOST_SLICES
    assert sum(one.kinds[Kind.ACCEPTED] for one in timeline.slices) == 200
    per_slice = timeline.width_ns // SECOND or 1
    assert max(one.kinds[Kind.ACCEPTED] for one in timeline.slices) <= per_slice + 1


def test_a_short_last_slice_joins_the_one_before() -> None:
    tally = Tally()
    for at in (10, 110, 201):
        tally.answer(Answer(200, {}), at * MILLISECOND, MILLISECOND)
    found = points(run_of(tally, seconds=0.201))
    assert [(point.at_seconds, point.kinds[Kind.ACCEPTED]) for point in found] == [(0.0, 1), (0.1, 2)]
    assert found[-1].seconds == pytest.approx(0.101)
    assert found[-1].per_second(Kind.ACCEPTED) == pytest.approx(2 / 0.101)


# What answers mean.


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (200, Kind.ACCEPTED),
        (204, Kind.ACCEPTED),
        (102, Kind.ACCEPTED),
        (429, Kind.BACKPRESSURE),
        (500, Kind.FAILED),
        (503, Kind.FAILED),
        (302, Kind.REFUSED),
        (400, Kind.REFUSED),
        (401, Kind.REFUSED),
    ],
)
def test_kinds(status: int, kind: Kind) -> None:
    assert kind_of(status) is kind


@pytest.mark.parametrize(
    ("statuses", "code"),
    [([200], 0), ([200, 429], 0), ([429], 0), ([200, 500], 1), ([200, 400], 1), ([302], 1), ([], 1)],
)
def test_exit_codes(statuses: list[int], code: int) -> None:
    assert exit_code(run_of(tally_of(statuses))) == code


def test_what_got_no_answer_or_never_left_is_a_failure() -> None:
    tally = tally_of([200])
    assert exit_code(run_of(tally, unsent=1)) == 1
    tally.no_answer(NoAnswer("timeout", "no answer within 1 s"), 0)
    assert exit_code(run_of(tally)) == 1


@pytest.mark.parametrize(
    ("changes", "limit"),
    [
        ({"cpu_seconds": 0.5}, False),
        ({"cpu_seconds": 0.9}, True),
        ({"cpu_seconds": 0.5, "starved_seconds": 0.4}, True),
        ({"late": latencies([30 * MILLISECOND])}, True),
        ({"late": latencies([10 * MILLISECOND])}, False),
        ({"cpu_seconds": 0.09, "seconds": 0.1}, False),  # too short to tell
    ],
)
def test_when_the_generator_is_the_limit(changes: dict[str, object], limit: bool) -> None:
    run = run_of(tally_of([200] * 10, took_ms=5), **changes)
    assert generator_of(run).is_the_limit == limit
    assert any("IT WAS THE LIMIT" in line for line in run_lines(run, "http://x/")) == limit


def test_an_outcome_that_could_steer_a_terminal_does_not() -> None:
    tally = Tally()
    body = json.dumps({"outcome": "\x1b[31mred", "error": {"message": "no\x07"}}).encode()
    tally.answer(Answer(500, {}, body), 0, 1)
    assert list(tally.outcomes) == ["?[31mred"]
    assert tally.examples == {500: "no?"}


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"outcome": 7}', b"{" * 5000, b'{"error": []}', b"\xff"])
def test_any_body_is_borne(body: bytes) -> None:
    tally = Tally()
    tally.answer(Answer(500, {}, body), 0, 1)
    assert not tally.outcomes


@pytest.mark.parametrize(
    ("share", "text"), [(1.0, "100.0 %"), (0.99999, "99.9 %"), (0.5, "50.0 %"), (0.00001, "0.001 %")]
)
def test_shares_never_round_to_all_or_nothing(share: float, text: str) -> None:
    assert percent(share) == text


async def test_a_line_of_progress() -> None:
    plan = Plan(concurrency=1, timeout_seconds=1.0, requests=2000, seconds=30.0)
    payload = made_up("market-ticks", "system.events", things=5, least_bytes=0, run="1", seed=1)
    messages = Messages(payload, topic="t", subscription="s", run="1")
    target = parse_target("--url", "http://127.0.0.1:1/")
    load = Load(Endpoint(target, target.host, b""), messages, plan, asyncio.Event())
    assert progress_line(load, 0.0) == "0/2,000  0/30 s"
    load.tally = tally_of([200] * 30 + [429] * 5, took_ms=20)
    load.tally.no_answer(NoAnswer("timeout", ""), 0)
    assert progress_line(load, 2.0) == "36/2,000  2/30 s  18/s  200: 30  429: 5  timeout: 1  p99 20.0 ms"


# Messages.


def payload_of(body: bytes) -> dict[str, object]:
    envelope = json.loads(body)
    found: dict[str, object] = json.loads(base64.b64decode(envelope["message"]["data"]))
    return found


def test_the_same_seed_makes_the_same_payloads() -> None:
    def made(seed: int) -> list[bytes]:
        payload = made_up("market-ticks", "system.events", things=5, least_bytes=0, run="1", seed=seed)
        return [payload(number, 0) for number in range(20)]

    assert made(1) == made(1)
    assert made(1) != made(2)


def test_services_are_as_many_as_asked_for() -> None:
    payload = made_up("events", "events", things=3, least_bytes=0, run="1", seed=1)
    events = [json.loads(payload(number, 0)) for number in range(200)]
    assert {event["service"] for event in events} == {"load-0000", "load-0001", "load-0002"}
    assert len({(event["service"], event["region"]) for event in events}) == 3


@pytest.mark.parametrize("wanted", [1, 200, 201, 5000])
def test_padding_is_exact(wanted: int) -> None:
    payload = made_up("market-ticks", "system.events", things=5, least_bytes=wanted, run="1", seed=1)
    data = payload(0, 0)
    assert json.loads(data)["symbol"]
    assert len(data) == wanted if wanted >= 200 else len(data) < 200


def test_redeliveries_bring_an_earlier_message_and_count_attempts() -> None:
    payload = made_up("market-ticks", "system.events", things=5, least_bytes=0, run="7", seed=1)
    messages = Messages(
        payload, topic='a"b', subscription="s", run="7", redelivered_share=0.5, with_attempt=True, seed=3
    )
    seen: dict[str, tuple[str, int]] = {}
    for _ in range(400):
        envelope = json.loads(messages.next())
        message, attempt = envelope["message"], envelope["deliveryAttempt"]
        assert message["attributes"] == {"topic": 'a"b'}
        before = seen.get(message["messageId"])
        assert attempt == (1 if before is None else before[1] + 1)
        assert before is None or before[0] == message["data"]
        seen[message["messageId"]] = (message["data"], attempt)
    assert len(seen) == messages.made == 400 - messages.redelivered
    assert 150 < messages.redelivered < 250


def test_a_file_of_objects_is_sent_in_turn(tmp_path: Path) -> None:
    file = tmp_path / "payloads"
    file.write_text('{"a": 1}\n\n{"a": 2}\n', encoding="utf-8")
    payload = from_file(file)
    assert [payload(number, 0) for number in range(3)] == [b'{"a": 1}', b'{"a": 2}', b'{"a": 1}']
    file.write_text('{\n "a": [\n  1\n ]\n}\n', encoding="utf-8")
    assert json.loads(from_file(file)(5, 0)) == {"a": [1]}


@pytest.mark.parametrize(
    ("text", "why"), [("", "is empty"), ("[1]", "line 1"), ('{"a": 1}\n{"a"', "line 2"), ('{"a": 1, "a": 2}', "twice")]
)
def test_a_bad_file_is_refused_by_its_line(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "payloads"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(BadInput, match=why) as refused:
        from_file(file)
    assert refused.value.field == "--payload"


# The search.


@pytest.mark.parametrize("bears", [1.6, 30, 199, 200, 450, 12_345, 99_999])
def test_the_search_ends_close_to_the_limit(bears: float) -> None:
    search, steps = Search(), 0
    while (rate := search.next_rate) is not None:
        steps += 1
        if rate <= bears:
            search.passed()
        else:
            search.failed()
    assert search.safe is not None
    assert search.too_much is not None
    assert search.safe <= bears < search.too_much
    assert search.too_much / search.safe <= 1.1
    assert steps < 30


def test_a_search_that_finds_nothing_ends() -> None:
    search, steps = Search(), 0
    while search.next_rate is not None:
        search.failed()
        steps += 1
    assert search.safe is None
    assert steps == 2 * 8  # 200, 100 … 1.6, each of them twice


def test_one_failure_is_forgiven() -> None:
    search = Search(100)
    assert not search.failed()
    assert search.next_rate == 100
    search.passed()
    assert search.next_rate == 200
    assert (search.failed(), search.failed()) == (False, True)  # the one before is forgotten
    assert search.too_much == 200


BOUNDS = Bounds(max_p99_ms=100, max_errors=0.01)


@pytest.mark.parametrize(
    ("run", "why"),
    [
        (run_of(tally_of([200] * 100)), ""),
        (run_of(tally_of([200] * 99 + [429])), ""),
        (run_of(tally_of([200] * 97 + [429, 429, 500])), "2 times 429, 1 times 500"),
        (run_of(tally_of([200] * 100, took_ms=150)), "p99 150 ms"),
        (run_of(tally_of([200] * 100), unsent=50), "50 could not leave"),
        (run_of(Tally()), "nothing was sent"),
    ],
)
def test_what_is_too_much(run: Run, why: str) -> None:
    assert why_too_much(run, BOUNDS) == why


async def search_with(answers: list[Run], *, steps_in_time: int = 100) -> Limit:
    left = iter(answers)
    begun = 0

    async def attempt(rate: float) -> Run:
        nonlocal begun
        begun += 1
        return next(left)

    return await find_limit(Search(100), BOUNDS, attempt, lambda: begun >= steps_in_time)


GOOD, BAD = run_of(tally_of([200] * 100)), run_of(tally_of([429] * 100))


async def test_the_search_names_what_was_safe_and_what_was_not() -> None:
    # 100, 200 twice, 141, 168 twice, 154
    limit = await search_with([GOOD, BAD, BAD, GOOD, BAD, BAD, GOOD])
    assert limit.ending is Ending.FOUND
    assert [step.rate for step in limit.steps] == [100, 200, 200, 141, 168, 168, 154]
    assert limit.safe is not None
    assert limit.too_much is not None
    assert (limit.safe.rate, limit.too_much.rate) == (154, 168)


async def test_a_search_that_has_no_time_keeps_what_it_knows() -> None:
    limit = await search_with([GOOD, GOOD], steps_in_time=2)
    assert limit.ending is Ending.TIME
    assert limit.safe is not None
    assert limit.safe.rate == 200


async def test_a_search_stops_where_the_generator_does() -> None:
    busy = run_of(tally_of([429] * 100), cpu_seconds=0.95)
    limit = await search_with([GOOD, busy, busy])
    assert limit.ending is Ending.GENERATOR


async def test_a_search_against_an_endpoint_that_wants_nothing_is_hopeless() -> None:
    limit = await search_with([run_of(tally_of([401] * 100))])
    assert (limit.ending, limit.safe) == (Ending.HOPELESS, None)


async def test_an_interrupted_step_does_not_count() -> None:
    limit = await search_with([GOOD, run_of(tally_of([429] * 10), interrupted=True)])
    assert limit.ending is Ending.INTERRUPTED
    assert len(limit.steps) == 1


# The page.


class Checker(HTMLParser):
    """Every tag is closed, in the right order; notes tags and what could load something."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.loads: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.loads += [f"{tag} {name}" for name, _ in attrs if name in ("src", "href", "data") or name[:2] == "on"]
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.remove(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def checked(page: str) -> Checker:
    checker = Checker()
    checker.feed(page)
    checker.close()
    assert checker.open == []
    assert checker.loads == []
    assert not checker.tags & {"script", "link", "img", "iframe", "object", "b-bold"}
    assert "url(" not in page
    assert "@import" not in page
    assert all("nan" not in drawing for drawing in re.findall("<svg.*?</svg>", page))
    return checker


EVIL = "<script>alert(1)</script><b-bold>\"'&"


def evil_run() -> Run:
    rng = random.Random(1)
    tally = Tally()
    for number in range(2000):
        body = json.dumps({"outcome": EVIL, "error": EVIL}).encode()
        status = rng.choice([200, 200, 200, 429, 500, 404])
        tally.answer(Answer(status, {}, body), number * MILLISECOND, rng.randrange(1, 300) * MILLISECOND // 10)
    tally.no_answer(NoAnswer("timeout", EVIL), 2000 * MILLISECOND)
    return run_of(tally, seconds=2.0)


def test_a_page_holds_everything_and_escapes_it() -> None:
    page = run_page(evil_run(), "http://x/?" + EVIL, {"topic": EVIL})
    found = checked(page)
    assert "alert(1)" in found.text
    assert page.count("<svg") == 4
    for kind in Kind:
        assert f'class="{plots.css_class(kind)}"' in page


def test_a_page_of_a_limit() -> None:
    run = evil_run()
    steps = [Step(100, run, ""), Step(200, run, EVIL), Step(150, run_of(Tally()), "nothing was sent")]
    page = limit_page(Limit(BOUNDS, steps, Ending.FOUND), "http://x/" + EVIL, {})
    found = checked(page)
    assert "safe limit: 100 requests a second" in found.text
    assert page.count("<svg") == 6


def test_pages_of_nothing() -> None:
    checked(run_page(run_of(Tally(), seconds=0.0), "http://x/", {}))
    checked(limit_page(Limit(BOUNDS, [], Ending.TIME), "http://x/", {}))


def test_the_number_at_the_end_of_an_axis_is_not_cut() -> None:
    drawn = plots.lines(
        "rates", [plots.Line("offered", [(0.0, 0.0), (15_000.0, 1.0)])], x_title="rate", y_title="share"
    )
    (at,) = re.findall(r'<text x="([0-9.]+)" [^>]*text-anchor="middle">15,000</text>', drawn)
    assert float(at) + len("15,000") * 11 * 0.65 / 2 <= plots.WIDTH  # of letters 11 pixels high


@given(st.floats(1e-3, 1e9), st.floats(1.0, 1e6), st.booleans())
def test_ticks_lie_on_the_scale(low: float, factor: float, logarithmic: bool) -> None:
    scale = plots.Scale(low if logarithmic else 0.0, low * factor * 10, 0, 100, logarithmic)
    ticks = scale.ticks()
    assert 1 <= len(ticks) <= 14
    assert all(-0.5 <= scale(tick) <= 100.5 for tick in ticks)
