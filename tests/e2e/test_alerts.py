"""A running `holdfast` watches itself: alerts in its log, its metrics and its API, also after kill -9."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest

from holdfast.alerts.table import RULES
from tests.support import http
from tests.support.process import Launcher, Running
from tests.support.waiting import eventually

# Of the default topology: every process that is up has it, whatever the machine is busy with.
ALWAYS = """
log_format = "json"

[alerts]
interval_seconds = 1

[[alerts.rules]]
rule = "Always"
measure = "level"
of = 'holdfast_push_window{subscription=~".*/system[.]events[.].*"}'
threshold = 0
for = "2s"
severity = "critical"
summary = "{subscription} has a window"
"""
SUBSCRIPTION = "projects/local/subscriptions/system.events.materializer"


def told(running: Running) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in running.stderr.splitlines()]
    return [line for line in lines if line.get("alert") == "Always"]


def metrics(url: str) -> Mapping[str, float]:
    with urllib.request.urlopen(f"{url}/metrics") as answer:
        text = answer.read().decode()
    found = re.findall(r"^(holdfast_alerts\S*) (\S+)$", text, re.MULTILINE)
    return {name: float(value) for name, value in found}


def judged_at(url: str) -> float:
    return metrics(url).get("holdfast_alerts_last_evaluation_timestamp_seconds", 0)


def test_an_alert_from_its_beginning_to_its_end(launcher: Launcher) -> None:
    config = launcher.cwd / "holdfast.toml"
    config.write_text(ALWAYS)
    first = launcher.up()
    eventually(lambda: told(first))
    [begun] = told(first)
    expected = {"state": "firing", "alert_severity": "critical", "subscription": SUBSCRIPTION}
    assert {name: begun[name] for name in expected} == expected
    assert (begun["severity"], begun["message"]) == ("CRITICAL", f"{SUBSCRIPTION} has a window")
    assert begun["runbook"] == "docs/runbook.md#your-own-rules"
    eventually(lambda: metrics(first.url).get('holdfast_alerts_firing{severity="critical"}') == 1)
    assert judged_at(first.url) > 0
    first.kill()

    second = launcher.up()
    restarted = judged_at(second.url)  # as the file has it
    eventually(lambda: judged_at(second.url) > restarted + 2)
    assert metrics(second.url)['holdfast_alerts_firing{severity="critical"}'] == 1
    assert told(second) == []  # people know already
    second.kill()

    config.write_text(ALWAYS.replace("threshold = 0", "threshold = 1_000_000"))
    third = launcher.up()
    eventually(lambda: told(third))
    [ended] = told(third)
    assert (ended["severity"], ended["state"]) == ("INFO", "resolved")
    assert ended["message"] == f"alert is over: {SUBSCRIPTION} has a window"
    assert metrics(third.url)['holdfast_alerts_firing{severity="critical"}'] == 0


def test_every_part_judges_and_tells_its_rules(launcher: Launcher) -> None:
    broker = launcher.part("broker", env={"HOLDFAST_ALERTS_INTERVAL_SECONDS": "1"})
    env = {"PUBSUB_EMULATOR_HOST": broker.broker, "HOLDFAST_ALERTS_INTERVAL_SECONDS": "1"}
    parts = {
        "broker": f"http://{broker.broker}",
        "consume": launcher.part("consume", env=env).url,
        "desk": launcher.part("desk", env=env).url,
    }
    for name, url in parts.items():
        rules = http.get(f"{url}/api/v1/alerts/rules").body["rules"]
        assert [rule["rule"] for rule in rules] == [rule.name for rule in RULES], name
        eventually(partial(judged_at, url))
    for file in ("alerts-broker.db", "alerts-consume.db", "alerts.db"):
        assert (launcher.data / file).exists()


def test_without_alerts_nothing_is_judged_and_no_file_is_made(launcher: Launcher) -> None:
    up = launcher.up(env={"HOLDFAST_ALERTS_ENABLED": "no"})
    assert metrics(up.url) == {}
    assert not (launcher.data / "alerts.db").exists()


@pytest.mark.parametrize("command", ["up", "broker", "consume", "desk"])
def test_a_rule_that_is_wrong_ends_the_start(launcher: Launcher, command: str) -> None:
    (launcher.cwd / "holdfast.toml").write_text('[[alerts.rules]]\nrule = "OldestUnacked"\nthreshold = "x"\n')
    done = launcher.run(command)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "holdfast: setting alerts.rules[0].threshold = 'x': must be a number\n"
    assert not launcher.data.exists()
