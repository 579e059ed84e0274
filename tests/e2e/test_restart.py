"""Stopping, starting again, and being killed: nothing is lost and nothing is done twice."""

from __future__ import annotations

import functools
import signal
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from google.api_core.exceptions import GoogleAPICallError, ServiceUnavailable
from google.pubsub_v1.types import StreamingPullRequest

from tests.support import http
from tests.support.files import DATABASES, is_settled, rows
from tests.support.process import Launcher, Running
from tests.support.pubsub import CALL_SECONDS, Pubsub
from tests.support.waiting import eventually

SUBSCRIPTION = "system.events.materializer"

# So that a message whose endpoint was away comes again soon, and not as a dead letter.
IMPATIENT = {
    "HOLDFAST_TOPOLOGY_MINIMUM_BACKOFF_SECONDS": "0.1",
    "HOLDFAST_TOPOLOGY_MAXIMUM_BACKOFF_SECONDS": "0.2",
    "HOLDFAST_TOPOLOGY_MAX_DELIVERY_ATTEMPTS": "100",
}


def tick(name: str) -> dict[str, Any]:
    return {"eventId": name, "symbol": "ACME", "price": 101.25}


def document_ids(launcher: Launcher, collection: str) -> set[str]:
    query = "SELECT id FROM documents WHERE collection = ?"
    return {one for (one,) in rows(launcher.data / "documents.db", query, collection)}


def are_documents(launcher: Launcher, names: frozenset[str]) -> bool:
    return names <= document_ids(launcher, "market_ticks")


def failed_attempts(launcher: Launcher) -> list[int]:
    return [count for (count,) in rows(launcher.data / "broker.db", "SELECT attempts FROM failed")]


def assert_stopped_well(running: Running, code: int) -> None:
    assert code == 0
    assert running.stdout.splitlines()[-2:] == ["stopping …", "stopped; everything is saved"]
    assert "Traceback" not in running.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_it_cleanly(launcher: Launcher, number: signal.Signals) -> None:
    up = launcher.up()
    with Pubsub(up.broker) as pubsub:
        pubsub.publish("market-ticks", *(tick(f"tick-{number}") for number in range(50)))
    assert_stopped_well(up, up.stop(number))
    # Everything is in the databases themselves, and no lock is held.
    files = {path.name: path.stat().st_size for path in launcher.data.iterdir()}
    kept = {*DATABASES, "alerts.db"}
    assert set(files) == kept | {name.replace(".db", ".lock") for name in kept}
    assert [files[name] for name in files if name.endswith(".lock")] == [0] * len(kept)


def test_an_open_stream_and_a_silent_endpoint_do_not_hold_it_up(launcher: Launcher) -> None:
    up = launcher.up()
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as silent, Pubsub(up.broker) as pubsub:
        silent.settimeout(CALL_SECONDS)
        pubsub.create_topic("held")
        pubsub.subscribe("streamed", "held")
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        pubsub.subscribe("pushed", "held", push_config={"push_endpoint": endpoint})

        def requests() -> Iterator[StreamingPullRequest]:
            yield StreamingPullRequest(subscription=pubsub.subscription("streamed"), stream_ack_deadline_seconds=60)
            over.wait(CALL_SECONDS)

        try:
            stream = iter(pubsub.subscriber.streaming_pull(requests(), timeout=CALL_SECONDS))
            message_id = pubsub.publish_one("held", b"hello")
            received = next(response for response in stream if response.received_messages)
            assert received.received_messages[0].message.message_id == message_id
            connection, _ = silent.accept()
            with connection:
                assert connection.recv(4) == b"POST"
                assert_stopped_well(up, up.stop())
            with pytest.raises(ServiceUnavailable, match="the broker is stopping"):
                next(stream)
        finally:
            over.set()

    # Nobody had settled it, so it is still owed to both.
    again = launcher.up()
    with Pubsub(again.broker) as pubsub:
        assert not is_settled(launcher.data, "pushed", message_id)
        assert pubsub.pull_one("streamed").message.message_id == message_id


def test_what_came_while_the_consumer_was_away_is_delivered_after_a_restart(launcher: Launcher) -> None:
    up = launcher.up(env=IMPATIENT)
    assert up.stop() == 0
    # It pushes to where `up` was: nobody listens there. Else it would soon pause.
    broker = launcher.part("broker", env={"HOLDFAST_BROKER_BREAKER_SHARE": "0"})
    names = {f"tick-{number}" for number in range(30)}
    with Pubsub(broker.broker) as pubsub:
        pubsub.publish("market-ticks", *map(tick, names))
    eventually(lambda: len(failed_attempts(launcher)) == len(names))
    assert broker.stop() == 0
    attempts = failed_attempts(launcher)
    assert len(attempts) == len(names)
    assert min(attempts) >= 1
    assert document_ids(launcher, "market_ticks") == set()

    launcher.up()
    eventually(lambda: document_ids(launcher, "market_ticks") == names)
    eventually(lambda: failed_attempts(launcher) == [])


def test_what_was_done_before_a_restart_is_not_done_again(launcher: Launcher) -> None:
    up = launcher.up()
    with Pubsub(up.broker) as pubsub:
        ids = pubsub.publish("system.events", *({"service": f"service-{number}"} for number in range(20)))
    eventually(lambda: all(is_settled(launcher.data, SUBSCRIPTION, message_id) for message_id in ids))
    assert up.stop() == 0

    again = launcher.up()
    with Pubsub(again.broker) as pubsub:
        fresh = pubsub.publish_one("system.events", {"service": "fresh"})
        assert fresh not in ids
    # Older messages come first, so once this one is through, nothing else is on its way.
    eventually(lambda: is_settled(launcher.data, SUBSCRIPTION, fresh))
    assert [one["messageId"] for one in http.outcomes(again.url)] == [fresh]


def test_what_was_published_survives_kill_9(launcher: Launcher) -> None:
    """Killed in the middle of publishing: whatever had its id by then is there afterwards, in the consumer's documents
    and for a subscriber that had not looked yet."""
    audited: set[str] = set()
    expected: set[str] = set()
    for round_number in range(3):
        up = launcher.up(env=IMPATIENT)
        with Pubsub(up.broker) as pubsub:
            if round_number == 0:
                pubsub.subscribe("audit", "market-ticks")
            confirmed = publish_until_killed(up, pubsub, f"round-{round_number}")
        assert len(confirmed) >= 200
        expected |= confirmed

        up = launcher.up()
        eventually(functools.partial(are_documents, launcher, frozenset(expected)))
        with Pubsub(up.broker) as pubsub:
            while not expected <= audited:
                received = pubsub.pull("audit", max_messages=1000)
                assert received, f"lost: {sorted(expected - audited)[:10]}"
                audited |= {one.message.attributes["name"] for one in received}
        assert up.stop() == 0


def publish_until_killed(up: Running, pubsub: Pubsub, prefix: str) -> set[str]:
    """The names of the messages that the broker gave an id to."""
    futures = {
        name: pubsub.publisher.publish(
            pubsub.topic("market-ticks"),
            b'{"eventId": "%s"}' % name.encode(),
            retry=None,
            timeout=CALL_SECONDS,
            name=name,
        )
        for name in (f"{prefix}-{number}" for number in range(2000))
    }
    eventually(lambda: sum(future.done() for future in futures.values()) >= 200)
    up.kill()
    confirmed = set()
    for name, future in futures.items():
        try:
            future.result(timeout=CALL_SECONDS)
        except GoogleAPICallError:  # the broker was gone; nothing was promised
            continue
        confirmed.add(name)
    return confirmed
