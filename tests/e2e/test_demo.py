"""`holdfast demo` against a running `holdfast up`: a newcomer sees every outcome."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from typing import Any

import pytest

from tests.support import http
from tests.support.process import HOLDFAST, START_SECONDS, Launcher, Running, environment

OUTCOMES = ["applied"] * 5 + ["duplicate", "stale_ignored", "poison", "poison"]


@pytest.fixture(scope="module")
def up(shared_launcher: Launcher) -> Running:
    return shared_launcher.up()


def play(launcher: Launcher, up: Running) -> list[dict[str, Any]]:
    done = launcher.run("demo", "--broker", up.broker, "--url", up.url, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    messages: list[dict[str, Any]] = json.loads(done.stdout)["messages"]
    return messages


def type_in(launcher: Launcher, line: str) -> str:
    """Runs a command as a reader would, who has copied it from the screen."""
    done = subprocess.run(
        shlex.split(line),
        cwd=launcher.cwd,
        env=environment({"PATH": f"{HOLDFAST.parent}:/usr/bin:/bin"}),
        capture_output=True,
        encoding="utf-8",
        timeout=START_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def assert_one_line(done: subprocess.CompletedProcess[str], *parts: str) -> None:
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("holdfast: ")
    assert done.stderr.count("\n") == 1
    for part in parts:
        assert part in done.stderr


def test_every_outcome_appears_and_again_the_next_time(up: Running, shared_launcher: Launcher) -> None:
    seen: set[str] = set()
    for _ in range(2):
        messages = play(shared_launcher, up)
        assert [one["outcome"] for one in messages] == OUTCOMES
        ids = {one["messageId"] for one in messages}
        assert len(ids) == 9
        assert not ids & seen
        seen |= ids
        assert {one["topic"] for one in messages} == {
            "system.events",
            "market-ticks",
            "market-bars-1m",
            "trade-signals",
        }
        for one in messages[:7]:
            assert http.get(f"{up.url}/api/v1/documents/{one['where']}").status == 200
        for one in messages[7:]:
            found = re.fullmatch(r"failure (\d+)", one["where"])
            assert found, one
            failure = http.get(f"{up.url}/api/v1/failures/{found[1]}").body
            assert failure["messageId"] == one["messageId"]


def test_the_command_that_up_prints_works_as_printed(up: Running, shared_launcher: Launcher) -> None:
    """And shows a table, with commands to go on that work too."""
    done = type_in(shared_launcher, up.stdout.splitlines()[-1])
    lines = done.splitlines()
    assert lines[0].split() == ["SENT", "TO", "OUTCOME", "WHERE"]
    outcomes = [next(outcome for outcome in set(OUTCOMES) if f" {outcome} " in line) for line in lines[1:10]]
    assert outcomes == OUTCOMES
    look, list_failures = lines[lines.index("Look for yourself:") + 1 :]
    assert "checkout" in type_in(shared_launcher, look)
    assert "DECODE_ERROR" in type_in(shared_launcher, list_failures)


def test_holdfast_is_named_as_the_user_can_type_it(launcher: Launcher) -> None:
    on_path = launcher.up(env={"PATH": f"{HOLDFAST.parent}:/usr/bin:/bin"})
    assert on_path.stdout.splitlines()[-1].startswith("  holdfast demo ")


def test_nothing_runs(launcher: Launcher) -> None:
    done = launcher.run("demo", "--url", "http://127.0.0.1:1", "--broker", "127.0.0.1:1")
    assert_one_line(done, "http://127.0.0.1:1", "Is it up?")


def test_the_broker_does_not_answer(up: Running, shared_launcher: Launcher) -> None:
    done = shared_launcher.run("demo", "--broker", "127.0.0.1:1", "--url", up.url)
    assert_one_line(done, "no broker answers at 127.0.0.1:1", "holdfast up")


def test_a_broker_without_the_topology(launcher: Launcher, up: Running) -> None:
    broker = launcher.part("broker", "--memory")
    done = launcher.run("demo", "--broker", broker.broker, "--url", up.url)
    assert_one_line(done, "projects/local/topics/system.events", "holdfast up")


def test_it_works_in_strict_mode_too(launcher: Launcher) -> None:
    """A poison then spends its attempts first, and the demo does not wait for that."""
    up = launcher.up("--memory", env={"HOLDFAST_BROKER_STRICT": "true"})
    messages = play(launcher, up)
    assert [one["outcome"] for one in messages] == OUTCOMES
    assert {one["where"] for one in messages[7:]} == {"will be dead-lettered after its attempts"}
