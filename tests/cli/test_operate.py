"""The operator commands: the real `holdfast` in processes of its own, against a real broker."""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.main import main
from tests.support.operator import Operator
from tests.support.process import HOLDFAST, START_SECONDS, Launcher, environment
from tests.support.pubsub import Pubsub
from tests.support.waiting import eventually

AVRO = '{"type": "record", "name": "Order", "fields": [{"name": "total", "type": "int"}]}'
PROTO = 'syntax = "proto3";\nmessage Order {\n  int32 total = 1;\n}\n'

# 5 of them are waiting; the rest is for the start of the command itself on a busy machine.
DEAD_ENDPOINT_SECONDS = 15.0


@pytest.fixture(scope="module")
def operator(shared_launcher: Launcher) -> Operator:
    return Operator(shared_launcher, shared_launcher.part("broker", "--memory").broker)


@pytest.fixture(scope="module")
def pubsub(operator: Operator) -> Iterator[Pubsub]:
    """Google's own client, to prepare and to check."""
    with Pubsub(operator.broker) as pubsub:
        yield pubsub


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


# Topics.


def test_topics(operator: Operator) -> None:
    path = "projects/local/topics/books"
    assert operator.ok("topics", "create", "books", "--label", "team=shop") == f"created {path}\n"
    assert operator.json("topics", "show", "books")["labels"] == {"team": "shop"}
    assert operator.ok("topics", "show", path).splitlines()[0].split() == ["name", path]
    assert {topic["name"] for topic in operator.json("topics", "list")["topics"]} >= {path}
    title, *rows = operator.ok("topics", "list").splitlines()
    assert title.split() == ["TOPIC", "RETENTION", "SCHEMA", "LABELS"]
    assert ["books", "team=shop"] in [row.split() for row in rows]
    assert "already exists" in operator.refused("topics", "create", "books")

    assert operator.json("topics", "delete", "books") == {"deleted": path}
    assert operator.refused("topics", "show", "books") == f"topic {path} does not exist"
    assert operator.refused("topics", "delete", "books") == f"topic {path} does not exist"


def test_a_topic_with_retention(operator: Operator) -> None:
    created = operator.json("topics", "create", "kept", "--retention", "1d")
    assert created["messageRetentionDuration"] == "86400s"
    assert "1d" in operator.ok("topics", "list")


def test_projects(operator: Operator) -> None:
    assert operator.ok("topics", "list", "--project", "empty").startswith("no topics in project empty at 127.0.0.1:")
    assert operator.json("topics", "list", "--project", "empty") == {"topics": []}
    operator.ok("topics", "create", "over-there", "--project", "other")
    assert operator.json("topics", "show", "projects/other/topics/over-there")["name"].startswith("projects/other/")
    assert "does not exist" in operator.refused("topics", "show", "over-there")


# Subscriptions.


def test_subscriptions(operator: Operator, pubsub: Pubsub) -> None:
    pubsub.create_topic("orders")
    pubsub.create_topic("orders.dlq")
    operator.ok(
        *("subscriptions", "create", "billing", "--topic", "orders", "--push-endpoint", "http://127.0.0.1:9/push"),
        *("--ack-deadline", "60", "--dead-letter-topic", "orders.dlq", "--max-delivery-attempts", "7"),
        *("--min-backoff", "1.5s", "--max-backoff", "10m", "--retention", "1d", "--label", "team=shop"),
    )
    shown = operator.json("subscriptions", "show", "billing")
    assert shown["topic"] == "projects/local/topics/orders"
    assert shown["pushConfig"]["pushEndpoint"] == "http://127.0.0.1:9/push"
    assert shown["ackDeadlineSeconds"] == 60
    assert shown["deadLetterPolicy"] == {
        "deadLetterTopic": "projects/local/topics/orders.dlq",
        "maxDeliveryAttempts": 7,
    }
    assert shown["retryPolicy"] == {"minimumBackoff": "1.500s", "maximumBackoff": "600s"}
    assert shown["messageRetentionDuration"] == "86400s"
    assert shown["labels"] == {"team": "shop"}
    assert "retryPolicy.maximumBackoff" in operator.ok("subscriptions", "show", "billing")

    operator.ok("subscriptions", "create", "audit", "--topic", "orders.dlq")
    table = [line.split() for line in operator.ok("subscriptions", "list").splitlines()]
    assert ["billing", "orders", "push", "http://127.0.0.1:9/push", "60s", "orders.dlq"] in table
    assert ["audit", "orders.dlq", "pull", "10s"] in table
    listed = operator.json("subscriptions", "list", "--topic", "orders.dlq")["subscriptions"]
    assert [one["name"] for one in listed] == ["projects/local/subscriptions/audit"]

    operator.ok("subscriptions", "delete", "billing")
    assert operator.refused("subscriptions", "show", "billing").endswith("billing does not exist")


