"""What a desk that makes traces sends: the message as it is, but for the context of the span that sends it."""

from __future__ import annotations

import pytest

from holdfast.deadletter.traced import TracedOutlet
from holdfast.errors import NotFound
from holdfast.model.message import Message
from holdfast.model.replay_attributes import ORIGINAL_MESSAGE_ID, REPLAY_ID
from holdfast.testing import ManualClock
from holdfast.tracing import spans
from holdfast.tracing.context import ATTRIBUTE
from holdfast.tracing.otel import Export, OtelTraces
from holdfast.transports.local import LocalTransport
from tests.support.desk_parts import ORDERS, TOPIC, Consumer, memory_broker
from tests.support.otlp import Collector, collector

__all__ = ["collector"]

TRACE_ID = "ab" * 16
SAMPLED, UNSAMPLED = (f"00-{TRACE_ID}-{'cd' * 8}-{flags}" for flags in ("01", "00"))


def sent_again(number: int, context: str = "", more: int = 0) -> Message:
    attributes = {REPLAY_ID: f"r{number}", ORIGINAL_MESSAGE_ID: "17", **({ATTRIBUTE: context} if context else {})}
    return Message(b"x", attributes | {str(name): "v" for name in range(more)}, "key")


async def test_each_message_goes_on_with_its_own_trace(collector: Collector) -> None:
    traces = OtelTraces(Export(f"{collector.url}/v1/traces", "", "parentbased_always_on", 1.0, "", "desk", 1000))
    async with memory_broker(ManualClock()) as broker:
        outlet = TracedOutlet(LocalTransport(broker), traces, spans.RETRY)
        messages = [sent_again(1, SAMPLED), sent_again(2), sent_again(3, UNSAMPLED), sent_again(4, more=98)]
        ids = await outlet.publish_to(ORDERS, messages)
        new = await outlet.publish(TOPIC, Message(b"new"))
        again = await outlet.publish(TOPIC, sent_again(5, SAMPLED))
        received = {message.message_id: message for message in await Consumer(broker).ack()}
        with pytest.raises(NotFound):
            await outlet.publish_to("projects/local/subscriptions/none", [sent_again(6, SAMPLED)])
    traces.close(5)

    retries = {span.attributes.get("messaging.message.id"): span for span in collector.spans}
    assert retries.keys() == {ids[0], ids[1], ids[3], again, None}
    for message_id, message in zip(ids, messages, strict=True):
        got = dict(received[message_id].attributes)
        context = got.pop(ATTRIBUTE, "")
        assert got == {name: value for name, value in message.attributes.items() if name != ATTRIBUTE}
        if message_id in ids[:2]:
            assert context.startswith(retries[message_id].context)
        else:  # nobody wants to see it, or there is no room
            assert context == message.attributes.get(ATTRIBUTE, "")
    assert ATTRIBUTE not in received[new].attributes
    assert retries[ids[0]].name == "retry orders"
    assert retries[ids[0]].attributes["messaging.holdfast.failed_message.id"] == "17"
    assert (retries[ids[0]].trace_id, retries[ids[0]].parent_id) == (TRACE_ID, "cd" * 8)
    assert retries[again].attributes["messaging.destination.name"] == "orders"
    assert (retries[None].failed, retries[None].attributes["error.type"]) == (True, "NotFound")
