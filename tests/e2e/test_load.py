"""`holdfast load` against a real consumer: what it sends becomes documents, and what it says is so."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from tests.support.http import get
from tests.support.process import Launcher, Running

TOPICS = ["system.events", "market-ticks", "market-bars-1m", "trade-signals", "ingest-heartbeat"]


def load(launcher: Launcher, running: Running, *args: str) -> subprocess.CompletedProcess[str]:
    return launcher.run("load", "--url", f"{running.url}/pubsub/push", *args)


def figures(done: subprocess.CompletedProcess[str]) -> Any:
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


@pytest.mark.parametrize("topic", TOPICS)
def test_every_topic_is_applied(shared_launcher: Launcher, consumer: Running, topic: str) -> None:
    found = figures(
        load(shared_launcher, consumer, "--requests", "100", "--topic", topic, "--concurrency", "8", "--json")
    )
    assert {answer["name"] for answer in found["answers"]} == {"200"}
    assert found["outcomes"].keys() <= {"applied", "stale_ignored"}  # of one service, a later event may come first
    assert found["outcomes"]["applied"] > 90


def test_redeliveries_are_duplicates_and_runs_are_not(shared_launcher: Launcher, consumer: Running) -> None:
    args = ("--requests", "200", "--topic", "trade-signals", "--duplicates", "30", "--concurrency", "8", "--json")
    first, second = (figures(load(shared_launcher, consumer, *args)) for _ in range(2))
    for found in (first, second):
        assert found["outcomes"]["duplicate"] == found["requests"]["redelivered"] > 30
        assert found["outcomes"]["applied"] == 200 - found["requests"]["redelivered"]


def test_documents_are_as_many_as_services(launcher: Launcher) -> None:
    consumer = launcher.part("consume", "--memory")
    figures(load(launcher, consumer, "--requests", "300", "--services", "7", "--json"))
    documents = get(f"{consumer.url}/api/v1/documents/ops_services").body["documents"]
    assert len(documents) == 7


def test_backpressure_shows_and_is_no_failure(launcher: Launcher) -> None:
    small = {"CONSUMER_QUEUE_SIZE": "1", "CONSUMER_MAX_WORKERS": "1"}
    consumer = launcher.part("consume", env=small)
    done = load(launcher, consumer, "--requests", "1000", "--concurrency", "100")
    assert done.returncode == 0
    assert "backpressure works: Pub/Sub would retry later" in done.stdout
    assert "accepted: the message is acked" in done.stdout


def test_up_wants_a_token_and_load_says_what_to_do(launcher: Launcher) -> None:
    done = load(launcher, launcher.up("--memory"), "--requests", "10")
    assert done.returncode == 1
    assert "HOLDFAST_CONSUMER_AUTH_PUSH=off" in done.stdout
    told_to = launcher.up("--memory", env={"HOLDFAST_CONSUMER_AUTH_PUSH": "off"})
    assert load(launcher, told_to, "--requests", "10").returncode == 0


@pytest.fixture(scope="module")
def consumer(shared_launcher: Launcher) -> Running:
    return shared_launcher.part("consume", "--memory")
