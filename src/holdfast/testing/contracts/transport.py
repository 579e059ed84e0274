"""What every transport must do. Subclass TransportContract with a `transport` fixture and pytest runs it.

Where a broker behind a transport behaves otherwise, its subclass says so in one of the attributes, with the reason
beside it. Names are new in every test, so that many tests can share one broker.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import pytest

from holdfast.clock import NANOSECONDS
from holdfast.consumer.transport import Stream, Transport
from holdfast.errors import BadInput, NotFound, StaleAckIds
from holdfast.model.dead_letter_attributes import ERROR, FAILURE_REASON
from holdfast.model.dead_letter_attributes import SOURCE_DELIVERY_COUNT as DELIVERY_COUNT
from holdfast.model.message import Delivery, Message
from holdfast.model.resources import DeadLetterPolicy, RetryPolicy, Subscription

# A message that is there comes at once; this long is waited for it on a busy machine. Less than an ack deadline, so
# that nothing that was lost on its way to a receiver comes in time by itself.
PATIENCE_SECONDS = 8.0

# Long enough to show that something does not come, for it would have come at once.
MOMENT_SECONDS = 0.15

# A broker on another clock, and Pub/Sub's milliseconds.
CLOCK_TOLERANCE_NS = 5 * NANOSECONDS


@dataclass(frozen=True, slots=True)
class Names:
    """One topic and one subscription of it, in a project of this test's own."""

    project: str

    @classmethod
    def new(cls) -> Names:
        return cls(f"projects/test-{uuid.uuid4().hex}")

    @property
    def topic(self) -> str:
        return self.other_topic("orders")

    @property
    def subscription(self) -> Subscription:
        return Subscription(f"{self.project}/subscriptions/orders", self.topic)

    def other_topic(self, name: str) -> str:
        return f"{self.project}/topics/{name}"


