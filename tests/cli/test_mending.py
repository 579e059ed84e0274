"""`holdfast failures edit`, `patch`, `hold`, `erase`, `export` and the like, on a running `holdfast up`; and a failed
message that is put in again by hand."""

from __future__ import annotations

import asyncio
import json
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.support.desk import a_failure, open_store
from tests.support.http import get
from tests.support.process import Launcher, Running

SUBSCRIPTION = "projects/local/subscriptions/market-ticks.materializer"
TOPIC = "projects/local/topics/market-ticks"
PAYLOAD = b'{"symbol": "ABC",  "ts": "yesterday", "price": 1.10}'
CARD = "4111-1111-1111-1111"


async def fill(data: Path) -> None:
    now_ns = time.time_ns()
    store = await open_store(data)
    told: dict[str, Any] = {"subscription": SUBSCRIPTION, "source_topic": TOPIC, "created_at_ns": now_ns}
    await store.record([a_failure(f"m-{at}", data=PAYLOAD, **told) for at in range(1, 5)])
    await store.close()


@pytest.fixture
def up(launcher: Launcher) -> Running:
    asyncio.run(fill(launcher.data))
    return launcher.up()


def printed(launcher: Launcher, up: Running, *args: str) -> str:
    done = launcher.run("failures", *args, "--url", up.url)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def as_json(launcher: Launcher, up: Running, *args: str) -> Any:
    return json.loads(printed(launcher, up, *args, "--json"))


