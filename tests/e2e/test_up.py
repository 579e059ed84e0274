"""The whole path in one process: publish with Google's client, look at what became of it from every side."""

from __future__ import annotations

import base64
import functools
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest

from tests.support import http
from tests.support.files import is_settled, rows
from tests.support.process import Launcher, Running
from tests.support.pubsub import Pubsub
from tests.support.waiting import eventually

SUBSCRIPTION = "system.events.materializer"
DEAD_LETTERS = "system.events.materializer.dlq"

# The default topology waits 10 seconds before it sends a message again, so this is "at the first attempt".
WITHIN_SECONDS = 8.0


@pytest.fixture(scope="module")
def up(shared_launcher: Launcher) -> Running:
    return shared_launcher.up()


@pytest.fixture(scope="module")
def pubsub(up: Running) -> Iterator[Pubsub]:
    with Pubsub(up.broker) as pubsub:
        yield pubsub


@pytest.fixture
def service() -> str:
    """A name of its own for each test: they share one `up`."""
    return f"service-{uuid4().hex[:8]}"


def event(service: str, status: str = "ok", minute: int = 0) -> dict[str, str]:
    return {"service": service, "status": status, "version": "1.4.2", "timestamp": f"2026-03-01T12:{minute:02}:00Z"}


def document_rows(launcher: Launcher, service: str) -> list[tuple[Any, ...]]:
    """Every column, as it is on disk."""
    query = "SELECT * FROM documents WHERE collection = 'ops_services' AND id = ?"
    return rows(launcher.data / "documents.db", query, f"local__{service}")


def wait_applied(up: Running, message_id: str) -> None:
    eventually(lambda: [one["outcome"] for one in http.outcomes(up.url, message_id)] == ["applied"])


def failures_of(launcher: Launcher, message_id: str) -> list[tuple[Any, ...]]:
    query = "SELECT id, subscription, source_topic, status, data FROM failed_messages WHERE message_id = ?"
    return rows(launcher.data / "failures.db", query, message_id)


def test_says_what_runs_where_and_what_to_try(up: Running) -> None:
    lines = up.stdout.splitlines()
    assert f"  broker    {up.broker}" in up.stdout
    assert f"  consumer  {up.url}/pubsub/push" in lines
    assert f"  desk      {up.url}/api/v1/failures" in lines
    assert f"  export PUBSUB_EMULATOR_HOST={up.broker}" in lines
    assert lines[-1].endswith(f"holdfast demo --broker {up.broker} --url {up.url}")
    assert len(lines) <= 10
    assert http.get(f"{up.url}/healthz").body == {"status": "ok"}
    ready = {"status": "ready", "dependencies": {"broker": "ok", "documents": "ok", "failures": "ok"}}
    assert http.get(f"{up.url}/readyz").body == ready


def test_a_published_message_becomes_a_document(
    up: Running, pubsub: Pubsub, shared_launcher: Launcher, service: str
) -> None:
    message_id = pubsub.publish_one("system.events", event(service))
    wait_applied(up, message_id)

    path = f"ops_services/local__{service}"
    by_api = http.get(f"{up.url}/api/v1/documents/{path}")
    assert by_api.status == 200
    assert (by_api.body["id"], by_api.body["path"]) == (f"local__{service}", path)
    fields = by_api.body["fields"]
    assert (fields["serviceId"], fields["env"], fields["status"], fields["version"]) == (
        service,
        "local",
        "ok",
        "1.4.2",
    )
    assert fields["updatedAt"] == "2026-03-01T12:00:00Z"
    assert (fields["source"]["topic"], fields["source"]["messageId"]) == ("system.events", message_id)

    listed = http.get(f"{up.url}/api/v1/documents/ops_services?pageSize=1000").body["documents"]
    assert by_api.body in listed

    by_file = shared_launcher.run("docs", "get", path, "--json")
    assert (by_file.returncode, by_file.stderr) == (0, "")
    assert json.loads(by_file.stdout) == by_api.body
    by_url = shared_launcher.run("docs", "get", path, "--url", up.url, "--json")
    assert json.loads(by_url.stdout) == by_api.body

    query = "SELECT fields, message_id FROM documents WHERE collection = 'ops_services' AND id = ?"
    [(stored, written_by)] = rows(shared_launcher.data / "documents.db", query, f"local__{service}")
    assert (json.loads(stored), written_by) == (fields, message_id)


