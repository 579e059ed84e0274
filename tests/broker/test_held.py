"""Ordering keys that wait at a dead-lettered message, until another one takes its place or it is released."""

from __future__ import annotations

import string
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest

from holdfast.broker.held import Replacement
from holdfast.broker.leases import Failure, Lease
from holdfast.broker.log import Change, Settle
from holdfast.broker.retention import remove_once
from holdfast.broker.service import Broker
from holdfast.broker.subscriptions import SubscriptionQueue
from holdfast.broker.wire import decode, encode
from holdfast.errors import BadInput, StorageUnavailable
from holdfast.model.fate import Fate, Release
from holdfast.model.message import Message
from holdfast.model.replay_attributes import IN_PLACE_OF
from holdfast.model.resources import DeadLetterPolicy, RetryPolicy, Subscription
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
    text,
    texts,
)

HOLD = {"holdfast-ordered-dead-letters": "hold"}
PASS = {"holdfast-ordered-dead-letters": "pass"}

POISON = Failure(dead_letter_now=True)

WEEK_SECONDS = 7 * 24 * 3600


class Holding:
    """A broker with a subscription that holds, opened again as often as a test likes."""

    def __init__(self, log: MemoryMessageLog, clock: ManualClock, broker: Broker) -> None:
        self.log = log
        self.clock = clock
        self.broker = broker

    @property
    def queue(self) -> SubscriptionQueue:
        return self.broker.queue(SUBSCRIPTION)

    async def restart(self) -> None:
        await self.broker.close()
        self.broker = await Broker.open(self.log, self.clock, BrokerSettings())

    async def publish(self, *keyed: str) -> list[str]:
        """ "a1" is message 1 of key a."""
        return [
            await self.broker.publish_message(TOPIC, Message(name.encode(), ordering_key=name[0])) for name in keyed
        ]

    async def send_in_place(self, held: str, text: str) -> str:
        message = encode(Message(text.encode(), {IN_PLACE_OF: held}, text[0]))
        (message_id,) = await self.broker.publish_to(SUBSCRIPTION, [message], len(message))
        return message_id.decode()

    async def take_one(self) -> Lease:
        (lease,) = await take(self.queue)
        return lease

    async def fail(self, lease: Lease) -> str:
        self.queue.fail(lease, POISON)
        await settle_down()
        return decode(lease.body).message_id

    async def rest(self, most: int = 100_000) -> list[str]:
        """What comes when everything is acked, in its order."""
        found: list[str] = []
        while len(found) < most and (leases := await take(self.queue)):
            found += texts(leases)
            self.queue.ack([lease.ack_id for lease in leases])
        await settle_down()
        return found

    async def held(self) -> list[tuple[str, int]]:
        return [(one.ordering_key, one.waiting) for one in await self.broker.held()]


@pytest.fixture
async def holding(broker: Broker, log: MemoryMessageLog, clock: ManualClock) -> AsyncIterator[Holding]:
    await make_dead_letter_topic(broker)
    policy = DeadLetterPolicy(DEAD_LETTERS, 5)
    await make_subscription(broker, ordered=True, dead_letter=policy, labels=HOLD, retry=RetryPolicy(10, 600))
    held = Holding(log, clock, broker)
    yield held
    await held.broker.close()


async def test_the_key_waits_and_others_go_on(holding: Holding) -> None:
    await holding.publish("a1", "a2", "b1", "a3", "b2")
    a1, b1 = await take(holding.queue)
    await holding.fail(a1)
    holding.queue.ack([b1.ack_id])
    assert await holding.rest() == ["b2"]
    reader = holding.broker.queue("projects/local/subscriptions/dead-letter-reader")
    assert texts(await take(reader)) == ["a1"]
    (held,) = await holding.broker.held()
    assert (held.message_id, held.ordering_key, held.attempts, held.waiting) == (decode(a1.body).message_id, "a", 1, 2)
    outlook = holding.queue.outlook()
    assert (outlook.due, outlook.waiting, outlook.next_due_ns) == (0, 0, None)


async def test_another_one_takes_its_place_and_the_others_follow(holding: Holding) -> None:
    await holding.publish("a1", "a2", "a3")
    held = await holding.fail(await holding.take_one())
    await holding.send_in_place(held, "a1 fixed")
    assert await holding.rest() == ["a1 fixed", "a2", "a3"]
    assert await holding.held() == []


