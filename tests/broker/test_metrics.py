"""What a broker tells of its topics and subscriptions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.broker import odd_messages, open_messages
from holdfast.broker.leases import NACKED, NoHolder
from holdfast.broker.log import Append, Change, Progress
from holdfast.broker.metrics import READ_EVERY_NS, BrokerMetrics
from holdfast.broker.odd_messages import NOBODY, OddMessages
from holdfast.broker.progress import SettledMessages
from holdfast.broker.retention import remove_once
from holdfast.broker.service import Broker
from holdfast.broker.wire import encode
from holdfast.clock import NANOSECONDS
from holdfast.errors import StorageUnavailable
from holdfast.metrics import broker as table
from holdfast.metrics.bounded import MOST_NAMES, OTHER
from holdfast.metrics.metric import Histogram, Metric
from holdfast.metrics.registry import MetricsRegistry
from holdfast.model.message import Message
from holdfast.model.resources import DeadLetterPolicy, RetryPolicy, Subscription, Topic
from holdfast.settings import BrokerSettings
from holdfast.stores.memory.log import MemoryMessageLog
from holdfast.stores.sqlite.log import SqliteMessageLog
from holdfast.testing import ManualClock
from tests.broker.helpers import (
    DEAD_LETTERS,
    SUBSCRIPTION,
    TOPIC,
    make_dead_letter_topic,
    make_subscription,
    publish,
    settle_down,
    take,
    text,
)

OTHER_SUBSCRIPTION = "projects/local/subscriptions/other-worker"
RED = 'attributes.color = "red"'


class Scraper:
    def __init__(self, broker: Broker, clock: ManualClock) -> None:
        self.metrics = BrokerMetrics(broker, clock)
        self._registry = MetricsRegistry()
        self._registry.register(self.metrics.collect)

    async def all(self, metric: Metric) -> dict[str, float | Histogram]:
        families = {family.metric: family.samples for family in await self._registry.collect()}
        return {labels[0]: value for labels, value in families[metric]}

    async def one(self, metric: Metric, name: str = SUBSCRIPTION) -> float | Histogram | None:
        return (await self.all(metric)).get(name)

    async def backlog(self, name: str = SUBSCRIPTION) -> float | Histogram | None:
        return await self.one(table.BACKLOG, name)

    async def age(self, name: str = SUBSCRIPTION) -> float | Histogram | None:
        return await self.one(table.OLDEST_UNACKED, name)


@pytest.fixture
async def scrape(broker: Broker, clock: ManualClock) -> AsyncIterator[Scraper]:
    scraper = Scraper(broker, clock)
    yield scraper
    await scraper.metrics.close()


async def publish_colors(broker: Broker, *colors: str) -> None:
    for color in colors:
        await broker.publish_message(TOPIC, Message(b"x", {"color": color}))


# Counters.


async def test_a_topic_counts_what_it_has_taken(broker: Broker, scrape: Scraper) -> None:
    await make_subscription(broker)
    await broker.publish(TOPIC, [encode(Message(b"a")), encode(Message(b"bc"))], 10)
    leases = await take(broker.queue(SUBSCRIPTION))
    assert await scrape.all(table.PUBLISHED) == {TOPIC: 2}
    assert await scrape.all(table.PUBLISHED_BYTES) == {TOPIC: sum(len(lease.body) for lease in leases)}


async def test_what_could_not_be_stored_was_not_published(
    broker: Broker, log: MemoryMessageLog, scrape: Scraper
) -> None:
    await make_subscription(broker)
    log.commit = _refusing(log)  # type: ignore[method-assign]
    with pytest.raises(StorageUnavailable):
        await publish(broker, "lost")
    assert await scrape.all(table.PUBLISHED) == {TOPIC: 0}


def _refusing(log: MemoryMessageLog):  # type: ignore[no-untyped-def]
    commit = log.commit

    async def refuse(changes: list[Change]) -> None:
        if any(isinstance(change, Append) for change in changes):
            raise StorageUnavailable("full")
        await commit(changes)

    return refuse


async def test_the_ways_of_a_delivery_are_counted_once_each(
    broker: Broker, clock: ManualClock, scrape: Scraper
) -> None:
    await make_dead_letter_topic(broker)
    policy = DeadLetterPolicy(DEAD_LETTERS, 5)
    queue = await make_subscription(broker, dead_letter=policy, ack_deadline_seconds=10)
    await publish(broker, "acked", "nacked", "expired", "poison")
    leases = {text(lease): lease for lease in await take(queue)}
    queue.ack_later([leases["acked"].ack_id])
    queue.nack([leases["nacked"].ack_id])
    for _ in range(5):
        [lease] = [one for one in [leases["poison"], *await take(queue)] if text(one) == "poison" and queue.holds(one)]
        queue.nack([lease.ack_id])
        await settle_down()
        leases["poison"] = lease
    clock.advance(11)
    await settle_down()
    counts = {metric.name: await scrape.one(metric) for metric in (table.ACKED, table.NACKED, table.DEAD_LETTERED)}
    assert counts == {
        "holdfast_broker_acked_total": 1,
        "holdfast_broker_nacked_total": 6,
        "holdfast_broker_dead_lettered_total": 1,
    }
    # Of the expired one, and of the nacked one that was taken again with the poison.
    assert await scrape.one(table.EXPIRED) == 2
    assert await scrape.one(table.DELIVERED) == 9
    assert await scrape.one(table.OUTSTANDING) == 0
    assert await scrape.backlog() == 2


async def test_an_ack_counts_once_also_when_it_is_late_or_comes_twice(
    broker: Broker, clock: ManualClock, scrape: Scraper
) -> None:
    queue = await make_subscription(broker, ack_deadline_seconds=10, retry=RetryPolicy(600, 600))
    await publish(broker, "one", "two", "three")
    ack_ids = [lease.ack_id for lease in await take(queue)]
    clock.advance(11)
    await settle_down()
    assert await scrape.one(table.EXPIRED) == 3
    queue.ack_later([ack_ids[1], ack_ids[1], ack_ids[2], ack_ids[1]])
    queue.ack_later([ack_ids[1]])
    assert await scrape.one(table.ACKED) == 2
    assert await scrape.backlog() == 1


async def test_what_is_put_off_by_its_client_is_nacked_when_the_time_is_over(
    broker: Broker, clock: ManualClock, scrape: Scraper
) -> None:
    queue = await make_subscription(broker, retry=RetryPolicy(600, 600))
    await publish(broker, "one")
    [lease] = await take(queue)
    queue.extend([lease.ack_id], 5, NACKED)
    clock.advance(6)
    await settle_down()
    assert (await scrape.one(table.NACKED), await scrape.one(table.EXPIRED)) == (1, 0)


async def test_outstanding_are_those_under_way(broker: Broker, scrape: Scraper) -> None:
    queue = await make_subscription(broker)
    await publish(broker, "one", "two", "three")
    leases = await take(queue, 2)
    assert await scrape.one(table.OUTSTANDING) == 2
    assert await scrape.backlog() == 3
    queue.ack_later([leases[0].ack_id])
    assert await scrape.one(table.OUTSTANDING) == 1
    assert await scrape.backlog() == 2


async def test_a_storm_shows_as_paused(log: MemoryMessageLog, clock: ManualClock) -> None:
    broker = await Broker.open(log, clock, BrokerSettings(breaker_minimum=2))
    scraper = Scraper(broker, clock)
    queue = await make_subscription(broker, retry=RetryPolicy(600, 600))
    assert await scraper.one(table.PAUSED) == 0
    await publish(broker, "one", "two", "three")
    for lease in await take(queue):
        queue.fail(lease, NACKED)
    assert await scraper.one(table.PAUSED) == 1
    await scraper.metrics.close()
    await broker.close()


# Backlog and age.


async def test_the_age_is_that_of_the_first_message_that_is_not_acked(
    broker: Broker, clock: ManualClock, scrape: Scraper
) -> None:
    queue = await make_subscription(broker, ack_deadline_seconds=600)
    assert await scrape.age() == 0
    for name in ("one", "two", "three"):
        await publish(broker, name)
        clock.advance(10)
    leases = await take(queue)
    assert await scrape.age() == 30
    queue.ack_later([leases[1].ack_id])  # out of order: a range above the floor
    assert (await scrape.backlog(), await scrape.age()) == (2, 30)
    queue.ack_later([leases[0].ack_id])
    assert (await scrape.backlog(), await scrape.age()) == (1, 10)
    queue.ack_later([leases[2].ack_id])
    assert (await scrape.backlog(), await scrape.age()) == (0, 0)


async def test_a_seek_settles_and_opens(broker: Broker, clock: ManualClock, scrape: Scraper) -> None:
    await make_subscription(broker, retain_acked=True)
    start_ns = clock.now_ns()
    await publish(broker, "one", "two")
    clock.advance(60)
    await publish(broker, "three")
    await broker.seek_to_time(SUBSCRIPTION, clock.now_ns())
    assert (await scrape.backlog(), await scrape.age()) == (1, 0)
    await broker.seek_to_time(SUBSCRIPTION, clock.now_ns() + NANOSECONDS)
    assert (await scrape.backlog(), await scrape.age()) == (0, 0)
    await broker.seek_to_time(SUBSCRIPTION, start_ns)
    assert (await scrape.backlog(), await scrape.age()) == (3, 60)
    assert await scrape.one(table.ACKED) == 0


async def test_what_outlived_its_retention_is_no_backlog(broker: Broker, clock: ManualClock, scrape: Scraper) -> None:
    await make_subscription(broker, message_retention_seconds=600)
    await publish(broker, "old")
    clock.advance(601)
    await publish(broker, "new")
    await remove_once(broker)
    assert (await scrape.backlog(), await scrape.age()) == (1, 0)


async def test_a_detached_subscription_owes_nothing(broker: Broker, scrape: Scraper) -> None:
    await make_subscription(broker)
    await publish(broker, "one")
    await broker.detach_subscription(SUBSCRIPTION)
    await publish(broker, "two")
    assert (await scrape.backlog(), await scrape.age()) == (0, 0)


async def test_what_a_filter_leaves_out_is_no_backlog_whether_or_not_anybody_reads(
    broker: Broker, clock: ManualClock, scrape: Scraper
) -> None:
    queue = await make_subscription(broker, filter=RED, ack_deadline_seconds=600)
    await publish_colors(broker, *["blue"] * 3)
    assert (await scrape.backlog(), await scrape.age()) == (0, 0)
    clock.advance(50)
    await publish_colors(broker, "red", "blue", "red")
    clock.advance(5)
    assert (await scrape.backlog(), await scrape.age()) == (2, 5)
    [first] = await take(queue, 1)
    assert await scrape.backlog() == 2
    queue.ack_later([first.ack_id])
    await publish_colors(broker, "blue", "red")
    assert (await scrape.backlog(), await scrape.age()) == (2, 5)
    queue.ack_later([lease.ack_id for lease in await take(queue)])
    await publish_colors(broker, "blue")
    assert (await scrape.backlog(), await scrape.age()) == (0, 0)


async def test_while_a_filter_is_still_being_applied_the_backlog_is_left_out(
    broker: Broker, scrape: Scraper, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make_subscription(broker, filter=RED)
    await publish_colors(broker, *["red", "blue"] * 20)
    monkeypatch.setattr(open_messages, "MOST_AHEAD", 10)
    monkeypatch.setattr(open_messages, "PAGE_MESSAGES", 10)
    assert (await scrape.backlog(), await scrape.one(table.ACKED)) == (None, 0)
    monkeypatch.undo()
    assert await scrape.backlog() == 20


async def test_messages_for_another_subscription_are_no_backlog_also_after_a_restart(
    broker: Broker, log: MemoryMessageLog, clock: ManualClock, scrape: Scraper
) -> None:
    await make_subscription(broker)
    await broker.create_subscription(Subscription(OTHER_SUBSCRIPTION, TOPIC))
    encoded = encode(Message(b"again"))
    await broker.publish_to(OTHER_SUBSCRIPTION, [encoded, encoded], 20)
    clock.advance(7)
    await publish(broker, "for all")
    expected = {SUBSCRIPTION: (1, 0), OTHER_SUBSCRIPTION: (3, 7)}
    for name, (backlog, age) in expected.items():
        assert (await scrape.backlog(name), await scrape.age(name)) == (backlog, age)
    again = await Broker.open(log, clock, BrokerSettings())
    scraper = Scraper(again, clock)
    for name, (backlog, age) in expected.items():
        assert (await scraper.backlog(name), await scraper.age(name)) == (backlog, age)
    await scraper.metrics.close()
    await again.close()


async def test_a_publish_that_failed_leaves_no_backlog(broker: Broker, log: MemoryMessageLog, scrape: Scraper) -> None:
    queue = await make_subscription(broker)
    commit, log.commit = log.commit, _refusing(log)  # type: ignore[method-assign]
    for _ in range(3):
        with pytest.raises(StorageUnavailable):
            await publish(broker, "lost")
    log.commit = commit  # type: ignore[method-assign]
    await publish(broker, "kept")
    assert (await scrape.backlog(), await scrape.age()) == (1, 0)
    queue.ack_later([lease.ack_id for lease in await take(queue)])
    assert await scrape.backlog() == 0


async def test_more_odd_messages_than_are_remembered_leave_the_backlog_out_until_it_is_read(
    broker: Broker, scrape: Scraper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(odd_messages, "MOST_RUNS", 2)
    queue = await make_subscription(broker)
    await broker.create_subscription(Subscription(OTHER_SUBSCRIPTION, TOPIC))
    encoded = encode(Message(b"again"))
    for _ in range(3):
        await broker.publish_to(OTHER_SUBSCRIPTION, [encoded], 20)
        await publish(broker, "between")
    assert await scrape.backlog() is None
    leases = await take(queue)
    assert await scrape.backlog() == len(leases) == 3


async def test_after_a_restart_all_is_known_at_the_first_scrape(tmp_path: Path, clock: ManualClock) -> None:
    """Read from disk: nothing is in memory yet, and nobody has asked for a message."""
    log = await SqliteMessageLog.open(tmp_path / "broker.db")
    broker = await Broker.open(log, clock, BrokerSettings())
    queue = await make_subscription(broker, ack_deadline_seconds=600)
    await broker.create_subscription(Subscription(OTHER_SUBSCRIPTION, TOPIC, filter=RED))
    for number in range(20):
        await publish_colors(broker, "red" if number % 4 == 0 else "blue")
        clock.advance(1)
    leases = await take(queue)
    queue.ack_later([lease.ack_id for lease in [*leases[:3], *leases[5:10]]])
    await broker.close()
    await log.close()

    log = await SqliteMessageLog.open(tmp_path / "broker.db")
    broker = await Broker.open(log, clock, BrokerSettings())
    scraper = Scraper(broker, clock)
    assert await scraper.all(table.BACKLOG) == {SUBSCRIPTION: 12, OTHER_SUBSCRIPTION: 5}
    assert await scraper.all(table.OLDEST_UNACKED) == {SUBSCRIPTION: 17, OTHER_SUBSCRIPTION: 20}
    assert await scraper.all(table.DELIVERED) == {SUBSCRIPTION: 0, OTHER_SUBSCRIPTION: 0}
    await scraper.metrics.close()
    await broker.close()
    await log.close()


async def test_the_log_is_read_seldom_and_never_for_what_is_known(
    log: MemoryMessageLog, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await Broker.open(log, clock, BrokerSettings(cache_megabytes=0))
    scraper = Scraper(broker, clock)
    queue = await make_subscription(broker, ack_deadline_seconds=600)
    await publish(broker, "one", "two", "three")
    leases = await take(queue)
    reads: list[int] = []
    read = queue.topic.read

    async def counted(first: int, limit: int, max_bytes: int) -> object:
        reads.append(first)
        return await read(first, limit, max_bytes)

    monkeypatch.setattr(queue.topic, "read", counted)
    clock.advance(1)
    for _ in range(3):
        assert await scraper.age() == 1
    assert reads == [1]
    queue.ack_later([leases[0].ack_id])
    clock.advance(1)
    assert await scraper.age() == 2  # of a moment ago, and near enough
    assert reads == [1]
    clock.advance(READ_EVERY_NS / NANOSECONDS)
    assert await scraper.age() == 2 + READ_EVERY_NS / NANOSECONDS
    assert reads == [1, 2]
    await scraper.metrics.close()
    await broker.close()


# Bounds.


async def test_subscriptions_and_topics_beyond_the_bound_are_counted_together(broker: Broker, scrape: Scraper) -> None:
    for number in range(MOST_NAMES + 2):
        await broker.create_topic(Topic(f"projects/local/topics/t{number:04}"))
        name = f"projects/local/subscriptions/s{number:04}"
        await broker.create_subscription(Subscription(name, f"projects/local/topics/t{number:04}"))
    for number in (0, MOST_NAMES, MOST_NAMES + 1):
        await publish(broker, "x", topic=f"projects/local/topics/t{number:04}")
    published = await scrape.all(table.PUBLISHED)
    assert len(published) == MOST_NAMES + 1
    assert published[OTHER] == 2
    backlog = await scrape.all(table.BACKLOG)
    assert len(backlog) == MOST_NAMES + 1
    assert (backlog["projects/local/subscriptions/s0000"], backlog[OTHER]) == (1, 2)
    assert await scrape.one(table.DELIVERED, OTHER) == 0


# The parts.

_spans = st.tuples(st.integers(1, 60), st.integers(0, 5)).map(lambda span: (span[0], span[0] + span[1]))


@given(st.lists(_spans, max_size=40), st.integers(1, 70), st.integers(0, 10))
def test_settled_messages_count_as_a_set_does(spans: list[tuple[int, int]], first: int, length: int) -> None:
    settled = SettledMessages(Progress(1))
    for start, last in spans:
        settled.settle(start, last)
    # As it is after a restart, and then some more.
    settled = SettledMessages(Progress(settled.floor, dict(settled.ranges)))
    for start, last in [(first, first), *spans[:3]]:
        settled.settle(start, last)
    gone = {sequence for sequence in range(100) if sequence in settled}
    assert settled.open_below(100) == 100 - len(gone)
    assert settled.first_open(first) == next(one for one in range(first, 101) if one not in gone)
    first = max(first, settled.floor)
    assert settled.settled_between(first, first + length) == len(gone & set(range(first, first + length + 1)))


def test_neighbours_are_one_run() -> None:
    odd = OddMessages()
    for sequence in (3, 4, 5, 9):
        odd.add(sequence, sequence, NOBODY)
    odd.add(7, 8, 12)  # its commit came back later
    assert odd.not_for(1, 4) == [(4, 5), (7, 8), (9, 9)]
    assert odd.not_for(12, 1) == [(3, 5), (9, 9)]
    assert odd.not_for(1, 10) == []


@given(st.lists(st.booleans(), max_size=60), st.integers(1, 60), st.data())
async def test_reading_ahead_agrees_with_reading(wanted: list[bool], page: int, data: st.DataObject) -> None:
    """Whatever is settled already, and however far the subscription has read."""
    clock, log = ManualClock(), MemoryMessageLog()
    broker = await Broker.open(log, clock, BrokerSettings())
    queue = await make_subscription(broker, filter=RED, ack_deadline_seconds=600)
    scraper = Scraper(broker, clock)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(open_messages, "PAGE_MESSAGES", page)
        await publish_colors(broker, *["red" if one else "blue" for one in wanted[:30]])
        await scraper.backlog()
        leases = await queue.take(data.draw(st.integers(1, 30)), 1 << 30, NoHolder())
        acked = [lease.ack_id for lease in leases if data.draw(st.booleans())]
        queue.ack_later(acked)
        await publish_colors(broker, *["red" if one else "blue" for one in wanted[30:]])
        assert await scraper.backlog() == sum(wanted) - len(acked)
    await scraper.metrics.close()
    await broker.close()
