"""`holdfast failures` and `holdfast audit`: from the store beside a running process, through it, and acting on it."""

from __future__ import annotations

import asyncio
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast.deadletter.audit import Action
from holdfast.model.failed_message import FailedMessage, FailureStatus
from tests.support.desk import a_failure, open_store
from tests.support.process import Launcher, Running
from tests.support.terminal import visible_only

# What could move the cursor, colour or rewrite lines, ring, or turn the reading direction on a terminal.
HOSTILE = "a\x1b[2J\x1b]0;title\x07b\x08\r\n\x7f\x9b31m\x85\u2028\u202e\u2066é中😀"


def failures(now_ns: int) -> list[FailedMessage]:
    hour = 3600 * 10**9
    return [
        a_failure("m-1", created_at_ns=now_ns - 3 * hour, failed_at_ns=now_ns - 3 * hour - 10**9),
        a_failure("m-2", created_at_ns=now_ns - 2 * hour, attributes={"tenant": "acme"}, delivery_attempt=5),
        a_failure(
            "m-3",
            created_at_ns=now_ns - hour,
            failure_reason="API_RATE_LIMIT_EXCEEDED",
            fingerprint="beef",
            retry_count=2,
            status=FailureStatus.RETRY_SUCCESS,
            retry_success_at_ns=now_ns - hour + 5 * 10**9,
        ),
        a_failure(
            HOSTILE,
            created_at_ns=now_ns,
            subscription="projects/local/subscriptions/" + HOSTILE,
            source_topic=HOSTILE,
            failure_reason=HOSTILE,
            error_details=HOSTILE * 20,
            fingerprint="bad",
            attributes={HOSTILE: HOSTILE},
            data=json.dumps({HOSTILE: HOSTILE}).encode(),
            ordering_key=HOSTILE,
        ),
    ]


async def fill(data: Path) -> None:
    now_ns = time.time_ns()
    store = await open_store(data)
    await store.record(failures(now_ns))
    await store.append(Action(HOSTILE, HOSTILE, HOSTILE, {HOSTILE: HOSTILE}, now_ns))
    await store.close()


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


def refused(launcher: Launcher, *args: str) -> str:
    """The one line that says why."""
    done = launcher.run(*args)
    assert (done.returncode, done.stdout) == (1, ""), done
    assert done.stderr.startswith("holdfast: ")
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr.removeprefix("holdfast: ").rstrip()


def listed(launcher: Launcher, *args: str) -> list[str]:
    return [failure["messageId"] for failure in json.loads(printed(launcher, *args, "--json"))["failures"]]


# Looking at the store.


def test_a_table_of_failures(stocked: Launcher) -> None:
    lines = printed(stocked, "failures", "list", "--subscription", "orders.worker").splitlines()
    assert lines[0].split() == ["ID", "CREATED", "REASON", "STATUS", "SUBSCRIPTION", "ERROR"]
    assert [line.split()[0] for line in lines[1:4]] == ["3", "2", "1"]
    assert lines[-1] == "`holdfast failures show ID` shows one of them whole."
    assert printed(stocked, "failures", "list", "--reason", "NONE_SUCH") == "no failed messages\n"


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ("--id 1 --id 2", ["m-2", "m-1"]),
        ("--status retry_success --status replayed", ["m-3"]),
        ("--reason API_RATE_LIMIT_EXCEEDED", ["m-3"]),
        ("--topic orders --group f00d", ["m-2", "m-1"]),
        ("--message-id m-2", ["m-2"]),
        ("--until 150m", ["m-1"]),
        ("--since 150m --until 90m", ["m-2"]),
        ("--attempts 5..", ["m-2"]),
        ("--attribute tenant=acme", ["m-2"]),
        ("--payload amount=many --group f00d", ["m-2", "m-1"]),
        ("--text NUMBER --subscription orders.worker --limit 1", ["m-3"]),
        ("--no-hold --group beef", ["m-3"]),
        ("--hold", []),
        ("--replay 7", []),
    ],
)
def test_failures_are_selected(stocked: Launcher, options: str, found: list[str]) -> None:
    assert listed(stocked, "failures", "list", *options.split()) == found