class TransportContract:
    # An empty receive may come back this much before its time.
    answers_early_by_seconds = 0.0

    # A receive that its caller gave up takes no message with it. Where it may, that message comes this much later.
    ended_receives_hold_messages_seconds = 0.0

    # Of many who create the same subscription at once, exactly one is told that it did.
    creates_subscriptions_once = True

    # The attempt number of a subscription with a dead-letter policy starts at 1 and rises by 1 with each nack.
    counts_attempts = True

    # A stream gets no more messages than it allows to be open.
    limits_streams = True

    # What a stream gave is free for others soon after its end, unless it was extended.
    frees_what_ended_streams_held = True

    # What a consumer says of a failed delivery is heard: "never", and why.
    hears_why = True

    # A subscription with exactly-once delivery says when an ack came too late.
    refuses_late_acks = True

    @pytest.fixture
    def names(self) -> Names:
        return Names.new()

    @pytest.fixture
    async def ready(self, transport: Transport, names: Names) -> Names:
        """The topic and its subscription are there."""
        await transport.ensure_topic(names.topic)
        await transport.ensure_subscription(names.subscription)
        return names

    # Topics and subscriptions.

    async def test_what_is_absent_is_created_once(self, transport: Transport, names: Names) -> None:
        assert await transport.ensure_topic(names.topic) is True
        assert await transport.ensure_topic(names.topic) is False
        assert await transport.ensure_subscription(names.subscription) is True
        assert await transport.ensure_subscription(names.subscription) is False

    async def test_a_check_finds_the_broker_and_what_it_has(self, transport: Transport, ready: Names) -> None:
        await transport.check(ready.topic)
        await transport.check(ready.subscription.name)
        for missing in (f"{ready.topic}.missing", f"{ready.subscription.name}.missing"):
            with pytest.raises(NotFound):
                await transport.check(missing)

    async def test_of_many_who_create_at_once_one_does(self, transport: Transport, names: Names) -> None:
        topics = await asyncio.gather(*(transport.ensure_topic(names.topic) for _ in range(10)))
        assert sum(topics) == 1
        calls = (transport.ensure_subscription(names.subscription) for _ in range(10))
        subscriptions = await asyncio.gather(*calls)
        assert sum(subscriptions) == 1 if self.creates_subscriptions_once else any(subscriptions)

    async def test_what_is_there_is_listed(self, transport: Transport, ready: Names) -> None:
        more = [f"{ready.topic}.{number}" for number in range(3)]
        for topic in more:
            await transport.ensure_topic(topic)
        assert sorted(await transport.list_topics(ready.project)) == sorted([ready.topic, *more])
        assert list(await transport.list_subscriptions(ready.project)) == [ready.subscription.name]
        assert list(await transport.list_subscriptions(ready.project + "-other")) == []

    async def test_who_watches_subscriptions_can_stop(self, transport: Transport, ready: Names) -> None:
        calls: list[str] = []
        stop = transport.watch_subscriptions(lambda: calls.append("changed"))
        await transport.ensure_subscription(replace(ready.subscription, name=ready.subscription.name + "-2"))
        stop()
        told = len(calls)
        await transport.ensure_subscription(replace(ready.subscription, name=ready.subscription.name + "-3"))
        assert len(calls) == told

    async def test_an_existing_topic_keeps_its_subscriptions_and_messages(
        self, transport: Transport, ready: Names
    ) -> None:
        await transport.publish(ready.topic, Message(b"before"))
        assert await transport.ensure_topic(ready.topic) is False
        await transport.publish(ready.topic, Message(b"after"))
        assert _data(await receive(transport, ready, 2)) == [b"before", b"after"]

    async def test_an_existing_subscription_keeps_its_topic_policies_and_messages(
        self, transport: Transport, ready: Names
    ) -> None:
        await transport.publish(ready.topic, Message(b"1"))
        other = ready.other_topic("others")
        await transport.ensure_topic(other)
        changed = replace(ready.subscription, topic=other, dead_letter=DeadLetterPolicy(other, 10))
        assert await transport.ensure_subscription(changed) is False
        await transport.publish(other, Message(b"of the other topic"))
        await transport.publish(ready.topic, Message(b"2"))
        deliveries = await receive(transport, ready, 2)
        assert _data(deliveries) == [b"1", b"2"]
        assert [delivery.attempt for delivery in deliveries] == [0, 0]

    async def test_every_policy_of_a_subscription_is_taken(self, transport: Transport, names: Names) -> None:
        await transport.ensure_topic(names.topic)
        full = replace(
            names.subscription,
            ack_deadline_seconds=60,
            dead_letter=DeadLetterPolicy(names.topic, 7),
            retry=RetryPolicy(1.5, 30),
            labels={"team": "blue"},
            message_retention_seconds=3600,
        )
        assert await transport.ensure_subscription(full) is True

    # From publish to receive.

    async def test_a_message_arrives_as_it_was_published(self, transport: Transport, ready: Names) -> None:
        published = Message(bytes(range(256)), {"tenant": "Zürich 💥", "empty": ""}, "customer-7")
        before = time.time_ns()
        message_id = await transport.publish(ready.topic, published)
        after = time.time_ns()
        [delivery] = await receive(transport, ready, 1)
        assert delivery.subscription == ready.subscription.name
        assert delivery.ack_id
        arrived = delivery.message
        assert message_id
        assert arrived == replace(published, message_id=message_id, publish_time_ns=arrived.publish_time_ns)
        assert before - CLOCK_TOLERANCE_NS <= arrived.publish_time_ns <= after + CLOCK_TOLERANCE_NS

    @pytest.mark.parametrize("message", [Message(b"only data"), Message(b"", {"only": "attributes"})])
    async def test_a_message_may_have_data_or_attributes_alone(
        self, transport: Transport, ready: Names, message: Message
    ) -> None:
        await transport.publish(ready.topic, message)
        [delivery] = await receive(transport, ready, 1)
        assert (delivery.message.data, delivery.message.attributes) == (message.data, message.attributes)

    async def test_a_message_of_megabytes_arrives_whole(self, transport: Transport, ready: Names) -> None:
        """Larger than the 4 MB that gRPC lets through by default."""
        data = bytes(range(256)) * 32_768
        await transport.publish(ready.topic, Message(data))
        [delivery] = await receive(transport, ready, 1)
        assert delivery.message.data == data

    async def test_id_and_publish_time_are_the_brokers_to_give(self, transport: Transport, ready: Names) -> None:
        message_id = await transport.publish(ready.topic, Message(b"x", message_id="mine", publish_time_ns=1))
        [delivery] = await receive(transport, ready, 1)
        assert delivery.message.message_id == message_id != "mine"
        assert delivery.message.publish_time_ns > NANOSECONDS

    async def test_messages_keep_the_order_of_publishing_for_one_receiver(
        self, transport: Transport, ready: Names
    ) -> None:
        ids = [await transport.publish(ready.topic, Message(b"%d" % number)) for number in range(30)]
        assert len(set(ids)) == 30
        deliveries = await receive(transport, ready, 30, at_once=7)
        assert [delivery.message.message_id for delivery in deliveries] == ids
        assert len({delivery.ack_id for delivery in deliveries}) == 30

    async def test_every_subscription_of_a_topic_gets_every_message(self, transport: Transport, ready: Names) -> None:
        other = replace(ready.subscription, name=ready.subscription.name + "-too")
        await transport.ensure_subscription(other)
        await transport.publish(ready.topic, Message(b"x"))
        for subscription in (ready.subscription.name, other.name):
            [delivery] = await transport.receive(subscription, 10, PATIENCE_SECONDS)
            assert (delivery.subscription, delivery.message.data) == (subscription, b"x")
            await transport.ack([delivery])

    async def test_a_subscription_gets_what_is_published_after_it_was_made(
        self, transport: Transport, names: Names
    ) -> None:
        await transport.ensure_topic(names.topic)
        await transport.publish(names.topic, Message(b"before"))
        await transport.ensure_subscription(names.subscription)
        await transport.publish(names.topic, Message(b"after"))
        assert _data(await receive(transport, names, 1)) == [b"after"]
        await nothing_comes(transport, names)

    # Receiving.

    async def test_a_receive_waits_for_the_first_message(self, transport: Transport, ready: Names) -> None:
        waiting = asyncio.create_task(receive(transport, ready, 1))
        await nothing_comes(transport, ready)  # by now the other one waits as well
        await transport.publish(ready.topic, Message(b"x"))
        published = time.monotonic()
        assert _data(await waiting) == [b"x"]
        assert time.monotonic() - published < PATIENCE_SECONDS / 4

    async def test_a_receive_is_empty_after_its_wait(self, transport: Transport, ready: Names) -> None:
        wait = self.answers_early_by_seconds + MOMENT_SECONDS
        started = time.monotonic()
        assert list(await transport.receive(ready.subscription.name, 10, wait)) == []
        waited = time.monotonic() - started
        assert MOMENT_SECONDS * 0.8 <= waited < wait + PATIENCE_SECONDS / 2

    async def test_a_receive_gives_no_more_than_it_was_asked_for(self, transport: Transport, ready: Names) -> None:
        for number in range(5):
            await transport.publish(ready.topic, Message(b"%d" % number))
        first = await transport.receive(ready.subscription.name, 2, PATIENCE_SECONDS)
        assert _data(first) == [b"0", b"1"]
        rest = await transport.receive(ready.subscription.name, 10, PATIENCE_SECONDS)
        assert _data(rest) == [b"2", b"3", b"4"]

    async def test_two_receivers_do_not_get_the_same_message(self, transport: Transport, ready: Names) -> None:
        for number in range(20):
            await transport.publish(ready.topic, Message(b"%d" % number))
        calls = (transport.receive(ready.subscription.name, 4, PATIENCE_SECONDS) for _ in range(5))
        received = [data for deliveries in await asyncio.gather(*calls) for data in _data(deliveries)]
        assert len(received) == len(set(received))

    async def test_a_receive_that_was_cancelled_takes_nothing_with_it(self, transport: Transport, ready: Names) -> None:
        cancelled = asyncio.create_task(transport.receive(ready.subscription.name, 10, PATIENCE_SECONDS))
        await nothing_comes(transport, ready)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        await _let_the_broker_know(transport, ready)
        await transport.publish(ready.topic, Message(b"x"))
        late = self.ended_receives_hold_messages_seconds
        assert _data(await receive(transport, ready, 1, within=PATIENCE_SECONDS + late)) == [b"x"]

    async def test_a_receive_that_came_back_empty_takes_nothing_with_it(
        self, transport: Transport, ready: Names
    ) -> None:
        await nothing_comes(transport, ready)
        await _let_the_broker_know(transport, ready)
        await transport.publish(ready.topic, Message(b"x"))
        late = self.ended_receives_hold_messages_seconds
        assert _data(await receive(transport, ready, 1, within=PATIENCE_SECONDS + late)) == [b"x"]

    # Settling.

    async def test_what_was_acked_is_gone(self, transport: Transport, ready: Names) -> None:
        for number in range(3):
            await transport.publish(ready.topic, Message(b"%d" % number))
        deliveries = await receive(transport, ready, 3)
        await transport.ack(deliveries[:2])
        await transport.nack(deliveries)  # too late for the first two
        assert _data(await receive(transport, ready, 1)) == [b"2"]
        await nothing_comes(transport, ready)

    async def test_what_is_neither_acked_nor_nacked_is_not_given_again_at_once(
        self, transport: Transport, ready: Names
    ) -> None:
        await transport.publish(ready.topic, Message(b"x"))
        await receive(transport, ready, 1)
        await nothing_comes(transport, ready)

    async def test_what_was_nacked_comes_again_as_it_was(self, transport: Transport, ready: Names) -> None:
        await transport.publish(ready.topic, Message(b"x", {"a": "b"}, "key"))
        [first] = await receive(transport, ready, 1)
        await transport.nack([first])
        [second] = await receive(transport, ready, 1)
        assert second.message == first.message
        await transport.ack([second])
        await nothing_comes(transport, ready)

    async def test_a_receive_that_waits_gets_what_is_nacked(self, transport: Transport, ready: Names) -> None:
        await transport.publish(ready.topic, Message(b"x"))
        held = await receive(transport, ready, 1)
        waiting = asyncio.create_task(receive(transport, ready, 1))
        await nothing_comes(transport, ready)
        await transport.nack(held)
        assert _data(await waiting) == [b"x"]

    async def test_attempts_are_counted_where_there_is_a_dead_letter_policy(
        self, transport: Transport, names: Names
    ) -> None:
        await transport.ensure_topic(names.topic)
        policy = DeadLetterPolicy(names.other_topic("dead"), 10)
        await transport.ensure_topic(policy.topic)
        await transport.ensure_subscription(replace(names.subscription, dead_letter=policy))
        await transport.publish(names.topic, Message(b"x"))
        attempts: list[int] = []
        for _ in range(4):
            [delivery] = await receive(transport, names, 1)
            attempts.append(delivery.attempt)
            await transport.nack([delivery])
        assert attempts == ([1, 2, 3, 4] if self.counts_attempts else [0, 0, 0, 0])

    async def test_what_is_rejected_is_a_dead_letter_at_once_and_says_why(
        self, transport: Transport, names: Names
    ) -> None:
        reader = await self.make_dead_letters(transport, names)
        await transport.publish(names.topic, Message(b"x", {"a": "b"}))
        deliveries = await receive(transport, names, 1)
        await transport.reject(deliveries, "NO_PRICE", "price: is missing, naïvely\n" + "x" * 1000)
        await transport.reject([], "NONE", "none")
        if not self.hears_why:
            [again] = await receive(transport, names, 1)
            assert again.attempt == (2 if self.counts_attempts else 0)
            return
        [dead] = await transport.receive(reader, 1, PATIENCE_SECONDS)
        told = dead.message.attributes
        assert (told["a"], told[FAILURE_REASON], told[DELIVERY_COUNT]) == ("b", "NO_PRICE", "1")
        assert told[ERROR].startswith("price: is missing, naïvely")
        await nothing_comes(transport, names)

    async def make_dead_letters(self, transport: Transport, names: Names) -> str:
        """Gives the subscription that reads them."""
        policy = DeadLetterPolicy(names.other_topic("dead"), 5)
        reader = Subscription(names.subscription.name + "-dead", policy.topic)
        for topic in (names.topic, policy.topic):
            await transport.ensure_topic(topic)
        await transport.ensure_subscription(reader)
        await transport.ensure_subscription(replace(names.subscription, dead_letter=policy, retry=RetryPolicy(0, 0)))
        return reader.name

    async def test_attempts_are_not_told_without_a_dead_letter_policy(self, transport: Transport, ready: Names) -> None:
        await transport.publish(ready.topic, Message(b"x"))
        [first] = await receive(transport, ready, 1)
        await transport.nack([first])
        [second] = await receive(transport, ready, 1)
        assert (first.attempt, second.attempt) == (0, 0)

    async def test_one_call_settles_deliveries_of_several_subscriptions(
        self, transport: Transport, ready: Names
    ) -> None:
        other = replace(ready.subscription, name=ready.subscription.name + "-too")
        await transport.ensure_subscription(other)
        await transport.publish(ready.topic, Message(b"x"))
        subscriptions = (ready.subscription.name, other.name)
        received = [await transport.receive(name, 10, PATIENCE_SECONDS) for name in subscriptions]
        await transport.ack([delivery for deliveries in received for delivery in deliveries])
        for name in subscriptions:
            assert list(await transport.receive(name, 10, MOMENT_SECONDS)) == []

    async def test_settling_twice_or_nothing_is_harmless(self, transport: Transport, ready: Names) -> None:
        await transport.ack([])
        await transport.nack([])
        await transport.publish(ready.topic, Message(b"x"))
        deliveries = await receive(transport, ready, 1)
        for _ in range(2):
            await transport.ack(deliveries)
        await transport.nack(deliveries)
        await nothing_comes(transport, ready)

    async def test_what_was_nacked_with_a_delay_comes_again_after_it(self, transport: Transport, ready: Names) -> None:
        await transport.publish(ready.topic, Message(b"x"))
        held = await receive(transport, ready, 1)
        nacked = time.monotonic()
        await transport.nack(held, 0.7)  # deadlines have whole seconds; it is never less
        assert _data(await receive(transport, ready, 1)) == [b"x"]
        assert time.monotonic() - nacked >= 0.7

    async def test_what_is_extended_is_held_for_that_long_and_no_longer(
        self, transport: Transport, ready: Names
    ) -> None:
        await transport.publish(ready.topic, Message(b"x"))
        held = await receive(transport, ready, 1)
        extended = time.monotonic()
        await transport.extend(held, 1)
        assert _data(await receive(transport, ready, 1)) == [b"x"]
        assert time.monotonic() - extended >= 0.9

    async def test_what_is_extended_can_still_be_acked(self, transport: Transport, ready: Names) -> None:
        await transport.publish(ready.topic, Message(b"x"))
        held = await receive(transport, ready, 1)
        await transport.extend(held, 60)
        await transport.ack(held)
        await transport.extend(held, 60)  # too late, and harmless
        await nothing_comes(transport, ready)

    async def test_under_exactly_once_delivery_a_second_ack_is_stale(self, transport: Transport, names: Names) -> None:
        await transport.ensure_topic(names.topic)
        await transport.ensure_subscription(replace(names.subscription, exactly_once=True))
        for data in (b"1", b"2"):
            await transport.publish(names.topic, Message(data))
        first, second = await receive(transport, names, 2)
        await transport.ack([first])
        if self.refuses_late_acks:
            with pytest.raises(StaleAckIds) as refused:
                await transport.ack([first, second])
            assert refused.value.ack_ids == [first.ack_id]
        else:
            await transport.ack([first, second])
        for call in (transport.nack([first, second]), transport.extend([first, second], 60)):
            await call
        await nothing_comes(transport, names)

    # Streams.

    async def test_a_stream_gives_what_is_there_and_what_comes(self, transport: Transport, ready: Names) -> None:
        await transport.publish(ready.topic, Message(b"1", {"a": "b"}, "key"))
        async with reading(transport, ready) as stream:
            [first] = await stream.receive(1)
            assert (first.subscription, first.attempt) == (ready.subscription.name, 0)
            assert (first.message.data, first.message.attributes, first.message.ordering_key) == (
                b"1",
                {"a": "b"},
                "key",
            )
            assert first.message.message_id
            assert abs(first.message.publish_time_ns - time.time_ns()) < CLOCK_TOLERANCE_NS
            await stream.nothing_comes()
            for number in range(2, 5):
                await transport.publish(ready.topic, Message(b"%d" % number))
            assert _data(await stream.receive(3)) == [b"2", b"3", b"4"]

    async def test_what_a_stream_gave_is_settled_through_the_transport(
        self, transport: Transport, ready: Names
    ) -> None:
        for number in range(3):
            await transport.publish(ready.topic, Message(b"%d" % number))
        async with reading(transport, ready) as stream:
            deliveries = await stream.receive(3)
            await transport.ack(deliveries[:2])
            await transport.nack(deliveries[2:])
            again = await stream.receive(1)
            assert _data(again) == [b"2"]
            await transport.ack(again)
            await stream.nothing_comes()
        await nothing_comes(transport, ready)

    async def test_a_stream_tells_attempts_where_there_is_a_dead_letter_policy(
        self, transport: Transport, names: Names
    ) -> None:
        await transport.ensure_topic(names.topic)
        policy = DeadLetterPolicy(names.other_topic("dead"), 10)
        await transport.ensure_topic(policy.topic)
        await transport.ensure_subscription(replace(names.subscription, dead_letter=policy))
        await transport.publish(names.topic, Message(b"x"))
        attempts: list[int] = []
        async with reading(transport, names) as stream:
            for _ in range(3):
                [delivery] = await stream.receive(1)
                attempts.append(delivery.attempt)
                await transport.nack([delivery])
        assert attempts == ([1, 2, 3] if self.counts_attempts else [0, 0, 0])

    async def test_a_stream_gets_no_more_than_it_allows_to_be_open(self, transport: Transport, ready: Names) -> None:
        for number in range(5):
            await transport.publish(ready.topic, Message(b"%d" % number))
        if not self.limits_streams:
            return
        async with reading(transport, ready, max_messages=2) as stream:
            open_now = await stream.receive(2)
            await stream.nothing_comes()
            await transport.ack(open_now[:1])
            open_now = [*open_now[1:], *await stream.receive(1)]
            await stream.nothing_comes()
            await transport.ack(open_now)
            assert _data(await stream.receive(2)) == [b"3", b"4"]

    async def test_a_stream_gets_no_more_bytes_than_it_allows_to_be_open(
        self, transport: Transport, ready: Names
    ) -> None:
        for _ in range(5):
            await transport.publish(ready.topic, Message(bytes(1000)))
        if not self.limits_streams:
            return
        async with reading(transport, ready, max_bytes=1500) as stream:
            open_now = await stream.receive(2)  # the one that passes the limit comes; others do not
            await stream.nothing_comes()
            await transport.ack(open_now)
            await stream.receive(2)

    async def test_a_message_larger_than_a_stream_allows_comes_all_the_same(
        self, transport: Transport, ready: Names
    ) -> None:
        await transport.publish(ready.topic, Message(bytes(5000)))
        async with reading(transport, ready, max_bytes=1000) as stream:
            [delivery] = await stream.receive(1)
            assert len(delivery.message.data) == 5000

    async def test_what_a_stream_gave_stays_ours_after_its_end_when_it_is_extended(
        self, transport: Transport, ready: Names
    ) -> None:
        await transport.publish(ready.topic, Message(b"x"))
        async with reading(transport, ready) as stream:
            held = await stream.receive(1)
        await transport.extend(held, 60)
        async with reading(transport, ready) as stream:
            # Longer than a broker waits for a word from the client of a stream that ended.
            await stream.nothing_comes(1.5)
        await transport.ack(held)
        await nothing_comes(transport, ready)

    async def test_what_a_stream_gave_and_nobody_asked_more_time_for_is_free_soon_after_its_end(
        self, transport: Transport, ready: Names
    ) -> None:
        await transport.publish(ready.topic, Message(b"x"))
        async with reading(transport, ready) as stream:
            await stream.receive(1)
        if self.frees_what_ended_streams_held:
            assert _data(await receive(transport, ready, 1)) == [b"x"]

    async def test_a_receive_that_is_cancelled_keeps_no_message_from_others(
        self, transport: Transport, ready: Names
    ) -> None:
        async with reading(transport, ready) as stream:
            await stream.nothing_comes()
        await _let_the_broker_know(transport, ready)
        await transport.publish(ready.topic, Message(b"x"))
        late = self.ended_receives_hold_messages_seconds
        assert _data(await receive(transport, ready, 1, within=PATIENCE_SECONDS + late)) == [b"x"]

    async def test_a_stream_tells_whether_there_is_an_order_to_keep(self, transport: Transport, names: Names) -> None:
        await transport.ensure_topic(names.topic)
        for name, ordered in (("any", False), ("ordered", True)):
            subscription = replace(names.subscription, name=f"{names.project}/subscriptions/{name}", ordered=ordered)
            await transport.ensure_subscription(subscription)
            async with transport.stream(subscription.name, 10, 1_000_000, 10) as stream:
                await transport.publish(names.topic, Message(b"x", ordering_key="key"))
                async with asyncio.timeout(PATIENCE_SECONDS):
                    await stream.receive()
                assert stream.ordered is ordered

    async def test_a_stream_of_what_is_not_there_is_not_found(self, transport: Transport, ready: Names) -> None:
        with pytest.raises(NotFound):
            async with reading(transport, ready, subscription=f"{ready.project}/subscriptions/absent") as stream:
                await stream.receive(1)

    # Errors.

    async def test_names_that_are_not_there_are_not_found(self, transport: Transport, ready: Names) -> None:
        await transport.publish(ready.topic, Message(b"x"))
        [real] = await receive(transport, ready, 1)
        absent = replace(real, subscription=f"{ready.project}/subscriptions/absent")
        for call in (
            transport.publish(ready.other_topic("absent"), Message(b"x")),
            transport.ensure_subscription(Subscription(absent.subscription, ready.other_topic("absent"))),
            transport.receive(absent.subscription, 1, PATIENCE_SECONDS),
            transport.ack([absent]),
            transport.nack([absent]),
        ):
            with pytest.raises(NotFound):
                await call

    async def test_what_the_broker_refuses_is_bad_input(self, transport: Transport, ready: Names) -> None:
        for call in (
            transport.publish(ready.topic, Message(b"")),
            transport.ensure_topic(f"{ready.project}/topics/1-must-start-with-a-letter"),
            transport.receive(ready.subscription.name, 0, PATIENCE_SECONDS),
            transport.ack([Delivery(ready.subscription.name, Message(b"x"), ack_id="never given")]),
        ):
            with pytest.raises(BadInput):
                await call


