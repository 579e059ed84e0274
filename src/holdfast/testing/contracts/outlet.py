"""What every outlet must do. Subclass OutletContract with an `outlet` fixture, a transport too, and pytest runs it.

Where a broker behind an outlet cannot do something, its subclass says so in one of the attributes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import pytest

from holdfast.consumer.transport import Transport
from holdfast.deadletter.outlet import Outlet
from holdfast.errors import HoldfastError, NotFound
from holdfast.model.fate import Fate, Release
from holdfast.model.message import Delivery, Message
from holdfast.model.names import replay_subscription
from holdfast.model.replay_attributes import REPLAY_ID
from holdfast.model.resources import DeadLetterPolicy, RetryPolicy, Subscription
from holdfast.testing.contracts.transport import MOMENT_SECONDS, PATIENCE_SECONDS, Names

ATTEMPTS = 5


class OutletTransport(Outlet, Transport, Protocol):
    """What sends again is also what receives."""

    async def publish(self, topic: str, message: Message) -> str: ...


class OutletContract:
    # Messages go to the subscription itself. Else they go through the topic `<id>.replay`.
    addresses_subscriptions = True

    # It knows what became of them.
    tells_fates = True

    @pytest.fixture
    def names(self) -> Names:
        return Names.new()

    @pytest.fixture
    async def ready(self, outlet: OutletTransport, names: Names) -> Names:
        """A topic with two subscriptions, the second one named `…-too`, and a dead-letter topic."""
        await outlet.ensure_topic(names.topic)
        await outlet.ensure_topic(names.other_topic("dead-letters"))
        await outlet.ensure_subscription(self.subscription(names))
        await outlet.ensure_subscription(Subscription(names.subscription.name + "-too", names.topic))
        return names

    def subscription(self, names: Names) -> Subscription:
        policy = DeadLetterPolicy(names.other_topic("dead-letters"), ATTEMPTS)
        return replace(names.subscription, dead_letter=policy, ordered=True, retry=RetryPolicy(0, 0))

    def arrives_at(self, names: Names) -> str:
        name = names.subscription.name
        return name if self.addresses_subscriptions else replay_subscription(name)

    async def receive(self, outlet: OutletTransport, subscription: str, count: int) -> list[Delivery]:
        """Until there are so many. None of them is settled."""
        found: list[Delivery] = []
        while len(found) < count:
            come = await outlet.receive(subscription, count - len(found), PATIENCE_SECONDS)
            assert come, f"{len(found)} of {count} messages came"
            found += come
        return found

    async def nothing_comes(self, outlet: OutletTransport, subscription: str) -> None:
        assert not await outlet.receive(subscription, 10, MOMENT_SECONDS)

    async def fate(self, outlet: OutletTransport, names: Names, message_id: str) -> Fate:
        return (await outlet.fates(names.subscription.name, [message_id]))[message_id]

    # Sending.

    async def test_a_message_arrives_at_one_subscription_and_nowhere_else(
        self, outlet: OutletTransport, ready: Names
    ) -> None:
        sent = Message(b"\x00\xff", {"tenant": "Zürich", REPLAY_ID: "1.2.3"}, "key")
        (message_id,) = await outlet.publish_to(ready.subscription.name, [sent])
        (delivery,) = await self.receive(outlet, self.arrives_at(ready), 1)
        arrived = delivery.message
        assert arrived == replace(sent, message_id=message_id, publish_time_ns=arrived.publish_time_ns)
        await self.nothing_comes(outlet, ready.subscription.name + "-too")

    async def test_messages_arrive_in_their_order_beside_those_of_the_topic(
        self, outlet: OutletTransport, ready: Names
    ) -> None:
        first = await outlet.publish_to(ready.subscription.name, [Message(b"%d" % number) for number in range(3)])
        await outlet.publish(ready.topic, Message(b"for all"))
        second = await outlet.publish_to(ready.subscription.name, [Message(b"last")])
        ids = [*first, *second]
        assert len(set(ids)) == 4
        found = await self.receive(outlet, self.arrives_at(ready), 5 if self.addresses_subscriptions else 4)
        own = [delivery for delivery in found if delivery.message.data != b"for all"]
        assert [delivery.message.message_id for delivery in own] == ids
        (other,) = await self.receive(outlet, ready.subscription.name + "-too", 1)
        assert other.message.data == b"for all"

    async def test_a_subscription_that_is_not_there_is_not_found(self, outlet: OutletTransport, ready: Names) -> None:
        with pytest.raises(NotFound):
            await outlet.publish_to(ready.subscription.name + "-nowhere", [Message(b"x")])

    async def test_all_are_sent_or_none(self, outlet: OutletTransport, ready: Names) -> None:
        if not self.addresses_subscriptions:
            await outlet.publish_to(ready.subscription.name, [Message(b"makes the way")])
            await outlet.ack(await self.receive(outlet, self.arrives_at(ready), 1))
        with pytest.raises(HoldfastError):
            await outlet.publish_to(ready.subscription.name, [Message(b"good"), Message(b"")])
        await self.nothing_comes(outlet, self.arrives_at(ready))

    # What is there.

    async def test_it_says_what_exists(self, outlet: OutletTransport, ready: Names) -> None:
        for path in (ready.topic, ready.subscription.name):
            assert await outlet.exists(path) is True
            assert await outlet.exists(path + "-nowhere") is False
        with pytest.raises(NotFound):
            await outlet.publish(ready.topic + "-nowhere", Message(b"x", {REPLAY_ID: "1"}))

    # What becomes of them.

    async def test_the_fate_of_a_message_is_told(self, outlet: OutletTransport, ready: Names) -> None:
        name = ready.subscription.name
        good, bad = await outlet.publish_to(name, [Message(b"good"), Message(b"bad")])
        expected: Sequence[Fate] = (Fate.PENDING, Fate.ACKED, Fate.PENDING, Fate.DEAD_LETTERED)
        if not self.tells_fates:
            expected = [Fate.UNKNOWN] * 4
        assert await self.fate(outlet, ready, good) is expected[0]
        deliveries = await self.receive(outlet, self.arrives_at(ready), 2)
        await outlet.ack([one for one in deliveries if one.message.data == b"good"])
        assert await self.fate(outlet, ready, good) is expected[1]
        assert await self.fate(outlet, ready, bad) is expected[2]
        failing = [one for one in deliveries if one.message.data == b"bad"]
        for _ in range(ATTEMPTS - 1):
            await outlet.nack(failing)
            failing = await self.receive(outlet, self.arrives_at(ready), 1)
        await outlet.nack(failing)
        for _ in range(100):
            if await self.fate(outlet, ready, bad) is expected[3]:
                break
            await asyncio.sleep(0.05)
        assert await self.fate(outlet, ready, bad) is expected[3]

    async def test_nothing_is_known_of_a_message_that_was_not_sent_so(
        self, outlet: OutletTransport, ready: Names
    ) -> None:
        published = await outlet.publish(ready.topic, Message(b"for all"))
        ids = [published, "1", "no-id", ""]
        assert await outlet.fates(ready.subscription.name, ids) == dict.fromkeys(ids, Fate.UNKNOWN)
        assert await outlet.fates(ready.subscription.name, []) == {}

    async def test_of_a_subscription_that_is_gone_nothing_is_told(self, outlet: OutletTransport, ready: Names) -> None:
        gone = f"{ready.subscription.name}-gone"
        with pytest.raises(NotFound):
            await outlet.fates(gone, ["1"])

    async def test_what_is_not_held_cannot_be_released(self, outlet: OutletTransport, ready: Names) -> None:
        (message_id,) = await outlet.publish_to(ready.subscription.name, [Message(b"x")])
        assert await outlet.release(ready.subscription.name, message_id) is Release.NOT_HELD


class OnceOutletContract(OutletContract):
    """For brokers that take each REPLAY_ID once; the others take what they are given."""

    async def test_a_replay_id_is_taken_once(self, outlet: OutletTransport, ready: Names) -> None:
        name = ready.subscription.name
        sent = [Message(b"%d" % number, {REPLAY_ID: f"id-{number}"}) for number in range(3)]
        once = await outlet.publish_to(name, sent[:2])
        again = await outlet.publish_to(name, [sent[1], sent[2], sent[2], Message(b"no id")])
        assert again[0] == once[1]
        assert again[1] == again[2]
        assert len({*once, *again}) == 4
        at_once = await asyncio.gather(
            *(outlet.publish_to(name, [Message(b"x", {REPLAY_ID: "same"})]) for _ in range(10))
        )
        assert len({message_id for (message_id,) in at_once}) == 1
        found = await self.receive(outlet, name, 5)
        assert [delivery.message.data for delivery in found] == [b"0", b"1", b"2", b"no id", b"x"]
        await outlet.ack(found)
        assert list(await outlet.publish_to(name, sent[:2])) == list(once)
        await self.nothing_comes(outlet, name)

    async def test_a_replay_id_is_of_one_subscription(self, outlet: OutletTransport, ready: Names) -> None:
        message = Message(b"x", {REPLAY_ID: "same"})
        for name in (ready.subscription.name, ready.subscription.name + "-too"):
            await outlet.publish_to(name, [message])
            assert len(await self.receive(outlet, name, 1)) == 1

    async def test_a_replay_id_counts_for_a_topic_too(self, outlet: OutletTransport, ready: Names) -> None:
        message = Message(b"x", {REPLAY_ID: "same"})
        assert len({await outlet.publish(ready.topic, message) for _ in range(3)}) == 1
        for name in (ready.subscription.name, ready.subscription.name + "-too"):
            assert len(await self.receive(outlet, name, 1)) == 1
            await self.nothing_comes(outlet, name)
