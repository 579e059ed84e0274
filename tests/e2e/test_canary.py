"""A value that nobody may see is put in wherever a message can carry one; then everything that says something is asked:
every route that describes itself, every command that looks, exports, the log and the audit trail."""

from __future__ import annotations

import asyncio
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.model.failed_message import Content, FailedMessage, Revision
from tests.support.desk import a_failure, open_store
from tests.support.http import push
from tests.support.process import Launcher, Running

CANARY = "Quetzal-4711-zwölf"
NEWER = "Wombat-0815-elf"  # of an edit
TOKEN = "open-sesame"
SUBSCRIPTION = "projects/local/subscriptions/market-ticks.materializer"
TOPIC = "projects/local/topics/market-ticks"

RULES = "payload:card.number,payload:**.email,payload:lines.*.name,attribute:token,key"
SETTINGS = {
    "HOLDFAST_DESK_REDACT": RULES,
    "HOLDFAST_DESK_REVEAL_TOKEN": TOKEN,
    "HOLDFAST_CONSUMER_AUTH_PUSH": "off",
}
PAYLOAD = {
    "card": {"number": CANARY, "kind": "visa"},
    "a": {"b": [{"email": CANARY}]},
    "lines": [{"name": CANARY, "price": 1}],
    "ts": "yesterday",
}
ERROR = f"no card {CANARY}, nor {CANARY.upper()}, nor {json.dumps(CANARY)}, nor {CANARY!r}"


def carrying() -> list[tuple[FailedMessage, list[Revision]]]:
    now_ns = time.time_ns()
    told: dict[str, Any] = {
        "subscription": SUBSCRIPTION,
        "source_topic": TOPIC,
        "created_at_ns": now_ns,
        "error_details": ERROR,
        "attributes": {"token": CANARY, "kind": "web"},
        "ordering_key": CANARY,
    }
    edit = Content(json.dumps(PAYLOAD | {"email": NEWER}).encode(), {"token": NEWER}, NEWER)
    return [
        (
            replace(
                a_failure("m-1", data=json.dumps(PAYLOAD).encode(), revision=1, **told),
                error_details=f"{ERROR}, nor {NEWER}",
            ),
            [Revision(0, 1, edit, "anna", f"{CANARY}, now {NEWER}", now_ns)],
        ),
        (a_failure("m-2", data=f"card={CANARY}".encode(), fingerprint="beef", **told), []),
        (a_failure("m-3", data=b"\xff" + CANARY.encode(), fingerprint="dead", **told), []),
    ]


async def fill(data: Path) -> None:
    store = await open_store(data)
    await store.restore(carrying())
    await store.close()


@pytest.fixture(scope="module")
def up(shared_launcher: Launcher) -> Running:
    asyncio.run(fill(shared_launcher.data))
    return shared_launcher.up(env=SETTINGS)


def asked(url: str, body: Any = None, **headers: str) -> str:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json", **headers})
    try:
        with urllib.request.urlopen(request, timeout=15) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        with error:
            return str(error.read().decode())


def assert_hidden(text: str, where: str) -> None:
    for canary in ("quetzal", "zwölf", "zw\\u00f6lf", "wombat"):
        assert canary not in text.lower(), where


# 1 is edited after this, so that there is something to see.
QUESTIONS: list[tuple[str, Any]] = [
    ("/failures/1:edit", {"set": {"/json/card/kind": "amex"}}),
    ("/failures/1:edit", {"set": {"/json/card/number": CANARY}}),
    ("/failures/1:edit", {"patch": [{"op": "test", "path": "/json/card/number", "value": CANARY}]}),
    ("/failures/1:edit", {"patch": [{"op": "copy", "from": "/json/card", "path": "/json/seen"}]}),
    ("/failures/1:edit", {"patch": [{"op": "move", "from": "/orderingKey", "path": "/json/seen"}]}),
    ("/failures/1:edit", {"patch": [{"op": "copy", "from": "", "path": "/json/seen"}]}),
    ("/failures/1:edit", {"patch": [{"op": "remove", "path": "/json/lines/0"}]}),
    ("/failures/1:edit", {"merge": {"json": {"card": None}}}),
    ("/failures/1:edit", {"content": {"json": {}}}),
    ("/failures/1:edit", {"content": {"orderingKey": CANARY}}),
    ("/failures/1:validate", {}),
    ("/failures/1:validate", {"revision": 0}),
    ("/failures:patch", {"selection": {}, "set": {"/attributes/kind": "app"}}),
    ("/failures:patch", {"selection": {}, "patch": [{"op": "copy", "from": "/attributes", "path": "/json/x"}]}),
    ("/failures:hold", {"selection": {"payload": {"card.number": CANARY}}}),
    ("/failures:erase", {"selection": {"attribute": {"token": CANARY}}, "preview": True}),
    ("/replays", {"selection": {"text": CANARY}, "dryRun": True}),
    ("/replays", {"selection": {}, "dryRun": True}),
    ("/replays", {"selection": {}, "options": {"target": "shadow"}}),
]


@pytest.mark.parametrize(("path", "body"), QUESTIONS, ids=[f"{path} {json.dumps(body)}" for path, body in QUESTIONS])
def test_no_answer_tells_it(up: Running, path: str, body: Any) -> None:
    told = asked(f"{up.url}/api/v1{path}", body)
    if "refused" not in told:
        assert_hidden(told, path)