def refused(launcher: Launcher, up: Running, *args: str) -> str:
    done = launcher.run("failures", *args, "--url", up.url)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def table(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_edit_and_what_it_changed(launcher: Launcher, up: Running) -> None:
    assert "would not pass" in refused(launcher, up, "validate", "1")
    shown = printed(
        launcher, up, "edit", "1", "--set", "ts=2026-11-18T00:00:00Z", "--set", "price=1.20", "--comment", "the clock"
    )
    assert ["/json/price", "changed", "1.10", "1.20"] in table(shown)
    assert "revision 1 of failure 1, version 2" in shown
    assert ["route", "yes"] in table(shown)
    assert ["route", "yes"] in table(printed(launcher, up, "validate", "1"))
    edited = as_json(launcher, up, "edit", "1", "--set-attribute", "kind=web", "--set-key", "k", "--version", "2")
    assert [one["path"] for one in edited["differences"]] == ["/attributes/kind", "/orderingKey"]
    assert "was changed by somebody else" in refused(launcher, up, "edit", "1", "--set", "a=1", "--version", "2")
    rows = as_json(launcher, up, "revisions", "1")["revisions"]
    assert [row["comment"] for row in rows] == ["", "the clock", ""]
    # The store beside the process says the same.
    beside = launcher.run("failures", "diff", "1", "1", "2", "--json")
    assert json.loads(beside.stdout)["differences"] == edited["differences"]
    undone = as_json(launcher, up, "edit", "1", "--undo", "0")
    assert undone["revision"] == 3
    assert printed(launcher, up, "diff", "1") == "no differences\n"


def test_edits_from_files(launcher: Launcher, up: Running) -> None:
    files = {
        "patch": b'[{"op": "replace", "path": "/json/ts", "value": "2026-11-18T00:00:00Z"}]',
        "merge": b'{"json": {"price": 12345678901234567890.5}}',
        "data": b'{"symbol":  "XYZ"}\n',
    }
    for name, text in files.items():
        (launcher.cwd / name).write_bytes(text)
        printed(launcher, up, "edit", "1", f"--{name}", name)
    texts = [row["text"] for row in as_json(launcher, up, "revisions", "1")["revisions"]]
    assert texts == [
        PAYLOAD.decode(),
        '{"symbol":"ABC","ts":"2026-11-18T00:00:00Z","price":1.10}',
        '{"symbol":"ABC","ts":"2026-11-18T00:00:00Z","price":12345678901234567890.5}',
        files["data"].decode(),
    ]


def test_wrong_options_of_an_edit(launcher: Launcher, up: Running) -> None:
    (launcher.cwd / "bad").write_text("{")
    assert "one way" in refused(launcher, up, "edit", "1")
    assert "one way" in refused(launcher, up, "edit", "1", "--set", "a=1", "--undo", "0")
    assert "--set" in refused(launcher, up, "edit", "1", "--set", "a")
    assert "--merge" in refused(launcher, up, "edit", "1", "--merge", "bad")
    assert "there is no failure 99" in refused(launcher, up, "edit", "99", "--set", "a=1")


def test_what_is_shown_of_an_edited_failure_is_the_original_and_it_says_so(launcher: Launcher, up: Running) -> None:
    assert "diff" not in printed(launcher, up, "show", "1")
    printed(launcher, up, "edit", "1", "--set", "ts=2026-11-18T00:00:00Z")
    shown = printed(launcher, up, "show", "1")
    assert "This is the original. Revision 1 is what is sent: `holdfast failures diff 1` shows what differs" in shown


def test_a_patch_is_seen_then_applied(launcher: Launcher, up: Running) -> None:
    change = ("--id", "1", "--id", "2", "--set", "ts=2026-11-18T00:00:00Z")
    shown = printed(launcher, up, "patch", *change, "--preview")
    assert "2 selected: 2 would change, 0 are so already" in shown
    assert "route: 2 of 2 would pass" in shown
    assert "say --yes" in launcher.run("failures", "patch", *change, "--url", up.url).stderr
    assert as_json(launcher, up, "patch", *change, "--yes") == {"changed": 2, "leftOut": []}
    assert "0 would change, 2 are so already" in printed(launcher, up, "patch", *change, "--yes")


def test_hold_and_erase(launcher: Launcher, up: Running) -> None:
    assert printed(launcher, up, "hold", "--id", "1", "--yes") == "1 changed\n"
    assert printed(launcher, up, "erase", "--preview") == "4 selected, of which 1 are under legal hold\n"
    asked = launcher.run("failures", "erase", "--url", up.url).stderr
    assert asked.splitlines()[-1] == "holdfast: nothing was done: where nobody can be asked, say --yes"
    refused = launcher.run("failures", "erase", "--yes", "--url", up.url)
    assert (refused.returncode, "it would be all of them" in refused.stderr) == (2, True)
    assert as_json(launcher, up, "erase", "--since", "9999w", "--yes") == {"erased": 3}
    assert printed(launcher, up, "release", "--hold", "--yes") == "1 changed\n"
    assert as_json(launcher, up, "erase", "--id", "1", "--yes") == {"erased": 1}


def test_export_and_import(launcher: Launcher, up: Running) -> None:
    printed(launcher, up, "edit", "2", "--set", "ts=2026-11-18T00:00:00Z")
    file = printed(launcher, up, "export", "--id", "1", "--id", "2")
    assert [json.loads(line)["revision"] for line in file.splitlines()] == [0, 1]
    (launcher.cwd / "file").write_text(file)
    assert printed(launcher, up, "import", "file") == "0 new, 2 were there already, 0 refused\n"
    printed(launcher, up, "erase", "--id", "1", "--id", "2", "--yes")
    (launcher.cwd / "file").write_text(file + "x\n")
    done = launcher.run("failures", "import", "file", "--url", up.url)
    assert done.stdout.startswith("2 new, 0 were there already, 1 refused\n")
    assert "1 of 3 lines were refused" in done.stderr
    redacted = json.dumps(json.loads(file.splitlines()[0]) | {"redacted": ["/json/ts"]})
    (launcher.cwd / "file").write_text(redacted)
    refusal = launcher.run("failures", "import", "file", "--url", up.url).stdout
    assert refusal.endswith("export it with the right to see them\n")
    assert printed(launcher, up, "export", "--reason", "nothing") == ""


# By hand.


def ingest(up: Running, path: str, data: bytes, **headers: str) -> tuple[int, Any]:
    request = urllib.request.Request(f"{up.url}/api/v1/ingest/{path}", data, headers)
    try:
        with urllib.request.urlopen(request, timeout=15) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)["error"]["message"]


JSON = {"Content-Type": "application/json"}
FIXED = b'{"symbol": "ABC", "ts": "2026-11-18T00:00:00Z", "price": 1.10}'


