"""/api/v1/push and /metrics on a real server, over a real socket; /metrics is read by Prometheus' own parsers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

import aiohttp
import pytest
from prometheus_client.metrics_core import Metric as Parsed
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open_metrics
from prometheus_client.parser import text_string_to_metric_families as parse_text
from starlette.requests import Request

from holdfast.api.http import metrics as metrics_api
from holdfast.api.http import push_status
from holdfast.api.http.app import make_app
from holdfast.api.http.server import HttpServer, listen
from holdfast.broker.push.metrics import push_metrics
from holdfast.broker.push.status import LATENCY_BOUNDS, PushStatus
from holdfast.clock import NANOSECONDS
from holdfast.errors import StorageUnavailable
from holdfast.metrics import push as push_table
from holdfast.metrics import registry as registry_module
from holdfast.metrics.metric import Family, Histogram, Kind, Metric, Sample
from holdfast.metrics.registry import MetricsRegistry
from holdfast.metrics.table import METRICS
from holdfast.testing.clock import ManualClock
from tests.support.push_status import BEFORE, NOW_NS, a_status, latencies

PUSH = [value for value in vars(push_table).values() if isinstance(value, Metric)]
# What Prometheus 3 sends.
PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


class Push:
    """In place of push delivery."""

    def __init__(self) -> None:
        self.found: list[PushStatus] = []
        self.broken: Exception | None = None

    def status(self) -> list[PushStatus]:
        if self.broken:
            raise self.broken
        return self.found


@pytest.fixture
def push() -> Push:
    return Push()


@pytest.fixture
def registry(push: Push) -> MetricsRegistry:
    registry = MetricsRegistry()
    registry.register(lambda: push_metrics(push.status(), NOW_NS))
    return registry


@pytest.fixture
async def client(push: Push, registry: MetricsRegistry) -> AsyncIterator[aiohttp.ClientSession]:
    routes = [*push_status.routes(push.status, ManualClock(NOW_NS)), *metrics_api.routes(registry)]
    listener = listen("127.0.0.1", 0)
    port = listener.getsockname()[1]
    server = HttpServer(make_app(routes, {}), listener)
    await server.start()
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
        yield session
    await server.stop()


# /api/v1/push.


async def get(client: aiohttp.ClientSession, **query: str) -> tuple[int, Any]:
    async with client.get("/api/v1/push", params=query) as answer:
        assert answer.content_type == "application/json"
        return answer.status, await answer.json()


async def listed(client: aiohttp.ClientSession, **query: str) -> list[str]:
    status, body = await get(client, **query)
    assert status == 200, body
    return [row["subscription"] for row in body["subscriptions"]]


async def test_no_push_subscriptions(client: aiohttp.ClientSession) -> None:
    assert await get(client) == (200, {"subscriptions": [], "nextPageToken": "", "time": "2023-11-14T22:13:20Z"})


async def test_everything_that_is_known(client: aiohttp.ClientSession, push: Push) -> None:
    push.found = [
        a_status(
            "orders",
            state="paused",
            window=1,
            in_flight=2,
            due=3,
            oldest_due_ns=NOW_NS - 90 * NANOSECONDS,
            waiting=4,
            next_due_ns=NOW_NS + NANOSECONDS // 2,
            last_status="503",
            last_error="the endpoint answered 503",
            last_attempt_ns=NOW_NS - 1,
            dropped=5,
            attempts={"status_5xx": 6, "acknowledged": 7},
            **latencies(*[0.07] * 99, 45.0),
        )
    ]
    _, body = await get(client)
    assert body["subscriptions"] == [
        {
            "subscription": "projects/local/subscriptions/orders",
            "endpoint": "http://127.0.0.1:9/push",
            "state": "paused",
            "window": 1,
            "inFlight": 2,
            "due": 3,
            "oldestDueTime": "2023-11-14T22:11:50Z",
            "waiting": 4,
            "nextDueTime": "2023-11-14T22:13:20.500Z",
            "lastStatus": "503",
            "lastError": "the endpoint answered 503",
            "lastAttemptTime": "2023-11-14T22:13:19.999999999Z",
            "dropped": 5,
            "attempts": {"acknowledged": 7, "status_5xx": 6},
            "latency": {"count": 100, "p50Seconds": 0.075253, "p99Seconds": 0.1},
        }
    ]


async def test_times_that_are_not_known_are_absent(client: aiohttp.ClientSession, push: Push) -> None:
    push.found = [a_status()]
    _, body = await get(client)
    [row] = body["subscriptions"]
    assert not {"oldestDueTime", "nextDueTime", "lastAttemptTime"} & set(row)
    assert row["latency"] == {"count": 0}


@pytest.mark.parametrize(
    ("seconds", "p50", "p99"),
    [
        ([0.0005], 0.0005, 0.00099),
        ([0.3] * 4, 0.375, 0.4975),
        ([0.0005] * 50 + [0.3] * 50, 0.001, 0.495),
        ([3600.0] * 3, 60.0, 60.0),
    ],
)
async def test_latency_is_estimated_from_the_buckets(
    client: aiohttp.ClientSession, push: Push, seconds: list[float], p50: float, p99: float
) -> None:
    push.found = [a_status(**latencies(*seconds))]
    _, body = await get(client)
    assert body["subscriptions"][0]["latency"] == {"count": len(seconds), "p50Seconds": p50, "p99Seconds": p99}


async def test_pages(client: aiohttp.ClientSession, push: Push) -> None:
    push.found = [a_status(name) for name in ("eee", "aaa", "ccc", "bbb", "ddd")]
    _, first = await get(client, pageSize="2")
    assert BEFORE not in first["nextPageToken"]
    push.found = [status for status in push.found if not status.subscription.endswith("bbb")]  # the token's own
    _, second = await get(client, pageSize="2", pageToken=first["nextPageToken"])
    _, third = await get(client, pageSize="2", pageToken=second["nextPageToken"])
    pages = [[row["subscription"][-3:] for row in page["subscriptions"]] for page in (first, second, third)]
    assert pages == [["aaa", "bbb"], ["ccc", "ddd"], ["eee"]]
    assert third["nextPageToken"] == ""


async def test_a_last_page_that_is_full_is_the_last(client: aiohttp.ClientSession, push: Push) -> None:
    push.found = [a_status("aaa"), a_status("bbb")]
    _, body = await get(client, pageSize="2")
    assert body["nextPageToken"] == ""


async def test_one_subscription(client: aiohttp.ClientSession, push: Push) -> None:
    other = "projects/other/subscriptions/orders"
    push.found = [a_status("orders"), a_status("orders.eu"), a_status(other)]
    assert await listed(client, subscription="orders") == [BEFORE + "orders", other]
    assert await listed(client, subscription=other) == [other]
    assert await listed(client, subscription="order") == []
    assert await listed(client, subscription=BEFORE + "absent") == []
    assert len(await listed(client, subscription="")) == 3


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ({"pageSize": "0"}, "pageSize"),
        ({"pageSize": "1001"}, "pageSize"),
        ({"pageToken": "!"}, "pageToken: was not given by this list"),
        ({"pageToken": "_w=="}, "pageToken: was not given by this list"),
        ({"pageToken": "ü"}, "pageToken: was not given by this list"),
        ({"subscription": "projects/x"}, "subscription: must look like projects/PROJECT/subscriptions/ID"),
    ],
)
async def test_bad_input_names_its_field(client: aiohttp.ClientSession, query: Mapping[str, str], named: str) -> None:
    status, body = await get(client, **query)
    assert (status, body["error"]["status"]) == (400, "INVALID_ARGUMENT")
    assert named in body["error"]["message"]


async def test_an_error_is_told_as_elsewhere(client: aiohttp.ClientSession, push: Push) -> None:
    push.broken = StorageUnavailable("disk full")
    assert await get(client) == (503, {"error": {"code": 503, "message": "disk full", "status": "UNAVAILABLE"}})


# /metrics.


async def scrape(client: aiohttp.ClientSession, accept: str = "*/*") -> tuple[str, str]:
    """The content type and the text."""
    async with client.get("/metrics", headers={"Accept": accept}) as answer:
        text = await answer.text(encoding="utf-8")
        assert answer.status == 200, text
        return answer.headers["Content-Type"], text


async def both_formats(client: aiohttp.ClientSession) -> list[dict[str, Parsed]]:
    """What the parsers make of them, by the name that is in the table."""
    _, text = await scrape(client)
    _, open_metrics = await scrape(client, PROMETHEUS)
    assert open_metrics.endswith("\n# EOF\n")
    return [by_name(parse_text(text)), by_name(parse_open_metrics(open_metrics))]  # type: ignore[no-untyped-call]


def by_name(found: Iterable[Parsed]) -> dict[str, Parsed]:
    """Both parsers leave out a counter's suffix."""
    return {one.name + ("_total" if one.type == "counter" else ""): one for one in found}