def test_features_of_a_subscription(operator: Operator, pubsub: Pubsub) -> None:
    pubsub.create_topic("featured")
    flags = ["--ordering", "--exactly-once", "--retain-acked", "--filter", 'attributes.kind = "order"']
    operator.ok("subscriptions", "create", "all-features", "--topic", "featured", *flags)
    shown = operator.json("subscriptions", "show", "all-features")
    assert shown["enableMessageOrdering"]
    assert shown["enableExactlyOnceDelivery"]
    assert shown["retainAckedMessages"]
    assert shown["filter"] == 'attributes.kind = "order"'
    assert 'ordering, exactly-once, filter attributes.kind = "order"' in operator.ok("subscriptions", "list")


def test_a_filter_is_checked_and_used(operator: Operator, pubsub: Pubsub) -> None:
    pubsub.create_topic("filtered")
    create = ("subscriptions", "create", "only-orders", "--topic", "filtered", "--filter")
    assert "character 17: expected a string in double quotes" in operator.refused(*create, "attributes.kind=order")
    operator.ok(*create, 'attributes.kind = "order"')
    operator.ok("publish", "filtered", "no")
    operator.ok("publish", "filtered", "yes", "--attribute", "kind=order")
    received = operator.json("pull", "only-orders")["receivedMessages"]
    assert [one["text"] for one in received] == ["yes"]


def test_seek_to_a_time(operator: Operator, pubsub: Pubsub) -> None:
    pubsub.create_topic("sought")
    operator.ok("subscriptions", "create", "seeker", "--topic", "sought", "--retain-acked")
    pubsub.publish("sought", b"one", b"two")
    said = operator.json("subscriptions", "seek", "seeker", "--time", "now")
    assert said["subscription"] == "projects/local/subscriptions/seeker"
    assert operator.json("pull", "seeker")["receivedMessages"] == []
    operator.ok("subscriptions", "seek", "seeker", "--ago", "10m")
    assert len(operator.json("pull", "seeker", "--ack")["receivedMessages"]) == 2
    operator.ok("subscriptions", "seek", "seeker", "--time", "2026-01-31T12:00:00+01:00")


# Snapshots.


def test_snapshots(operator: Operator, pubsub: Pubsub) -> None:
    pubsub.create_topic("snapped")
    pubsub.subscribe("camera", "snapped")
    pubsub.publish("snapped", b"in the picture")
    path = "projects/local/snapshots/before-deploy"
    create = ("snapshots", "create", "before-deploy", "--subscription", "camera", "--label", "why=deploy")
    assert operator.ok(*create) == f"created {path}\n"
    [listed] = operator.json("snapshots", "list")["snapshots"]
    assert (listed["name"], listed["topic"]) == (path, "projects/local/topics/snapped")
    assert operator.ok("snapshots", "list").splitlines()[1].split()[:2] == ["before-deploy", "snapped"]

    assert len(operator.json("pull", "camera", "--ack")["receivedMessages"]) == 1
    operator.ok("subscriptions", "seek", "camera", "--snapshot", "before-deploy")
    assert [one["text"] for one in operator.json("pull", "camera", "--ack")["receivedMessages"]] == ["in the picture"]
    operator.ok("snapshots", "delete", "before-deploy")
    assert "before-deploy" in operator.refused("snapshots", "delete", "before-deploy")