async def receive(
    transport: Transport, names: Names, count: int, *, at_once: int = 100, within: float = PATIENCE_SECONDS
) -> list[Delivery]:
    """Receives until there are `count`. None of them is settled."""
    deliveries: list[Delivery] = []
    end = time.monotonic() + within
    while len(deliveries) < count:
        left = end - time.monotonic()
        assert left > 0, f"{len(deliveries)} of {count} messages came within {within:g} seconds"
        more = await transport.receive(names.subscription.name, at_once, left)
        assert len(more) <= at_once
        deliveries += more
    return deliveries


async def nothing_comes(transport: Transport, names: Names) -> None:
    assert list(await transport.receive(names.subscription.name, 10, MOMENT_SECONDS)) == []


class Reading:
    """A stream, read so that looking for what does not come does not end it."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._next: asyncio.Task[Sequence[Delivery]] | None = None

    async def receive(self, count: int, within: float = PATIENCE_SECONDS) -> list[Delivery]:
        """Until there are `count`. None of them is settled."""
        deliveries: list[Delivery] = []
        end = time.monotonic() + within
        while len(deliveries) < count:
            come = await self._within(end - time.monotonic())
            assert come, f"{len(deliveries)} of {count} messages came within {within:g} seconds"
            deliveries += come
        assert len(deliveries) == count
        return deliveries

    async def nothing_comes(self, within: float = MOMENT_SECONDS) -> None:
        assert not await self._within(within)

    async def _within(self, seconds: float) -> Sequence[Delivery]:
        self._next = self._next or asyncio.ensure_future(self._stream.receive())
        done, _ = await asyncio.wait([self._next], timeout=max(seconds, 0))
        if not done:
            return ()
        come, self._next = self._next, None
        return await come

    async def stop(self) -> None:
        if self._next is not None:
            self._next.cancel()
            await asyncio.gather(self._next, return_exceptions=True)


@asynccontextmanager
async def reading(
    transport: Transport,
    names: Names,
    *,
    max_messages: int = 100,
    max_bytes: int = 1_000_000,
    subscription: str = "",
) -> AsyncIterator[Reading]:
    name = subscription or names.subscription.name
    async with transport.stream(name, max_messages, max_bytes, 10) as stream:
        read = Reading(stream)
        try:
            yield read
        finally:
            await read.stop()


async def _let_the_broker_know(transport: Transport, names: Names) -> None:
    """A round trip where receives go too: whatever was said there before has arrived."""
    assert await transport.ensure_subscription(names.subscription) is False


def _data(deliveries: Sequence[Delivery]) -> list[bytes]:
    return [delivery.message.data for delivery in deliveries]


class HearingTransportContract(TransportContract):
    """For brokers that hear why a delivery failed."""

    @pytest.mark.parametrize("delay", [0.0, 1.0])
    async def test_a_dead_letter_whose_attempts_ran_out_says_the_last_reason(
        self, transport: Transport, names: Names, delay: float
    ) -> None:
        reader = await self.make_dead_letters(transport, names)
        await transport.publish(names.topic, Message(b"x"))
        for _ in range(4):
            await transport.nack(await receive(transport, names, 1), reason="EARLIER")
        deliveries = await receive(transport, names, 1)
        await transport.nack(deliveries, delay, reason="DATABASE_CONNECTION_ERROR", error="no answer")
        [dead] = await transport.receive(reader, 1, PATIENCE_SECONDS)
        told = dead.message.attributes
        assert (told[FAILURE_REASON], told[ERROR]) == ("DATABASE_CONNECTION_ERROR", "no answer")
