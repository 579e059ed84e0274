"""People are told by a running `holdfast up`: from the dead letter to the message, also over kills and silences."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from holdfast.cli.main import cli
from holdfast.model.timestamps import parse_rfc3339
from tests.support import http
from tests.support.process import Launcher, Running
from tests.support.pubsub import Pubsub
from tests.support.waiting import eventually
from tests.support.webhook import PATH, SECRET, Webhook, webhook

# At once; the rule itself is the table's.
SETTINGS = """
[alerts]
interval_seconds = {interval}

[[alerts.rules]]
rule = "DeadLettersWait"
for = 0

[[alerts.receivers]]
name = "hook"
kind = "webhook"
url_env = "HOOK_URL"
secret_env = "HOOK_SECRET"
match = ['rule=~"DeadLettersWait|DeliveryPaused|PermanentFailure"']
group_wait = 0
group_interval = "1s"
"""
SUBSCRIPTION = "projects/local/subscriptions/system.events.materializer"


@pytest.fixture
def hook() -> Iterator[Webhook]:
    with webhook() as found:
        yield found


def up(launcher: Launcher, hook: Webhook, interval: int = 1, **env: str) -> Running:
    (launcher.cwd / "holdfast.toml").write_text(SETTINGS.format(interval=interval))
    return launcher.up(env={"HOOK_URL": hook.url, "HOOK_SECRET": SECRET, **env})


def make_a_dead_letter(running: Running) -> None:
    with Pubsub(running.broker) as pubsub:
        pubsub.publish_one("system.events", {"no": "service"})


def typed(running: Running, *args: str) -> Result:
    """`holdfast alerts …`, in this process: starting one for each takes seconds."""
    return CliRunner().invoke(cli, ["alerts", *args, "--url", running.url], prog_name="holdfast")


def asked(running: Running, *args: str) -> Any:
    done = typed(running, *args, "--json")
    assert done.exit_code == 0, done.exception
    return json.loads(done.stdout)


def waiting(alerts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [one for one in alerts if one["rule"] == "DeadLettersWait"]


def judged(running: Running) -> float:
    """When, in seconds since 1970; 0 before the first time."""
    with urllib.request.urlopen(f"{running.url}/metrics") as answer:
        found = re.search(r"^holdfast_alerts_last_evaluation\S* (\S+)$", answer.read().decode(), re.MULTILINE)
    return float(found[1]) if found else 0.0


def take_in_hand(running: Running) -> None:
    [group] = http.get(f"{running.url}/api/v1/groups").body["groups"]
    http.post(f"{running.url}/api/v1/groups/{group['fingerprint']}:acknowledge", {})


def test_a_dead_letter_is_told_and_so_is_that_somebody_sees_to_it(launcher: Launcher, hook: Webhook) -> None:
    running = up(launcher, hook)
    make_a_dead_letter(running)
    [firing] = eventually(lambda: hook.told("DeadLettersWait", "firing"))
    [alert] = firing["alerts"]
    assert alert["labels"] == {"subscription": SUBSCRIPTION}
    assert (alert["details"]["measured"], alert["details"]["limit"]) == ("1", "0")
    assert alert["details"]["runbook"] == "docs/runbook.md#dead-letters-wait"
    command = alert["details"]["next"]
    assert command == f"holdfast failures groups --state open --subscription {SUBSCRIPTION}"
    shown = launcher.run(*command.split()[1:], "--json")  # what it says to run next can be run
    assert len(json.loads(shown.stdout)["groups"]) == 1
    take_in_hand(running)
    [over] = eventually(lambda: hook.told("DeadLettersWait", "resolved"))
    assert over["groupKey"] == firing["groupKey"]
    assert over["id"] != firing["id"]


def test_killed_with_the_request_out_it_sends_the_same_again(launcher: Launcher, hook: Webhook) -> None:
    first = up(launcher, hook)
    hook.hangs = True
    make_a_dead_letter(first)
    [out] = eventually(lambda: hook.asked)
    first.kill()
    hook.hangs = False
    second = up(launcher, hook)
    [told] = eventually(lambda: hook.told("DeadLettersWait", "firing"))
    assert told["webhook-id"] == told["id"] == out["webhook-id"]
    assert told["alerts"] == out["alerts"]
    eventually(lambda: waiting(http.get(f"{second.url}/api/v1/alerts").body["alerts"])[0]["told"] == ["hook"])
    second.kill()

    third = up(launcher, hook)  # what was told is not told again, and its end is
    take_in_hand(third)
    eventually(lambda: hook.told("DeadLettersWait", "resolved"))
    assert len(hook.told("DeadLettersWait", "firing")) == 1


def test_it_comes_through_once_the_receiver_is_back(launcher: Launcher, hook: Webhook) -> None:
    running = up(launcher, hook)
    hook.status = 503
    make_a_dead_letter(running)
    eventually(lambda: hook.asked)
    [waiting] = asked(running, "receivers")["receivers"]
    assert (waiting["waiting"], waiting["lastSentAt"]) == (1, None)
    assert waiting["lastError"].endswith("answered 503")
    hook.status = 200
    eventually(lambda: hook.told("DeadLettersWait", "firing"), 30)
    assert len({one["id"] for one in hook.asked}) == 1


def test_a_storm_is_told_before_the_next_look_is_due(launcher: Launcher, hook: Webhook) -> None:
    running = up(launcher, hook, interval=60, HOLDFAST_BROKER_BREAKER_MINIMUM="5")
    with Pubsub(running.broker) as pubsub:
        pubsub.create_topic("storm")
        push = {"push_endpoint": "http://127.0.0.1:1/nobody"}
        pubsub.subscribe("storm.push", "storm", push_config=push)
        for number in range(10):
            pubsub.publish_one("storm", {"n": number})
    [told] = eventually(lambda: hook.told("DeliveryPaused", "firing"), 30)
    assert told["alerts"][0]["labels"] == {"subscription": "projects/local/subscriptions/storm.push"}


def test_a_permanent_failure_is_told_before_the_next_look_is_due(launcher: Launcher, hook: Webhook) -> None:
    """The first look is past: before it, nobody knows whether a failure is new."""
    running = up(launcher, hook, interval=12)
    eventually(lambda: judged(running), 40)
    seen = judged(running)
    make_a_dead_letter(running)
    [told] = eventually(lambda: hook.told("PermanentFailure", "firing"), 30)
    assert told["alerts"][0]["summary"] == "A failed message has become a permanent failure: a person must see to it"
    began = parse_rfc3339(told["alerts"][0]["startedAt"]) / 1e9
    assert began - seen < 10


def test_silences_are_made_seen_and_lifted(launcher: Launcher, hook: Webhook) -> None:
    running = up(launcher, hook)
    made = asked(running, "silence", "--rule", "DeadLettersWait", "--for", "2h", "--comment", "we know")
    assert (made["id"], made["state"], made["match"]) == (1, "active", ['rule="DeadLettersWait"'])
    make_a_dead_letter(running)
    [alert] = eventually(lambda: waiting(http.get(f"{running.url}/api/v1/alerts").body["alerts"]))
    assert [alert] == waiting(asked(running, "list")["alerts"])
    assert (alert["told"], alert["silencedUntil"]) == ([], made["endsAt"])
    [listed] = asked(running, "silences")["silences"]
    assert listed == made
    assert hook.asked == []
    assert asked(running, "unsilence", "1")["state"] == "over"
    eventually(lambda: hook.told("DeadLettersWait", "firing"))
    eventually(lambda: waiting(http.get(f"{running.url}/api/v1/alerts").body["alerts"])[0]["told"] == ["hook"])
    assert asked(running, "silences")["silences"] == []
    assert len(asked(running, "silences", "--all")["silences"]) == 1
    [once] = waiting(asked(running, "history")["alerts"])
    assert (once["state"], once["endedAt"]) == ("firing", None)
    for command, shown in [("list", "DeadLettersWait"), ("history", "system.events"), ("silences --all", "we know")]:
        assert shown in typed(running, *command.split()).stdout


def test_a_silence_that_would_keep_nothing_quiet_is_refused(launcher: Launcher, hook: Webhook) -> None:
    running = up(launcher, hook)
    for given, said in [
        (("--rule", "DeadLetterWait", "--for", "2h"), "--rule: there is no rule 'DeadLetterWait'; did you mean DeadL"),
        (("--rule", "DeadLettersWait", "--for", "2x"), "--for: must be how long, such as 30m, 2h or 7d, not '2x'"),
        (("--rule", "DeadLettersWait", "--for", "91d"), "endsAt: must be within 90 days"),
    ]:
        done = launcher.run("alerts", "silence", *given, "--comment", "c", "--url", running.url)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith(f"holdfast: {said}")
    assert asked(running, "silences")["silences"] == []
    asked(running, "silence", "--rule", "DeadLettersWait", "--for", "7d", "--comment", "c")


def test_a_receiver_is_tested(launcher: Launcher, hook: Webhook) -> None:
    running = up(launcher, hook)
    done = launcher.run("alerts", "test", "hook", "--actor", "anna", "--url", running.url)
    assert (done.returncode, done.stdout) == (0, "hook has it\n")
    [test] = hook.asked
    assert test["title"] == "[TEST] This is a test by anna: nothing is wrong"
    hook.status = 404
    refused = typed(running, "test", "hook")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert re.fullmatch(r"hook was not told: 127\.0\.0\.1:\d+ answered 404", str(refused.exception))
    assert str(typed(running, "test", "nobody").exception) == "there is no receiver nobody; the settings have: hook"


def test_no_secret_is_ever_shown(launcher: Launcher, hook: Webhook) -> None:
    running = up(launcher, hook)
    hook.status = 500
    make_a_dead_letter(running)
    eventually(lambda: hook.asked)
    hook.status = 401
    typed(running, "test", "hook")
    said = [json.dumps(http.get(f"{running.url}/api/v1/alerts{path}").body) for path in ("", "/receivers", "/history")]
    said += [typed(running, command, "--json").output for command in ("receivers", "list")]
    with urllib.request.urlopen(f"{running.url}/metrics") as answer:
        said.append(answer.read().decode())
    running.kill()
    said += [running.stdout, running.stderr]
    files = [file.read_bytes() for file in launcher.data.iterdir() if file.name.startswith("alerts")]
    for text in said:
        assert PATH not in text
        assert SECRET not in text
    for contents in files:
        assert PATH.encode() not in contents
        assert SECRET.encode() not in contents
    assert "answered 500" in running.stderr


def test_settings_that_are_wrong_end_the_start(launcher: Launcher) -> None:
    (launcher.cwd / "holdfast.toml").write_text('[[alerts.receivers]]\nname = "a"\nkind = "slack"\nurl_env = "GONE"\n')
    for command in ("up", "broker", "consume", "desk"):
        done = launcher.run(command)
        assert (done.returncode, done.stdout) == (1, "")
        said = "names a variable of the environment that is not there, or is empty"
        assert done.stderr == f"holdfast: setting alerts.receivers[0].url_env = 'GONE': {said}\n"
    assert not launcher.data.exists()


def test_who_asks_wrongly_is_told(launcher: Launcher) -> None:
    running = launcher.up("--memory")
    url = f"{running.url}/api/v1/alerts"
    for body, said in [
        ({"match": ["rule=x"], "for": "2h"}, "comment: must be a text that is not empty"),
        ({"match": "x", "for": "2h", "comment": "c"}, "match: must be a list of conditions"),
        ({"match": [], "for": "2h", "comment": "c"}, "match: must be 1 to 20 conditions"),
        ({"match": ["rule"], "for": "2h", "comment": "c"}, "match: has labels that cannot be read at 'rule'"),
        ({"match": ["rule=x"], "comment": "c"}, "for: either `for` or `endsAt` must say how long it lasts"),
        (
            {"match": ["rule=x"], "for": "soon", "comment": "c"},
            "for: must be how long, such as 30m, 2h or 7d, not 'soon'",
        ),
        ({"match": ["rule=x"], "for": "0s", "comment": "c"}, "for: must be how long"),
        ({"match": ["rule=x"], "endsAt": "2020-01-01T00:00:00Z", "comment": "c"}, "endsAt: must be later than now"),
        ({"match": ["rule=x"], "endsAt": "2200-01-01T00:00:00Z", "comment": "c"}, "endsAt: must be within 90 days"),
        ({"match": ["rule=x"], "endsAt": 5, "comment": "c"}, "endsAt: must be a time such as"),
    ]:
        reply = http.post(f"{url}/silences", body)
        assert reply.status == 400
        assert reply.body["error"]["message"].startswith(said)
    assert http.post(f"{url}/silences/7:end", {}).status == 404
    assert http.post(f"{url}/silences/x:end", {}).status == 400
    assert http.get(f"{url}/history?pageToken=x").status == 400
    assert http.get(f"{url}?x=1").status == 400
    assert http.post(f"{url}/receivers/nobody:test", {}).status == 404
    assert http.get(f"{url}/silences").body == {"silences": []}


def test_where_nothing_is_judged_that_is_said(launcher: Launcher) -> None:
    running = launcher.up("--memory", env={"HOLDFAST_ALERTS_ENABLED": "no"})
    reply = http.get(f"{running.url}/api/v1/alerts")
    assert (reply.status, reply.body["error"]["status"]) == (400, "FAILED_PRECONDITION")


def test_a_silence_that_would_hold_up_the_process_is_not_made(launcher: Launcher) -> None:
    up = launcher.up("--memory")
    silence = {"match": ["subscription=~.*/(a+)+x"], "for": "1h", "comment": "slow"}
    refused = http.post(f"{up.url}/api/v1/alerts/silences", silence)
    assert (refused.status, "may take too long" in refused.body["error"]["message"]) == (400, True)
    assert http.get(f"{up.url}/api/v1/alerts/silences").body == {"silences": []}
