"""DLQ_TOPIC: what is published there, and that only a confirmed publish counts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from holdfast.broker.service import Broker
from holdfast.consumer.dead_letter_topic import DeadLetterTopic, dead_letter_of
from holdfast.consumer.failure_sink import FailedDelivery
from holdfast.deadletter.dead_letter import arrival_of
from holdfast.errors import NotFound, StorageUnavailable
from holdfast.model.message import Delivery, Message
from holdfast.model.resources import Subscription
from holdfast.outgoing.addresses import AddressGuard
from holdfast.settings import BrokerSettings
from holdfast.stores.memory.log import MemoryMessageLog
from holdfast.testing import ManualClock
from holdfast.transports.local import LocalTransport

TOPIC = "projects/p/topics/orders-dlq"
MESSAGE = Message(b'{"id":1}', {"k": "v"}, "key-1", "m1", 1_767_875_696_000_000_000)
FAILED = FailedDelivery(Delivery("projects/p/subscriptions/orders", MESSAGE, 3), "orders", "REFUSED", "too large")


@pytest.fixture
async def transport() -> AsyncIterator[LocalTransport]:
    guard = AddressGuard.from_setting("loopback", listens_on_loopback=True)
    broker = await Broker.open(MemoryMessageLog(), ManualClock(), BrokerSettings(cache_megabytes=1), guard)
    yield LocalTransport(broker)
    await broker.close()


async def test_the_desk_reads_from_it_what_it_would_have_read_from_the_broker(transport: LocalTransport) -> None:
    await transport.ensure_topic(TOPIC)
    await transport.ensure_subscription(Subscription("projects/p/subscriptions/orders-dlq.desk", TOPIC))
    await DeadLetterTopic(transport, TOPIC, 10).record(FAILED)
    [delivery] = await transport.receive("projects/p/subscriptions/orders-dlq.desk", 10, 5)
    row = arrival_of(delivery, 1).failure
    assert (row.message_id, row.subscription) == ("m1", "projects/p/subscriptions/orders")
    assert (row.source_topic, row.failure_reason) == ("projects/p/topics/orders", "REFUSED")
    assert (row.error_details, row.delivery_attempt) == ("too large", 3)
    assert (row.data, row.attributes, row.ordering_key) == (MESSAGE.data, MESSAGE.attributes, "key-1")
    assert row.publish_time_ns == MESSAGE.publish_time_ns


async def test_a_topic_that_is_not_there_has_not_recorded_anything(transport: LocalTransport) -> None:
    with pytest.raises(NotFound):
        await DeadLetterTopic(transport, TOPIC, 10).record(FAILED)


async def test_what_is_not_confirmed_in_time_is_not_recorded(
    transport: LocalTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(topic: str, message: Message) -> str:
        await asyncio.Event().wait()
        return ""

    monkeypatch.setattr(transport, "publish", never)
    with pytest.raises(StorageUnavailable, match=r"orders-dlq: the publish was not confirmed within 0\.05 s"):
        await DeadLetterTopic(transport, TOPIC, 0.05).record(FAILED)


def test_only_what_is_known_is_told() -> None:
    bare = FailedDelivery(Delivery("", Message(b"x", message_id="m1")), "", "R", "")
    assert dead_letter_of(bare, "p").attributes == {
        "holdfast-source-message-id": "m1",
        "holdfast-failure-reason": "R",
    }


def test_the_publishers_own_attributes_come_first_and_nothing_is_above_the_limits() -> None:
    crowded = Message(b"x", {f"a{n}": "v" for n in range(98)} | {"holdfast-error": "forged"}, message_id="m1")
    failed = FailedDelivery(Delivery("projects/p/subscriptions/s", crowded), "t", "R", "é" * 2000)
    attributes = dead_letter_of(failed, "p").attributes
    assert len(attributes) == 100
    assert {f"a{n}" for n in range(98)} < set(attributes)
    roomy = FailedDelivery(Delivery("projects/p/subscriptions/s", MESSAGE), "t", "R", "é" * 2000)
    error = dead_letter_of(roomy, "p").attributes["holdfast-error"]
    assert error == "é" * 512
