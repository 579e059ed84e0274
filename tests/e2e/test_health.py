"""/healthz and /readyz of every process, with dependencies that really go away and come back."""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support import http
from tests.support.files import rows
from tests.support.postgres import PostgresServer, running_postgres
from tests.support.process import Launcher, Running
from tests.support.waiting import eventually

PULLED = "projects/local/subscriptions/system.events.materializer"


def dependencies(url: str) -> dict[str, str]:
    answer = http.get(f"{url}/readyz")
    found: dict[str, str] = answer.body["dependencies"]
    ready = all(state == "ok" for state in found.values())
    assert (answer.status, answer.body["status"]) == ((200, "ready") if ready else (503, "not ready"))
    assert http.get(f"{url}/healthz").body == {"status": "ok"}
    return found


def wait_for(url: str, **wanted: Any) -> dict[str, str]:
    """Until each says "ok", or has that in its reason."""

    def look() -> dict[str, str]:
        found = dependencies(url)
        for name, said in wanted.items():
            assert said in found[name], found
        return found

    return eventually(look, 30)


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    """One that a test may stop."""
    with running_postgres() as server:
        yield server


def limit_files(running: Running, most: int) -> None:
    """As a full disk: the process can write no file further than that."""
    resource.prlimit(running.process.pid, resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))


def test_a_broker_that_cannot_write_its_log_says_so(launcher: Launcher) -> None:
    broker = launcher.part("broker")
    url = f"http://{broker.broker}"
    assert dependencies(url) == {"broker": "ok"}
    before = rows(launcher.data / "broker.db", "SELECT * FROM counters")
    limit_files(broker, 1)
    wait_for(url, broker="broker.db: ")
    limit_files(broker, resource.RLIM_INFINITY)
    wait_for(url, broker="ok")
    assert rows(launcher.data / "broker.db", "SELECT * FROM counters") == before
    assert broker.stop() == 0


def test_a_full_disk_shows_in_every_part_of_up(launcher: Launcher) -> None:
    up = launcher.up()
    assert dependencies(up.url) == {"broker": "ok", "documents": "ok", "failures": "ok"}
    limit_files(up, 1)
    wait_for(up.url, broker="broker.db: ", documents="documents.db: ", failures="failures.db: ")
    limit_files(up, resource.RLIM_INFINITY)
    wait_for(up.url, broker="ok", documents="ok", failures="ok")


def test_a_postgresql_that_stops_shows_and_so_does_its_return(launcher: Launcher, own_postgres: PostgresServer) -> None:
    env = {"HOLDFAST_CONSUMER_STORE": own_postgres.url(), "HOLDFAST_DESK_FAILURES": own_postgres.url()}
    broker = launcher.part("broker")
    env["PUBSUB_EMULATOR_HOST"] = broker.broker
    consume, desk = launcher.part("consume", env=env), launcher.part("desk", env=env)
    assert dependencies(consume.url) == {"documents": "ok", "failures": "ok"}
    assert dependencies(desk.url) == {"broker": "ok", "failures": "ok"}
    for _ in range(2):
        own_postgres.stop()
        wait_for(consume.url, documents="PostgreSQL database")
        found = wait_for(desk.url, failures="PostgreSQL database")
        assert found["broker"] == "ok"
        own_postgres.start()
        wait_for(consume.url, documents="ok")
        wait_for(desk.url, failures="ok")
    assert consume.stop() == desk.stop() == 0


def test_a_failure_store_that_is_needed_and_away_shows(launcher: Launcher, own_postgres: PostgresServer) -> None:
    env = {"HOLDFAST_CONSUMER_STORE": "memory:", "HOLDFAST_DESK_FAILURES": own_postgres.url()}
    consume = launcher.part("consume", env=env)
    own_postgres.stop()
    assert dependencies(consume.url) == {"documents": "ok", "failures": "ok"}  # nothing has failed yet
    assert http.push(consume.url, "m1", b"not JSON").status >= 400
    wait_for(consume.url, documents="ok", failures="PostgreSQL database")
    own_postgres.start()
    wait_for(consume.url, failures="ok")
    assert http.push(consume.url, "m1", b"not JSON").status == 200


def test_who_pulls_needs_the_broker_and_the_subscription(launcher: Launcher) -> None:
    broker = launcher.part("broker")
    env = {"PUBSUB_EMULATOR_HOST": broker.broker, "HOLDFAST_CONSUMER_STORE": "memory:"}
    consume = launcher.part("consume", "--pull", "system.events.materializer", "--pull", "absent", env=env)
    name = "subscription system.events.materializer"
    wait_for(consume.url, **{name: "ok", "subscription absent": "absent"})
    desk = launcher.part("desk", env=env)
    assert dependencies(desk.url)["broker"] == "ok"
    assert broker.stop() == 0
    wait_for(consume.url, **{name: "the broker did not answer"})
    wait_for(desk.url, broker="the broker did not answer")
    port = broker.broker.rpartition(":")[2]
    launcher.start("broker", "--port", port).wait_until_up()
    wait_for(consume.url, **{name: "ok"})
    wait_for(desk.url, broker="ok")


def test_a_broker_that_hangs_does_not_make_readyz_hang(launcher: Launcher) -> None:
    """It takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = "{}:{}".format(*silent.getsockname())
        env = {"PUBSUB_EMULATOR_HOST": address, "HOLDFAST_TOPOLOGY_CREATE": "never"}
        desk = launcher.part("desk", env=env)
        assert dependencies(desk.url) == {"broker": "no answer within 2 s", "failures": "ok"}
        desk.kill()