# Schemas.


def test_schemas(operator: Operator, tmp_path: Path) -> None:
    avro = tmp_path / "order.avsc"
    avro.write_text(AVRO)
    path = "projects/local/schemas/order"
    assert operator.ok("schemas", "create", "order", "--file", str(avro)) == f"created {path}\n"
    shown = operator.json("schemas", "show", "order")
    assert (shown["name"], shown["type"], shown["definition"]) == (path, "AVRO", AVRO)
    assert [one["name"] for one in operator.json("schemas", "list")["schemas"]] == [path]
    assert operator.ok("schemas", "list").splitlines()[1].split()[:2] == ["order", "AVRO"]

    assert operator.ok("schemas", "validate", "order", "--message", '{"total": 1}') == "valid\n"
    assert "total" in operator.refused("schemas", "validate", "order", "--message", '{"total": "one"}')
    assert operator.json("schemas", "validate", "--file", str(avro)) == {"valid": True}
    assert operator.refused("schemas", "validate", "--type", "avro", "--definition", "{}")

    operator.ok("topics", "create", "checked", "--schema", "order", "--encoding", "json")
    operator.ok("publish", "checked", '{"total": 1}')
    assert "total" in operator.refused("publish", "checked", '{"total": "one"}')
    operator.ok("schemas", "delete", path)
    assert "order" in operator.refused("schemas", "show", "order")


def test_a_protobuf_schema_from_standard_input(operator: Operator) -> None:
    create = ("schemas", "create", "proto-order", "--type", "protobuf", "--file", "-")
    operator.ok(*create, stdin=PROTO.encode())
    shown = operator.ok("schemas", "show", "proto-order")
    assert shown.endswith("\n\n" + PROTO)  # as lines, for people
    validate = ("schemas", "validate", "proto-order", "--message-file", "-", "--encoding", "binary")
    operator.ok(*validate, stdin=b"\x08\x01")


# Publish and pull.


def test_publish_and_pull(operator: Operator, pubsub: Pubsub) -> None:
    pubsub.create_topic("letters")
    pubsub.subscribe("reader", "letters")
    said = operator.ok("publish", "letters", "grüße", "--attribute", "b=2", "--attribute", "a=1=x")
    message_id = said.split()[2]
    assert said == f"published message {message_id} to projects/local/topics/letters\n"

    done = operator("pull", "reader", "--limit", "1")
    assert done.returncode == 0
    published, shown_id, rest = done.stdout.split("  ", 2)
    assert published.endswith("Z")
    assert shown_id == message_id
    assert rest == '{"a": "1=x", "b": "2"}  grüße\n'
    assert done.stderr == "1 not acked: they come back after the ack deadline; --ack settles them\n"


def test_pull_acks_what_it_printed(operator: Operator, pubsub: Pubsub) -> None:
    pubsub.create_topic("notes")
    pubsub.subscribe("taker", "notes", ack_deadline_seconds=10)
    ids = pubsub.publish("notes", b"one", b"\xff\x00")
    received = operator.json("pull", "taker", "--ack")["receivedMessages"]
    assert [one["messageId"] for one in received] == ids
    assert received[0] | {"ackId": "", "publishTime": ""} == {
        "messageId": ids[0],
        "publishTime": "",
        "attributes": {},
        "data": base64.b64encode(b"one").decode(),
        "text": "one",
        "ackId": "",
    }
    assert "text" not in received[1]
    assert received[1]["data"] == "/wA="
    assert operator("pull", "taker").stderr == "no messages\n"
    assert operator.json("pull", "taker") == {"receivedMessages": []}