def values(parsed: Parsed, suffix: str = "") -> dict[tuple[str, ...], float]:
    return {
        tuple(value for _, value in sorted(sample.labels.items())): sample.value
        for sample in parsed.samples
        if sample.name.endswith(suffix)
    }


async def test_one_subscription_in_both_formats(client: aiohttp.ClientSession, push: Push) -> None:
    push.found = [a_status("orders", due=7, attempts={"acknowledged": 3, "dns": 1}, **latencies(0.0005, 0.3, 99.0))]
    name = BEFORE + "orders"
    for found in await both_formats(client):
        assert {(one.name, str(one.kind), one.doc) for one in PUSH} == {
            (told, parsed.type, parsed.documentation) for told, parsed in found.items()
        }
        assert values(found["holdfast_push_due"]) == {(name,): 7}
        assert values(found["holdfast_push_attempts_total"]) == {("acknowledged", name): 3, ("dns", name): 1}
        latency = found["holdfast_push_latency_seconds"]
        assert values(latency, "_count") == {(name,): 3}
        assert values(latency, "_sum") == {(name,): pytest.approx(99.3005)}
        buckets = values(latency, "_bucket")
        assert [float(bound) for bound, _ in buckets] == [*LATENCY_BOUNDS, float("inf")]
        assert list(buckets.values()) == [1] * 7 + [1, 2] + [2] * 6 + [3]