async def test_its_place_is_kept_over_restarts_with_thousands_behind(holding: Holding) -> None:
    await holding.publish("a0", *(f"a{number}" for number in range(1, 5000)), "b1")
    held = await holding.fail((await take(holding.queue))[0])
    await holding.restart()
    assert await holding.rest() == ["b1"]
    assert await holding.held() == [("a", 4999)]
    await holding.send_in_place(held, "a0 fixed")
    await holding.restart()
    assert await holding.rest(2) == ["a0 fixed", "a1"]
    await holding.restart()
    assert await holding.rest() == [f"a{number}" for number in range(2, 5000)]


async def test_all_that_was_seen_before_a_restart_too(holding: Holding) -> None:
    """The replacement is far behind its followers in the log, and may have been read as one of them."""
    await holding.publish("a1", "a2")
    held = await holding.fail(await holding.take_one())
    assert await take(holding.queue) == []
    await holding.send_in_place(held, "a1 fixed")
    await holding.publish("a3")
    lease = await holding.take_one()
    assert text(lease) == "a1 fixed"
    holding.queue.nack([lease.ack_id])
    await settle_down()
    assert await take(holding.queue) == []
    await holding.restart()
    assert await take(holding.queue) == []  # waits for its retry, and the others for it
    holding.clock.advance(10)
    assert await holding.rest() == ["a1 fixed", "a2", "a3"]


async def test_a_replacement_that_fails_is_held_in_turn(holding: Holding) -> None:
    await holding.publish("a1", "a2")
    held = await holding.fail(await holding.take_one())
    for attempt in range(3):
        held = await holding.send_in_place(held, f"a1 again {attempt}")
        lease = await holding.take_one()
        assert text(lease) == f"a1 again {attempt}"
        assert await holding.fail(lease) == held
        assert holding.broker.fates(SUBSCRIPTION, [held]) == {held: Fate.DEAD_LETTERED}
        await holding.restart()
        assert await take(holding.queue) == []
        assert await holding.held() == [("a", 1)]
    await holding.send_in_place(held, "a1 fixed")
    assert await holding.rest() == ["a1 fixed", "a2"]


async def test_a_released_key_goes_on(holding: Holding) -> None:
    await holding.publish("a1", "a2")
    held = await holding.fail(await holding.take_one())
    assert await holding.broker.release(SUBSCRIPTION, "4") is Release.NOT_HELD
    assert await holding.broker.release(SUBSCRIPTION, held) is Release.RELEASED
    assert await holding.broker.release(SUBSCRIPTION, held) is Release.NOT_HELD
    assert await holding.rest() == ["a2"]
    await holding.restart()
    assert await holding.rest() == []


async def test_a_late_ack_is_as_good_as_a_release(holding: Holding) -> None:
    """Its subscriber has done it after all."""
    await holding.publish("a1", "a2")
    lease = await holding.take_one()
    await holding.fail(lease)
    holding.queue.ack([lease.ack_id])
    assert await holding.rest() == ["a2"]


@pytest.mark.parametrize("restart", [True, False])
async def test_retention_frees_it(holding: Holding, restart: bool) -> None:
    await holding.publish("a1")
    await holding.fail(await holding.take_one())
    holding.clock.advance(60)
    await holding.publish("a2")
    if restart:
        await holding.restart()
    holding.clock.advance(WEEK_SECONDS - 59)
    await remove_once(holding.broker)
    assert await holding.rest() == ["a2"]
    assert await holding.held() == []


async def test_without_the_label_nothing_is_held_any_more(holding: Holding) -> None:
    await holding.publish("a1", "a2")
    await holding.fail(await holding.take_one())
    await holding.broker.update_subscription(SUBSCRIPTION, lambda config: replace(config, labels={}))
    assert await holding.rest() == ["a2"]


async def test_a_strict_broker_holds_nothing(holding: Holding) -> None:
    await holding.publish("a1", "a2")
    await holding.fail(await holding.take_one())
    await holding.broker.close()
    holding.broker = await Broker.open(
        holding.log, holding.clock, BrokerSettings(strict=True, ordered_dead_letters="hold")
    )
    lease = await holding.take_one()
    await holding.fail(lease)
    assert await holding.held() == []


async def test_the_setting_is_for_all_that_do_not_say_otherwise(log: MemoryMessageLog, clock: ManualClock) -> None:
    broker = await Broker.open(log, clock, BrokerSettings(ordered_dead_letters="hold"))
    await make_dead_letter_topic(broker)
    policy = DeadLetterPolicy(DEAD_LETTERS, 5)
    await make_subscription(broker, ordered=True, dead_letter=policy, labels=PASS)
    other = "projects/local/subscriptions/other"
    await broker.create_subscription(Subscription(other, TOPIC, ordered=True, dead_letter=policy))
    await broker.publish_message(TOPIC, Message(b"a1", ordering_key="a"))
    await broker.publish_message(TOPIC, Message(b"no key"))
    for name in (SUBSCRIPTION, other):
        for lease in await take(broker.queue(name)):
            broker.queue(name).fail(lease, POISON)
    await settle_down()
    assert [one.subscription for one in await broker.held()] == [other]
    await broker.close()


