"""`holdfast replay` and `holdfast failures replay` against a running `up`, whose consumer takes what is sent again."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.desk import a_failure, open_store
from tests.support.process import Launcher, Running
from tests.support.terminal import holdfast_on_a_terminal
from tests.support.waiting import eventually

SUBSCRIPTION = "projects/local/subscriptions/system.events.materializer"

CANDIDATE = """
from holdfast.consumer import Consumer, Poison, Upsert

app = Consumer()


@app.on("system.events")
def seen(event):
    if "service" not in event.data:
        raise Poison("service: is missing")
    return Upsert("seen", event.data["service"], {})
"""


async def fill(data: Path) -> None:
    store = await open_store(data)
    good = [a_failure(f"m-{n}", **told(f'{{"service": "s{n}"}}')) for n in range(6)]
    await store.record([*good, a_failure("m-bad", **told('{"status": "of nobody"}'), fingerprint="bad")])
    await store.close()


def told(data: str) -> dict[str, Any]:
    return {
        "subscription": SUBSCRIPTION,
        "source_topic": "projects/local/topics/system.events",
        "data": data.encode(),
        "created_at_ns": time.time_ns(),
    }


@pytest.fixture
def up(launcher: Launcher) -> Running:
    asyncio.run(fill(launcher.data))
    return launcher.up()


def printed(launcher: Launcher, *args: str) -> str:
    done = launcher.run(*args)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def as_json(launcher: Launcher, *args: str) -> Any:
    return json.loads(printed(launcher, *args, "--json"))


def test_plan_start_show_and_the_short_way(launcher: Launcher, up: Running) -> None:
    url = ("--url", up.url)
    plan = printed(launcher, "replay", "plan", "--group", "f00d", *url)
    assert "6 of 6 selected failures would be sent, about 0 s at 50/s" in plan
    assert "1 first, the rest only when they ended well" in plan
    assert f"to: {SUBSCRIPTION}: 6" in plan
    assert not as_json(launcher, "replay", "list", *url)["replays"]

    refused = launcher.run("replay", "start", "--group", "f00d", *url)
    assert refused.returncode == 1
    assert "--yes: is needed to send 6 messages" in refused.stderr

    started = as_json(launcher, "replay", "start", "--group", "f00d", "--yes", *url)
    assert started["state"] == "canary"
    job = str(started["id"])
    ended = as_json(launcher, "replay", "watch", job, *url)
    assert (ended["state"], ended["counts"]["succeeded"]) == ("done", 6)
    assert "state" in printed(launcher, "replay", "show", job, *url)
    items = as_json(launcher, "replay", "show", job, "--state", "succeeded", *url)["items"]
    assert [item["failureId"] for item in items] == [1, 2, 3, 4, 5, 6]
    rows = as_json(launcher, "failures", "list", "--status", "replayed", *url)["failures"]
    assert {row["replayId"] for row in rows} == {int(job)}

    short = as_json(launcher, "failures", "replay", "7", *url)
    assert short["total"] == 1
    # The consumer still refuses it: that is a new failure of the same message.
    again = eventually(lambda: newest(launcher, up.url)) or {}
    assert (again["generation"], again["originId"]) == (1, 7)
    nothing = launcher.run("failures", "replay", "7", *url)
    assert nothing.returncode == 1
    assert "none of the 1 selected failures can be sent" in nothing.stderr
    assert "selects no failure" in launcher.run("failures", "replay", "99999", *url).stderr
    shadow = printed(launcher, "replay", "plan", "--target", "shadow", *url)
    assert shadow.startswith("8 of 8 selected failures would be tried, and nothing sent\n")


def newest(launcher: Launcher, url: str) -> dict[str, Any] | None:
    found: dict[str, Any] = as_json(launcher, "failures", "list", "--limit", "1", "--url", url)["failures"][0]
    return found if found["id"] > 7 else None


def test_pause_resume_and_cancel(launcher: Launcher, up: Running) -> None:
    url = ("--url", up.url)
    slow = ("--per-second", "1", "--canary", "0", "--yes")
    job = str(as_json(launcher, "replay", "start", "--group", "f00d", *slow, *url)["id"])
    paused = printed(launcher, "replay", "pause", job, "--actor", "anna", *url)
    assert f"replay {job} paused" in paused
    assert "why: paused by anna" in paused
    assert as_json(launcher, "replay", "resume", job, *url)["state"] == "running"
    assert as_json(launcher, "replay", "cancel", job, *url)["state"] == "cancelled"
    refused = launcher.run("replay", "resume", job, *url)
    assert (refused.returncode, refused.stderr) == (1, f"holdfast: replay {job} is cancelled and not paused\n")


def test_on_a_terminal_it_is_followed_to_its_end(launcher: Launcher, up: Running) -> None:
    start = ("replay", "start", "--group", "f00d", "--per-second", "4", "--canary", "0", "--yes", "--url", up.url)
    shown = holdfast_on_a_terminal(*start, cwd=launcher.cwd)
    assert "replay 1 running" in shown
    assert "6/6" in shown.splitlines()[-1]
    assert "replay 1 done" in shown.splitlines()[-1]


def test_shadow_tells_what_a_candidate_would_do(launcher: Launcher, up: Running) -> None:
    (launcher.cwd / "candidate.py").write_text(CANDIDATE)
    done = launcher.run("replay", "shadow", "candidate:app", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["wouldPass"], report["wouldFail"]) == (6, 1)
    assert report["groups"][0]["example"] == "SCHEMA_VALIDATION_ERROR: service: is missing"
    assert report["documents"] == [{"collection": "seen", "count": 6}]
    shown = launcher.run("replay", "shadow", "candidate:app", "--group", "bad").stdout
    assert "0 would pass, 1 would fail" in shown
    assert as_json(launcher, "failures", "count", "--url", up.url)["byStatus"]["permanent_failure"] == 7
    missing = launcher.run("replay", "shadow", "nowhere:app")
    assert missing.returncode == 1
    assert "there is no module nowhere" in missing.stderr