async def test_1500_subscriptions_in_both_formats(client: aiohttp.ClientSession, push: Push) -> None:
    push.found = [
        a_status(f"s{number:04}", due=number, attempts={"acknowledged": 1}, **latencies(0.02)) for number in range(1500)
    ]
    for found in await both_formats(client):
        due = values(found["holdfast_push_due"])
        assert len(due) == 1001
        assert (due[(BEFORE + "s0999",)], due[("other",)]) == (999, sum(range(1000, 1500)))
        assert sum(values(found["holdfast_push_attempts_total"]).values()) == 1500
        assert sum(values(found["holdfast_push_latency_seconds"], "_count").values()) == 1500
        assert len(values(found["holdfast_push_latency_seconds"], "_bucket")) == 1001 * (len(LATENCY_BOUNDS) + 1)


async def test_nothing_to_report_is_no_error(client: aiohttp.ClientSession) -> None:
    for found in await both_formats(client):
        assert [parsed.samples for parsed in found.values()] == [[]] * len(PUSH)


async def test_what_needs_escaping_is_escaped(
    client: aiohttp.ClientSession, registry: MetricsRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = 'a\\b"c\nd,e}ü'
    plain = Metric("holdfast_odd", Kind.GAUGE, (), 'Odd \\ "text"\nof two lines.')
    spread = Metric("holdfast_odd_seconds", Kind.HISTOGRAM, (), "Without labels.")
    monkeypatch.setattr(registry_module, "METRICS", (*METRICS, plain, spread))
    registry.register(
        lambda: [
            Family(push_table.DUE, [Sample((odd,), 1)]),
            Family(plain, [Sample((), 0.25)]),
            Family(spread, [Sample((), Histogram((1.0,), [2, 1], 4.5))]),
        ]
    )
    for found in await both_formats(client):
        assert values(found["holdfast_push_due"]) == {(odd,): 1}
        assert found["holdfast_odd"].documentation == plain.doc
        assert values(found["holdfast_odd"]) == {(): 0.25}
        assert values(found["holdfast_odd_seconds"], "_bucket") == {("1.0",): 2, ("+Inf",): 3}
        assert values(found["holdfast_odd_seconds"], "_sum") == {(): 4.5}


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("", metrics_api.TEXT),
        ("*/*", metrics_api.TEXT),
        ("text/html,application/xhtml+xml,*/*;q=0.8", metrics_api.TEXT),
        (PROMETHEUS, metrics_api.OPEN_METRICS),
        ("application/openmetrics-text", metrics_api.OPEN_METRICS),
        ("Application/OpenMetrics-Text ; Version = 1.0.0", metrics_api.OPEN_METRICS),
        ("application/openmetrics-text;version=0.0.1,text/plain;version=0.0.4;q=0.5", metrics_api.TEXT),
        ("application/openmetrics-text;q=0", metrics_api.TEXT),
        ("application/openmetrics-text;q=0.3,text/plain;q=0.5", metrics_api.TEXT),
        ("application/openmetrics-text;q=much", metrics_api.TEXT),
        (";;;,=,q=1", metrics_api.TEXT),
    ],
)
async def test_the_format_is_the_one_that_was_asked_for(
    client: aiohttp.ClientSession, accept: str, content_type: str
) -> None:
    found, text = await scrape(client, accept)
    assert found == content_type
    assert text.endswith("# EOF\n") == (content_type == metrics_api.OPEN_METRICS)


async def test_only_get(client: aiohttp.ClientSession) -> None:
    async with client.post("/metrics") as answer:
        assert answer.status == 405


async def test_others_have_turns_while_a_large_scrape_is_written(push: Push, registry: MetricsRegistry) -> None:
    push.found = [a_status(f"s{number:04}") for number in range(1000)]
    [route] = metrics_api.routes(registry)
    request = Request({"type": "http", "method": "GET", "path": "/metrics", "headers": []})
    writing = asyncio.create_task(route.endpoint(request))
    turns = 0
    while not writing.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns >= 7 * 1000 / metrics_api.SAMPLES_AT_ONCE  # none of these has attempts
    assert len(writing.result().body) > 1_000_000