async def test_a_label_that_means_nothing_is_refused(broker: Broker) -> None:
    with pytest.raises(BadInput, match="holdfast-ordered-dead-letters"):
        await make_subscription(broker, labels={"holdfast-ordered-dead-letters": "wait"})


async def test_a_seek_forgets_what_was_held(holding: Holding) -> None:
    await holding.publish("a1", "a2")
    held = await holding.fail(await holding.take_one())
    await holding.send_in_place(held, "a1 fixed")
    await holding.broker.seek_to_time(SUBSCRIPTION, 0)
    await holding.restart()
    assert await holding.rest() == ["a2", "a1 fixed"]


async def test_a_message_that_names_no_held_one_is_like_all_others(holding: Holding) -> None:
    first, _ = await holding.publish("a1", "a2")
    held = await holding.fail(await holding.take_one())
    await holding.send_in_place(held, "b of another key")
    assert await holding.rest() == ["b of another key"]
    assert await holding.broker.release(SUBSCRIPTION, first)
    await holding.send_in_place(held, "a too late")
    await holding.send_in_place("no id", "c")
    assert await holding.rest() == ["a2", "c", "a too late"]


async def test_a_crash_after_the_dead_letter_does_not_keep_the_replacement_waiting(
    holding: Holding, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message comes again and is dead-lettered again; meanwhile the desk has sent what takes its place."""
    await holding.publish("a1", "a2")
    commit = holding.log.commit

    async def crash(changes: Sequence[Change]) -> None:
        if any(isinstance(change, Settle) for change in changes):
            raise StorageUnavailable("killed")
        await commit(changes)

    monkeypatch.setattr(holding.log, "commit", crash)
    held = await holding.fail(await holding.take_one())
    crashed = holding.broker
    monkeypatch.undo()
    holding.broker = await Broker.open(holding.log, holding.clock, BrokerSettings())
    await holding.send_in_place(held, "a1 fixed")
    for _ in range(2):
        again = await holding.take_one()
        assert text(again) == "a1"
        assert await take(holding.queue) == []
        await holding.restart()
    await holding.fail(await holding.take_one())
    assert await holding.rest() == ["a1 fixed", "a2"]
    await crashed.delete_subscription(SUBSCRIPTION)  # what it could not save is of no use any more


async def test_what_is_over_is_forgotten(holding: Holding) -> None:
    await holding.publish("a1", "a2")
    held = await holding.fail(await holding.take_one())
    await holding.send_in_place(held, "a1 fixed")
    await remove_once(holding.broker)
    assert len(await places(holding)) == 1
    await holding.rest()
    await remove_once(holding.broker)
    assert await places(holding) == []
    await holding.publish("a3")
    await holding.send_in_place(await holding.fail(await holding.take_one()), "a3 fixed")
    await holding.broker.delete_subscription(SUBSCRIPTION)
    assert await places(holding) == []


async def places(holding: Holding) -> list[str]:
    return [name for kind, name in (await holding.log.load()).records if kind == "in place of a held message"]


async def test_a_message_that_expires_on_its_way_out_is_not_held(holding: Holding) -> None:
    await holding.publish("a1", "a2")
    (lease,) = await take(holding.queue, deadline_seconds=600)
    holding.clock.advance(300)
    holding.queue.extend([lease.ack_id], 600)
    await holding.broker.update_subscription(
        SUBSCRIPTION, lambda config: replace(config, message_retention_seconds=600)
    )
    holding.clock.advance(301)
    await holding.publish("a3")
    await remove_once(holding.broker)
    await holding.fail(lease)
    assert holding.queue.settled.failed == {}
    assert await holding.rest() == ["a3"]


async def test_thousands_that_are_over_are_forgotten_without_comparing_each_with_each(
    holding: Holding, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"{letter}1" for letter in string.ascii_letters]
    await holding.publish(*names)
    for lease in await take(holding.queue):
        await holding.send_in_place(await holding.fail(lease), text(lease))
    await holding.rest()
    compared: list[object] = []

    def is_equal(one: Replacement, other: object) -> bool:
        compared.append(one)
        return one is other

    monkeypatch.setattr(Replacement, "__eq__", is_equal)
    await remove_once(holding.broker)
    assert await places(holding) == []
    assert len(compared) < len(names)
