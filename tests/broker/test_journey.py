"""What a broker tells of a message's journey: each failed attempt once, and acks as exactly as they are known."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from holdfast.broker import service
from holdfast.broker.facts import LONGEST_TEXT
from holdfast.broker.journey import NOT_KEPT, BrokerJourney
from holdfast.broker.leases import NACKED, Failure
from holdfast.broker.log import Append, Change, Settle
from holdfast.broker.retention import remove_once
from holdfast.broker.service import Broker
from holdfast.broker.wire import encode
from holdfast.clock import NANOSECONDS
from holdfast.errors import StorageUnavailable
from holdfast.model.journey import Did, Event, Precision, journey_of, journey_to_json, merged
from holdfast.model.message import Message
from holdfast.model.replay_attributes import ORIGINAL_MESSAGE_ID, REPLAY_ID
from holdfast.model.resources import DeadLetterPolicy, RetryPolicy, Subscription, Topic
from holdfast.settings import BrokerSettings
from holdfast.stores.memory.log import MemoryMessageLog
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
)

OTHER = "projects/local/subscriptions/other"
DAY = 86_400.0
BROKEN = Failure(error="the endpoint answered 503", status="503", reason="TRANSIENT_ERROR")


class Watch:
    """Marks once a second, as a process does in the background."""

    def __init__(self, broker: Broker, clock: ManualClock) -> None:
        self.broker = broker
        self.clock = clock
        self.start_ns = clock.now_ns()

    async def seconds(self, seconds: int = 1) -> None:
        for _ in range(seconds):
            self.clock.advance(1)
            await settle_down()
            await self.broker.mark_progress()

    async def told(self, message_id: str) -> list[Event]:
        return list((await BrokerJourney(self.broker).tell([message_id])).events)

    async def lines(self, message_id: str) -> list[tuple[str, ...]]:
        """Of the whole family: what happened, and when in seconds since the start."""
        journey = journey_to_json(await journey_of(message_id, [BrokerJourney(self.broker)]))
        return [self._line(event) for event in journey["events"]]

    def _line(self, event: dict[str, Any]) -> tuple[str, ...]:
        what = f"{event['did']} {event['attempt']}" if event["attempt"] else event["did"]
        return what, event["where"].rpartition("/")[2], event["detail"]

    def second(self, at_ns: int | None) -> float | None:
        return None if at_ns is None else (at_ns - self.start_ns) / NANOSECONDS


@pytest.fixture
async def broker(log: MemoryMessageLog, clock: ManualClock) -> AsyncIterator[Broker]:
    """Without a cache: what was trimmed is gone."""
    opened = await Broker.open(log, clock, BrokerSettings(cache_megabytes=0))
    yield opened
    await opened.close()


@pytest.fixture
async def watch(broker: Broker, clock: ManualClock) -> Watch:
    return Watch(broker, clock)


def one(events: Sequence[Event], did: Did) -> Event:
    (found,) = [event for event in events if event.did is did]
    return found


async def test_published_pending_under_way_and_acked(watch: Watch, broker: Broker) -> None:
    queue = await make_subscription(broker)
    await watch.seconds(2)
    [message_id] = await publish(broker, "a")
    published, stands = await watch.told(message_id)
    assert (published.did, published.precision, watch.second(published.at_ns)) == (Did.PUBLISHED, Precision.EXACT, 2)
    assert (stands.did, stands.precision, stands.detail) == (Did.IS, Precision.NOW, "not delivered yet")
    [lease] = await take(queue)
    assert one(await watch.told(message_id), Did.IS).detail.startswith("under way: attempt 1, until 2023-")
    queue.ack([lease.ack_id])
    await settle_down()
    assert one(await watch.told(message_id), Did.IS).detail == "acked, at a time that is not known"
    await watch.seconds(3)
    acked = one(await watch.told(message_id), Did.ACKED)
    assert (acked.precision, watch.second(acked.at_ns), watch.second(acked.since_ns)) == (Precision.BY, 3, 2)
    assert acked.detail == ""


async def test_each_failed_attempt_is_told_once_and_in_order(watch: Watch, broker: Broker) -> None:
    queue = await make_subscription(broker, retry=RetryPolicy(1, 1))
    [message_id] = await publish(broker, "a")
    for failure in (NACKED, BROKEN):
        [lease] = await take(queue)
        queue.fail(lease, failure)
        await settle_down()
        assert one(await watch.told(message_id), Did.IS).detail.startswith(
            f"waits for attempt {lease.attempt + 1}, due"
        )
        await watch.seconds(2)
    await take(queue, deadline_seconds=10)
    await watch.seconds(12)
    [lease] = await take(queue)
    queue.ack([lease.ack_id])
    await watch.seconds(1)
    assert await watch.lines(message_id) == [
        ("published", "orders", ""),
        ("attempt_failed 1", "orders-worker", "nack: nacked by the subscriber"),
        ("attempt_failed 2", "orders-worker", "503: the endpoint answered 503 (TRANSIENT_ERROR)"),
        ("attempt_failed 3", "orders-worker", "deadline: the ack deadline passed"),
        ("acked", "orders-worker", ""),
    ]


async def test_a_message_without_an_effect_on_others_is_told_after_it_was_trimmed(watch: Watch, broker: Broker) -> None:
    queue = await make_subscription(broker)
    await publish(broker, "before")
    await watch.seconds(1)
    [message_id] = await publish(broker, "a")
    await watch.seconds(1)
    queue.ack([lease.ack_id for lease in await take(queue)])
    await watch.seconds(1)
    await remove_once(broker)
    published, acked = await watch.told(message_id)
    assert (watch.second(published.since_ns), watch.second(published.at_ns)) == (1, 2)
    assert (watch.second(acked.since_ns), watch.second(acked.at_ns)) == (1, 3)
    assert published.precision is acked.precision is Precision.BY


async def dead_lettered(broker: Broker) -> tuple[str, str]:
    """A message and its copy."""
    policy = DeadLetterPolicy(DEAD_LETTERS, 5)
    reader = await make_dead_letter_topic(broker)
    queue = await make_subscription(broker, dead_letter=policy)
    [message_id] = await publish(broker, "a")
    [lease] = await take(queue)
    queue.fail(lease, Failure(error="total: is missing", status="422", reason="NO_TOTAL", dead_letter_now=True))
    await settle_down()
    return message_id, str((reader.topic.key << 40) + 1)


async def test_a_dead_letter_and_its_original_are_one_family(watch: Watch, broker: Broker) -> None:
    message_id, copy = await dead_lettered(broker)
    await watch.seconds(1)
    expected = [
        ("published", "orders", ""),
        ("attempt_failed 1", "orders-worker", "422: total: is missing (NO_TOTAL)"),
        ("dead_lettered", "orders-worker", "NO_TOTAL"),
        ("published", "orders.dlq", ""),
        ("is", "dead-letter-reader", "not delivered yet"),
    ]
    assert await watch.lines(message_id) == expected
    assert await watch.lines(copy) == expected
    assert one(await watch.told(message_id), Did.DEAD_LETTERED).related == copy
    broker.queue("projects/local/subscriptions/dead-letter-reader")
    await remove_once(broker)  # the original goes, and what is kept of it stays
    assert await watch.lines(copy) == expected


async def test_what_was_sent_again_belongs_to_the_family(watch: Watch, broker: Broker) -> None:
    message_id, _ = await dead_lettered(broker)
    await broker.create_subscription(Subscription(OTHER, TOPIC))
    await watch.seconds(1)
    message = encode(Message(b"again", {REPLAY_ID: "r", ORIGINAL_MESSAGE_ID: message_id}))
    [again] = await broker.publish_to(SUBSCRIPTION, [message], len(message))
    assert await broker.publish_to(SUBSCRIPTION, [message], len(message)) == [again]
    queue = broker.queue(SUBSCRIPTION)
    queue.ack([lease.ack_id for lease in await take(queue)])
    await take(broker.queue(OTHER))
    await watch.seconds(2)
    lines = (await watch.lines(again.decode()))[-4:]
    assert lines == [
        ("sent_again", "orders-worker", ""),
        ("published", "orders", ""),
        ("acked", "orders-worker", ""),
        ("is", "dead-letter-reader", "not delivered yet"),
    ]
    assert await watch.lines(message_id) == await watch.lines(again.decode())
    await remove_once(broker)
    assert (await watch.lines(again.decode()))[-4:] == lines, "another subscription never had it, trimmed or not"


async def test_a_forged_original_is_no_harm(broker: Broker, watch: Watch) -> None:
    await make_subscription(broker)
    named = ["", "x", "-1", "9" * 19, "9" * 40, "٣", "1e3"]
    messages = [encode(Message(b"x", {REPLAY_ID: str(n), ORIGINAL_MESSAGE_ID: one})) for n, one in enumerate(named)]
    ids = await broker.publish_to(SUBSCRIPTION, messages, 1)
    assert [await watch.lines(one.decode()) for one in ids] == [
        [("published", "orders", ""), ("is", "orders-worker", "not delivered yet")]
    ] * len(named)


async def test_who_never_was_owed_it_is_left_out(watch: Watch, broker: Broker) -> None:
    queue = await make_subscription(broker, filter='attributes.kind = "b"')
    [message_id] = await publish(broker, "a")
    await broker.create_subscription(Subscription(OTHER, TOPIC))
    await watch.seconds(2)
    filtered = ("filtered_out", "orders-worker", "its filter leaves the message out")
    assert await watch.lines(message_id) == [("published", "orders", ""), filtered]
    await take(queue)
    await watch.seconds(1)
    assert await watch.lines(message_id) == [("published", "orders", ""), filtered]
    await remove_once(broker)
    await watch.seconds(1)
    acked = ("acked", "orders-worker", "acked, or left out by its filter")
    assert await watch.lines(message_id) == [("published", "orders", ""), acked]


async def test_what_may_have_been_lost_to_the_retention_is_not_called_acked(watch: Watch, broker: Broker) -> None:
    await make_subscription(broker, message_retention_seconds=600)
    [message_id] = await publish(broker, "a")
    await watch.seconds(1)
    watch.clock.advance(700)
    await remove_once(broker)
    await watch.seconds(1)
    acked = one(await watch.told(message_id), Did.ACKED)
    assert acked.detail == "acked, or past its retention"


async def test_a_message_that_never_was_is_not_made_up(watch: Watch, broker: Broker) -> None:
    queue = await make_subscription(broker)
    await publish(broker, "a")
    later = str((queue.topic.key << 40) + 2)
    for unknown in (later, str(queue.topic.key << 40), "7", "0", "", "x", "9" * 19, "9" * 30, "-1", "\0"):
        assert await watch.told(unknown) == []


async def test_what_the_log_refused_is_kept_with_the_next_save(
    watch: Watch, broker: Broker, log: MemoryMessageLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = await make_subscription(broker)
    [message_id] = await publish(broker, "a")
    [lease] = await take(queue)
    commit = log.commit

    async def refuse(changes: Sequence[Change]) -> None:
        if any(isinstance(change, Settle) for change in changes):
            raise StorageUnavailable("the disk is full")
        await commit(changes)

    monkeypatch.setattr(log, "commit", refuse)
    queue.fail(lease, BROKEN)
    await settle_down()
    assert [event.did for event in await watch.told(message_id)] == [Did.PUBLISHED, Did.IS]
    monkeypatch.setattr(log, "commit", commit)
    watch.clock.advance(2)
    await settle_down()
    [lease] = await take(queue)
    queue.fail(lease, BROKEN)
    await settle_down()
    attempts = [event.attempt for event in await watch.told(message_id) if event.did is Did.ATTEMPT_FAILED]
    assert attempts == [1, 2]


async def test_a_dead_letter_that_could_not_be_written_is_an_attempt_that_failed(watch: Watch, broker: Broker) -> None:
    await broker.create_topic(Topic(DEAD_LETTERS))
    queue = await make_subscription(broker, dead_letter=DeadLetterPolicy(DEAD_LETTERS, 5))
    await broker.delete_topic(DEAD_LETTERS)
    [message_id] = await publish(broker, "a")
    [lease] = await take(queue)
    queue.fail(lease, Failure(error="no", dead_letter_now=True))
    await settle_down()
    failed = one(await watch.told(message_id), Did.ATTEMPT_FAILED)
    assert (failed.attempt, failed.detail) == (1, "no")


async def test_facts_and_marks_are_there_after_a_restart(
    watch: Watch, broker: Broker, log: MemoryMessageLog, clock: ManualClock
) -> None:
    queue = await make_subscription(broker)
    [message_id, acked] = await publish(broker, "a", "b")
    [lease, other] = await take(queue)
    queue.fail(lease, BROKEN)
    queue.ack([other.ack_id])
    await settle_down()
    await watch.seconds(1)
    again = Watch(await Broker.open(log, clock, BrokerSettings()), clock)  # as after a kill: nothing was closed
    assert (await again.lines(message_id))[1][0] == "attempt_failed 1"
    assert one(await again.told(acked), Did.IS).detail == "acked, at a time that is not known", "it is above the floor"
    queue = again.broker.queue(SUBSCRIPTION)
    queue.ack([lease.ack_id for lease in await take(queue)])
    await again.seconds(1)
    assert one(await again.told(acked), Did.ACKED).precision is Precision.BY
    assert [line[0] for line in await again.lines(message_id)] == ["published", "attempt_failed 1", "acked"]


async def test_errors_are_bounded_and_hide_what_is_redacted(log: MemoryMessageLog, clock: ManualClock) -> None:
    def hide(message: Message, text: str) -> str:
        return text.replace(message.data.decode(), "[redacted]")

    broker = await Broker.open(log, clock, BrokerSettings(), hide=hide)
    queue = await make_subscription(broker)
    [message_id] = await publish(broker, "secret")
    [lease] = await take(queue)
    queue.fail(lease, Failure(error="bad secret " + "x" * 5000, reason="r" * 5000))
    await settle_down()
    failed = one(await Watch(broker, clock).told(message_id), Did.ATTEMPT_FAILED)
    assert failed.detail.startswith("bad [redacted] xxx")
    assert len(failed.detail) < 2 * LONGEST_TEXT + 10
    await broker.close()


async def test_history_is_forgotten_by_age_and_marks_too(watch: Watch, broker: Broker) -> None:
    queue = await make_subscription(broker)
    [message_id] = await publish(broker, "a")
    [lease] = await take(queue)
    queue.fail(lease, BROKEN)
    await watch.seconds(1)
    queue.ack([lease.ack_id for lease in await take(queue)])
    await watch.seconds(1)
    await remove_once(broker)
    watch.clock.advance(BrokerSettings().history_days * DAY - 10)
    await remove_once(broker)
    assert "attempt_failed 1" in [line[0] for line in await watch.lines(message_id)]
    watch.clock.advance(20)
    await remove_once(broker)
    assert "attempt_failed 1" not in [line[0] for line in await watch.lines(message_id)]


async def test_without_history_nothing_is_written_and_it_is_said(log: MemoryMessageLog, clock: ManualClock) -> None:
    broker = await Broker.open(log, clock, BrokerSettings(history_days=0))
    queue = await make_subscription(broker)
    [message_id] = await publish(broker, "a")
    [lease] = await take(queue)
    queue.fail(lease, BROKEN)
    await Watch(broker, clock).seconds(2)
    assert list(await log.facts_of([int(message_id)], 10)) == []
    assert dict(await log.marked([queue.key, queue.topic.key], 1)) == {}
    told = await BrokerJourney(broker).tell([message_id])
    assert list(told.notes) == [NOT_KEPT]
    assert [event.did for event in told.events] == [Did.PUBLISHED, Did.IS]
    await broker.close()


async def test_nothing_is_written_while_nothing_moves_nor_for_a_success(
    watch: Watch, broker: Broker, log: MemoryMessageLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = await make_subscription(broker)
    await watch.seconds(1)
    commits: list[list[type[Change]]] = []
    commit = log.commit

    async def count(changes: Sequence[Change]) -> None:
        commits.append([type(change) for change in changes])
        await commit(changes)

    monkeypatch.setattr(log, "commit", count)
    await watch.seconds(5)
    assert commits == []
    await publish(broker, "a", "b")
    queue.ack([lease.ack_id for lease in await take(queue)])
    await settle_down()
    assert commits == [[Append], [Append], [Settle]]
    await watch.seconds(5)
    assert len(commits) == 4


async def test_of_many_that_move_each_has_its_turn(
    watch: Watch, broker: Broker, log: MemoryMessageLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "MOST_MARKS", 2)
    names = [f"{TOPIC}-{number}" for number in range(5)]
    for name in names:
        await broker.create_topic(Topic(name))
    for second in range(3):
        for name in names:
            await publish(broker, str(second), topic=name)
        await watch.seconds(1)
    keys = [topic.key for topic in broker.topics]
    passed = {key: marked.by_ns for key, marked in (await log.marked(keys, 1)).items()}
    assert sorted(str(watch.second(at_ns)) for at_ns in passed.values()) == ["1.0", "1.0", "2.0", "2.0", "3.0"]


def test_answers_of_several_processes_become_one() -> None:
    def event(did: Did, time: str | None, precision: Precision = Precision.EXACT, **more: Any) -> dict[str, Any]:
        told = {"did": did, "time": time, "precision": precision, "notBefore": None, "part": "broker", "where": ""}
        return {**told, "messageId": "1", "attempt": 0, "detail": "", "relatedMessageId": ""} | more

    def answer(part: str, *events: dict[str, Any]) -> dict[str, Any]:
        return {"messageId": "1", "messageIds": ["1"], "parts": [part], "events": events, "notes": ["n"]}

    vague = event(Did.PUBLISHED, "2026-01-01T00:00:09Z", Precision.BY)
    acked = event(Did.ACKED, "2026-01-01T00:00:09Z", Precision.BY)
    stands = event(Did.IS, None, Precision.NOW)
    applied = event(Did.APPLIED, "2026-01-01T00:00:02.5Z", part="consumer")
    exact = event(Did.PUBLISHED, "2026-01-01T00:00:02Z", part="desk")
    both = merged([answer("broker", stands, vague, acked), answer("broker", acked), answer("consumer", applied)])
    assert both["parts"] == ["broker", "consumer"]
    assert both["notes"] == ["n"]
    assert both["events"] == [vague | {"time": applied["time"]}, applied, acked, stands]
    assert merged([answer("broker", vague), answer("desk", exact)])["events"] == [exact]
    assert merged([answer("desk", exact), answer("broker", vague)])["events"] == [exact]
