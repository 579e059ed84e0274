"""`holdfast load` as a command, against small endpoints that answer as they are told, or do not."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import ssl
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from holdfast.cli.load import endpoint as endpoint_module
from holdfast.cli.load.endpoint import Endpoint
from holdfast.cli.main import main
from holdfast.model.timestamps import parse_rfc3339
from holdfast.outgoing.answers import Answer
from holdfast.outgoing.request_head import request_head
from holdfast.outgoing.targets import parse_target
from tests.support.process import HOLDFAST, START_SECONDS, environment
from tests.support.push_endpoint import Reply, answering, push_endpoint
from tests.support.terminal import holdfast_on_a_terminal


@dataclass(frozen=True)
class Done:
    code: int | None
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        return json.loads(self.stdout)

    def counts(self) -> dict[str, int]:
        return {answer["name"]: answer["count"] for answer in self.json["answers"]}


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., Awaitable[Done]]:
    async def run(url: str, *args: str) -> Done:
        process = await started(tmp_path, url, *args)
        return await ended(process)

    return run


Loading = Callable[..., Awaitable[Done]]


async def started(cwd: Path, url: str, *args: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        HOLDFAST,
        *("load", "--url", url, *args),
        cwd=cwd,
        env=environment({}),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def ended(process: asyncio.subprocess.Process) -> Done:
    try:
        out, err = await asyncio.wait_for(process.communicate(), START_SECONDS)
    finally:
        if process.returncode is None:
            process.kill()
    return Done(process.returncode, out.decode(), err.decode())


def in_turn(*replies: Reply) -> Reply:
    """The first request gets the first reply, and so on, again and again."""
    count = 0

    async def reply(request: web.Request) -> web.StreamResponse:
        nonlocal count
        count += 1
        return await replies[(count - 1) % len(replies)](request)

    return reply


def outcome(name: str, status: int = 200) -> Reply:
    async def reply(request: web.Request) -> web.StreamResponse:
        return web.json_response({"outcome": name, "error": f"because of {name}"}, status=status)

    return reply


async def never(request: web.Request) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError


async def closes(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.close()
    return web.Response()


# What is sent.


async def test_requests_are_as_pub_sub_sends_them(load: Loading, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("abc.def\n", encoding="utf-8")
    subscription = "projects/p/subscriptions/s"
    async with push_endpoint() as endpoint:
        done = await load(
            endpoint.url, "--requests", "20", "--token-file", "token", "--subscription", subscription, "--json"
        )
    assert (done.code, done.stderr, done.counts()) == (0, "", {"204": 20})
    assert {head["Content-Type"] for head in endpoint.headers} == {"application/json"}
    assert {head["Authorization"] for head in endpoint.headers} == {"Bearer abc.def"}
    assert {head["User-Agent"].partition("/")[0] for head in endpoint.headers} == {"holdfast-load"}
    assert set(endpoint.methods) == {"POST"}
    for envelope in endpoint.envelopes:
        assert envelope.keys() == {"message", "subscription"}
        assert envelope["subscription"] == subscription
        message = envelope["message"]
        assert message.keys() == {"data", "messageId", "publishTime", "attributes"}
        assert message["attributes"] == {"topic": "system.events"}
        assert abs(parse_rfc3339(message["publishTime"]) - time.time_ns()) < 60 * 10**9
        event = json.loads(base64.b64decode(message["data"], validate=True))
        assert event.keys() == {
            *("service", "status", "version", "region", "producedAt", "sequence", "eventId"),
        }
    assert len({envelope["message"]["messageId"] for envelope in endpoint.envelopes}) == 20
    assert "abc.def" not in done.stdout


@pytest.mark.parametrize(
    ("topic", "fields"),
    [
        ("market-ticks", {"symbol", "price", "size"}),
        ("market-bars-1m", {"symbol", "timeframe", "open", "high", "low", "close", "volume", "start"}),
        ("trade-signals", {"symbol", "strategy", "action"}),
        ("ingest-heartbeat", {"pipelineId", "status", "version", "region"}),
    ],
)
async def test_each_stream_has_its_payload(load: Loading, topic: str, fields: set[str]) -> None:
    async with push_endpoint() as endpoint:
        assert (await load(endpoint.url, "--requests", "3", "--topic", topic)).code == 0
    for envelope, data in zip(endpoint.envelopes, endpoint.data, strict=True):
        assert envelope["message"]["attributes"] == {"topic": topic}
        assert json.loads(data).keys() == fields | {"producedAt", "sequence", "eventId"}


async def test_payloads_of_a_file_for_a_topic_of_ones_own(load: Loading, tmp_path: Path) -> None:
    (tmp_path / "orders").write_text('{"n": 1}\n{"n": 2}\n', encoding="utf-8")
    async with push_endpoint() as endpoint:
        args = ("--topic", "orders", "--payload", "orders", "--requests", "4", "--concurrency", "1")
        assert (await load(endpoint.url, *args)).code == 0
    assert [json.loads(data)["n"] for data in endpoint.data] == [1, 2, 1, 2]


async def test_redeliveries_and_padding(load: Loading) -> None:
    async with push_endpoint() as endpoint:
        args = (
            "--requests",
            "200",
            "--duplicates",
            "50",
            "--delivery-attempt",
            "--payload-bytes",
            "600",
            "--seed",
            "5",
        )
        done = await load(endpoint.url, *args, "--json")
    ids = [envelope["message"]["messageId"] for envelope in endpoint.envelopes]
    assert done.json["requests"]["redelivered"] == 200 - len(set(ids)) > 50
    again = {envelope["deliveryAttempt"] for envelope in endpoint.envelopes}
    assert {1, 2} <= again
    assert {len(data) for data in endpoint.data} == {600}


# What comes back.


async def test_statuses_are_told_with_their_meaning(load: Loading) -> None:
    reply = in_turn(outcome("applied"), outcome("duplicate"), outcome("retry", 429), outcome("retry", 500))
    async with push_endpoint(reply) as endpoint:
        done = await load(endpoint.url, "--requests", "40")
    assert done.code == 1
    lines = {line.split()[0]: line.split() for line in done.stdout.splitlines() if line}
    assert lines["200"][1:6] == ["20", "50.0", "%", "accepted:", "the"]
    assert lines["429"][1:6] == ["10", "25.0", "%", "backpressure", "works:"]
    assert lines["500"][1:6] == ["10", "25.0", "%", "transient", "failure:"]
    assert lines["500:"][1:] == ["because", "of", "retry"]
    assert lines["outcomes:"] == ["outcomes:", "retry", "20,", "applied", "10,", "duplicate", "10"]
    assert lines["accepted"][1] == "20" or lines["accepted"][1].endswith("/s")
    assert "generator:" in lines


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (answering(200), 0),
        (answering(429), 0),
        (in_turn(answering(204), answering(429)), 0),
        (in_turn(answering(200), answering(503)), 1),
        (in_turn(answering(200), answering(400)), 1),
    ],
)
async def test_backpressure_is_no_failure(load: Loading, reply: Reply, code: int) -> None:
    async with push_endpoint(reply) as endpoint:
        done = await load(endpoint.url, "--requests", "10", "--json")
    assert (done.code, done.json["exitCode"]) == (code, code)


@pytest.mark.parametrize(
    ("reply", "kind", "why"),
    [(never, "timeout", "no answer within 0.3 s"), (closes, "closed", "closed the connection without an answer")],
)
async def test_no_answer_is_told_by_its_kind(load: Loading, reply: Reply, kind: str, why: str) -> None:
    """Each request is sent once, on a connection that was kept as on a new one: nothing is hidden by a second try."""
    async with push_endpoint(in_turn(answering(200), reply)) as endpoint:
        args = ("--requests", "6", "--concurrency", "1", "--timeout", "0.3")
        done = await load(endpoint.url, *args, "--json")
        assert (done.code, done.counts(), len(endpoint.bodies)) == (1, {"200": 3, kind: 3}, 6)
        told = await load(endpoint.url, *args)
    assert told.code == 1
    assert f"none, {kind}: " in told.stdout
    assert why in told.stdout
    assert done.json["latencyMs"]["all"]["count"] == 3


async def test_connections_are_kept(load: Loading) -> None:
    connections: set[object] = set()

    async def note(request: web.Request) -> web.StreamResponse:
        connections.add(request.transport)
        return web.Response()

    async with push_endpoint(note) as endpoint:
        assert (await load(endpoint.url, "--requests", "100", "--concurrency", "3")).code == 0
        assert len(connections) == 3


async def test_the_connection_used_last_is_used_first() -> None:
    """So that no more are open than are needed."""
    used: list[object] = []

    async def note(request: web.Request) -> web.StreamResponse:
        used.append(request.transport)
        await pushed.wait_until(lambda: len(used) >= 2)  # the first two need a connection each
        return web.Response()

    async with push_endpoint(note) as pushed:
        target = parse_target("--url", pushed.url)
        endpoint = await Endpoint.find(target, request_head("POST", target, {}))
        await asyncio.gather(*(endpoint.post(b"{}", 5.0) for _ in range(2)))
        assert len(set(used)) == 2
        used[:] = used[:2]
        for _ in range(4):
            await endpoint.post(b"{}", 5.0)
        assert len(set(used[2:])) == 1
        await endpoint.close()


async def test_an_endpoint_that_goes_away(tmp_path: Path) -> None:
    async with push_endpoint(in_turn(*[answering(200)] * 20, never)) as endpoint:
        process = await started(tmp_path, endpoint.url, "--requests", "100", "--concurrency", "2", "--json")
        await endpoint.wait_until(lambda: endpoint.at_once == 2)  # both hang
    done = await ended(process)
    answers = done.counts()
    assert (done.code, sum(answers.values())) == (1, 100)
    assert answers["closed"] == 2
    refused = next(answer for answer in done.json["answers"] if answer["name"] == "refused")
    assert refused["example"] == "Connection refused"
    # Who is refused does not ask again at once: two of them, 20 ms each.
    assert done.json["seconds"] > refused["count"] / 2 * 0.02 * 0.9


async def test_a_connection_that_waited_long_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its server may be closing it."""
    connections: set[object] = set()

    async def note(request: web.Request) -> web.StreamResponse:
        connections.add(request.transport)
        return web.Response()

    async with push_endpoint(note) as pushed:
        target = parse_target("--url", pushed.url)
        endpoint = await Endpoint.find(target, request_head("POST", target, {}))
        for idle_seconds, expected in ((4.0, 1), (0.0, 3)):
            monkeypatch.setattr(endpoint_module, "IDLE_SECONDS", idle_seconds)
            for _ in range(2):
                assert isinstance(await endpoint.post(b"{}", 5.0), Answer)
            assert len(connections) == expected
        await endpoint.close()


