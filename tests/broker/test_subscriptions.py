"""One subscription's queue: leases, deadlines, retries, dead letters, and what survives a restart."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import pytest

from holdfast.broker.leases import Failure, NoHolder
from holdfast.broker.log import Change
from holdfast.broker.retention import remove_once
from holdfast.broker.service import Broker
from holdfast.broker.subscriptions import SubscriptionQueue
from holdfast.broker.wire import decode
from holdfast.errors import BadInput, StorageUnavailable
from holdfast.model import dead_letter_attributes as names
from holdfast.model.message import Message
from holdfast.model.resources import DeadLetterPolicy, RetryPolicy, Subscription
from holdfast.settings import BrokerSettings
from holdfast.stores.memory.log import MemoryMessageLog
from holdfast.testing import ManualClock
from tests.broker.helpers import (
    DEAD_LETTER_READER,
    DEAD_LETTERS,
    PLENTY,
    SUBSCRIPTION,
    TOPIC,
    make_dead_letter_topic,
    make_subscription,
    publish,
    settle_down,
    take,
    take_one,
    text,
    texts,
)

BACKOFF = RetryPolicy(minimum_backoff_seconds=10, maximum_backoff_seconds=600)


async def restart(log: MemoryMessageLog, clock: ManualClock, strict: bool = False) -> Broker:
    return await Broker.open(log, clock, BrokerSettings(strict=strict))


async def saved(queue: SubscriptionQueue, ack_ids: list[str]) -> None:
    stale, on_disk = queue.ack(ack_ids)
    assert not stale
    await on_disk


async def kill(broker: Broker) -> None:
    """As kill -9 does it: leases are gone, what was saved is not, and nothing happens afterwards."""
    await settle_down()
    broker._timers.stop()


class TestTaking:
    async def test_messages_come_in_publish_order_and_only_once_while_leased(self, broker: Broker) -> None:
        queue = await make_subscription(broker)
        await publish(broker, "a", "b", "c")
        assert texts(await take(queue, 2)) == ["a", "b"]
        assert texts(await take(queue)) == ["c"]
        assert await take(queue) == []

    async def test_a_subscription_starts_with_what_is_published_after_it(self, broker: Broker) -> None:
        await make_subscription(broker)
        await publish(broker, "before")
        later = await broker.create_subscription(Subscription("projects/local/subscriptions/later", TOPIC))
        await publish(broker, "after")
        assert texts(await take(broker.queue(later.name))) == ["after"]

    async def test_a_waiting_taker_gets_the_next_message_without_time_passing(self, broker: Broker) -> None:
        queue = await make_subscription(broker)
        waiting = asyncio.create_task(take_one(queue))
        await settle_down()
        assert not waiting.done()
        await publish(broker, "a")
        assert text(await waiting) == "a"

    async def test_two_takers_never_get_the_same_message(self, broker: Broker) -> None:
        queue = await make_subscription(broker)
        takers = [asyncio.create_task(take_one(queue)) for _ in range(20)]
        await publish(broker, *(str(number) for number in range(20)))
        taken = await asyncio.gather(*takers)
        assert sorted(int(text(lease)) for lease in taken) == list(range(20))

    async def test_a_message_larger_than_the_byte_limit_is_still_delivered(self, broker: Broker) -> None:
        queue = await make_subscription(broker)
        await publish(broker, "x" * 5000, "y")
        assert len(await queue.take(10, 100, NoHolder())) == 1

    async def test_a_cancelled_take_loses_nothing_and_counts_no_attempt(
        self, broker: Broker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await make_dead_letter_topic(broker)
        queue = await make_subscription(broker, dead_letter=DeadLetterPolicy(DEAD_LETTERS))
        await publish(broker, "a", "b")
        first = await take(queue, 1)
        queue.nack([first[0].ack_id])  # "a" waits and must be read again
        await settle_down()
        gate = asyncio.Event()
        read_one = queue.topic.read_one

        async def slow_read(sequence: int) -> object:
            await gate.wait()
            return await read_one(sequence)

        monkeypatch.setattr(queue.topic, "read_one", slow_read)
        taking = asyncio.create_task(take(queue))
        await settle_down()
        taking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await taking
        gate.set()
        await settle_down()
        again = {text(lease): lease.attempt for lease in await take(queue)}
        assert again == {"a": 2, "b": 1}


class TestLeases:
    async def test_an_expired_lease_comes_back_with_the_next_attempt(self, broker: Broker, clock: ManualClock) -> None:
        queue = await make_subscription(broker, ack_deadline_seconds=10)
        await publish(broker, "a")
        assert (await take_one(queue)).attempt == 1
        clock.advance(9.9)
        await settle_down()
        assert await take(queue) == []
        clock.advance(0.2)
        again = await take_one(queue)
        assert (text(again), again.attempt) == ("a", 2)

    async def test_extending_keeps_a_message_away_from_others(self, broker: Broker, clock: ManualClock) -> None:
        queue = await make_subscription(broker, ack_deadline_seconds=10)
        await publish(broker, "a")
        lease = await take_one(queue)
        for _ in range(5):
            clock.advance(8)
            queue.extend([lease.ack_id], 10)
            await settle_down()
        assert await take(queue) == []
        clock.advance(10.2)
        assert (await take_one(queue)).attempt == 2

    async def test_a_late_ack_still_counts(self, broker: Broker, clock: ManualClock) -> None:
        queue = await make_subscription(broker)
        await publish(broker, "a")
        lease = await take_one(queue)
        clock.advance(11)
        await settle_down()
        await saved(queue, [lease.ack_id])
        assert await take(queue) == []

    async def test_an_old_ack_id_does_not_nack_or_extend_a_newer_delivery(
        self, broker: Broker, clock: ManualClock
    ) -> None:
        queue = await make_subscription(broker)
        await publish(broker, "a")
        old = await take_one(queue)
        clock.advance(11)
        newer = await take_one(queue)
        queue.nack([old.ack_id])
        queue.extend([old.ack_id], 600)
        await settle_down()
        assert await take(queue) == []
        clock.advance(11)
        assert (await take_one(queue)).attempt == newer.attempt + 1

    @pytest.mark.parametrize("ack_id", ["", "x", "1-2-3", "1-2-3-4-5", "-1-1-1-1", "1-1-1-" + "9" * 30, "١-١-١-١"])
    async def test_a_malformed_ack_id_is_refused(self, broker: Broker, ack_id: str) -> None:
        queue = await make_subscription(broker)
        with pytest.raises(BadInput, match="ack_ids"):
            queue.ack([ack_id])

    async def test_an_ack_id_of_another_subscription_is_refused(self, broker: Broker) -> None:
        queue = await make_subscription(broker)
        other = await make_dead_letter_topic(broker)
        await publish(broker, "a")
        lease = await take_one(queue)
        with pytest.raises(BadInput, match="another subscription"):
            other.ack([lease.ack_id])

    async def test_an_ack_id_for_a_message_that_does_not_exist_yet_is_refused(self, broker: Broker) -> None:
        queue = await make_subscription(broker)
        with pytest.raises(BadInput):
            queue.ack([f"{queue.key}-5-1-1"])


class TestRetries:
    async def test_without_a_retry_policy_a_nack_redelivers_at_once(self, broker: Broker) -> None:
        queue = await make_subscription(broker)
        await publish(broker, "a")
        queue.nack([(await take_one(queue)).ack_id])
        assert (await take_one(queue)).attempt == 2

    async def test_backoff_doubles_between_its_bounds(self, broker: Broker, clock: ManualClock) -> None:
        queue = await make_subscription(broker, retry=BACKOFF)
        await publish(broker, "a")
        waits: list[float] = []
        for _ in range(9):
            queue.nack([(await take_one(queue)).ack_id])
            await settle_down()
            waited = 0.0
            while not queue.has_ready():
                clock.advance(0.5)
                waited += 0.5
                await settle_down()
            waits.append(waited)
        for wait, nominal in zip(waits, [10, 20, 40, 80, 160, 320, 600, 600, 600], strict=True):
            assert nominal * 0.9 <= wait <= nominal + 1

    async def test_retry_after_can_only_lengthen_the_wait(self, broker: Broker, clock: ManualClock) -> None:
        queue = await make_subscription(broker, retry=BACKOFF)
        await publish(broker, "a")
        queue.fail(await take_one(queue), Failure(retry_after_seconds=120))
        clock.advance(119)
        await settle_down()
        assert not queue.has_ready()
        clock.advance(1)
        await settle_down()
        assert queue.has_ready()

    async def test_each_waiting_message_returns_at_its_own_time(self, broker: Broker, clock: ManualClock) -> None:
        queue = await make_subscription(broker)
        await publish(broker, "a", "b", "c")
        leases = await take(queue)
        for lease, seconds in zip(leases, (30, 10, 20), strict=True):
            queue.fail(lease, Failure(retry_after_seconds=seconds))
        order = []
        for _ in range(3):
            waiting = asyncio.create_task(take_one(queue))
            while not waiting.done():
                await settle_down()
                if not waiting.done():
                    clock.advance(1)
            lease = await waiting
            order.append(text(lease))
            await saved(queue, [lease.ack_id])
        assert order == ["b", "c", "a"]

    async def test_new_messages_go_before_a_retry_that_became_due_later(
        self, broker: Broker, clock: ManualClock
    ) -> None:
        queue = await make_subscription(broker, retry=BACKOFF)
        await publish(broker, "old")
        queue.nack([(await take_one(queue)).ack_id])
        await settle_down()  # it is on disk that it failed
        await publish(broker, "new")
        clock.advance(10)
        assert texts(await take(queue)) == ["new", "old"]


class TestDeadLetters:
    async def test_after_its_attempts_a_message_is_on_the_dead_letter_topic(
        self, broker: Broker, clock: ManualClock
    ) -> None:
        reader = await make_dead_letter_topic(broker)
        queue = await make_subscription(broker, dead_letter=DeadLetterPolicy(DEAD_LETTERS, 5))
        (message_id,) = await publish(broker, "a")
        for attempt in range(1, 6):
            lease = await take_one(queue)
            assert lease.attempt == attempt
            queue.nack([lease.ack_id])
        dead = decode((await take_one(reader)).body)
        assert dead.data == b"a"
        assert dead.attributes[names.SOURCE_SUBSCRIPTION] == "orders-worker"
        assert dead.attributes[names.SOURCE_SUBSCRIPTION_PROJECT] == "local"
        assert dead.attributes[names.SOURCE_DELIVERY_COUNT] == "5"
        assert dead.attributes[names.SOURCE_PUBLISH_TIME] == "2023-11-14T22:13:20Z"
        assert dead.attributes[names.SOURCE_MESSAGE_ID] == message_id
        await settle_down()
        assert await take(queue) == []
        assert queue.settled.floor == 2

    async def test_dead_letter_now_spends_no_further_attempts(self, broker: Broker) -> None:
        reader = await make_dead_letter_topic(broker)
        queue = await make_subscription(broker, dead_letter=DeadLetterPolicy(DEAD_LETTERS, 5))
        await publish(broker, "a")
        failure = Failure(error="no service", status="422", reason="SCHEMA_VALIDATION_ERROR", dead_letter_now=True)
        queue.fail(await take_one(queue), failure)
        dead = decode((await take_one(reader)).body)
        assert dead.attributes[names.SOURCE_DELIVERY_COUNT] == "1"
        assert dead.attributes[names.FAILURE_REASON] == "SCHEMA_VALIDATION_ERROR"
        assert dead.attributes[names.ERROR] == "no service"
        assert dead.attributes[names.LAST_STATUS] == "422"

    async def test_strict_adds_only_the_documented_attributes(self, log: MemoryMessageLog, clock: ManualClock) -> None:
        broker = await restart(log, clock, strict=True)
        reader = await make_dead_letter_topic(broker)
        queue = await make_subscription(broker, dead_letter=DeadLetterPolicy(DEAD_LETTERS, 5))
        await publish(broker, "a")
        for _ in range(5):
            queue.fail(await take_one(queue), Failure(error="why", status="500"))
        dead = decode((await take_one(reader)).body)
        assert not [name for name in dead.attributes if name.startswith("holdfast-")]
        assert len(dead.attributes) == 4

    async def test_forged_bookkeeping_attributes_do_not_survive(self, broker: Broker) -> None:
        reader = await make_dead_letter_topic(broker)
        queue = await make_subscription(broker, dead_letter=DeadLetterPolicy(DEAD_LETTERS, 5))
        forged = dict.fromkeys(names.ALL, "forged") | {"tenant": "a"}
        await broker.publish_message(TOPIC, Message(b"a", forged))
        queue.fail(await take_one(queue), Failure(dead_letter_now=True))
        dead = decode((await take_one(reader)).body)
        assert "forged" not in dead.attributes.values()
        assert dead.attributes["tenant"] == "a"

    async def test_without_its_topic_a_dead_letter_is_tried_again_and_not_lost(
        self, broker: Broker, clock: ManualClock
    ) -> None:
        await make_dead_letter_topic(broker)
        queue = await make_subscription(broker, dead_letter=DeadLetterPolicy(DEAD_LETTERS, 5), retry=BACKOFF)
        await broker.delete_subscription(DEAD_LETTER_READER)
        await broker.delete_topic(DEAD_LETTERS)
        await publish(broker, "a")
        queue.fail(await take_one(queue), Failure(dead_letter_now=True))
        await settle_down()
        assert await take(queue) == []
        reader = await make_dead_letter_topic(broker)
        clock.advance(11)
        queue.fail(await take_one(queue), Failure(dead_letter_now=True))
        assert text(await take_one(reader)) == "a"

    async def test_a_late_ack_during_dead_lettering_changes_nothing(self, broker: Broker) -> None:
        reader = await make_dead_letter_topic(broker)
        queue = await make_subscription(broker, dead_letter=DeadLetterPolicy(DEAD_LETTERS, 5))
        await publish(broker, "a")
        lease = await take_one(queue)
        queue.fail(lease, Failure(dead_letter_now=True))
        queue.ack([lease.ack_id])
        assert text(await take_one(reader)) == "a"

    async def test_error_texts_fit_into_an_attribute(self, broker: Broker) -> None:
        reader = await make_dead_letter_topic(broker)
        queue = await make_subscription(broker, dead_letter=DeadLetterPolicy(DEAD_LETTERS, 5))
        await publish(broker, "a")
        queue.fail(await take_one(queue), Failure(error="é" * 5000, dead_letter_now=True))
        assert len(decode((await take_one(reader)).body).attributes[names.ERROR].encode()) <= 1024


class TestRestart:
    async def test_settled_messages_stay_settled_and_others_come_back(
        self, broker: Broker, log: MemoryMessageLog, clock: ManualClock
    ) -> None:
        queue = await make_subscription(broker)
        await publish(broker, *"abcdef")
        leases = await take(queue)
        await saved(queue, [leases[1].ack_id, leases[3].ack_id, leases[4].ack_id])
        again = await restart(log, clock)
        assert texts(await take(again.queue(SUBSCRIPTION))) == ["a", "c", "f"]

    async def test_attempts_and_due_times_continue(
        self, broker: Broker, log: MemoryMessageLog, clock: ManualClock
    ) -> None:
        queue = await make_subscription(broker, retry=BACKOFF)
        await publish(broker, "a")
        for _ in range(3):
            queue.nack([(await take_one(queue)).ack_id])
            await settle_down()
            clock.advance(50)
        queue.nack([(await take_one(queue)).ack_id])  # the fourth: due in 80 s or a little less
        await broker.close()
        again = (await restart(log, clock)).queue(SUBSCRIPTION)
        clock.advance(60)
        await settle_down()
        assert await take(again) == []
        clock.advance(20)
        assert (await take_one(again)).attempt == 5

    async def test_an_ack_id_from_before_the_restart_still_acks(
        self, broker: Broker, log: MemoryMessageLog, clock: ManualClock
    ) -> None:
        queue = await make_subscription(broker)
        await publish(broker, "a")
        lease = await take_one(queue)
        again = (await restart(log, clock)).queue(SUBSCRIPTION)
        await saved(again, [lease.ack_id])
        assert await take(again) == []

    async def test_random_histories_lose_nothing_and_redeliver_only_what_was_not_acked(
        self, log: MemoryMessageLog, clock: ManualClock
    ) -> None:
        chance = random.Random(4)
        broker = await restart(log, clock)
        queue = await make_subscription(broker, retry=RetryPolicy(1, 5))
        published: set[str] = set()
        acked: set[str] = set()
        attempts: dict[str, int] = {}
        for step in range(400):
            action = chance.random()
            if action < 0.4:
                published.add(str(step))
                await publish(broker, str(step))
            elif action < 0.9:
                for lease in await take(queue, chance.randint(1, 5)):
                    name = text(lease)
                    assert name not in acked
                    assert lease.attempt >= attempts.get(name, 1)  # never goes back
                    attempts[name] = lease.attempt
                    ending = chance.random()
                    if ending < 0.5:
                        acked.add(name)
                        await saved(queue, [lease.ack_id])
                    elif ending < 0.8:
                        queue.nack([lease.ack_id])
                clock.advance(chance.choice([0, 0.5, 3]))
            else:
                await kill(broker)
                broker = await restart(log, clock)
                queue = broker.queue(SUBSCRIPTION)
        while acked != published:
            clock.advance(20)
            await settle_down()
            for lease in await take(queue):
                acked.add(text(lease))
                await saved(queue, [lease.ack_id])
        assert queue.settled.floor == len(published) + 1


class TestRefusedSaves:
    async def test_an_ack_that_could_not_be_saved_is_an_error_and_saved_later(
        self, broker: Broker, log: MemoryMessageLog, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        queue = await make_subscription(broker)
        await publish(broker, "a")
        lease = await take_one(queue)
        commit = log.commit

        async def refuse(changes: Sequence[Change]) -> None:
            raise StorageUnavailable("disk full")

        monkeypatch.setattr(log, "commit", refuse)
        with pytest.raises(StorageUnavailable):
            await saved(queue, [lease.ack_id])
        monkeypatch.setattr(log, "commit", commit)
        clock.advance(1)
        await settle_down()
        assert await take((await restart(log, clock)).queue(SUBSCRIPTION)) == []

    async def test_a_publish_that_could_not_be_saved_leaves_no_hole_that_blocks(
        self, broker: Broker, log: MemoryMessageLog, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        queue = await make_subscription(broker)
        await publish(broker, "a")
        commit = log.commit

        async def refuse(changes: Sequence[Change]) -> None:
            raise StorageUnavailable("disk full")

        monkeypatch.setattr(log, "commit", refuse)
        with pytest.raises(StorageUnavailable):
            await publish(broker, "lost, and the publisher knows")
        monkeypatch.setattr(log, "commit", commit)
        await publish(broker, "b")
        leases = await take(queue)
        assert texts(leases) == ["a", "b"]
        await saved(queue, [lease.ack_id for lease in leases])
        assert queue.settled.floor == 4
        assert not queue.settled.ranges

    async def test_publishes_show_in_order_even_when_a_later_one_is_confirmed_first(
        self, broker: Broker, log: MemoryMessageLog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        queue = await make_subscription(broker)
        commit, gates = log.commit, [asyncio.Event(), asyncio.Event()]
        calls = iter(gates)

        async def slow(changes: Sequence[Change]) -> None:
            gate = next(calls)
            await commit(changes)
            await gate.wait()

        monkeypatch.setattr(log, "commit", slow)
        first, second = asyncio.create_task(publish(broker, "a")), asyncio.create_task(publish(broker, "b"))
        await settle_down()
        gates[1].set()
        await second
        assert await take(queue) == []
        gates[0].set()
        await first
        monkeypatch.setattr(log, "commit", commit)
        assert texts(await take(queue)) == ["a", "b"]


class TestRetention:
    async def test_what_is_older_than_the_retention_is_not_delivered(self, broker: Broker, clock: ManualClock) -> None:
        queue = await make_subscription(broker, message_retention_seconds=600)
        await publish(broker, "old")
        clock.advance(601)
        await publish(broker, "new")
        assert texts(await take(queue)) == ["new"]

    async def test_what_everyone_has_settled_or_outlived_is_removed(
        self, broker: Broker, log: MemoryMessageLog, clock: ManualClock
    ) -> None:
        queue = await make_subscription(broker, message_retention_seconds=600)
        await publish(broker, "acked", "waits")
        await saved(queue, [(await take_one(queue)).ack_id])
        await remove_once(broker)
        assert [message.sequence for message in await log.read_from(queue.topic.key, 1, PLENTY, 10)] == [2]
        clock.advance(601)
        await remove_once(broker)
        assert await log.read_from(queue.topic.key, 1, PLENTY, 10) == []
