"""Traces of real processes, as a collector sees them: from Google's own client to the document, through the dead-letter
topic and the desk and back."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Callable
from time import monotonic
from typing import Any

import pytest
from google.pubsub_v1.types import PubsubMessage

from holdfast.tracing import spans
from tests.support import http, traced_client
from tests.support.otlp import Collector, Seen, collecting, collector
from tests.support.process import Launcher, Running, environment
from tests.support.pubsub import Pubsub
from tests.support.served_broker import SECONDS, connect
from tests.support.waiting import eventually

__all__ = ["collector"]

SECRET = "nobody-may-see-this"  # of the payloads

# It fails until the file is there, and makes a span of its own.
SHOP = """
from pathlib import Path

from opentelemetry import trace

from holdfast.consumer import Consumer, Event, Poison, Upsert

app = Consumer()


@app.on("orders")
def order(event: Event) -> Upsert:
    with trace.get_tracer("shop").start_as_current_span("charge the card"):
        has_total = Path("mended").exists()
    if not has_total:
        raise Poison("total: is nobody-may-see-this", reason="NO_TOTAL")
    return Upsert("orders", str(event.data["order"]), {})
"""

ORDER = {"order": 1, "card": SECRET}

RETRIES = json.dumps([{"reason": "NO_TOTAL", "class": "poison", "delays": [1, 1, 1, 1, 1, 1, 1, 1]}])


def tree(collector: Collector, span: Seen) -> list[str]:
    """The names from the first span of the trace down to this one."""
    by_id = {one.span_id: one for one in collector.spans}
    names = [span.name]
    while span.parent_id:
        span = by_id[span.parent_id]
        names.append(span.name)
    return names[::-1]


def attempts(collector: Collector, trace_id: str) -> list[Any]:
    """How each piece of work of the consumer ended, in order."""
    found = sorted(collector.found("process", trace_id), key=lambda span: span.start_ns)
    return [span.attributes["messaging.holdfast.outcome"] for span in found]


def check_against_the_table(collector: Collector) -> set[str]:
    """Gives the operations that were seen."""
    kinds = {kind.operation: kind for kind in spans.SPANS}
    ours = [span for span in collector.spans if str(span.resource["service.name"]).startswith("holdfast")]
    for span in ours:
        if span.name == "charge the card":
            continue
        kind = kinds[span.operation]
        assert span.kind == kind.kind.value
        assert set(span.attributes) <= set(kind.all_attributes), span
        assert span.attributes["messaging.system"] == "gcp_pubsub"
        assert span.failed == ("error.type" in span.attributes)
    assert SECRET.encode() not in b"".join(collector.bodies)
    return {span.operation for span in ours}


# One trace.


def test_one_trace_through_up(launcher: Launcher, collector: Collector) -> None:
    """The built-in consumer is pushed to; a person corrects what failed."""
    up = launcher.up(env={"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url})
    trace_id = traced_client.publish(up.broker, collector.url, "system.events", json.dumps({"x": SECRET}).encode())
    [failure] = eventually(lambda: http.get(f"{up.url}/api/v1/failures").body["failures"])
    good = {"service": "checkout", "status": SECRET}
    assert http.post(f"{up.url}/api/v1/ingest/system.events/manual?failure={failure['id']}", good).status == 200

    eventually(lambda: http.get(f"{up.url}/api/v1/documents/ops_services").body["documents"])
    assert up.stop() == 0  # so everything is sent
    subscription = "system.events.materializer"
    (write,) = collector.found("write", trace_id)
    assert tree(collector, write) == [
        "order",
        "system.events create",
        f"replay {subscription}",
        f"deliver {subscription}",
        f"process {subscription}",
        "apply system_events",
        "write documents",
    ]
    assert attempts(collector, trace_id) == ["poison", "applied"]
    (dead_letter,) = collector.found("dead-letter", trace_id)
    assert tree(collector, dead_letter)[2:] == [f"deliver {subscription}", f"dead-letter {subscription}.dlq"]
    (record,) = collector.found("record", trace_id)
    assert record.attributes["messaging.holdfast.failed_message.id"] == failure["messageId"]
    assert {span.resource["service.name"] for span in collector.spans} == {"client", "holdfast"}
    check_against_the_table(collector)


def by_push(launcher: Launcher, broker: Running, env: dict[str, str], **config: Any) -> None:
    consume = launcher.part("consume", "shop:app", env=env)
    with Pubsub(broker.broker) as pubsub:
        pubsub.subscribe("worker", "orders", push_config={"push_endpoint": f"{consume.url}/pubsub/push"}, **config)


def by_pull(launcher: Launcher, broker: Running, env: dict[str, str], **config: Any) -> None:
    with Pubsub(broker.broker) as pubsub:
        pubsub.subscribe("worker", "orders", **config)
    launcher.part("consume", "shop:app", "--pull", "worker", env=env)


@pytest.mark.parametrize("consuming", [by_push, by_pull])
def test_one_trace_through_three_processes(
    launcher: Launcher, collector: Collector, consuming: Callable[..., None]
) -> None:
    """The consumer is the user's own; the desk retries by itself."""
    (launcher.cwd / "shop.py").write_text(SHOP)
    traces = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}
    broker = launcher.part("broker", env=traces)
    found = {**traces, "PUBSUB_EMULATOR_HOST": broker.broker, "PYTHONPATH": str(launcher.cwd)}
    with Pubsub(broker.broker) as pubsub:
        for topic in ("orders", "orders.dlq"):
            pubsub.create_topic(topic)
    desk = launcher.part("desk", env=found | {"HOLDFAST_DESK_RETRY": RETRIES})
    with Pubsub(broker.broker) as pubsub:
        policy = {"dead_letter_topic": pubsub.topic("orders.dlq"), "max_delivery_attempts": 5}
        eventually(lambda: "orders.dlq.desk" in pubsub.subscriptions())
    consuming(launcher, broker, found, dead_letter_policy=policy)
    trace_id = traced_client.publish(broker.broker, collector.url, "orders", json.dumps(ORDER).encode())

    eventually(lambda: http.get(f"{desk.url}/api/v1/failures").body["failures"])
    (launcher.cwd / "mended").touch()
    write = collector.wait_for("write", trace_id)[0]
    eventually(lambda: "applied" in attempts(collector, trace_id))
    outcomes = attempts(collector, trace_id)
    assert outcomes == ["poison"] * (len(outcomes) - 1) + ["applied"]
    for running in launcher.started:
        assert running.stop() == 0

    path = tree(collector, write)
    assert path[:2] == ["order", "orders create"]
    assert path[-3:] == ["process worker", "apply order", "write documents"]
    assert "retry worker" in path
    assert ("deliver worker" in path) == (consuming is by_push)
    # The handler's own span is in it, and sees what it did.
    charged = collector.found("charge the card", trace_id)
    assert len(charged) == len(outcomes)
    assert tree(collector, charged[-1])[-3:] == ["process worker", "handle order", "charge the card"]
    (first, *_) = collector.found("handle", trace_id)
    assert (first.failed, first.attributes["error.type"]) == (True, "Poison")
    services = {span.resource["service.name"] for span in collector.spans if span.trace_id == trace_id}
    assert services == {"client", "holdfast-broker", "holdfast-consume", "holdfast-desk"}
    seen = check_against_the_table(collector)
    assert seen - {"charge"} == {kind.operation for kind in spans.SPANS} - {"replay"}


