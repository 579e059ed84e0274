"""Events through `POST /api/v1/ingest/TOPIC` and `holdfast ingest`, with processes that are killed in the middle."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections import Counter
from http.client import HTTPException
from typing import Any

import pytest

from tests.support import http
from tests.support.operator import Operator
from tests.support.process import Launcher
from tests.support.pubsub import Pubsub
from tests.support.waiting import eventually

READING = {"type": "record", "name": "Reading", "fields": [{"name": "latitude", "type": "double"}]}


def send(url: str, topic: str, event: Any, key: str = "") -> tuple[int, Any]:
    headers = {"Content-Type": "application/json", **({"Idempotency-Key": key} if key else {})}
    request = urllib.request.Request(f"{url}/api/v1/ingest/{topic}", json.dumps(event).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def fires(broker: str, operator: Operator) -> None:
    """A topic that takes readings alone, and somebody who reads it."""
    operator.ok("schemas", "create", "reading", "--type", "avro", "--definition", json.dumps(READING))
    operator.ok("topics", "create", "fires", "--schema", "reading")
    with Pubsub(broker) as pubsub:
        pubsub.subscribe("fires.worker", "fires")


def everything(broker: str, subscription: str, most: int) -> list[dict[str, Any]]:
    """What comes until there is nothing more."""
    found: list[dict[str, Any]] = []
    with Pubsub(broker) as pubsub:
        while received := pubsub.pull(subscription, most):
            found += [json.loads(one.message.data) for one in received]
    return found


NO_RETRIES = """
[[desk.retry]]
reason = "SCHEMA_VALIDATION_ERROR"
delays = []
"""


def test_what_is_refused_is_mended_and_goes_to_its_topic(launcher: Launcher) -> None:
    (launcher.cwd / "holdfast.toml").write_text(NO_RETRIES)  # a retry would send the edit before the replay does
    up = launcher.up()
    operator = Operator(launcher, up.broker)
    fires(up.broker, operator)
    (launcher.cwd / "readings.ndjson").write_text('{"latitude": 1.5}\n\n{"latitude": "north"}\nnope\n{"latitude": 2}\n')
    done = operator("ingest", "fires", "readings.ndjson", "--url", up.url)
    assert (done.returncode, done.stdout.splitlines()[0]) == (1, "2 published, 2 refused")
    assert "SCHEMA_VALIDATION_ERROR" in done.stdout
    assert done.stderr == "holdfast: 2 of 4 events were not published\n"
    told = json.loads(operator("ingest", "fires", "-", "--json", "--url", up.url, stdin=b'{"latitude": 3.5}').stdout)
    assert (told["published"], told["results"][0]["failure"]) == (1, None)
    listed = operator.json("failures", "list", "--url", up.url)["failures"]
    by_reason = {failure["failureReason"]: failure for failure in listed}
    assert set(by_reason) == {"SCHEMA_VALIDATION_ERROR", "DECODE_ERROR"}
    assert "(ingest of fires)" in operator.ok("failures", "list", "--url", up.url)
    failure_id = str(by_reason["SCHEMA_VALIDATION_ERROR"]["id"])
    operator.ok("failures", "edit", failure_id, "--set", "latitude=39.75", "--url", up.url)
    assert "projects/local/topics/fires" in operator.ok("replay", "plan", "--id", failure_id, "--url", up.url)
    operator.ok("failures", "replay", failure_id, "--yes", "--url", up.url)
    came = [event["latitude"] for event in everything(up.broker, "fires.worker", 100)]
    assert came == [1.5, 2, 3.5, 39.75]
    assert operator.json("failures", "show", failure_id, "--url", up.url)["status"] == "replayed"
    exported = operator.ok("failures", "export", "--url", up.url)
    again = operator.json("failures", "import", "-", "--url", up.url, stdin=exported.encode())
    assert (again["new"], again["known"]) == (0, 2)


def test_bad_requests_take_nothing(launcher: Launcher) -> None:
    up = launcher.up(env={"HOLDFAST_INGEST_PER_SECOND": "2"})
    assert send(up.url, "x", {})[0] == 400
    events = [{"eventId": str(number)} for number in range(1001)]
    status, told = send(up.url, "market-ticks", events)
    assert (status, "at most 1000" in told["error"]["message"]) == (400, True)
    statuses = [send(up.url, "market-ticks", {"eventId": str(number)})[0] for number in range(20)]
    assert statuses[:2] == [200, 200]
    assert 429 in statuses
    assert http.get(f"{up.url}/api/v1/failures").body["count"] == 0
    operator = Operator(launcher, up.broker)
    (launcher.cwd / "one.json").write_text("{}")
    assert "not a valid id" in operator.refused("ingest", "x", "one.json", "--url", up.url)
    for pair in ("origin", "a:b=c", "=c"):
        said = operator.refused("ingest", "market-ticks", "one.json", "--attribute", pair, "--url", up.url)
        assert said.startswith("--attribute: must look like NAME=VALUE")


def test_what_was_published_before_a_request_was_refused_is_told(launcher: Launcher) -> None:
    up = launcher.up("--memory")
    lines = b'{"eventId": "one"}\n' + b'{"eventId": "' + b"2" * (17 << 20) + b'"}\n'
    done = Operator(launcher, up.broker)("ingest", "market-ticks", "-", "--lines", "--url", up.url, stdin=lines)
    assert done.returncode == 1
    assert done.stdout.startswith("published message ")
    assert done.stderr.startswith(
        "holdfast: of the events after the first 1 nothing is known: body: must not be larger"
    )


def test_a_broker_that_is_away_gets_it_later_and_once(launcher: Launcher) -> None:
    broker = launcher.part("broker")
    operator = Operator(launcher, broker.broker)
    operator.ok("topics", "create", "plain")
    with Pubsub(broker.broker) as pubsub:
        pubsub.subscribe("plain.worker", "plain")
    desk = launcher.part("desk", env={"PUBSUB_EMULATOR_HOST": broker.broker, "HOLDFAST_TOPOLOGY_CREATE": "never"})
    assert send(desk.url, "plain", {"n": 1}, "one")[0] == 200
    broker.kill()
    status, told = send(desk.url, "plain", {"n": 2}, "two")
    assert (status, told["reason"], told["failureStatus"]) == (202, "BROKER_UNAVAILABLE", "queued_for_retry")
    assert send(desk.url, "plain", {"n": 2}, "two") == (status, told)
    port = broker.broker.rpartition(":")[2]
    launcher.start("broker", "--port", port).wait_until_up()
    failure = f"{desk.url}/api/v1/failures/{told['failure']}"
    eventually(lambda: http.get(failure).body["status"] == "retry_success", 60)
    assert send(desk.url, "plain", {"n": 2}, "two")[0] == 200
    assert [event["n"] for event in everything(broker.broker, "plain.worker", 10)] == [1, 2]


@pytest.mark.parametrize("kills", [3])
def test_killed_between_publish_and_answer_each_is_there_once(launcher: Launcher, kills: int) -> None:
    """A client that sends an event again until it hears of it, while the process dies under it."""
    up = launcher.up()
    with Pubsub(up.broker) as pubsub:
        pubsub.create_topic("plain")
        pubsub.subscribe("plain.worker", "plain")
    current = [up]
    answered: list[int] = []
    stop = threading.Event()

    def client(first: int) -> None:
        number = first
        while not stop.is_set():
            try:
                status, _ = send(current[0].url, "plain", {"n": number}, f"event-{number}")
            except (OSError, HTTPException):  # it died, before or after it published: nobody knows
                stop.wait(0.02)
                continue
            assert status == 200
            answered.append(number)
            number += 4

    def wait_for_more() -> None:
        before = len(answered)
        eventually(lambda: len(answered) > before + 40, 60)

    clients = [threading.Thread(target=client, args=(first,)) for first in range(4)]
    for thread in clients:
        thread.start()
    for _ in range(kills):
        wait_for_more()
        current[0].kill()
        current[0] = launcher.up()
    wait_for_more()
    stop.set()
    for thread in clients:
        thread.join(30)
        assert not thread.is_alive()
    came = Counter(event["n"] for event in everything(current[0].broker, "plain.worker", 1000))
    assert [number for number, times in came.items() if times > 1] == []
    assert set(answered) <= set(came)


def test_an_event_id_that_is_redacted_is_no_failures_id(launcher: Launcher) -> None:
    up = launcher.up(env={"HOLDFAST_DESK_REDACT": "payload:eventId"})
    event = {"eventId": "canary-of-the-id", "service": {}}
    told = [send(up.url, "system.events", event) for _ in range(2)]
    other = send(up.url, "system.events", {**event, "service": 1})
    assert [status for status, _ in (*told, other)] == [422] * 3
    first, again = (answer["failure"] for _, answer in told)
    assert (again, other[1]["failure"] > first) == (first, True)
    shown = http.get(f"{up.url}/api/v1/failures/{first}").body
    assert len(shown["messageId"]) == 32
    assert "canary" not in json.dumps([shown, told, http.get(f"{up.url}/api/v1/failures").body]) + up.stderr
    assert send(up.url, "market-ticks", {"eventId": "a"}) == send(up.url, "market-ticks", {"eventId": "a"})
