"""Delivery pauses when it fails in a storm, tries one message at a time, and goes on when one is acked."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from holdfast.broker.leases import NACKED, Failure, Lease
from holdfast.broker.service import Broker
from holdfast.broker.subscriptions import SubscriptionQueue
from holdfast.clock import NANOSECONDS
from holdfast.errors import BadInput
from holdfast.model.resources import DeadLetterPolicy, RetryPolicy
from holdfast.settings import BrokerSettings
from holdfast.stores.memory.log import MemoryMessageLog
from holdfast.testing import ManualClock
from tests.broker.helpers import (
    DEAD_LETTERS,
    TOPIC,
    make_dead_letter_topic,
    make_subscription,
    publish,
    settle_down,
    take,
    text,
    texts,
)

AT_ONCE = RetryPolicy(0, 0)
POISON = Failure(error="no price", dead_letter_now=True)
ABOUT_THE_MESSAGE = Failure(error="the endpoint answered 400", status="400", about_the_message=True)


@pytest.fixture(params=[{}])
async def queue(request: pytest.FixtureRequest, broker: Broker) -> SubscriptionQueue:
    config: dict[str, Any] = request.param
    await make_dead_letter_topic(broker)
    policy = DeadLetterPolicy(DEAD_LETTERS, 5)
    return await make_subscription(broker, dead_letter=policy, retry=AT_ONCE, **config)


async def fail_all(queue: SubscriptionQueue, leases: list[Lease], failure: Failure = NACKED) -> None:
    for lease in leases:
        queue.fail(lease, failure)
    await settle_down()


async def dead_letters(broker: Broker) -> list[str]:
    return texts(await take(broker.queue("projects/local/subscriptions/dead-letter-reader")))


def is_paused(queue: SubscriptionQueue) -> bool:
    return queue.pause is not None


async def open_breaker(broker: Broker, queue: SubscriptionQueue) -> None:
    await publish(broker, *(f"m{number}" for number in range(20)))
    await fail_all(queue, await take(queue))
    assert queue.pause


async def test_a_storm_pauses_delivery_and_says_why(
    broker: Broker, queue: SubscriptionQueue, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    await publish(broker, *(f"m{number}" for number in range(20)))
    leases = await take(queue)
    await fail_all(queue, leases[:19])
    assert not is_paused(queue)
    queue.fail(leases[19], Failure(error="no answer", status="timeout"))
    await settle_down()
    assert queue.pause is not None
    assert queue.pause.why == "20 of 20 messages of the last 60 s failed, the last with timeout: no answer"
    assert queue.pause.until_ns == clock.now_ns() + 5 * NANOSECONDS
    assert not queue.has_ready()
    assert await take(queue) == []
    (line,) = [record for record in caplog.records if record.message == "delivery pauses"]
    assert line.levelno == logging.WARNING
    assert vars(line)["fields"]["seconds"] == 5


async def test_one_message_is_tried_and_its_ack_lets_all_go_on(
    broker: Broker, queue: SubscriptionQueue, clock: ManualClock
) -> None:
    await open_breaker(broker, queue)
    seen = queue.changed.version
    clock.advance(5)
    await settle_down()
    assert queue.changed.version > seen  # who waits is woken
    (probe,) = await take(queue)
    assert await take(queue) == []
    queue.ack([probe.ack_id])
    assert queue.pause is None
    assert len(await take(queue)) == 19


async def test_pauses_double_while_the_probe_fails_up_to_ten_minutes(
    broker: Broker, queue: SubscriptionQueue, clock: ManualClock
) -> None:
    await open_breaker(broker, queue)
    pauses: list[float] = []
    for _ in range(9):
        assert queue.pause
        pauses.append((queue.pause.until_ns - clock.now_ns()) / NANOSECONDS)
        clock.advance(pauses[-1])
        (probe,) = await take(queue)
        await fail_all(queue, [probe])
    assert pauses == [5, 10, 20, 40, 80, 160, 320, 600, 600]
    assert await dead_letters(broker) == []


async def test_a_new_message_is_tried_before_those_that_failed(
    broker: Broker, queue: SubscriptionQueue, clock: ManualClock
) -> None:
    """The failures may be the fault of some messages after all."""
    await open_breaker(broker, queue)
    clock.advance(4)
    await publish(broker, "new")
    clock.advance(1)
    (probe,) = await take(queue)
    assert text(probe) == "new"


async def test_what_is_under_way_when_it_opens_keeps_its_place(
    broker: Broker, queue: SubscriptionQueue, clock: ManualClock
) -> None:
    """Each of 5,000 messages fails five times as fast as it is delivered, as with a subscriber that is down."""
    await publish(broker, *(f"m{number}" for number in range(5000)))
    for _ in range(30):
        await fail_all(queue, await take(queue, 5000))
        clock.advance(5)
    assert await dead_letters(broker) == []
    clock.advance(600)
    arrived: set[str] = set()
    while leases := await take(queue):
        arrived |= set(texts(leases))
        queue.ack([lease.ack_id for lease in leases])
        await settle_down()
    assert arrived == {f"m{number}" for number in range(5000)}


@pytest.mark.parametrize("failure", [POISON, ABOUT_THE_MESSAGE])
async def test_what_is_about_the_message_does_not_count(
    broker: Broker, queue: SubscriptionQueue, failure: Failure
) -> None:
    await publish(broker, *(f"m{number}" for number in range(100)))
    await fail_all(queue, await take(queue), failure)
    assert queue.pause is None


async def test_it_shows_that_the_subscriber_is_well(
    broker: Broker, queue: SubscriptionQueue, clock: ManualClock
) -> None:
    await open_breaker(broker, queue)
    clock.advance(5)
    (probe,) = await take(queue)
    await fail_all(queue, [probe], POISON)
    assert queue.pause is None


@pytest.mark.parametrize("failure", [POISON, NACKED])
async def test_poison_at_one_percent_does_not_trip_it(
    broker: Broker, queue: SubscriptionQueue, clock: ManualClock, failure: Failure
) -> None:
    for _ in range(100):
        await publish(broker, *("bad" if number == 50 else "good" for number in range(100)))
        for lease in await take(queue):
            if text(lease) == "bad":
                queue.fail(lease, failure)
            else:
                queue.ack([lease.ack_id])
        await settle_down()
        assert queue.pause is None
        clock.advance(0.5)
    assert set(await dead_letters(broker)) == {"bad"}


async def test_one_message_that_fails_again_and_again_does_not_stop_the_others(
    broker: Broker, clock: ManualClock
) -> None:
    """Without a retry policy it comes again at once, and without a dead-letter policy for ever."""
    queue = await make_subscription(broker)
    await publish(broker, "bad")
    for _ in range(200):
        await publish(broker, "good")
        leases = await take(queue)
        assert "good" in texts(leases)
        queue.ack([lease.ack_id for lease in leases if text(lease) == "good"])
        await fail_all(queue, [lease for lease in leases if text(lease) == "bad"])
        for _ in range(3):
            await fail_all(queue, await take(queue))
        clock.advance(0.5)
    assert queue.pause is None


async def test_only_the_last_minute_counts(broker: Broker, queue: SubscriptionQueue, clock: ManualClock) -> None:
    await publish(broker, *(f"m{number}" for number in range(40)))
    leases = await take(queue, deadline_seconds=600)
    for _ in range(3):
        await fail_all(queue, [leases.pop() for _ in range(10)])
        clock.advance(61)
    assert queue.pause is None


async def test_some_messages_that_alone_fail_are_seen_in_the_end(
    broker: Broker, queue: SubscriptionQueue, clock: ManualClock
) -> None:
    """They look like an outage. While nothing else is there, they have five attempts more than the policy gives."""
    await publish(broker, *(f"m{number}" for number in range(4)))
    attempts: dict[str, int] = {}
    for _ in range(100):
        leases = await take(queue)
        attempts |= {text(lease): lease.attempt for lease in leases}
        await fail_all(queue, leases)
        clock.advance(600)
    assert attempts == {f"m{number}": 5 for number in range(4)}  # too few to be a storm
    await publish(broker, *(f"n{number}" for number in range(20)))
    for _ in range(250):
        leases = await take(queue)
        attempts |= {text(lease): lease.attempt for lease in leases}
        await fail_all(queue, leases)
        clock.advance(0.1 if queue.pause is None else 600)
    assert {attempts[f"n{number}"] for number in range(20)} == {10}
    assert len(await dead_letters(broker)) == 24


async def test_a_probe_that_was_given_back_does_not_keep_others_from_being_tried(
    broker: Broker, queue: SubscriptionQueue, clock: ManualClock
) -> None:
    await open_breaker(broker, queue)
    clock.advance(5)
    queue.give_back(await take(queue))
    await settle_down()
    assert len(await take(queue)) == 1
    await broker.seek_to_time("projects/local/subscriptions/orders-worker", 0)
    assert len(await take(queue)) == 1


async def test_a_probe_whose_deadline_passes_has_failed(
    broker: Broker, queue: SubscriptionQueue, clock: ManualClock
) -> None:
    await open_breaker(broker, queue)
    clock.advance(5)
    await take(queue, deadline_seconds=10)
    clock.advance(11)
    await settle_down()
    assert queue.pause
    assert queue.pause.until_ns > clock.now_ns()


async def test_trouble_that_comes_back_goes_on_where_it_was(
    broker: Broker, queue: SubscriptionQueue, clock: ManualClock
) -> None:
    await open_breaker(broker, queue)
    clock.advance(5)
    (probe,) = await take(queue)
    queue.ack([probe.ack_id])
    await publish(broker, *(f"again{number}" for number in range(20)))
    await fail_all(queue, await take(queue))
    assert queue.pause
    assert queue.pause.until_ns == clock.now_ns() + 10 * NANOSECONDS


async def test_after_a_restart_it_is_closed(
    broker: Broker, queue: SubscriptionQueue, log: MemoryMessageLog, clock: ManualClock
) -> None:
    await open_breaker(broker, queue)
    await broker.close()
    again = await Broker.open(log, clock, BrokerSettings())
    assert len(await take(again.queue(queue.config.name))) == 20
    await again.close()


# Where it is off.


@pytest.mark.parametrize("queue", [{"labels": {"holdfast-breaker": "off"}}], indirect=True)
async def test_a_label_turns_it_off(broker: Broker, queue: SubscriptionQueue) -> None:
    await publish(broker, *(f"m{number}" for number in range(100)))
    for _ in range(5):
        await fail_all(queue, await take(queue))
    assert queue.pause is None
    assert len(await dead_letters(broker)) == 100


@pytest.mark.parametrize("settings", [BrokerSettings(breaker_share=0), BrokerSettings(strict=True)])
async def test_settings_turn_it_off(log: MemoryMessageLog, clock: ManualClock, settings: BrokerSettings) -> None:
    broker = await Broker.open(log, clock, settings)
    queue = await make_subscription(broker)
    await publish(broker, *(f"m{number}" for number in range(100)), topic=TOPIC)
    await fail_all(queue, await take(queue))
    assert queue.pause is None
    await broker.close()


async def test_a_label_that_means_nothing_is_refused(broker: Broker) -> None:
    with pytest.raises(BadInput, match="holdfast-breaker"):
        await make_subscription(broker, labels={"holdfast-breaker": "maybe"})
