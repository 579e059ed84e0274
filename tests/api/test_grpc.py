"""The Pub/Sub API as official clients use it: google-cloud-pubsub against a real server on a free port."""

from __future__ import annotations

import queue
import time
from pathlib import Path
from typing import Any

import pytest
from google.api_core import exceptions
from google.cloud import pubsub_v1

from tests.support.served_broker import PROJECT, SECONDS, SUBSCRIPTION, TOPIC, Clients, Server, Stream, connect


def test_publish_pull_ack(clients: Clients) -> None:
    clients.make()
    ids = clients.publish(b"one", b"two", attributes={"a": "1"}, ordering_key="k")
    received = clients.pull()
    assert [item.message.message_id for item in received] == ids
    assert [item.message.data for item in received] == [b"one", b"two"]
    assert received[0].message.attributes == {"a": "1"}
    assert received[0].message.ordering_key == "k"
    assert abs(received[0].message.publish_time.timestamp() - time.time()) < 60
    assert received[0].delivery_attempt == 0
    clients.subscriber.acknowledge(
        subscription=SUBSCRIPTION, ack_ids=[item.ack_id for item in received], timeout=SECONDS
    )
    assert clients.pull() == []


def test_attributes_that_google_clients_write_themselves_are_taken(clients: Clients) -> None:
    """Their traces would otherwise be the end of every publish."""
    clients.make()
    attributes = {"googclient_traceparent": f"00-{'ab' * 16}-{'cd' * 8}-01", "googclient_schemaencoding": "JSON"}
    clients.publish(b"goog googclient_ data", attributes=attributes)
    (received,) = clients.pull()
    assert received.message.attributes == attributes


def test_what_a_client_writes_into_id_and_time_is_not_believed(clients: Clients) -> None:
    clients.make()
    (message_id,) = clients.publish(b"x", message_id="mine", publish_time={"seconds": 5, "nanos": 7})
    (received,) = clients.pull()
    assert received.message.message_id == message_id != "mine"
    assert received.message.publish_time.timestamp() > 1_000_000_000


def test_a_nack_comes_back_at_once_and_attempts_are_told_with_a_dead_letter_policy(clients: Clients) -> None:
    dead = f"{PROJECT}/topics/dead"
    clients.publisher.create_topic(name=dead, timeout=SECONDS)
    clients.make(dead_letter_policy={"dead_letter_topic": dead, "max_delivery_attempts": 5})
    clients.publish(b"x")
    for attempt in range(1, 4):
        (received,) = clients.pull()
        assert received.delivery_attempt == attempt
        clients.subscriber.modify_ack_deadline(
            subscription=SUBSCRIPTION, ack_ids=[received.ack_id], ack_deadline_seconds=0, timeout=SECONDS
        )


def test_defaults_that_clients_read_back(clients: Clients) -> None:
    clients.make()
    found: Any = clients.subscriber.get_subscription(subscription=SUBSCRIPTION, timeout=SECONDS)
    assert found.ack_deadline_seconds == 10
    assert found.message_retention_duration.total_seconds() == 7 * 24 * 3600
    assert found.expiration_policy.ttl.total_seconds() == 31 * 24 * 3600
    assert found.state.name == "ACTIVE"
    assert clients.publisher.get_topic(topic=TOPIC, timeout=SECONDS).state.name == "ACTIVE"


def test_everything_configured_is_read_back(clients: Clients) -> None:
    dead = f"{PROJECT}/topics/dead"
    clients.publisher.create_topic(name=dead, timeout=SECONDS)
    clients.make(
        ack_deadline_seconds=77,
        labels={"team": "a"},
        push_config={"push_endpoint": "http://127.0.0.1:9/x", "attributes": {"x-goog-version": "v1"}},
        dead_letter_policy={"dead_letter_topic": dead, "max_delivery_attempts": 7},
        retry_policy={"minimum_backoff": {"seconds": 1, "nanos": 500_000_000}, "maximum_backoff": {"seconds": 60}},
        message_retention_duration={"seconds": 3600},
    )
    found: Any = clients.subscriber.get_subscription(subscription=SUBSCRIPTION, timeout=SECONDS)
    assert found.ack_deadline_seconds == 77
    assert found.labels == {"team": "a"}
    assert found.push_config.push_endpoint == "http://127.0.0.1:9/x"
    assert found.dead_letter_policy.max_delivery_attempts == 7
    assert found.retry_policy.minimum_backoff.total_seconds() == 1.5
    assert found.retry_policy.maximum_backoff.total_seconds() == 60
    assert found.message_retention_duration.total_seconds() == 3600