def test_one_failure(stocked: Launcher) -> None:
    shown = dict(line.split(None, 1) for line in printed(stocked, "failures", "show", "2").splitlines())
    assert (shown["messageId"], shown["attributes.tenant"], shown["lineage"]) == ("m-2", "acme", "[2]")
    assert "retryAt" not in shown


def test_counts(stocked: Launcher) -> None:
    lines = [line.split() for line in printed(stocked, "failures", "count").splitlines()]
    assert lines[0] == ["REASON", "QUEUED_FOR_RETRY", "PERMANENT_FAILURE", "RETRY_SUCCESS", "REPLAYED", "TOTAL"]
    assert lines[1] == ["SCHEMA_VALIDATION_ERROR", "0", "2", "0", "0", "2"]
    assert lines[-1] == ["TOTAL", "0", "3", "1", "0", "4"]
    assert printed(stocked, "failures", "count", "--group", "f00d") == "2\n"
    assert json.loads(printed(stocked, "failures", "count", "--hold", "--json")) == {"count": 0, "countIsExact": True}


def test_groups(stocked: Launcher) -> None:
    groups = json.loads(printed(stocked, "failures", "groups", "--reason", "SCHEMA_VALIDATION_ERROR", "--json"))
    assert [(one["fingerprint"], one["count"], one["waiting"]) for one in groups["groups"]] == [("f00d", 2, 2)]
    lines = printed(stocked, "failures", "groups", "--limit", "1").splitlines()
    assert lines[0].split()[:4] == ["GROUP", "STATE", "WAITING", "COUNT"]
    assert lines[1].split()[:4] == ["bad", "open", "1", "1"]
    assert len(lines) == 2
    shown = printed(stocked, "failures", "group", "show", "f00d")
    assert re.search(r"^count +2$", shown, re.MULTILINE)
    assert re.search(r"^HOUR +COUNT$", shown, re.MULTILINE)
    assert printed(stocked, "failures", "groups", "--assignee", "nobody") == "no groups\n"


def test_statistics(stocked: Launcher) -> None:
    text = printed(stocked, "failures", "stats", "--since", "4h")
    values = dict(re.split(r"  +", line, maxsplit=1) for line in text.splitlines()[2:] if "  " in line)
    assert values["failed messages"] == "4"
    assert values["permanent failures"] == "3"
    assert values["messages processed"].startswith("not known here")
    assert values["retry success rate"] != ""
    assert values["median time to recovery"] == "5 s"
    assert values["median time to detection"] == "1 s"
    rows = [re.split(r"  +", line) for line in text.splitlines()]
    assert ["API_RATE_LIMIT_EXCEEDED", "1", "25.0 %", "2", "100.0 %"] in rows
    assert ["TOTAL", "4", "100 %", "0.5", "25.0 %"] in rows
    assert ["message loss rate", "< 0.1 %", "0 %", "met"] in rows
    assert ["time to detection", "< 60 s", "1 s", "met"] in rows
    assert ["manual review queue", "< 50", "3", "met"] in rows


def test_the_audit_trail(stocked: Launcher) -> None:
    [entry] = json.loads(printed(stocked, "audit", "list", "--until", "2100-01-01T00:00:00Z", "--json"))["entries"][-1:]
    assert (entry["actor"], entry["details"]) == (HOSTILE, {HOSTILE: HOSTILE})
    assert printed(stocked, "audit", "list", "--actor", "nobody") == "no entries\n"
    head = json.loads(printed(stocked, "audit", "verify", "--json"))["head"]
    assert printed(stocked, "audit", "verify", "--head", head).rstrip().endswith(head)
    assert "cut off" in refused(stocked, "audit", "verify", "--head", "0" * 63 + "1")


