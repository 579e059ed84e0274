"""Short sequences that show one difference each; `known.py` has them in its table."""

from __future__ import annotations

from typing import Any

from tests.differential.operations import Operation

TOPIC = "{P}/topics/orders"
SUBSCRIPTION = "{P}/subscriptions/worker"
DEAD = "{P}/topics/orders.dead"
SNAPSHOT = "{P}/snapshots/before"
SCHEMA = "{P}/schemas/order"
AVRO = '{"type": "record", "name": "Order", "fields": [{"name": "number", "type": "int"}]}'
PUSH = {"push_endpoint": "http://127.0.0.1:9/push"}


def call(do: str, **request: Any) -> Operation:
    return Operation(do, request)


def topic(name: str = TOPIC, **config: Any) -> Operation:
    return call("CreateTopic", name=name, **config)


def subscription(**config: Any) -> Operation:
    return call("CreateSubscription", **{"name": SUBSCRIPTION, "topic": TOPIC, **config})


def both(**config: Any) -> list[Operation]:
    """A topic and its subscription."""
    return [topic(), subscription(**config)]


def publish(data: str = "m0", **message: Any) -> Operation:
    return call("Publish", topic=TOPIC, messages=[{"data": data, **message}])


def update(mask: str, **config: Any) -> Operation:
    return call("UpdateSubscription", subscription={"name": SUBSCRIPTION, **config}, update_mask=mask)


def take() -> Operation:
    return call("Take", subscription=SUBSCRIPTION)


def nack(message: str = "m0") -> Operation:
    return call("ModifyAckDeadline", subscription=SUBSCRIPTION, messages=[message], ack_deadline_seconds=0)


def avro() -> Operation:
    return call("CreateSchema", parent="{P}", schema_id="order", schema={"type": "AVRO", "definition": AVRO})