async def test_a_refused_token_is_told_with_what_to_do(load: Loading) -> None:
    async with push_endpoint(answering(401)) as endpoint:
        done = await load(endpoint.url, "--requests", "5")
    assert done.code == 1
    assert "HOLDFAST_CONSUMER_AUTH_PUSH=off" in done.stdout
    assert "--token-file" in done.stdout


async def test_where_nobody_listens_one_line_says_so(load: Loading) -> None:
    done = await load("http://127.0.0.1:1/pubsub/push")
    assert (done.code, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("holdfast: nothing answers at 127.0.0.1:1: Connection refused.")


@asynccontextmanager
async def https_endpoint(folder: Path) -> AsyncIterator[str]:
    """With a certificate that it signed itself: `certificate.pem`."""
    key = ec.generate_private_key(ec.SECP256R1())
    name, now = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "load")]), datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    (folder / "certificate.pem").write_bytes(certificate.public_bytes(pem))
    (folder / "key.pem").write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
    app = web.Application()
    app.router.add_post("/push", answering(200))
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    try:
        yield f"https://127.0.0.1:{runner.addresses[0][1]}/push"
    finally:
        await runner.cleanup()


async def test_https(load: Loading, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with https_endpoint(tmp_path) as url:
        distrusted = await load(url, "--requests", "4", "--json")
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate.pem"))
        trusted = await load(url, "--requests", "50", "--concurrency", "3", "--json")
    assert (distrusted.code, distrusted.counts()) == (1, {"tls": 4})
    assert "self-signed" in distrusted.json["answers"][0]["example"]
    assert (trusted.code, trusted.counts()) == (0, {"200": 50})


# How it is sent.


async def test_no_more_at_once_than_asked_for(load: Loading) -> None:
    async def slow(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(0.01)
        return web.Response()

    async with push_endpoint(slow) as endpoint:
        done = await load(endpoint.url, "--requests", "60", "--concurrency", "7", "--json")
    assert endpoint.most_at_once <= 7
    assert done.json["requests"]["mostAtOnce"] == 7
    assert done.json["latencyMs"]["all"]["min"] >= 9


async def test_a_rate_is_kept_and_a_duration_ends_it(load: Loading) -> None:
    async with push_endpoint() as endpoint:
        done = await load(endpoint.url, "--rate", "100", "--duration", "1", "--json")
    requests = done.json["requests"]
    assert requests["sent"] + requests["unsent"] == 100
    assert len(endpoint.bodies) == requests["sent"] > 90
    assert 0.8 < done.json["seconds"] < 3


async def test_requests_that_wait_for_a_slow_answer_are_slow(load: Loading) -> None:
    """One answer holds up the only connection for half a second. Who counts from when requests leave sees one slow one;
    counted from when they were due, half of them are."""
    first = True

    async def stall_once(request: web.Request) -> web.StreamResponse:
        nonlocal first
        if first:
            first = False
            await asyncio.sleep(0.5)
        return web.Response()

    async with push_endpoint(stall_once) as endpoint:
        args = ("--rate", "100", "--requests", "100", "--concurrency", "1", "--json")
        latency = (await load(endpoint.url, *args)).json["latencyMs"]["all"]
    assert latency["count"] == 100
    assert latency["max"] >= 490
    assert latency["p90"] >= 200


async def test_what_could_not_leave_in_time_is_told(load: Loading) -> None:
    async with push_endpoint(slow_by(0.2)) as endpoint:
        done = await load(endpoint.url, "--rate", "100", "--duration", "0.5", "--concurrency", "1")
    assert done.code == 1
    assert "were due, and all connections were busy to the end" in done.stdout
    assert len(endpoint.bodies) <= 4


def slow_by(seconds: float) -> Reply:
    async def reply(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(seconds)
        return web.Response()

    return reply


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_an_interrupted_run_tells_what_it_knows(tmp_path: Path, number: signal.Signals) -> None:
    async with push_endpoint(in_turn(*[answering(200)] * 50, never)) as endpoint:
        process = await started(tmp_path, endpoint.url, "--duration", "60", "--concurrency", "2", "--json")
        await endpoint.wait_until(lambda: endpoint.at_once == 2)  # both hang
        process.send_signal(number)
        done = await ended(process)
    assert (done.code, done.stderr) == (0, "")
    assert done.json["interrupted"] is True
    assert done.json["requests"]["givenUp"] == 2
    assert done.counts() == {"200": len(endpoint.bodies) - 2}


# Finding a limit.


@asynccontextmanager
async def bears(per_second: float, burst: float) -> AsyncIterator[str]:
    """Answers 429 to what comes above a rate."""
    left, at = burst, time.monotonic()

    async def reply(request: web.Request) -> web.StreamResponse:
        nonlocal left, at
        now = time.monotonic()
        left, at = min(left + (now - at) * per_second, burst), now
        if left < 1:
            return web.Response(status=429)
        left -= 1
        return web.Response()

    async with push_endpoint(reply) as endpoint:
        yield endpoint.url


async def test_the_limit_of_an_endpoint_is_found(load: Loading, tmp_path: Path) -> None:
    args = ("--find-limit", "--rate", "60", "--step-seconds", "0.5", "--max-p99", "2000", "--report", "limit.html")
    async with bears(200, burst=40) as url:
        done = await load(url, *args, "--json")
    found = done.json
    assert (done.code, done.stderr, found["ending"]) == (0, "", "found")
    assert [step["rate"] for step in found["steps"][:2]] == [60, 120]
    assert 120 <= found["safe"]["rate"] <= 280
    assert found["safe"]["rate"] < found["tooMuch"]["rate"] <= found["safe"]["rate"] * 1.1
    assert "429" in found["tooMuch"]["why"]
    assert "safe limit" in (tmp_path / "limit.html").read_text(encoding="utf-8")


async def test_a_limit_as_text(load: Loading) -> None:
    args = ("--find-limit", "--rate", "50", "--step-seconds", "0.2", "--duration", "0.5")
    async with push_endpoint() as endpoint:
        done = await load(endpoint.url, *args)
    assert done.code == 0
    assert "RATE/S" in done.stdout
    assert "safe limit: " in done.stdout
    assert "--duration" in done.stdout  # the time was up before anything was too much


async def test_an_endpoint_that_is_none_has_no_limit(load: Loading) -> None:
    async with push_endpoint(answering(404)) as endpoint:
        done = await load(endpoint.url, "--find-limit", "--step-seconds", "0.2")
    assert done.code == 1
    assert "no safe limit: 200 a second is too much already (40 times 404)" in done.stdout


# How it is told.


async def test_json_is_one_object_with_everything(load: Loading) -> None:
    async with push_endpoint() as endpoint:
        done = await load(endpoint.url, "--requests", "50", "--json")
    found = done.json
    assert found.keys() == {
        *("settings", "startedAt", "seconds", "interrupted", "requests", "perSecond", "latencyMs", "histogram"),
        *("answers", "outcomes", "timeline", "generator", "exitCode"),
    }
    assert sum(bar["count"] for bar in found["histogram"]) == 50
    assert sum(point["ended"].get("accepted", 0) for point in found["timeline"]) == 50
    ordered = [found["latencyMs"]["all"][name] for name in ("min", "p50", "p90", "p95", "p99", "p99_9", "max")]
    assert ordered == sorted(ordered)
    assert 50 / found["perSecond"]["accepted"] == pytest.approx(found["seconds"], abs=0.001)  # told in milliseconds


async def test_a_report_is_written(load: Loading, tmp_path: Path) -> None:
    async with push_endpoint() as endpoint:
        done = await load(endpoint.url, "--requests", "50", "--report", "run.html")
    assert done.stdout.endswith("report: run.html\n")
    page = (tmp_path / "run.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "50 requests to" in page


async def test_a_report_that_cannot_be_written_is_one_line(load: Loading, tmp_path: Path) -> None:
    if os.geteuid() == 0:
        file = "/dev/full"
    else:
        (tmp_path / "closed").mkdir(mode=0o500)
        file = "closed/run.html"
    async with push_endpoint() as endpoint:
        done = await load(endpoint.url, "--requests", "1", "--report", file)
    assert done.code == 1
    assert done.stderr.startswith("holdfast: --report: ")


async def test_a_terminal_sees_how_it_goes(tmp_path: Path) -> None:
    async with push_endpoint(slow_by(0.05)) as endpoint:
        args = ("load", "--url", endpoint.url, "--requests", "40", "--concurrency", "2")
        sent = await asyncio.to_thread(lambda: holdfast_on_a_terminal(*args, cwd=tmp_path))
    redrawn = sent.split("\r\x1b[K")
    assert len(redrawn) > 2
    assert "/40" in redrawn[1]
    assert "/s" in redrawn[1]
    assert "p99" in redrawn[-2]
    assert redrawn[-1].startswith("40 requests to ")


# Mistakes.


@pytest.mark.parametrize(
    ("args", "flag"),
    [
        (["--url", "nonsense"], "'--url'"),
        (["--url", "ftp://x/"], "'--url'"),
        (["--requests", "0"], "'--requests'"),
        (["--concurrency", "0"], "'--concurrency'"),
        (["--rate", "0"], "'--rate'"),
        (["--duration", "0"], "'--duration'"),
        (["--timeout", "x"], "'--timeout'"),
        (["--duplicates", "101"], "'--duplicates'"),
        (["--topic", "orders"], "'--topic'"),
        (["--payload", "absent"], "'--payload'"),
        (["--payload", __file__], "'--payload'"),
        (["--token-file", "absent"], "'--token-file'"),
        (["--token", "a\nb"], "'--token'"),
        (["--token", "a", "--token-file", __file__], "--token and --token-file"),
        (["--payload", __file__, "--payload-bytes", "9"], "--payload and --payload-bytes"),
        (["--find-limit", "--requests", "9"], "--requests and --find-limit"),
        (["--max-p99", "9"], "--max-p99 needs --find-limit"),
        (["--max-errors", "0"], "--max-errors needs --find-limit"),
        (["--step-seconds", "1"], "--step-seconds needs --find-limit"),
        (["--report", "absent/run.html"], "'--report'"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_a_mistake_names_the_flag(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, args: list[str], flag: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["holdfast", "load", *args])
    with pytest.raises(SystemExit) as stopped:
        main()
    printed = capsys.readouterr()
    assert (stopped.value.code, printed.out, printed.err.count("\n")) == (2, "", 1)
    assert flag in printed.err