@pytest.mark.parametrize(
    ("args", "named"),
    [
        (("failures", "list", "--status", "broken"), "status: must be one of"),
        (("failures", "list", "--since", "yesterday"), "since: must be a time"),
        (("failures", "list", "--reason", ""), "reason: must be a text that is not empty"),
        (("failures", "list", "--attribute", "tenant"), "--attribute: must look like NAME=VALUE"),
        (("failures", "list", "--payload", "a=1", "--payload", "a=2"), "--payload: 'a' is given twice"),
        (("failures", "list", "--id", "x"), "id: must be a whole number"),
        (("failures", "count", "--attempts", "5..3"), "attempts: must not end before it begins"),
        (("failures", "show", "999"), "there is no failure 999"),
        (("failures", "group", "show", "none"), "there is no group 'none'"),
        (("failures", "stats", "--since", "soon"), "since: "),
        (("failures", "groups", "--state", "lost"), "state: must be one of"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(stocked: Launcher, args: tuple[str, ...], named: str) -> None:
    assert refused(stocked, *args).startswith(named)


@pytest.mark.parametrize(
    "args",
    [
        ("failures", "list"),
        ("failures", "show", "4"),
        ("failures", "count"),
        ("failures", "groups"),
        ("failures", "group", "show", "bad"),
        ("failures", "stats"),
        ("audit", "list"),
    ],
    ids=" ".join,
)
def test_hostile_text_cannot_steer_a_terminal(stocked: Launcher, args: tuple[str, ...]) -> None:
    for form in ((), ("--json",)):
        text = printed(stocked, *args, *form)
        assert "中" in text or "\\u4e2d" in text
        assert visible_only(text)


# Through a running process.


@pytest.mark.parametrize(
    "args",
    [
        ("failures", "list", "--group", "f00d", "--payload", "amount=many"),
        ("failures", "show", "2"),
        ("failures", "count"),
        ("failures", "count", "--reason", HOSTILE),
        ("failures", "groups"),
        ("failures", "group", "show", "f00d"),
        ("audit", "list", "--action", HOSTILE),
    ],
    ids=str,
)
def test_a_running_process_answers_as_its_store_does(
    stocked: Launcher, running: Running, args: tuple[str, ...]
) -> None:
    for form in ((), ("--json",)):
        assert printed(stocked, *args, *form, "--url", running.url) == printed(stocked, *args, *form)


def test_a_running_process_knows_how_many_were_processed(stocked: Launcher, running: Running) -> None:
    report = json.loads(printed(stocked, "failures", "stats", "--json", "--url", running.url))
    assert report["processed"]["total"] >= 0
    assert "by the consumer since" in printed(stocked, "failures", "stats", "--url", running.url)


def test_its_refusals_are_one_line_too(stocked: Launcher, running: Running) -> None:
    assert refused(stocked, "failures", "show", "999", "--url", running.url) == "there is no failure 999"
    assert refused(stocked, "failures", "list", "--topic", "x", "--url", running.url).startswith("topic: ")
    assert "Is it up?" in refused(stocked, "failures", "list", "--url", "http://127.0.0.1:1")
    assert refused(stocked, "failures", "list", "--url", "nonsense")


# Acting.


def act(launcher: Launcher, running: Running, *args: str) -> Any:
    return json.loads(printed(launcher, "failures", *args, "--url", running.url, "--json"))


def test_the_life_of_a_group(stocked: Launcher, running: Running) -> None:
    version = act(stocked, running, "ack", "beef", "--actor", "anna")["version"]
    assert act(stocked, running, "assign", "beef", "ben", "--version", str(version))["assignee"] == "ben"
    assert act(stocked, running, "assign", "beef", "")["assignee"] == ""
    assert act(stocked, running, "comment", "beef", HOSTILE)["text"] == HOSTILE
    assert act(stocked, running, "resolve", "beef")["state"] == "resolved"
    done = printed(stocked, "failures", "reopen", "beef", "--url", running.url)
    assert done == "beef is open\n"
    stale = refused(stocked, "failures", "resolve", "beef", "--version", "1", "--url", running.url)
    assert "by now, not 1" in stale
    shown = printed(stocked, "failures", "group", "show", "beef", "--url", running.url)
    assert visible_only(shown)
    trail = json.loads(printed(stocked, "audit", "list", "--target", "groups/beef", "--json"))["entries"]
    assert [entry["action"] for entry in reversed(trail)] == [
        "group.acknowledge",
        "group.assign",
        "group.assign",
        "group.comment",
        "group.resolve",
        "group.reopen",
    ]
    assert trail[-1]["actor"] == "anna"
    assert {entry["actor"].partition(":")[0] for entry in trail[:-1]} == {"cli"}


def test_acting_needs_a_desk_that_is_up(stocked: Launcher) -> None:
    assert "Is it up?" in refused(stocked, "failures", "resolve", "f00d", "--url", "http://127.0.0.1:1")