def test_pull_limits(operator: Operator, pubsub: Pubsub) -> None:
    pubsub.create_topic("many")
    pubsub.subscribe("some", "many")
    pubsub.publish("many", *[b"%d" % number for number in range(5)])
    assert len(operator.json("pull", "some", "--limit", "3")["receivedMessages"]) == 3


def test_what_could_steer_a_terminal_is_not_printed(operator: Operator, pubsub: Pubsub) -> None:
    pubsub.create_topic("hostile")
    pubsub.subscribe("victim", "hostile")
    pubsub.publish_one("hostile", b"\x1b]0;owned\x07", key="\x1b[31m\x9b")
    pubsub.publish_one("hostile", b"two\nlines\tand \xe2\x80\xae")
    pubsub.publish_one("hostile", b"two\nlines\tonly")
    lines = operator.ok("pull", "victim").splitlines()
    assert [line.split("  ", 2)[2] for line in lines] == [
        '{"key": "\\u001b[31m\\x9b"}  base64:' + base64.b64encode(b"\x1b]0;owned\x07").decode(),
        "base64:" + base64.b64encode(b"two\nlines\tand \xe2\x80\xae").decode(),
        "two\\nlines\\tonly",
    ]


def test_publish_a_file_and_lines(operator: Operator, pubsub: Pubsub, tmp_path: Path) -> None:
    pubsub.create_topic("files")
    pubsub.subscribe("filed", "files")
    file = tmp_path / "payload"
    file.write_bytes(b"\x00whole\n")
    operator.ok("publish", "files", "--file", str(file))
    said = operator.ok("publish", "files", "--file", "-", "--lines", stdin=b"one\ntwo\r\n\nthree")
    assert said.startswith("published 3 messages to projects/local/topics/files: ")
    operator.ok("publish", "files", b"\xff raw")
    operator.ok("publish", "files", "--attribute", "only=attributes")
    received = operator.json("pull", "filed", "--limit", "100")["receivedMessages"]
    assert [base64.b64decode(one["data"]) for one in received] == [
        *(b"\x00whole\n", b"one", b"two", b"three", b"\xff raw", b"")
    ]
    assert operator.ok("publish", "files", "--file", "-", "--lines", stdin=b"\n\n").startswith("published 0 messages")


def test_publish_more_than_one_request_may_hold(operator: Operator, pubsub: Pubsub) -> None:
    pubsub.create_topic("bulk")
    lines = b"".join(b"%d\n" % number for number in range(2500)) + (b"x" * 4_000_000 + b"\n") * 3
    ids = operator.json("publish", "bulk", "--file", "-", "--lines", stdin=lines)["messageIds"]
    assert len(set(ids)) == 2503


def test_ordering_keys(operator: Operator, pubsub: Pubsub) -> None:
    pubsub.create_topic("ordered")
    operator.ok("subscriptions", "create", "in-order", "--topic", "ordered", "--ordering")
    stdin = b"one\ntwo\nthree\n"
    operator.ok("publish", "ordered", "--file", "-", "--lines", "--ordering-key", "k", stdin=stdin)
    received: list[dict[str, Any]] = []
    while len(received) < 3:  # a service may wait for the ack of one before it gives the next of its key
        more = operator.json("pull", "in-order", "--ack")["receivedMessages"]
        assert more
        received += more
    assert [(one["orderingKey"], one["text"]) for one in received] == [("k", "one"), ("k", "two"), ("k", "three")]


# Tail.


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_tail_a_topic(operator: Operator, pubsub: Pubsub, number: signal.Signals) -> None:
    """Through a temporary subscription that is gone afterwards, whichever way it ends."""
    topic = f"live-{number}"
    pubsub.create_topic(topic)
    before = pubsub.subscriptions()
    running = operator.tail(topic, "--json")
    [temporary] = pubsub.subscriptions() - before
    assert temporary.startswith(f"tail-{topic}-")
    for text in (b"now", b"and\nthen\x1b"):
        pubsub.publish_one(topic, text, kind="x")
    eventually(lambda: running.stdout.count("\n") == 2)
    assert running.stop(number) == 0
    lines = [json.loads(line) for line in running.stdout.splitlines()]
    assert [(line["text"], line["attributes"]) for line in lines] == [
        ("now", {"kind": "x"}),
        ("and\nthen\x1b", {"kind": "x"}),
    ]
    assert "\x1b" not in running.stdout
    assert pubsub.subscriptions() == before
    assert running.stderr.count("\n") == 1, running.stderr


