"""Google's own Python client with its OpenTelemetry turned on, in a process of its own: a program has one provider of
traces, and the tests' is nobody's.

    python -m tests.support.traced_client publish BROKER COLLECTOR TOPIC DATA
    python -m tests.support.traced_client receive BROKER COLLECTOR SUBSCRIPTION
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 20.0


def run(*arguments: str) -> Any:
    """What it prints, as JSON."""
    command = [sys.executable, "-m", "tests.support.traced_client", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8", timeout=3 * SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def publish(broker: str, collector: str, topic: str, data: bytes) -> str:
    """Gives the trace's id."""
    return str(run("publish", broker, collector, topic, data.decode("latin-1")))


def receive(broker: str, collector: str, subscription: str) -> dict[str, str]:
    """One message; gives its attributes."""
    return dict(run("receive", broker, collector, subscription))


def _main(what: str, broker: str, collector: str, name: str, data: str = "") -> None:
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor

    provider = TracerProvider(resource=Resource({"service.name": "client"}))
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{collector}/v1/traces")))
    trace.set_tracer_provider(provider)
    os.environ["PUBSUB_EMULATOR_HOST"] = broker
    print(json.dumps(_publish(name, data.encode("latin-1")) if what == "publish" else _receive(name)))


def _publish(topic: str, data: bytes) -> str:
    from google.cloud import pubsub_v1
    from opentelemetry import trace

    options = pubsub_v1.types.PublisherOptions(enable_open_telemetry_tracing=True)
    publisher = pubsub_v1.PublisherClient(publisher_options=options)
    with trace.get_tracer("client").start_as_current_span("order") as span:
        publisher.publish(f"projects/local/topics/{topic}", data).result(SECONDS)
    publisher.stop()
    return f"{span.get_span_context().trace_id:032x}"


def _receive(subscription: str) -> dict[str, str]:
    from google.cloud import pubsub_v1

    options = pubsub_v1.types.SubscriberOptions(enable_open_telemetry_tracing=True)
    subscriber = pubsub_v1.SubscriberClient(subscriber_options=options)
    attributes: dict[str, str] = {}
    received = threading.Event()

    def take(message: Any) -> None:
        attributes.update(message.attributes)
        message.ack_with_response().result(SECONDS)
        received.set()

    future = subscriber.subscribe(f"projects/local/subscriptions/{subscription}", take)
    assert received.wait(SECONDS)
    future.cancel()
    future.result(SECONDS)
    subscriber.close()
    return attributes


if __name__ == "__main__":
    _main(*sys.argv[1:])