def test_lists_have_pages(clients: Clients) -> None:
    names = [f"{PROJECT}/topics/topic-{number:02}" for number in range(7)]
    for name in names:
        clients.publisher.create_topic(name=name, timeout=SECONDS)
    clients.publisher.create_topic(name="projects/other/topics/elsewhere", timeout=SECONDS)
    listed = list(clients.publisher.list_topics(request={"project": PROJECT, "page_size": 3}, timeout=SECONDS))
    assert [topic.name for topic in listed] == names


def test_a_deleted_topics_subscription_keeps_its_messages(clients: Clients) -> None:
    clients.make()
    clients.publish(b"x")
    clients.publisher.delete_topic(topic=TOPIC, timeout=SECONDS)
    found: Any = clients.subscriber.get_subscription(subscription=SUBSCRIPTION, timeout=SECONDS)
    assert found.topic == "_deleted-topic_"
    assert [item.message.data for item in clients.pull()] == [b"x"]
    clients.publisher.create_topic(name=TOPIC, timeout=SECONDS)
    clients.publish(b"of the new topic")
    assert clients.pull() == []


@pytest.mark.parametrize(
    ("expected", "field", "call"),
    [
        (exceptions.InvalidArgument, "name", lambda c: c.publisher.create_topic(name="orders")),
        (exceptions.InvalidArgument, "name", lambda c: c.publisher.create_topic(name=f"{PROJECT}/topics/ab")),
        (exceptions.InvalidArgument, "name", lambda c: c.publisher.create_topic(name=f"{PROJECT}/topics/goog-x")),
        (exceptions.AlreadyExists, TOPIC, lambda c: c.publisher.create_topic(name=TOPIC)),
        (exceptions.NotFound, "nowhere", lambda c: c.publisher.get_topic(topic=f"{PROJECT}/topics/nowhere")),
        (exceptions.NotFound, "nowhere", lambda c: c.pull(1, f"{PROJECT}/subscriptions/nowhere")),
        (exceptions.InvalidArgument, "max_messages", lambda c: c.pull(0)),
        (exceptions.InvalidArgument, "messages", lambda c: c.publish()),
        (exceptions.InvalidArgument, "messages[0]", lambda c: c.publish(b"")),
        (exceptions.InvalidArgument, "messages", lambda c: c.publish(*[b"x"] * 1001)),
        (exceptions.InvalidArgument, "bytes", lambda c: c.publish(b"x" * 10_000_001)),
        (exceptions.InvalidArgument, "attributes", lambda c: c.publish(b"x", attributes={"k" * 257: "v"})),
        (exceptions.InvalidArgument, "attributes", lambda c: c.publish(b"x", attributes={"k": "v" * 1025})),
        (exceptions.InvalidArgument, "attributes", lambda c: c.publish(b"x", attributes={"goog_k": "v"})),
        (
            exceptions.InvalidArgument,
            "attributes",
            lambda c: c.publish(b"x", attributes={"googclient_k": "v", "google": "v"}),
        ),
        (
            exceptions.InvalidArgument,
            "attributes",
            lambda c: c.publish(b"x", attributes={str(number): "v" for number in range(101)}),
        ),
        (exceptions.InvalidArgument, "ordering_key", lambda c: c.publish(b"x", ordering_key="k" * 1025)),
        (
            exceptions.InvalidArgument,
            "ack_ids",
            lambda c: c.subscriber.acknowledge(subscription=SUBSCRIPTION, ack_ids=["nonsense"]),
        ),
        (
            exceptions.InvalidArgument,
            "ack_ids",
            lambda c: c.subscriber.acknowledge(subscription=SUBSCRIPTION, ack_ids=[]),
        ),
        (
            exceptions.NotFound,
            "nowhere",
            lambda c: c.subscriber.acknowledge(subscription=f"{PROJECT}/subscriptions/nowhere", ack_ids=[]),
        ),
        (
            exceptions.NotFound,
            "nowhere",
            lambda c: c.subscriber.seek({"subscription": f"{PROJECT}/subscriptions/nowhere"}),
        ),
        (exceptions.InvalidArgument, "topic", lambda c: c.publisher.get_topic(topic=f"{PROJECT}/topics/ab")),
        (exceptions.InvalidArgument, "topic", lambda c: c.publisher.delete_topic(topic="orders")),
        (exceptions.InvalidArgument, "subscription", lambda c: c.pull(1, f"{PROJECT}/subscriptions/with space")),
        (exceptions.InvalidArgument, "snapshot", lambda c: c.subscriber.delete_snapshot(snapshot=TOPIC)),
        (exceptions.InvalidArgument, "resource", lambda c: c.publisher.get_iam_policy(request={"resource": "orders"})),
        (
            exceptions.InvalidArgument,
            "resource",
            lambda c: c.publisher.get_iam_policy(request={"resource": f"{PROJECT}/topics/ab"}),
        ),
        (
            exceptions.NotFound,
            "nowhere",
            lambda c: c.subscriber.update_subscription(
                subscription={"name": SUBSCRIPTION, "dead_letter_policy": {"dead_letter_topic": f"{TOPIC}.nowhere"}},
                update_mask={"paths": ["dead_letter_policy"]},
            ),
        ),
    ],
)
def test_bad_requests_get_a_status_that_names_the_field(
    clients: Clients, expected: type[Exception], field: str, call: Any
) -> None:
    clients.make()
    with pytest.raises(expected) as caught:
        call(clients)
    assert field in str(caught.value)
    clients.publish(b"still alive")
    assert [item.message.data for item in clients.pull()] == [b"still alive"]