def test_tail_gives_borrowed_messages_back(operator: Operator, pubsub: Pubsub) -> None:
    pubsub.create_topic("shared")
    pubsub.subscribe("consumer", "shared")
    message_id = pubsub.publish_one("shared", b"borrowed")
    running = operator.tail("projects/local/subscriptions/consumer")
    eventually(lambda: message_id in running.stdout)
    assert running.stop(signal.SIGINT) == 0
    assert running.stdout.endswith(f"  {message_id}  borrowed\n")
    assert pubsub.pull_one("consumer").message.message_id == message_id


def test_tail_takes_with_ack_and_ends_at_its_limit(operator: Operator, pubsub: Pubsub) -> None:
    pubsub.create_topic("taken")
    pubsub.subscribe("consumer-2", "taken")
    pubsub.publish("taken", b"one", b"two", b"three")
    assert len(operator.ok("tail", "consumer-2", "--ack", "--limit", "2").splitlines()) == 2
    assert pubsub.pull_one("consumer-2").message.data == b"three"
    assert pubsub.pull("consumer-2") == []


def test_tail_ends_with_its_reader(operator: Operator, pubsub: Pubsub) -> None:
    """As in `holdfast tail … | head -1`."""
    pubsub.create_topic("piped")
    pubsub.subscribe("pipe", "piped")
    pubsub.publish("piped", b"one")
    with subprocess.Popen(
        [HOLDFAST, "tail", "pipe", "--ack"],
        cwd=operator.launcher.cwd,
        env=environment({"PUBSUB_EMULATOR_HOST": operator.broker}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as running:
        assert running.stdout
        assert running.stderr
        assert running.stdout.readline().endswith(b"one\n")
        running.stdout.close()
        pubsub.publish("piped", b"two")
        assert running.wait(START_SECONDS) == 0
        assert running.stderr.read().count(b"\n") == 1


def test_tail_goes_on_after_a_restart(launcher: Launcher) -> None:
    broker = launcher.part("broker")
    operator = Operator(launcher, broker.broker)
    with Pubsub(broker.broker) as pubsub:
        pubsub.create_topic("durable")
        running = operator.tail("durable")
        assert broker.stop() == 0
        launcher.start("broker", "--port", operator.broker.rsplit(":", 1)[1]).wait_until_up()
        message_id = pubsub.publish_one("durable", b"again")
        eventually(lambda: message_id in running.stdout, START_SECONDS)
        assert running.stop(signal.SIGINT) == 0
        assert pubsub.subscriptions() == set()


def test_tail_ends_when_its_subscription_is_deleted(operator: Operator, pubsub: Pubsub) -> None:
    pubsub.create_topic("short-lived")
    pubsub.subscribe("gone-soon", "short-lived")
    running = operator.tail("gone-soon")
    operator.ok("subscriptions", "delete", "gone-soon")
    assert running.process.wait(START_SECONDS) == 1
    assert running.stderr.splitlines()[-1].startswith("holdfast: subscription projects/local/subscriptions/gone-soon ")
    assert "Traceback" not in running.stderr


# Bad input.


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (["topics", "create", "x"], "name: 'x' is not a valid id"),
        (["topics", "create", "a/b"], "name: must look like projects/PROJECT/topics/ID"),
        (["subscriptions", "create", "a-sub", "--topic", "no-such-topic"], "topics/no-such-topic does not exist"),
        (["subscriptions", "seek", "no-such-sub", "--time", "now"], "subscriptions/no-such-sub does not exist"),
        (["snapshots", "create", "a-snap", "--subscription", "no-such-sub"], "no-such-sub does not exist"),
        (["publish", "no-such-topic", "x"], "topics/no-such-topic does not exist"),
        (["publish", "no-\x1b[31m", "x"], r"\x1b[31m"),
        (["publish", "any", "x", "--attribute", b"a=\xff"], "--attribute: is not valid UTF-8"),
        (["pull", "no-such-sub"], "subscriptions/no-such-sub does not exist"),
        (["tail", "no-such-thing"], "projects/local has neither a subscription nor a topic no-such-thing"),
        (["tail", "projects/local/topics/no-such-topic"], "topics/no-such-topic does not exist"),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, list) else "",
)
def test_a_refusal_is_one_line(operator: Operator, args: list[str | bytes], why: str) -> None:
    line = operator.refused(*args)
    assert why in line
    assert "\x1b" not in line


