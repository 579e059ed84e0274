"""Ordering keys: one under way per key, in order through failures and restarts, and no key holds up another."""

from __future__ import annotations

import random
from collections import defaultdict

from holdfast.broker.leases import Failure
from holdfast.broker.service import Broker
from holdfast.broker.wire import decode
from holdfast.model.message import Message
from holdfast.model.resources import DeadLetterPolicy, RetryPolicy
from holdfast.settings import BrokerSettings
from holdfast.stores.memory.log import MemoryMessageLog
from holdfast.testing import ManualClock
from tests.broker.helpers import (
    DEAD_LETTERS,
    SUBSCRIPTION,
    TOPIC,
    make_dead_letter_topic,
    make_subscription,
    settle_down,
    take,
    take_one,
    text,
    texts,
)


async def publish_keyed(broker: Broker, *keyed: str) -> None:
    """ "a1" is message 1 of key a; "-1" has no key."""
    for name in keyed:
        key = "" if name[0] == "-" else name[0]
        await broker.publish_message(TOPIC, Message(name.encode(), ordering_key=key))


async def test_one_of_a_key_is_under_way_and_others_pass(broker: Broker) -> None:
    queue = await make_subscription(broker, ordered=True)
    await publish_keyed(broker, "a1", "a2", "b1", "-1", "-2", "a3", "b2")
    first = await take(queue)
    assert texts(first) == ["a1", "b1", "-1", "-2"]
    queue.ack([first[0].ack_id])
    assert texts(await take(queue)) == ["a2"]
    queue.ack([first[1].ack_id])
    assert texts(await take(queue)) == ["b2"]


async def test_a_nack_brings_the_same_message_before_its_followers(broker: Broker, clock: ManualClock) -> None:
    queue = await make_subscription(broker, ordered=True, retry=RetryPolicy(10, 600))
    await publish_keyed(broker, "a1", "a2", "b1")
    first = await take(queue)
    queue.nack([first[0].ack_id])
    await settle_down()
    assert await take(queue) == []  # a1 waits for its backoff, and a2 for a1
    clock.advance(10)
    again = await take_one(queue)
    assert (text(again), again.attempt) == ("a1", 2)
    queue.ack([again.ack_id])
    assert text(await take_one(queue)) == "a2"


async def test_an_expired_lease_keeps_the_order(broker: Broker, clock: ManualClock) -> None:
    queue = await make_subscription(broker, ordered=True)
    await publish_keyed(broker, "a1", "a2")
    await take(queue)
    clock.advance(11)
    assert text(await take_one(queue)) == "a1"


async def test_a_dead_lettered_head_does_not_block_its_key(broker: Broker) -> None:
    reader = await make_dead_letter_topic(broker)
    queue = await make_subscription(broker, ordered=True, dead_letter=DeadLetterPolicy(DEAD_LETTERS, 5))
    await publish_keyed(broker, "a1", "a2")
    queue.fail(await take_one(queue), Failure(dead_letter_now=True))
    assert text(await take_one(queue)) == "a2"
    dead = decode((await take_one(reader)).body)
    assert (dead.data, dead.ordering_key) == (b"a1", "a")


async def test_a_head_past_its_retention_does_not_block_its_key(broker: Broker, clock: ManualClock) -> None:
    queue = await make_subscription(broker, ordered=True, retry=RetryPolicy(600, 600), message_retention_seconds=600)
    await publish_keyed(broker, "a1")
    queue.nack([(await take_one(queue)).ack_id])
    await settle_down()  # it is on disk that it failed
    clock.advance(300)
    await publish_keyed(broker, "a2")
    assert await take(queue) == []
    clock.advance(301)
    assert texts(await take(queue)) == ["a2"]


async def test_without_ordering_keys_are_only_carried_along(broker: Broker) -> None:
    queue = await make_subscription(broker)
    await publish_keyed(broker, "a1", "a2")
    assert texts(await take(queue)) == ["a1", "a2"]


async def test_a_waiting_taker_hears_of_the_next_of_a_key(broker: Broker) -> None:
    import asyncio

    queue = await make_subscription(broker, ordered=True)
    await publish_keyed(broker, "a1", "a2")
    first = await take_one(queue)
    waiting = asyncio.create_task(take_one(queue))
    await settle_down()
    assert not waiting.done()
    queue.ack([first.ack_id])
    assert text(await waiting) == "a2"


async def test_after_a_restart_a_waiting_head_still_comes_first(
    broker: Broker, log: MemoryMessageLog, clock: ManualClock
) -> None:
    queue = await make_subscription(broker, ordered=True, retry=RetryPolicy(10, 600))
    await publish_keyed(broker, "a1", "a2", "b1")
    first = await take(queue)
    queue.nack([first[0].ack_id])
    await broker.close()
    again = (await Broker.open(log, clock, BrokerSettings())).queue(SUBSCRIPTION)
    assert texts(await take(again)) == ["b1"]
    clock.advance(10)
    assert texts(await take(again)) == ["a1"]


async def test_random_histories_keep_every_key_in_order(log: MemoryMessageLog, clock: ManualClock) -> None:
    chance = random.Random(11)
    broker = await Broker.open(log, clock, BrokerSettings())
    queue = await make_subscription(broker, ordered=True, retry=RetryPolicy(1, 4))
    published: dict[str, int] = defaultdict(int)
    acked: dict[str, list[int]] = defaultdict(list)
    steps = 0
    while steps < 500 or any(len(acked[key]) < count for key, count in published.items()):
        steps += 1
        assert steps < 5000
        action = chance.random()
        if action < 0.4 and steps < 500:
            key = chance.choice("abcde")
            published[key] += 1
            await publish_keyed(broker, f"{key}{published[key]}")
        elif action < 0.9:
            under_way = set()
            for lease in await take(queue, chance.randint(1, 10)):
                key, number = text(lease)[0], int(text(lease)[1:])
                assert key not in under_way
                under_way.add(key)
                # Exactly the next one: never a later one first, never an acked one again.
                assert number == len(acked[key]) + 1
                if chance.random() < 0.7:
                    acked[key].append(number)
                    _, on_disk = queue.ack([lease.ack_id])
                    await on_disk
                else:
                    queue.nack([lease.ack_id])
            clock.advance(chance.choice([0, 1, 5]))
            await settle_down()
        else:
            await settle_down()
            broker._timers.stop()
            broker = await Broker.open(log, clock, BrokerSettings())
            queue = broker.queue(SUBSCRIPTION)