def test_a_corrected_payload_goes_to_the_subscription_that_failed_and_marks_the_row(
    launcher: Launcher, up: Running
) -> None:
    launcher.run("subscriptions", "create", "other", "--topic", "market-ticks", env={"PUBSUB_EMULATOR_HOST": up.broker})
    status, answer = ingest(up, "market-ticks/manual?failure=1", FIXED, **JSON)
    assert (status, answer["failure"]) == (200, 1)
    row = get(f"{up.url}/api/v1/failures/1").body
    assert (row["status"], row["revision"], row["sentMessageId"]) == ("replayed", 1, answer["messageId"])
    assert row["text"] == PAYLOAD.decode()
    deadline = time.monotonic() + 15
    while get(f"{up.url}/api/v1/documents/market_ticks/{answer['messageId']}").status != 200:
        assert time.monotonic() < deadline
    pulled = launcher.run("pull", "other", env={"PUBSUB_EMULATOR_HOST": up.broker})
    assert answer["messageId"] not in pulled.stdout
    status, why = ingest(up, "market-ticks/manual?failure=1", FIXED, **JSON)
    assert status == 400
    assert "is replayed" in why
    audit = json.loads(launcher.run("audit", "list", "--json").stdout)["entries"]
    assert [entry["action"] for entry in audit] == ["failure.replay", "failure.edit"]


def test_the_same_payload_makes_no_revision(up: Running) -> None:
    status, _ = ingest(up, "market-ticks/manual", PAYLOAD, **{"Holdfast-Failure": "2"})
    assert status == 200
    assert get(f"{up.url}/api/v1/failures/2").body["revision"] == 0


def test_without_a_failure_it_is_published(launcher: Launcher, up: Running) -> None:
    status, answer = ingest(up, "market-ticks/manual", FIXED, **JSON, **{"Holdfast-Actor": "anna"})
    assert status == 200
    deadline = time.monotonic() + 15
    while get(f"{up.url}/api/v1/documents/market_ticks/{answer['messageId']}").status != 200:
        assert time.monotonic() < deadline
    (entry,) = json.loads(launcher.run("audit", "list", "--json").stdout)["entries"]
    assert (entry["actor"], entry["action"], entry["target"]) == ("anna", "ingest.manual", TOPIC)


BAD: dict[str, tuple[str, bytes, int, str]] = {
    "another topic's failure": ("trade-signals/manual?failure=1", FIXED, 400, "came from market-ticks"),
    "no failure": ("market-ticks/manual?failure=99", FIXED, 404, "no failure 99"),
    "no id": ("market-ticks/manual?failure=x", FIXED, 400, "failure"),
    "no topic": ("nothing-here/manual", FIXED, 404, "nothing-here"),
    "no topic's name": ("x%20y/manual", FIXED, 400, "source"),
    "nothing": ("market-ticks/manual", b"", 400, "body"),
    "not JSON": ("market-ticks/manual", b"{", 400, "body"),
}


@pytest.fixture(scope="module")
def shared_up(shared_launcher: Launcher) -> Running:
    asyncio.run(fill(shared_launcher.data))
    return shared_launcher.up()


@pytest.mark.parametrize(("path", "data", "code", "why"), BAD.values(), ids=BAD)
def test_what_cannot_be_put_in(shared_up: Running, path: str, data: bytes, code: int, why: str) -> None:
    status, told = ingest(shared_up, path, data, **JSON)
    assert (status, why in told) == (code, True), told


def test_clean_up_of_what_was_mended_today_asks_first(launcher: Launcher, up: Running) -> None:
    done = launcher.run("failures", "cleanup", "--days", "0", "--url", up.url)
    assert (done.returncode, "say --yes" in done.stderr) == (1, True)
    assert printed(launcher, up, "cleanup", "--days", "0", "--yes").strip() == "0 erased"
    assert printed(launcher, up, "cleanup", "--days", "30").strip() == "0 erased"
    done = launcher.run("failures", "cleanup", "--reveal", "--url", up.url)
    assert (done.returncode, "No such option" in done.stderr) == (2, True)