def test_an_applied_message_is_acked(up: Running, pubsub: Pubsub, shared_launcher: Launcher, service: str) -> None:
    message_id = pubsub.publish_one("system.events", event(service))
    wait_applied(up, message_id)
    eventually(lambda: is_settled(shared_launcher.data, SUBSCRIPTION, message_id))


def test_the_same_message_again_changes_nothing(launcher: Launcher, service: str) -> None:
    """Without tokens, so that we can send what no broker would: newer content under the same id."""
    up = launcher.up(env={"HOLDFAST_CONSUMER_AUTH_PUSH": "off"})
    sent = event(service)
    with Pubsub(up.broker) as pubsub:
        message_id = pubsub.publish_one("system.events", sent)
    wait_applied(up, message_id)
    before = document_rows(launcher, service)
    assert len(before) == 1

    for content in (sent, event(service, status="down", minute=30)):
        again = http.push(up.url, message_id, json.dumps(content).encode())
        assert (again.status, again.body["outcome"]) == (200, "duplicate")
        assert document_rows(launcher, service) == before
    outcomes = [one["outcome"] for one in http.outcomes(up.url, message_id)]
    assert outcomes == ["duplicate", "duplicate", "applied"]


def test_an_older_event_does_not_replace_a_newer_one(
    up: Running, pubsub: Pubsub, shared_launcher: Launcher, service: str
) -> None:
    wait_applied(up, pubsub.publish_one("system.events", event(service, "ok", minute=30)))
    before = document_rows(shared_launcher, service)
    late = pubsub.publish_one("system.events", event(service, "down", minute=10))
    eventually(lambda: [one["outcome"] for one in http.outcomes(up.url, late)] == ["stale_ignored"])
    eventually(lambda: is_settled(shared_launcher.data, SUBSCRIPTION, late))
    assert document_rows(shared_launcher, service) == before


def test_what_is_not_json_is_dead_lettered_at_once(
    up: Running, pubsub: Pubsub, shared_launcher: Launcher, service: str
) -> None:
    mine = f"my-{service}"
    pubsub.subscribe(mine, DEAD_LETTERS)
    data = f"<event>{service}</event>".encode()
    before = datetime.now(UTC)
    message_id = pubsub.publish_one("system.events", data, origin="a test")

    letter = pubsub.pull_one(mine).message
    assert (datetime.now(UTC) - before).total_seconds() < WITHIN_SECONDS
    assert letter.data == data
    attributes = dict(letter.attributes)
    published = datetime.fromisoformat(attributes.pop("CloudPubSubDeadLetterSourceTopicPublishTime"))
    assert abs((published - before).total_seconds()) < WITHIN_SECONDS
    assert "not JSON" in attributes.pop("holdfast-error")
    assert attributes == {
        "origin": "a test",
        "CloudPubSubDeadLetterSourceSubscription": SUBSCRIPTION,
        "CloudPubSubDeadLetterSourceSubscriptionProject": "local",
        "CloudPubSubDeadLetterSourceDeliveryCount": "1",
        "holdfast-source-message-id": message_id,
        "holdfast-source-topic": "projects/local/topics/system.events",
        "holdfast-failure-class": "poison",
        "holdfast-failure-reason": "DECODE_ERROR",
        "holdfast-last-status": "400",
    }
    eventually(lambda: is_settled(shared_launcher.data, SUBSCRIPTION, message_id))