def test_no_route_that_looks_tells_it(up: Running) -> None:
    paths = json.loads(asked(f"{up.url}/api/v1/openapi.json"))["paths"]
    looked = [path for path, operations in paths.items() if "get" in operations]
    assert len(looked) > 10
    for path in looked:
        for failure_id, group in (("1", "f00d"), ("2", "beef"), ("3", "dead")):
            filled = path.replace("{id}", failure_id).replace("{fingerprint}", group)
            assert_hidden_lines(asked(up.url + filled), filled)
    for query in (
        "attribute=token:",
        "text=",
        "payload=card.number:",
        "payload=a.b.0.email:",
        "payload=card.num\\ber:",
    ):
        refusal = asked(f"{up.url}/api/v1/failures?{query}{urllib.parse.quote(CANARY)}")
        assert "PERMISSION_DENIED" in refusal
        assert_hidden(refusal, query)


def assert_hidden_lines(text: str, where: str) -> None:
    for line in text.splitlines():
        assert_hidden(line, where)


COMMANDS = (
    ("failures", "list"),
    ("failures", "show", "1"),
    ("failures", "show", "2", "--json"),
    ("failures", "show", "3"),
    ("failures", "groups"),
    ("failures", "group", "show", "f00d"),
    ("failures", "count"),
    ("failures", "revisions", "1", "--json"),
    ("failures", "diff", "1"),
    ("failures", "stats"),
    ("audit", "list"),
)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_command_tells_it(shared_launcher: Launcher, up: Running, command: tuple[str, ...]) -> None:
    beside = shared_launcher.run(*command, env=SETTINGS)
    through = shared_launcher.run(*command, "--url", up.url)
    for done in (beside, through):
        assert done.returncode == 0, done.stderr
        assert_hidden_lines(done.stdout + done.stderr, " ".join(command))


def test_no_export_tells_it(shared_launcher: Launcher, up: Running) -> None:
    done = shared_launcher.run("failures", "export", "--url", up.url)
    assert done.stdout.count("\n") == 3
    assert_hidden_lines(done.stdout, "export")
    assert all("redacted" in json.loads(line) for line in done.stdout.splitlines())


def test_whoever_has_the_right_sees_all_and_that_is_written_down(shared_launcher: Launcher, up: Running) -> None:
    assert "zwölf" not in asked(f"{up.url}/api/v1/failures/1")
    shown = json.loads(asked(f"{up.url}/api/v1/failures/1", **{"Holdfast-Reveal": TOKEN, "Holdfast-Actor": "anna"}))
    assert shown["json"] == PAYLOAD
    assert shown["attributes"]["token"] == CANARY
    assert shown["errorDetails"] == f"{ERROR}, nor {NEWER}"
    wrong = asked(f"{up.url}/api/v1/failures/1", **{"Holdfast-Reveal": TOKEN + "x"})
    assert "PERMISSION_DENIED" in wrong
    by_command = shared_launcher.run("failures", "show", "1", "--reveal", "--url", up.url, env=SETTINGS)
    assert CANARY in by_command.stdout
    beside = shared_launcher.run("failures", "show", "1", "--reveal", env=SETTINGS)
    assert "--url" in beside.stderr
    entries = json.loads(asked(f"{up.url}/api/v1/audit?action=failure.reveal"))["entries"]
    assert [entry["target"] for entry in entries] == ["/api/v1/failures/1"] * 2
    assert entries[-1]["actor"] == "anna"


def test_the_right_is_needed_to_edit_it(up: Running) -> None:
    body = {"set": {"/json/card/number": "x"}}
    assert "PERMISSION_DENIED" in asked(f"{up.url}/api/v1/failures/1:edit", body)
    assert "PERMISSION_DENIED" not in asked(f"{up.url}/api/v1/failures/1:validate", body, **{"Holdfast-Reveal": TOKEN})


def test_neither_log_nor_outcomes_tell_it(shared_launcher: Launcher, up: Running) -> None:
    """Of a message that fails now."""
    data = {"symbol": "X", "ts": "yesterday", "email": CANARY, "eventType": CANARY}
    assert push(up.url, "live", json.dumps(data).encode(), "market-ticks.materializer").status == 200
    assert_hidden(asked(f"{up.url}/api/v1/outcomes"), "outcomes")
    failures = json.loads(asked(f"{up.url}/api/v1/failures?messageId=live"))["failures"]
    assert len(failures) == 1
    assert '"messageId": "live"' in up.stderr
    assert_hidden_lines(up.stderr, "the log")
    assert_hidden_lines(up.stdout, "standard output")


def test_a_replay_does_not_say_why_a_schema_refused_it(launcher: Launcher) -> None:
    """An enum's complaint quotes what it got."""

    async def fill_one(data: Path) -> None:
        store = await open_store(data)
        row = a_failure("m", source_topic=TOPIC, data=json.dumps({"state": CANARY}).encode(), error_details="x")
        await store.record([row])
        await store.close()

    asyncio.run(fill_one(launcher.data))
    up = launcher.up(env=SETTINGS | {"HOLDFAST_DESK_REDACT": "payload:state"})
    states = {"type": "enum", "name": "State", "symbols": ["OPEN"]}
    order = {"type": "record", "name": "Order", "fields": [{"name": "state", "type": states}]}
    broker = {"PUBSUB_EMULATOR_HOST": up.broker}
    launcher.run("schemas", "create", "order", "--type", "avro", "--definition", json.dumps(order), env=broker)
    launcher.run("topics", "create", "strict", "--schema", "order", env=broker)
    started = launcher.run("replay", "start", "--to-topic", "strict", "--target", "topic", "--yes", "--url", up.url)
    items = asked(f"{up.url}/api/v1/replays/1/items")
    assert "is not a symbol" in items, started.stderr
    told = asked(f"{up.url}/api/v1/ingest/strict/manual", {"state": "else"})
    assert "is not a symbol" in told
    for text in (items, started.stdout, started.stderr, up.stderr):
        assert_hidden_lines(text, "replay")