@pytest.mark.parametrize(
    ("expected", "field", "config"),
    [
        (exceptions.InvalidArgument, "ack_deadline_seconds", {"ack_deadline_seconds": 9}),
        (exceptions.InvalidArgument, "ack_deadline_seconds", {"ack_deadline_seconds": 601}),
        (
            exceptions.InvalidArgument,
            "max_delivery_attempts",
            {"dead_letter_policy": {"dead_letter_topic": TOPIC, "max_delivery_attempts": 4}},
        ),
        (exceptions.InvalidArgument, "push_endpoint", {"push_config": {"push_endpoint": "ftp://x"}}),
        (
            exceptions.InvalidArgument,
            "minimum_backoff",
            {"retry_policy": {"minimum_backoff": {"seconds": 60}, "maximum_backoff": {"seconds": 10}}},
        ),
        (exceptions.InvalidArgument, "message_retention_duration", {"message_retention_duration": {"seconds": 1}}),
        (exceptions.NotFound, "topics/nowhere", {"topic": f"{PROJECT}/topics/nowhere"}),
        (
            exceptions.NotFound,
            "topics/nowhere",
            {"dead_letter_policy": {"dead_letter_topic": f"{PROJECT}/topics/nowhere"}},
        ),
    ],
)
def test_bad_subscriptions_are_refused_and_not_created(
    clients: Clients, expected: type[Exception], field: str, config: dict[str, Any]
) -> None:
    clients.publisher.create_topic(name=TOPIC, timeout=SECONDS)
    with pytest.raises(expected) as caught:
        clients.subscriber.create_subscription(
            request={"name": SUBSCRIPTION, "topic": TOPIC, **config}, timeout=SECONDS
        )
    assert field in str(caught.value)
    assert list(clients.subscriber.list_subscriptions(project=PROJECT, timeout=SECONDS)) == []