def test_google_clients_see_our_broker_in_their_trace(launcher: Launcher, collector: Collector) -> None:
    broker = launcher.part("broker", "--memory", env={"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url})
    with Pubsub(broker.broker) as pubsub:
        pubsub.create_topic("orders")
        pubsub.subscribe("worker", "orders")
    trace_id = traced_client.publish(broker.broker, collector.url, "orders", b"x")
    attributes = traced_client.receive(broker.broker, collector.url, "worker")
    (created,) = collector.found("orders create", trace_id)
    assert attributes.keys() == {"googclient_traceparent"}
    assert attributes["googclient_traceparent"].startswith(created.context)  # as it came
    deliver = collector.one("deliver worker", trace_id)
    (process,) = collector.found("worker process", trace_id)
    assert deliver.parent_id == created.span_id
    assert deliver.attributes["messaging.holdfast.outcome"] == "acked"
    assert deliver.start_ns < process.start_ns < process.end_ns < deliver.end_ns
    assert collector.one("publish orders", trace_id).parent_id == created.span_id


# Who has no context in the message.


def test_a_caller_may_be_in_a_trace_itself(launcher: Launcher, collector: Collector) -> None:
    """By REST here; gRPC has it in its metadata."""
    up = launcher.up("--memory", env={"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url})
    body = {"messages": [{"data": "e30="}, {"data": "e30="}]}
    url = f"http://{up.broker}/v1/projects/local/topics/system.events:publish"
    assert http.post(url, body, {"traceparent": f"00-{'ab' * 16}-{'cd' * 8}-01"}).status == 200
    connect(up.broker).publisher.publish(
        topic="projects/local/topics/system.events",
        messages=[PubsubMessage(data=b"{}")],
        timeout=SECONDS,
        metadata=(("traceparent", f"00-{'12' * 16}-{'34' * 8}-01"),),
    )
    publish = collector.one("publish", "ab" * 16)
    assert publish.parent_id == "cd" * 8
    assert publish.attributes["messaging.batch.message_count"] == 2
    assert len(collector.wait_for("process", "ab" * 16, count=2)) == 2
    assert collector.one("publish", "12" * 16).parent_id == "34" * 8
    # The dead letters' too, though the messages carried nothing.
    collector.wait_for("record", "ab" * 16, count=2)


def test_messages_are_marked_only_where_that_is_asked_for(launcher: Launcher, collector: Collector) -> None:
    for marks in (False, True):
        env = {"HOLDFAST_TRACES_ENDPOINT": collector.url, "HOLDFAST_TRACES_MARK_MESSAGES": str(marks)}
        broker = launcher.part("broker", "--memory", env=env)
        with Pubsub(broker.broker) as pubsub:
            pubsub.create_topic("orders")
            pubsub.subscribe("worker", "orders")
            pubsub.publish_one("orders", b"x", colour="red")
            attributes = dict(pubsub.pull_one("worker").message.attributes)
        published = collector.wait_for("publish orders", count=1 + marks)[-1]
        assert attributes.pop("googclient_traceparent", "").startswith(published.context) == marks
        assert attributes == {"colour": "red"}


# Sampling.


def test_who_began_a_trace_decides_whether_it_is_kept(launcher: Launcher, collector: Collector) -> None:
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_TRACES_SAMPLER_ARG": "0"}
    up = launcher.up("--memory", env=env)
    good = {"service": "checkout", "status": "ok"}
    with Pubsub(up.broker) as pubsub:
        for flags, trace_id in (("00", "ab" * 16), ("01", "cd" * 16)):
            pubsub.publish_one("system.events", good, googclient_traceparent=f"00-{trace_id}-{'12' * 8}-{flags}")
        pubsub.publish_one("system.events", good)
    collector.wait_for("write", "cd" * 16)
    eventually(lambda: len(http.outcomes(up.url)) == 3)
    assert up.stop() == 0
    assert {span.trace_id for span in collector.spans} == {"cd" * 16}
    assert {span.operation for span in collector.spans} == {"publish", "deliver", "process", "handle", "apply", "write"}


def test_messages_that_share_a_transaction_are_linked(launcher: Launcher, collector: Collector) -> None:
    up = launcher.up("--memory", env={"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url})
    count = 60
    with Pubsub(up.broker) as pubsub:
        sent = [
            pubsub.publisher.publish(
                pubsub.topic("market-ticks"),
                json.dumps({"symbol": "A", "eventId": str(number)}).encode(),
                googclient_traceparent=f"00-{number + 1:032x}-{number + 1:016x}-01",
            )
            for number in range(count)
        ]
        assert len({one.result(SECONDS) for one in sent}) == count
    applied = {span.span_id: span for span in collector.wait_for("apply", count=count)}
    writes = collector.found("write")
    assert any(write.links for write in writes)
    told = [found for write in writes for found in (write.parent_id, *(span_id for _, span_id in write.links))]
    assert sorted(told) == sorted(applied)
    for write in writes:
        assert write.attributes["messaging.batch.message_count"] == 1 + len(write.links)
        assert write.trace_id == applied[write.parent_id].trace_id


# The collector.


def metric(up: Running, result: str) -> int:
    line = next(
        line for line in http.text(f"{up.url}/metrics").splitlines() if f'spans_total{{result="{result}"}}' in line
    )
    return int(float(line.rsplit(" ", 1)[1]))


def test_a_collector_that_is_down_costs_spans_and_nothing_else(launcher: Launcher) -> None:
    with collecting() as gone:
        pass
    up = launcher.up("--memory", env={"OTEL_EXPORTER_OTLP_ENDPOINT": gone.url})
    with Pubsub(up.broker) as pubsub:
        pubsub.publish_one("system.events", {"service": "checkout", "status": "ok"})
    eventually(lambda: [one["outcome"] for one in http.outcomes(up.url)] == ["applied"])
    eventually(lambda: metric(up, "failed") > 0, within=40)
    assert (metric(up, "exported"), metric(up, "dropped")) == (0, 0)
    began = monotonic()
    assert up.stop() == 0
    assert monotonic() - began < 15
    assert up.stderr.count("the collector takes no spans") == 1
    assert "opentelemetry" not in up.stderr
    assert "Traceback" not in up.stderr


def test_a_collector_that_hangs_fills_no_memory_and_holds_up_no_stop(launcher: Launcher, collector: Collector) -> None:
    collector.open_gate.clear()
    env = {"OTEL_BSP_MAX_QUEUE_SIZE": "600", "HOLDFAST_TRACES_FLUSH_SECONDS": "0.5"}
    up = launcher.up("--memory", env={"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, **env})
    with Pubsub(up.broker) as pubsub:
        pubsub.publish("market-ticks", *({"symbol": "A", "eventId": str(number)} for number in range(400)))
    eventually(lambda: len(http.outcomes(up.url)) >= 100, within=30)
    eventually(lambda: metric(up, "dropped") > 0, within=30)
    began = monotonic()
    assert up.stop() == 0
    assert monotonic() - began < 15
    assert "spans were lost at the stop" in up.stderr


def test_headers_and_names_of_the_settings_reach_the_collector(launcher: Launcher, collector: Collector) -> None:
    (launcher.cwd / "holdfast.toml").write_text(
        textwrap.dedent(f"""
            [traces]
            endpoint = "{collector.url}/otlp/"
            service_name = "shop"
        """)
    )
    env = {"OTEL_EXPORTER_OTLP_HEADERS": "x-token=one%20two", "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment=test"}
    broker = launcher.part("broker", "--memory", env=env)
    with Pubsub(broker.broker) as pubsub:
        pubsub.create_topic("orders")
        pubsub.publish_one("orders", b"x")
    published = collector.one("publish orders")
    assert collector.paths[0] == "/otlp/v1/traces"
    assert collector.requests[0]["x-token"] == "one two"
    told = {name: published.resource[name] for name in ("service.name", "holdfast.part", "deployment.environment")}
    assert told == {"service.name": "shop", "holdfast.part": "broker", "deployment.environment": "test"}


# Without.

# As where the extra is not installed: the exporter is not there.
_WITHOUT_EXTRA = """
import sys


class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.startswith("opentelemetry.exporter"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Absent())
"""


def test_without_the_extra_it_says_what_to_install(launcher: Launcher) -> None:
    (launcher.cwd / "sitecustomize.py").write_text(_WITHOUT_EXTRA)
    env = {"PYTHONPATH": str(launcher.cwd), "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
    done = launcher.run("up", "--memory", env=env)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("holdfast: setting traces.endpoint = ")
    assert "pip install 'holdfast[otel]'" in done.stderr
    assert done.stderr.count("\n") == 1
    # And nothing of it is needed, or asked for, where there are no traces.
    launcher.up("--memory", env={**env, "HOLDFAST_TRACES_ENABLED": "off"})


def test_a_wrong_header_is_told_without_its_secret(launcher: Launcher) -> None:
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_EXPORTER_OTLP_HEADERS": "s3cret"}
    done = launcher.run("up", "--memory", env=env)
    assert done.returncode == 1
    assert "traces.headers" in done.stderr
    assert "s3cret" not in done.stderr


# One message through `up`, in a process that then says what it has imported, and what it was made of.
_PROCESS = """
import asyncio
import gc
import json
import sys

import aiohttp

from holdfast.settings import load_settings
from holdfast.wiring.processes.up import running_up


async def main():
    settings = load_settings({"memory": True, "broker.port": 0, "http.port": 0, "traces.endpoint": sys.argv[1]}, {})
    async with running_up(settings) as running, aiohttp.ClientSession() as session:
        publish = f"http://127.0.0.1:{running.broker_port}/v1/projects/local/topics/system.events:publish"
        message = {"data": "e30=", "attributes": {"googclient_traceparent": f"00-{'ab' * 16}-{'cd' * 8}-01"}}
        async with session.post(publish, json={"messages": [message]}, headers={"traceparent": "x"}) as answer:
            assert answer.status == 200
        outcomes = f"http://127.0.0.1:{running.http_port}/api/v1/outcomes"
        while not (await (await session.get(outcomes)).json())["recent"]:
            await asyncio.sleep(0.02)
        made = {type(one) for one in gc.get_objects()}
        kinds = [kind.__qualname__ for kind in made if str(kind.__module__).startswith("holdfast.")]
    imported = [name for name in sys.modules if name.startswith("opentelemetry.")]
    print(json.dumps({"kinds": kinds, "imported": imported}))


asyncio.run(main())
"""

TRACED = {"TracedBroker", "TracedQueue", "TracedPipeline", "TracedCoalescer", "TracedIntake", "TracedOutlet"}
TRACED |= {"CallersTrace", "OtelTraces"}


def made_and_imported(endpoint: str) -> tuple[set[str], set[str]]:
    done = subprocess.run(
        [sys.executable, "-c", _PROCESS, endpoint], env=environment({}), capture_output=True, timeout=60, check=True
    )
    told = json.loads(done.stdout)
    return set(told["kinds"]), set(told["imported"])


def test_without_traces_nothing_of_them_is_imported_or_made(collector: Collector) -> None:
    """So there is nothing that a message could pass through."""
    kinds, imported = made_and_imported("")
    assert imported == set()
    assert {"Broker", "SubscriptionQueue", "Pipeline", "Coalescer", "Intake"} <= kinds
    assert not [kind for kind in kinds if kind in TRACED or "Traced" in kind]
    kinds, imported = made_and_imported(collector.url)
    assert "opentelemetry.sdk.trace" in imported
    assert kinds >= TRACED
