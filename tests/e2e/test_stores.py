"""The consumer and the desk by the real command, on each store that is not a file."""

from __future__ import annotations

import json
from uuid import uuid4

import pytest

from tests.support import http
from tests.support.firestore_emulator import FirestoreEmulator, firestore_emulator
from tests.support.postgres import database_url, postgres
from tests.support.process import Launcher, Running

__all__ = ["database_url", "firestore_emulator", "postgres"]


def check(launcher: Launcher, store: str, env: dict[str, str]) -> None:
    """Applied, a duplicate, stale; and the document is there for `docs` too, after the process has ended."""
    consume = launcher.part("consume", "--store", store, env=env)
    event = {"service": "checkout", "status": "ok", "timestamp": "2026-03-01T12:00:00Z"}
    older = event | {"status": "old", "timestamp": "2026-03-01T11:00:00Z"}
    pushed = [("m1", event), ("m1", event), ("m2", event), ("m3", older)]
    answers = [http.push(consume.url, message_id, json.dumps(payload).encode()) for message_id, payload in pushed]
    assert [answer.body["outcome"] for answer in answers] == ["applied", "duplicate", "duplicate", "stale_ignored"]
    assert http.get(f"{consume.url}/readyz").body["status"] == "ready"
    assert consume.stop() == 0
    shown = launcher.run("docs", "get", "ops_services/local__checkout", "--store", store, "--json", env=env)
    assert shown.returncode == 0, shown.stderr
    assert json.loads(shown.stdout)["fields"]["status"] == "ok"


def test_postgresql(launcher: Launcher, database_url: str) -> None:
    check(launcher, database_url, {})


def test_firestore(launcher: Launcher, firestore_emulator: FirestoreEmulator) -> None:
    project = f"test-{uuid4().hex[:12]}"
    check(launcher, f"firestore://{project}", {"FIRESTORE_EMULATOR_HOST": firestore_emulator.address})


def poison(consumer: Running, message_id: str) -> None:
    assert http.push(consumer.url, message_id, b'{"status": "of nobody"}').status == 200


def listed(launcher: Launcher, *args: str) -> list[str]:
    shown = launcher.run("failures", "list", "--json", *args)
    assert shown.returncode == 0, shown.stderr
    return [failure["messageId"] for failure in json.loads(shown.stdout)["failures"]]


def test_two_processes_keep_their_failures_in_one_postgresql(launcher: Launcher, database_url: str) -> None:
    env = {"HOLDFAST_DESK_FAILURES": database_url}
    up = launcher.up(env=env)
    consume = launcher.part("consume", env=env | {"HOLDFAST_CONSUMER_STORE": "memory:"})
    poison(consume, "m1")
    assert listed(launcher, "--failures", database_url) == ["m1"]
    assert listed(launcher, "--url", up.url) == ["m1"]
    assert up.stop() == consume.stop() == 0
    assert listed(launcher, "--failures", database_url) == ["m1"]


def test_a_desk_in_memory_is_gone_with_its_process(launcher: Launcher) -> None:
    up = launcher.up("--memory", env={"HOLDFAST_CONSUMER_AUTH_PUSH": "off"})
    poison(up, "m1")
    assert listed(launcher, "--url", up.url) == ["m1"]
    assert up.stop() == 0
    again = launcher.up("--memory")
    assert listed(launcher, "--url", again.url) == []


@pytest.mark.parametrize("store", ["postgresql://nobody:hunter2@127.0.0.1:1/x", "firestore://", "firestore://a/b/c"])
def test_a_store_that_cannot_be_opened_is_one_clear_line(launcher: Launcher, store: str) -> None:
    refused = launcher.run("consume", "--port", "0", "--store", store)
    assert refused.returncode != 0
    assert len(refused.stderr.strip().splitlines()) == 1, refused.stderr
    assert "hunter2" not in refused.stderr
