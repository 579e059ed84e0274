"""`holdfast push` and the push flags of `holdfast subscriptions`: the real command, against a real broker."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from holdfast.api.http import push_status
from holdfast.api.pubsub_server import PubsubServer
from holdfast.broker.push.status import PushStatus
from holdfast.broker.service import Broker
from holdfast.cli.main import main
from holdfast.clock import NANOSECONDS, SystemClock
from holdfast.settings import BrokerSettings
from holdfast.stores.memory.log import MemoryMessageLog
from holdfast.testing.clock import ManualClock
from tests.support.operator import Operator
from tests.support.process import Launcher
from tests.support.push_status import BEFORE, NOW_NS, a_status
from tests.support.served_broker import Server
from tests.support.terminal import holdfast_on_a_terminal, visible_only

TITLES = ["SUBSCRIPTION", "STATE", "WINDOW", "IN FLIGHT", "DUE", "WAITING", "NEXT DUE", "LAST STATUS", "LAST ERROR"]
ENDPOINT = "http://127.0.0.1:9/push"
ACCOUNT = "push@shop.example"


class Served(Server):
    """A broker that shows what the test wants besides Pub/Sub."""

    def __init__(self, extra_routes: Sequence[Route]) -> None:
        self._extra_routes = extra_routes
        super().__init__(Path())

    async def _serve(self, path: Path) -> None:
        log = MemoryMessageLog()
        broker = await Broker.open(log, SystemClock(), BrokerSettings())
        server = PubsubServer(broker, extra_routes=self._extra_routes)
        self._ports.put(await server.start("127.0.0.1", 0))
        await self._stop.wait()
        await server.stop()
        await broker.close()
        await log.close()


class Push:
    """In place of push delivery."""

    def __init__(self) -> None:
        self.found: list[PushStatus] = []

    def status(self) -> list[PushStatus]:
        return self.found


@pytest.fixture(scope="module")
def the_push() -> Push:
    return Push()


@pytest.fixture(scope="module")
def operator(shared_launcher: Launcher, the_push: Push) -> Iterator[Operator]:
    server = Served(push_status.routes(the_push.status, ManualClock(NOW_NS)))
    yield Operator(shared_launcher, server.address)
    server.stop()


@pytest.fixture
def push(the_push: Push) -> Push:
    the_push.found = []
    return the_push


# Status.


def cells(line: str, title_line: str) -> list[str]:
    """Of a table, by where the titles stand."""
    starts = [title_line.index(title) for title in TITLES]
    ends = [*starts[1:], None]
    return [line[start:end].strip() for start, end in zip(starts, ends, strict=True)]


def test_a_table_of_the_push_subscriptions_of_the_project(operator: Operator, push: Push) -> None:
    push.found = [
        a_status("orders", state="sending", window=32, in_flight=12, due=2000, last_status="200"),
        a_status(
            "billing",
            state="paused",
            window=1,
            waiting=3,
            next_due_ns=NOW_NS + 12 * NANOSECONDS,
            last_status="503",
            last_error="the endpoint answered 503",
        ),
        a_status("projects/other/subscriptions/hidden"),
    ]
    titles, *rows = operator.ok("push", "status").splitlines()
    assert cells(titles, titles) == TITLES
    assert [cells(row, titles) for row in rows] == [
        ["billing", "paused", "1", "0", "0", "3", "in 12 s", "503", "the endpoint answered 503"],
        ["orders", "sending", "32", "12", "2000", "0", "", "200", ""],
    ]
    other = operator.ok("push", "status", "--project", "other").splitlines()
    assert [cells(row, other[0])[0] for row in other[1:]] == ["hidden"]


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (-5, "now"),
        (0, "now"),
        (0.2, "in 1 s"),
        (119, "in 119 s"),
        (150, "in 2 min"),
        (9000, "in 2 h"),
        (1e6, "in 12 d"),
    ],
)
def test_when_the_next_one_is_due(
    operator: Operator,
    push: Push,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    seconds: float,
    told: str,
) -> None:
    push.found = [a_status(waiting=1, next_due_ns=NOW_NS + round(seconds * NANOSECONDS))]
    code, printed, _ = typed(capsys, monkeypatch, "push", "status", "--broker", operator.broker)
    titles, row = printed.splitlines()
    assert (code, cells(row, titles)[6]) == (0, told)


def test_json_has_everything_of_every_page(operator: Operator, push: Push) -> None:
    push.found = [a_status(f"s{number:04}", due=number) for number in range(2100)]
    found = operator.json("push", "status")["subscriptions"]
    assert [row["subscription"] for row in found] == [status.subscription for status in push.found]
    assert found[2099] == push_status.push_status_json(push.found[2099])


def test_one_subscription(operator: Operator, push: Push) -> None:
    other = "projects/other/subscriptions/orders"
    push.found = [a_status("orders"), a_status("billing"), a_status(other)]
    for given, wanted in (("orders", BEFORE + "orders"), (BEFORE + "billing", BEFORE + "billing"), (other, other)):
        found = operator.json("push", "status", given)["subscriptions"]
        assert [row["subscription"] for row in found] == [wanted]
    assert operator.ok("push", "status", "absent") == f"{BEFORE}absent is no push subscription at {operator.broker}\n"


def test_nothing_there_is_said(operator: Operator, push: Push) -> None:
    assert operator.ok("push", "status") == f"no push subscriptions in project local at {operator.broker}\n"
    assert operator.json("push", "status") == {"subscriptions": []}


@pytest.mark.parametrize("columns", [100, 120])
def test_an_error_is_cut_to_the_terminal(
    operator: Operator, push: Push, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    push.found = [a_status("orders", last_status="error", last_error="\x1b[31m " + "no such host " * 20)]
    monkeypatch.setenv("COLUMNS", str(columns))
    shown = holdfast_on_a_terminal("push", "status", "--broker", operator.broker, cwd=operator.launcher.cwd)
    row = shown.splitlines()[1]
    assert visible_only(shown)
    assert r"\x1b[31m no such" in row
    assert row.endswith("…")
    assert len(row) == columns


def test_a_narrow_terminal_still_shows_how_an_error_begins(
    operator: Operator, push: Push, monkeypatch: pytest.MonkeyPatch
) -> None:
    push.found = [a_status("orders", last_error="the endpoint answered 503")]
    monkeypatch.setenv("COLUMNS", "40")
    shown = holdfast_on_a_terminal("push", "status", "--broker", operator.broker, cwd=operator.launcher.cwd)
    assert shown.rstrip().endswith("the endpoint answer…")


# What cannot tell.


def served_by(answer: Response) -> Served:
    async def endpoint(request: Request) -> Response:
        return answer

    return Served([Route("/api/v1/push", endpoint)])


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (PlainTextResponse("Not Found", 404), "does not tell how push does: it is no Holdfast broker, or an older one"),
        (PlainTextResponse("hello"), "gave an answer that cannot be read"),
        (JSONResponse(["hello"]), "gave an answer that cannot be read"),
        (JSONResponse({}, 500), "gave an answer that cannot be read"),
        (JSONResponse({"error": {"message": "disk full"}}, 503), "disk full"),
    ],
)
def test_an_answer_that_is_none_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, answer: Response, why: str
) -> None:
    server = served_by(answer)
    try:
        code, printed, complaint = typed(capsys, monkeypatch, "push", "status", "--broker", server.address)
    finally:
        server.stop()
    assert (code, printed, complaint.count("\n")) == (1, "", 1)
    assert why in complaint


def test_a_broker_without_it_is_one_line(shared_launcher: Launcher) -> None:
    server = Served([])
    try:
        line = Operator(shared_launcher, server.address).refused("push", "status")
    finally:
        server.stop()
    assert line == f"{server.address} does not tell how push does: it is no Holdfast broker, or an older one"


def test_google_s_emulator_is_one_line(launcher: Launcher, google_emulator: str) -> None:
    line = Operator(launcher, google_emulator).refused("push", "status")
    assert line == f"{google_emulator} does not tell how push does: it is no Holdfast broker, or an older one"


def test_a_dead_endpoint_is_told_as_elsewhere(operator: Operator) -> None:
    dead = ("--broker", "127.0.0.1:1")
    line = operator.refused("push", "status", *dead)
    assert line == operator.refused("subscriptions", "list", *dead)
    assert line.startswith("no broker answers at 127.0.0.1:1. ")


def test_cloud_pub_sub_does_not_tell(operator: Operator) -> None:
    line = operator.refused("push", "status", "--cloud", "--project", "some-project")
    assert line.startswith("Cloud Pub/Sub does not tell how push does")


# Push flags.


def test_push_flags(operator: Operator) -> None:
    operator.ok("topics", "create", "flagged")
    created = operator.json(
        *("subscriptions", "create", "all-flags", "--topic", "flagged", "--push-endpoint", ENDPOINT),
        *("--push-auth-service-account", ACCOUNT, "--push-auth-token-audience", "shop"),
        *("--push-no-wrapper", "--push-no-wrapper-write-metadata"),
        *("--push-concurrency", "5", "--push-rate", "2.5", "--push-confirm"),
    )
    assert created["pushConfig"] == {
        "pushEndpoint": ENDPOINT,
        "oidcToken": {"serviceAccountEmail": ACCOUNT, "audience": "shop"},
        "noWrapper": {"writeMetadata": True},
        "attributes": {
            "x-holdfast-concurrency": "5",
            "x-holdfast-per-second": "2.5",
            "x-holdfast-confirm": "true",
        },
    }
    in_words = f"token of {ACCOUNT}, unwrapped with metadata, 5 at once, 2.5 a second, must agree first"
    shown = operator.ok("subscriptions", "show", "all-flags").splitlines()
    assert ["pushConfig.attributes.x-holdfast-concurrency", "5"] in [line.split() for line in shown]
    assert shown[-1] == f"pushed: {in_words}"
    assert in_words[:40] in operator.ok("subscriptions", "list", "--topic", "flagged")


def test_modify_push_config(operator: Operator) -> None:
    path = BEFORE + "changing"
    operator.ok("topics", "create", "changes")
    operator.ok("subscriptions", "create", "changing", "--topic", "changes")
    change = ("subscriptions", "modify-push-config", "changing", "--push-endpoint")
    assert operator.ok(*change, ENDPOINT, "--push-no-wrapper", "--push-rate", "1000000") == (
        f"changed {path} to push {ENDPOINT}\n"
    )
    shown = operator.json("subscriptions", "show", "changing")
    assert shown["pushConfig"] == {
        "pushEndpoint": ENDPOINT,
        "noWrapper": {},
        "attributes": {"x-holdfast-per-second": "1000000"},
    }
    assert operator.ok("subscriptions", "show", "changing").endswith("\npushed: unwrapped, 1000000 a second\n")
    # What is not given is not kept.
    changed = operator.json(*change, ENDPOINT + "/2")
    assert (changed["name"], changed["pushConfig"]) == (path, {"pushEndpoint": ENDPOINT + "/2"})
    assert "pushed:" not in operator.ok("subscriptions", "show", "changing")
    assert operator.ok(*change, "") == f"changed {path} to pull\n"
    assert operator.json("subscriptions", "show", "changing")["pushConfig"] == {}


def test_what_the_broker_refuses_is_one_line(operator: Operator) -> None:
    operator.ok("topics", "create", "refusing")
    create = ("subscriptions", "create", "refused", "--topic", "refusing", "--push-endpoint", ENDPOINT)
    assert "x-holdfast-concurrency" in operator.refused(*create, "--push-concurrency", "1000000")
    change = ("subscriptions", "modify-push-config", "absent", "--push-endpoint", ENDPOINT)
    assert operator.refused(*change) == f"subscription {BEFORE}absent does not exist"


CREATE = ["subscriptions", "create", "a-sub", "--topic", "any"]
MODIFY = ["subscriptions", "modify-push-config", "a-sub"]
FLAGS = [
    ["--push-auth-service-account", ACCOUNT],
    ["--push-auth-token-audience", "shop"],
    ["--push-no-wrapper"],
    ["--push-no-wrapper-write-metadata"],
    ["--push-concurrency", "1"],
    ["--push-rate", "0.5"],
    ["--push-confirm"],
]


def typed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *args: str) -> tuple[object, str, str]:
    """In this process, because there are many: exit code, standard output, standard error."""
    monkeypatch.setattr(sys, "argv", ["holdfast", *args])
    code: object = 0
    try:
        main()
    except SystemExit as stopped:
        code = stopped.code
    printed = capsys.readouterr()
    return code, printed.out, printed.err


@pytest.mark.parametrize(
    ("args", "why"),
    [
        *[([*CREATE, *flag], f"{flag[0]} needs --push-endpoint.") for flag in FLAGS],
        *[([*MODIFY, "--push-endpoint", "", *flag], f"{flag[0]} needs --push-endpoint.") for flag in FLAGS],
        (MODIFY, "Missing option '--push-endpoint'."),
        (
            [*CREATE, "--push-endpoint", ENDPOINT, *FLAGS[1]],
            "--push-auth-token-audience needs --push-auth-service-account.",
        ),
        (
            [*CREATE, "--push-endpoint", ENDPOINT, *FLAGS[3]],
            "--push-no-wrapper-write-metadata needs --push-no-wrapper.",
        ),
        ([*CREATE, "--push-endpoint", ENDPOINT, "--push-concurrency", "0"], "'--push-concurrency'"),
        ([*MODIFY, "--push-endpoint", ENDPOINT, "--push-rate", "0"], "'--push-rate'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_usage_error_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, args: list[str], why: str
) -> None:
    code, printed, complaint = typed(capsys, monkeypatch, *args)
    assert (code, printed, complaint.count("\n")) == (2, "", 1)
    assert complaint.startswith(f"holdfast: {why}") if why[0] == "-" else why in complaint