# What is wrong before anything is sent: without a process of its own for each, because there are many.
@pytest.mark.parametrize(
    ("args", "code", "why"),
    [
        (
            ["topics", "show", "projects/local/subscriptions/s"],
            1,
            "projects/local/subscriptions/s: is not an id, nor a path that looks like projects/PROJECT/topics/ID",
        ),
        (["topics", "create", "a-topic", "--label", "team"], 1, "--label: must look like KEY=VALUE, not 'team'"),
        (["topics", "create", "a-topic", "--retention", "long"], 2, "'long' is not a duration such as 30s"),
        (["topics", "create", "a-topic", "--retention", "-5s"], 2, "'-5s' is not a duration such as 30s"),
        (["topics", "list", "--cloud", "--broker", "127.0.0.1:1"], 2, "--cloud and --broker exclude each other."),
        (["topics", "list", "--broker", "http://127.0.0.1:8085"], 1, "--broker: must look like HOST:PORT"),
        (["topics", "list", "--broker", "somewhere"], 1, "--broker: must look like HOST:PORT"),
        (["topics", "list", "--project", ""], 1, "setting project = ''"),
        (["subscriptions", "create", "a-sub"], 2, "Missing option '--topic'."),
        (["subscriptions", "create", "a-sub", "--topic", "any", "--ack-deadline", "5"], 2, "'--ack-deadline'"),
        (
            ["subscriptions", "create", "a-sub", "--topic", "any", "--max-delivery-attempts", "9"],
            2,
            "--max-delivery-attempts needs --dead-letter-topic.",
        ),
        (["subscriptions", "seek", "a-sub"], 2, "Give one of --time, --ago and --snapshot."),
        (["subscriptions", "seek", "a-sub", "--time", "now", "--ago", "1m"], 2, "Give one of --time, --ago"),
        (["subscriptions", "seek", "a-sub", "--time", "yesterday"], 1, "--time: must look like 2026-01-31T12:00:00Z"),
        (["schemas", "create", "a-schema"], 2, "Give the definition by --file or --definition."),
        (["schemas", "create", "a-schema", "--definition", "{}"], 2, "Give --type avro or --type protobuf."),
        (["schemas", "create", "a-schema", "--file", "absent.avsc"], 2, "'absent.avsc': No such file or directory"),
        (["schemas", "validate", "a-schema"], 2, "Give --message or --message-file"),
        (["schemas", "validate", "a-schema", "--definition", "{}"], 2, "Give SCHEMA, or --file or --definition."),
        (["publish", "any"], 2, "There is nothing to publish: give DATA, --file or --attribute."),
        (["publish", "any", "x", "--file", "-"], 2, "Give DATA or --file, not both."),
        (["publish", "any", "x", "--lines"], 2, "--lines needs --file."),
        (["publish", "any", "x", "--attribute", "=v"], 1, "--attribute: must look like KEY=VALUE, not '=v'"),
        (["publish", "any", "x", "--attribute", "a=1", "--attribute", "a=2"], 1, "--attribute: 'a' is given twice"),
        (["pull", "any", "--limit", "0"], 2, "'--limit'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, args: list[str], code: int, why: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["holdfast", *args])
    with pytest.raises(SystemExit) as stopped:
        main()
    printed = capsys.readouterr()
    assert (stopped.value.code, printed.out) == (code, "")
    assert printed.err.startswith("holdfast: ")
    assert printed.err.count("\n") == 1
    assert why in printed.err


def test_a_dead_endpoint_is_one_line(operator: Operator) -> None:
    address = f"127.0.0.1:{free_port()}"
    for command in (["topics", "list"], ["publish", "any", "x"], ["tail", "any"]):
        start = time.monotonic()
        line = operator.refused(*command, "--broker", address)
        assert time.monotonic() - start < DEAD_ENDPOINT_SECONDS
        assert line.startswith(f"no broker answers at {address}. Start one with `holdfast up` or `holdfast broker`")


def test_an_endpoint_that_never_speaks_is_one_line(operator: Operator) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        start = time.monotonic()
        assert f"no broker answers at {address}" in operator.refused("topics", "list", "--broker", address)
        assert time.monotonic() - start < DEAD_ENDPOINT_SECONDS


def test_cloud_without_credentials_is_one_line(operator: Operator, tmp_path: Path) -> None:
    # An absent file instead of none: without a file the search for credentials would go to the network.
    absent = {"GOOGLE_APPLICATION_CREDENTIALS": str(tmp_path / "absent.json"), "HOME": str(tmp_path)}
    done = operator.launcher.run("topics", "list", "--cloud", env=absent)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("holdfast: this machine has no Google Cloud credentials")
    assert done.stderr.count("\n") == 1


def test_our_own_broker_is_found_without_a_variable(launcher: Launcher) -> None:
    port = launcher.part("broker", "--memory").broker.rsplit(":", 1)[1]
    done = launcher.run("topics", "list", env={"HOLDFAST_BROKER_PORT": port, "HOLDFAST_PROJECT": "mine"})
    assert done.stdout == f"no topics in project mine at 127.0.0.1:{port}\n"


def test_help_has_every_command() -> None:
    done = subprocess.run(
        [HOLDFAST, "--help"], env=environment({"COLUMNS": "100"}), capture_output=True, text=True, check=True
    )
    section = done.stdout.partition("Operate:\n")[2]
    listed = [line.split()[0] for line in section.split("\n\n")[0].splitlines()]
    resources = ["topics", "subscriptions", "schemas", "snapshots"]
    assert listed == [*resources, "ingest", "publish", "pull", "tail", "push", "held"]


# Google's emulator.


def test_google_s_emulator(launcher: Launcher, google_emulator: str) -> None:
    """The same commands, at another's broker."""
    operator = Operator(launcher, google_emulator)
    project = ("--project", f"operate-{os.getpid()}")
    operator.ok("topics", "create", "orders", *project)
    operator.ok("subscriptions", "create", "billing", "--topic", "orders", "--ordering", *project)
    assert operator.ok("subscriptions", "list", *project).splitlines()[1].split()[:2] == ["billing", "orders"]
    running = operator.tail("orders", *project)
    operator.ok("publish", "orders", "hello", "--attribute", "a=b", "--ordering-key", "k", *project)
    assert [one["text"] for one in operator.json("pull", "billing", "--ack", *project)["receivedMessages"]] == ["hello"]
    eventually(lambda: running.stdout.endswith('key k  {"a": "b"}  hello\n'))
    assert running.stop(signal.SIGINT) == 0
    listed = operator.json("subscriptions", "list", *project)["subscriptions"]
    assert [one["name"].rsplit("/", 1)[1] for one in listed] == ["billing"]
    assert operator("pull", "billing", *project).stderr == "no messages\n"
    assert operator.refused("topics", "show", "absent", *project) == "Topic not found"