def test_a_dead_letter_becomes_one_failure_that_everyone_can_read(
    up: Running, pubsub: Pubsub, shared_launcher: Launcher, service: str
) -> None:
    data = f"<event>{service}</event>".encode()
    message_id = pubsub.publish_one("system.events", data, origin="a test")
    [(failure_id, subscription, topic, status, stored)] = eventually(
        lambda: failures_of(shared_launcher, message_id), WITHIN_SECONDS
    )
    assert subscription == f"projects/local/subscriptions/{SUBSCRIPTION}"
    assert (topic, status, stored) == ("projects/local/topics/system.events", "permanent_failure", data)

    listed = shared_launcher.run("failures", "list", "--json", "--limit", "1000")
    [in_list] = [one for one in json.loads(listed.stdout)["failures"] if one["messageId"] == message_id]
    assert in_list["id"] == failure_id
    assert (in_list["failureReason"], in_list["deliveryAttempt"]) == ("DECODE_ERROR", 1)
    assert in_list["attributes"] == {"origin": "a test"}

    shown = json.loads(shared_launcher.run("failures", "show", str(failure_id), "--json").stdout)
    whole = {"data": base64.b64encode(data).decode(), "text": data.decode(), "revisions": [], "lineage": [failure_id]}
    assert shown == in_list | whole
    assert http.get(f"{up.url}/api/v1/failures/{failure_id}").body == shown
    by_url = shared_launcher.run("failures", "show", str(failure_id), "--url", up.url, "--json")
    assert json.loads(by_url.stdout) == shown

    for_people = shared_launcher.run("failures", "show", str(failure_id))
    assert (for_people.returncode, for_people.stderr) == (0, "")
    assert service in for_people.stdout
    table = shared_launcher.run("failures", "list", "--limit", "1000").stdout
    assert any(line.split()[0] == str(failure_id) and "DECODE_ERROR" in line for line in table.splitlines() if line)


def test_the_same_dead_letter_twice_is_one_failure(
    up: Running, pubsub: Pubsub, shared_launcher: Launcher, service: str
) -> None:
    mine = f"my-{service}"
    pubsub.subscribe(mine, DEAD_LETTERS)
    message_id = pubsub.publish_one("system.events", f"<{service}>".encode())
    letter = pubsub.pull_one(mine).message
    again = pubsub.publish_one(DEAD_LETTERS, letter.data, **letter.attributes)
    eventually(lambda: is_settled(shared_launcher.data, f"{DEAD_LETTERS}.desk", again))
    assert len(failures_of(shared_launcher, message_id)) == 1


def test_json_that_breaks_the_schema_says_which_field(
    up: Running, pubsub: Pubsub, shared_launcher: Launcher, service: str
) -> None:
    message_id = pubsub.publish_one("system.events", {"status": "ok", "note": service})
    [(failure_id, *_)] = eventually(lambda: failures_of(shared_launcher, message_id), WITHIN_SECONDS)
    failure = http.get(f"{up.url}/api/v1/failures/{failure_id}").body
    assert failure["failureReason"] == "SCHEMA_VALIDATION_ERROR"
    assert failure["errorDetails"] == "last status 422: service: is missing or empty"
    assert failure["json"] == {"status": "ok", "note": service}
    eventually(lambda: is_settled(shared_launcher.data, SUBSCRIPTION, message_id))


def test_a_poisonous_message_does_not_hold_up_the_good_ones(
    up: Running, pubsub: Pubsub, shared_launcher: Launcher, service: str
) -> None:
    good = [event(f"{service}-{number}") for number in range(20)]
    mixed: list[bytes | dict[str, str]] = [message for one in good for message in (one, b"\xff\x00 not JSON")]
    ids = pubsub.publish("system.events", *mixed)
    for number in range(20):
        eventually(functools.partial(document_rows, shared_launcher, f"{service}-{number}"))
    for message_id in ids[1::2]:
        assert len(eventually(functools.partial(failures_of, shared_launcher, message_id))) == 1