def test_the_official_subscriber_receives_and_acks_on_its_stream(
    server: Server, clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", server.address)
    clients.make()
    received: queue.Queue[bytes] = queue.Queue()

    def on_message(message: Any) -> None:
        received.put(message.data)
        message.ack()

    with pubsub_v1.SubscriberClient() as subscriber:
        streaming = subscriber.subscribe(SUBSCRIPTION, on_message)
        expected = {str(number).encode() for number in range(500)}
        clients.publish(*sorted(expected))
        assert {received.get(timeout=SECONDS) for _ in range(500)} == expected
        streaming.cancel()
        streaming.result(timeout=SECONDS)
    assert clients.pull() == []


def test_a_stream_never_has_more_outstanding_than_it_allows(clients: Clients) -> None:
    clients.make()
    clients.publish(*(str(number).encode() for number in range(10)))
    stream = Stream(clients, max_outstanding_messages=3)
    first = stream.messages(3)
    stream.send()  # a ping: its answer shows that nothing else was on the way
    assert not stream.receive().received_messages
    stream.send(ack_ids=[item.ack_id for item in first[:2]])
    second = stream.messages(2)
    assert [item.message.data for item in first + second] == [b"0", b"1", b"2", b"3", b"4"]
    stream.half_close()
    with pytest.raises(StopIteration):
        stream.receive()


def test_a_stream_hears_of_properties_first_and_pings_are_answered(clients: Clients) -> None:
    clients.make()
    stream = Stream(clients)
    first = stream.receive()
    assert not first.subscription_properties.exactly_once_delivery_enabled
    stream.send()
    assert not stream.receive().received_messages
    stream.half_close()
    with pytest.raises(StopIteration):
        stream.receive()


@pytest.mark.parametrize(
    "later",
    [
        {"ack_ids": ["nonsense"]},
        {"modify_deadline_ack_ids": ["1-1-1-1"]},
        {"max_outstanding_messages": 5},
        {"subscription": SUBSCRIPTION},
        {"stream_ack_deadline_seconds": 5},
    ],
)
def test_a_senseless_request_ends_the_stream_with_invalid_argument(clients: Clients, later: dict[str, Any]) -> None:
    clients.make()
    stream = Stream(clients)
    stream.receive()
    stream.send(**later)
    with pytest.raises(exceptions.InvalidArgument):
        stream.receive()


def test_deleting_the_subscription_ends_its_streams_with_not_found(clients: Clients) -> None:
    clients.make()
    stream = Stream(clients)
    stream.receive()
    clients.subscriber.delete_subscription(subscription=SUBSCRIPTION, timeout=SECONDS)
    with pytest.raises(exceptions.NotFound):
        stream.receive()


def test_a_policy_whose_dead_letter_topic_was_deleted_stays_and_the_rest_can_be_changed(clients: Clients) -> None:
    dead = f"{PROJECT}/topics/dead"
    clients.publisher.create_topic(name=dead, timeout=SECONDS)
    clients.make(dead_letter_policy={"dead_letter_topic": dead, "max_delivery_attempts": 5})
    clients.publisher.delete_topic(topic=dead, timeout=SECONDS)
    update = {
        "subscription": {"name": SUBSCRIPTION, "ack_deadline_seconds": 30},
        "update_mask": {"paths": ["ack_deadline_seconds"]},
    }
    changed = clients.subscriber.update_subscription(request=update, timeout=SECONDS)
    assert (changed.ack_deadline_seconds, changed.dead_letter_policy.dead_letter_topic) == (30, dead)


def test_an_update_does_not_open_what_was_published_before_the_subscription_was(clients: Clients) -> None:
    clients.publisher.create_topic(name=TOPIC, timeout=SECONDS)
    clients.publish(b"before")
    clients.subscriber.create_subscription(
        request={"name": SUBSCRIPTION, "topic": TOPIC, "retain_acked_messages": True}, timeout=SECONDS
    )
    update = {"subscription": {"name": SUBSCRIPTION, "labels": {"a": "1"}}, "update_mask": {"paths": ["labels"]}}
    clients.subscriber.update_subscription(request=update, timeout=SECONDS)
    clients.subscriber.seek(request={"subscription": SUBSCRIPTION, "time": {"seconds": 0}}, timeout=SECONDS)
    clients.publish(b"after")
    assert [item.message.data for item in clients.pull()] == [b"after"]


PUSH = {"push_endpoint": "http://127.0.0.1:9/"}


def test_nothing_can_be_pulled_from_a_push_subscription(clients: Clients) -> None:
    clients.make(push_config=PUSH)
    clients.publish(b"for the endpoint")
    with pytest.raises(exceptions.FailedPrecondition, match="push subscription"):
        clients.pull()
    with pytest.raises(exceptions.FailedPrecondition, match="push subscription"):
        Stream(clients).messages(1)
    clients.subscriber.modify_push_config(request={"subscription": SUBSCRIPTION, "push_config": {}}, timeout=SECONDS)
    assert [item.message.data for item in clients.pull()] == [b"for the endpoint"]


def test_a_stream_ends_when_its_subscription_becomes_a_push_subscription(clients: Clients) -> None:
    clients.make()
    stream = Stream(clients)
    stream.receive()  # the properties
    clients.subscriber.modify_push_config(request={"subscription": SUBSCRIPTION, "push_config": PUSH}, timeout=SECONDS)
    with pytest.raises(exceptions.FailedPrecondition, match="push subscription"):
        stream.receive()


def test_stopping_the_broker_ends_streams_with_unavailable(server: Server, clients: Clients) -> None:
    clients.make()
    stream = Stream(clients)
    stream.receive()
    server.stop()
    with pytest.raises(exceptions.ServiceUnavailable):
        stream.receive()


def test_a_nack_on_a_stream_reaches_another_stream(clients: Clients) -> None:
    clients.make()
    clients.publish(b"x")
    first = Stream(clients, max_outstanding_messages=1)
    (received,) = first.messages(1)
    second = Stream(clients)
    second.receive()
    first.send(modify_deadline_ack_ids=[received.ack_id], modify_deadline_seconds=[0])
    first.half_close()
    assert [item.message.data for item in second.messages(1)] == [b"x"]
    second.half_close()


def test_everything_is_there_after_a_restart(server: Server, clients: Clients, tmp_path: Path) -> None:
    clients.make()
    clients.publish(b"a", b"b")
    (received,) = clients.pull(1)
    clients.subscriber.acknowledge(subscription=SUBSCRIPTION, ack_ids=[received.ack_id], timeout=SECONDS)
    server.stop()
    again = Server(tmp_path / "broker.db")
    try:
        reconnected = connect(again.address)
        assert [item.message.data for item in reconnected.pull()] == [b"b"]
        (message_id,) = reconnected.publish(b"c")
        assert int(message_id) > int(received.message.message_id)
        reconnected.publisher.transport.close()  # type: ignore[no-untyped-call]
    finally:
        again.stop()
