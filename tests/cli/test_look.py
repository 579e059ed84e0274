"""`holdfast docs` and `holdfast failures`: tables for people, JSON for programs, from a file or a running process."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.consumer.changes import Upsert
from holdfast.consumer.documents import Mark, Write
from holdfast.model.document import EventOrder
from holdfast.model.failed_message import FailedMessage, FailureStatus
from holdfast.stores.sqlite.desk import SqliteDeskStore
from holdfast.stores.sqlite.documents import SqliteDocumentStore
from tests.support.files import snapshot
from tests.support.process import Launcher, Running
from tests.support.terminal import holdfast_on_a_terminal, steering

# What could move the cursor, colour or rewrite lines, ring, or turn the reading direction on a terminal: C0 with escape
# sequences, DEL, C1 (0x9b alone begins a sequence), line separators and bidirectional overrides.
HOSTILE = "a\x1b[2J\x1b]0;title\x07b\x08\r\n\x7f\x9b31m\x85\u2028\u202e\u2066é中😀"

FIELDS: dict[str, Any] = {
    "status": "ok",
    "count": 3,
    "nothing": None,
    "source": {"topic": "ticks", "more": {}},
    HOSTILE: {HOSTILE: HOSTILE},
}

FAILURES = [
    FailedMessage(
        message_id="m-1",
        subscription="projects/local/subscriptions/ticks.materializer",
        source_topic="projects/local/topics/ticks",
        failure_reason="DECODE_ERROR",
        error_details="data: is not JSON",
        data=b"\xff\x00",
        created_at_ns=1_700_000_000_000_000_000,
        delivery_attempt=1,
    ),
    FailedMessage(
        message_id=HOSTILE,
        subscription="projects/local/subscriptions/" + HOSTILE,
        source_topic=HOSTILE,
        failure_reason=HOSTILE,
        error_details=HOSTILE * 20,
        data=json.dumps({HOSTILE: HOSTILE}).encode(),
        attributes={HOSTILE: HOSTILE},
        ordering_key=HOSTILE,
        status=FailureStatus.QUEUED_FOR_RETRY,
        retry_at_ns=1_700_000_100_000_000_000,
        created_at_ns=1_700_000_000_000_000_000,
    ),
]


async def fill(data: Path) -> None:
    documents = await SqliteDocumentStore.open(data / "documents.db")
    for number, (collection, document_id) in enumerate(
        [("ticks", "t-1"), ("ticks", "t-2"), ("ops_services", "local__checkout"), (HOSTILE, HOSTILE)]
    ):
        order = EventOrder(number, 0, 0, str(number))
        change, mark = Upsert(collection, document_id, FIELDS), Mark("ops_dedupe", str(number))
        await documents.apply([Write((change,), order, (mark,), 10**18, 1)])
    await documents.close()
    failures = await SqliteDeskStore.open(data / "failures.db")
    await failures.record(FAILURES)
    await failures.close()


@pytest.fixture(scope="module")
def stocked(shared_launcher: Launcher) -> Launcher:
    asyncio.run(fill(shared_launcher.data))
    return shared_launcher


@pytest.fixture(scope="module")
def running(stocked: Launcher) -> Running:
    return stocked.up()


def printed(launcher: Launcher, *args: str) -> str:
    done = launcher.run(*args)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


# Tables.


def test_a_document(stocked: Launcher) -> None:
    lines = printed(stocked, "docs", "get", "ticks/t-1").splitlines()
    found = dict(line.split(None, 1) for line in lines[:6])
    assert found == {
        "path": "ticks/t-1",
        "status": "ok",
        "count": "3",
        "nothing": "null",
        "source.topic": "ticks",
        "source.more": "{}",
    }
    assert len({line.index(line.split(None, 1)[1]) for line in lines[:6]}) == 1  # one column under the other
    assert len(lines) == 7


def test_lists_of_documents(stocked: Launcher) -> None:
    assert printed(stocked, "docs", "list").splitlines()[0] == "COLLECTION"
    lines = printed(stocked, "docs", "list", "ticks").splitlines()
    assert [line.split()[0] for line in lines] == ["PATH", "ticks/t-1", "ticks/t-2"]
    assert lines[1].endswith("…")  # cut: a table that wraps cannot be read
    assert max(map(len, lines)) <= 80
    assert [line.split()[0] for line in printed(stocked, "docs", "list", "ticks", "--limit", "1").splitlines()[1:]] == [
        "ticks/t-1"
    ]
    assert printed(stocked, "docs", "list", "no-such-collection").splitlines() == ["PATH  FIELDS"]


def test_failures(stocked: Launcher) -> None:
    lines = printed(stocked, "failures", "list").splitlines()
    assert lines[0].split() == ["ID", "CREATED", "REASON", "STATUS", "SUBSCRIPTION", "ERROR"]
    assert [line.split()[0] for line in lines[1:3]] == ["2", "1"]  # newest first
    expected = ["1", "2023-11-14", "22:13:20", "DECODE_ERROR", "permanent_failure", "ticks.materializer"]
    assert lines[2].split()[:6] == expected
    assert lines[-1] == "`holdfast failures show ID` shows one of them whole."
    chosen = printed(stocked, "failures", "list", "--status", "permanent_failure", "--reason", "DECODE_ERROR")
    assert [line.split()[0] for line in chosen.splitlines()[1:2]] == ["1"]
    assert printed(stocked, "failures", "list", "--reason", "NONE_SUCH") == "no failed messages\n"

    shown = dict(line.split(None, 1) for line in printed(stocked, "failures", "show", "1").splitlines())
    assert (shown["messageId"], shown["failureReason"]) == ("m-1", "DECODE_ERROR")
    assert shown["data"] == base64.b64encode(b"\xff\x00").decode()
    assert "text" not in shown
    assert "retryAt" not in shown


def test_what_is_not_there(stocked: Launcher) -> None:
    missing = stocked.run("docs", "get", "ticks/t-9")
    assert (missing.returncode, missing.stdout) == (1, "")
    assert missing.stderr == "holdfast: there is no document ticks/t-9; `holdfast docs list ticks` shows them\n"
    missing = stocked.run("failures", "show", "999")
    assert (missing.returncode, missing.stdout) == (1, "")
    assert "999" in missing.stderr
    bad = stocked.run("failures", "list", "--status", "broken")
    assert (bad.returncode, bad.stdout) == (1, "")
    assert "permanent_failure" in bad.stderr  # what is allowed


# JSON.


def test_json_of_documents(stocked: Launcher) -> None:
    document = {"id": "t-1", "path": "ticks/t-1", "fields": FIELDS}
    assert json.loads(printed(stocked, "docs", "get", "ticks/t-1", "--json")) == document
    listed = json.loads(printed(stocked, "docs", "list", "ticks", "--json"))["documents"]
    assert listed == [document, document | {"id": "t-2", "path": "ticks/t-2"}]
    assert json.loads(printed(stocked, "docs", "list", "--json")) == {"collections": [HOSTILE, "ops_services", "ticks"]}
    assert json.loads(printed(stocked, "docs", "list", "nothing", "--json")) == {"documents": []}


def test_json_of_failures(stocked: Launcher) -> None:
    second, first = json.loads(printed(stocked, "failures", "list", "--json"))["failures"]
    assert (first["id"], first["messageId"], first["createdAt"]) == (1, "m-1", "2023-11-14T22:13:20Z")
    assert (second["failureReason"], second["attributes"]) == (HOSTILE, {HOSTILE: HOSTILE})
    shown = json.loads(printed(stocked, "failures", "show", "2", "--json"))
    assert shown == second | {
        "data": base64.b64encode(FAILURES[1].data).decode(),
        "text": FAILURES[1].data.decode(),
        "json": {HOSTILE: HOSTILE},
        "revisions": [],
        "lineage": [2],
    }
    assert json.loads(printed(stocked, "failures", "list", "--reason", "NONE_SUCH", "--json")) == {"failures": []}


# On a terminal.


@pytest.mark.parametrize(
    "args",
    [
        ("docs", "list"),
        ("docs", "list", HOSTILE),
        ("docs", "get", f"{HOSTILE}/{HOSTILE}"),
        ("docs", "get", f"{HOSTILE}/missing"),
        ("failures", "list"),
        ("failures", "show", "2"),
        ("failures", "list", "--status", HOSTILE),
    ],
    ids=lambda args: " ".join(args[:2]),
)
@pytest.mark.parametrize("form", [(), ("--json",)], ids=["table", "json"])
def test_nothing_hostile_reaches_a_terminal(stocked: Launcher, args: tuple[str, ...], form: tuple[str, ...]) -> None:
    sent = holdfast_on_a_terminal(*args, *form, cwd=stocked.cwd)
    assert "é中😀" in sent  # readable letters stay
    assert r"\x1b[2J" in sent or r"\u001b[2J" in sent  # and the rest is shown for what it is
    assert steering(sent) == []


# Beside, and through, a running process.


@pytest.mark.parametrize(
    "args",
    [
        ("docs", "get", "ticks/t-1"),
        ("docs", "list", "ticks"),
        ("docs", "list"),
        ("failures", "list"),
        ("failures", "list", "--status", "permanent_failure", "--limit", "1"),
        ("failures", "show", "2"),
    ],
    ids=" ".join,
)
def test_a_running_process_answers_as_its_file_does(stocked: Launcher, running: Running, args: tuple[str, ...]) -> None:
    for form in ((), ("--json",)):
        by_file = printed(stocked, *args, *form)
        assert printed(stocked, *args, *form, "--url", running.url) == by_file
        assert by_file


@pytest.mark.parametrize("args", [("docs", "get", "ticks/t-9"), ("failures", "show", "999"), ("docs", "get", "a/b/c")])
def test_what_a_running_process_does_not_have(stocked: Launcher, running: Running, args: tuple[str, ...]) -> None:
    missing = stocked.run(*args, "--url", running.url)
    assert (missing.returncode, missing.stdout) == (1, "")
    assert missing.stderr.startswith("holdfast: ")
    assert missing.stderr.count("\n") == 1


def test_looking_changes_nothing(launcher: Launcher) -> None:
    asyncio.run(fill(launcher.data))
    before = snapshot(launcher.data)
    for args in (
        ("docs", "list", "ticks"),
        ("docs", "get", "ticks/t-1"),
        ("failures", "list"),
        ("failures", "show", "1"),
    ):
        printed(launcher, *args)
    assert snapshot(launcher.data) == before
