"""What every message log must do. Subclass MessageLogContract with a `log` fixture and pytest runs it;
DurableMessageLogContract adds what must hold over a restart, for logs that outlive the process."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.broker.facts import ATTEMPTS_KEPT, Fact, Mark, Marked, What, is_kept
from holdfast.broker.log import (
    AddFacts,
    Append,
    Change,
    DeleteRecord,
    DeleteSubscription,
    DeleteTopic,
    FailedAttempts,
    MessageLog,
    Progress,
    PutMarks,
    PutRecord,
    PutSubscription,
    PutTopic,
    Reset,
    Settle,
    StoredMessage,
    StoredSubscription,
    StoredTopic,
)
from holdfast.clock import NANOSECONDS
from holdfast.errors import StorageUnavailable
from holdfast.model.resources import DeadLetterPolicy, PushConfig, RetryPolicy, Subscription, Topic
from holdfast.testing.contracts.log_model import END, Everything, Reopen, compare_with_model, everything_in

NOW = 1_700_000_000_000_000_000

# One log serves all examples (each starts by emptying it), and the test is inherited by one class per backend.
_over_one_log = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors],
)


def a_message(sequence: int, body: bytes | None = None) -> StoredMessage:
    return StoredMessage(sequence, NOW + sequence, f"body {sequence}".encode() if body is None else body)


def messages(*sequences: int) -> list[StoredMessage]:
    return [a_message(sequence) for sequence in sequences]


def a_topic(name: str = "orders", **labels: str) -> Topic:
    return Topic(f"projects/local/topics/{name}", labels)


def a_subscription(name: str = "orders", **labels: str) -> Subscription:
    return Subscription(f"projects/local/subscriptions/{name}", "projects/local/topics/orders", labels=labels)


async def new_keys(log: MessageLog, count: int) -> Sequence[int]:
    """Keys that were never used, next to each other."""
    first = (await log.load()).next_key
    return range(first, first + count)


async def with_topic(log: MessageLog, *sequences: int) -> int:
    """A topic that holds these messages; gives its key."""
    [topic] = await new_keys(log, 1)
    await log.commit([PutTopic(topic, a_topic()), Append(topic, messages(*sequences))])
    return topic


async def with_subscription(log: MessageLog, floor: int = 1) -> int:
    """A subscription of a topic of its own; gives its key."""
    topic, subscription = await new_keys(log, 2)
    await log.commit([PutTopic(topic, a_topic()), PutSubscription(subscription, topic, a_subscription(), floor)])
    return subscription


async def sequences_in(log: MessageLog, topic: int) -> list[int]:
    return [message.sequence for message in await log.read_from(topic, 1, END, 1000)]


async def progress_of(log: MessageLog, subscription: int) -> Progress:
    return {stored.key: stored.progress for stored in (await log.load()).subscriptions}[subscription]


async def next_sequence_of(log: MessageLog, topic: int) -> int:
    return {stored.key: stored.next_sequence for stored in (await log.load()).topics}[topic]


class MessageLogContract:
    # What is kept of topics and subscriptions.

    async def test_a_check_changes_nothing(self, log: MessageLog) -> None:
        [topic] = await new_keys(log, 1)
        await log.commit([PutTopic(topic, a_topic()), Append(topic, messages(1, 2))])
        before = await log.load()
        await log.check()
        assert await log.load() == before
        assert await log.read_from(topic, 1, 9, 9) == messages(1, 2)

    async def test_a_new_log_is_empty(self, log: MessageLog) -> None:
        contents = await log.load()
        assert list(contents.topics) == []
        assert list(contents.subscriptions) == []
        assert contents.records == {}
        assert contents.next_key >= 1

    async def test_everything_configured_comes_back_as_it_was(self, log: MessageLog) -> None:
        topic, subscription = await new_keys(log, 2)
        full_topic = Topic("projects/größe/topics/bestellungen", {"team": "blau 💙", "empty": ""})
        full_subscription = Subscription(
            name="projects/größe/subscriptions/bestellungen",
            topic=full_topic.name,
            ack_deadline_seconds=77,
            push=PushConfig("http://127.0.0.1:1/ü?x=1", {"x-goog-version": "v1"}),
            dead_letter=DeadLetterPolicy("projects/größe/topics/dead", 17),
            retry=RetryPolicy(0.25, 99.5),
            labels={"ключ": "значение"},
            message_retention_seconds=601.5,
        )
        await log.commit([PutTopic(topic, full_topic), PutSubscription(subscription, topic, full_subscription, 5)])
        contents = await log.load()
        assert list(contents.topics) == [StoredTopic(topic, full_topic, 1)]
        stored = StoredSubscription(subscription, topic, full_subscription, Progress(5))
        assert list(contents.subscriptions) == [stored]

    async def test_putting_a_topic_again_replaces_its_configuration_only(self, log: MessageLog) -> None:
        topic = await with_topic(log, 1, 2)
        await log.commit([PutTopic(topic, a_topic("renamed"))])
        assert list((await log.load()).topics) == [StoredTopic(topic, a_topic("renamed"), 3)]
        assert await sequences_in(log, topic) == [1, 2]

    async def test_putting_a_subscription_again_leaves_its_progress_alone(self, log: MessageLog) -> None:
        topic, key = await new_keys(log, 2)
        await log.commit([PutTopic(topic, a_topic()), PutSubscription(key, topic, a_subscription(), 3)])
        await log.commit([Settle(key, 4, ranges_set={6: 9}, failed_set={5: FailedAttempts(2, NOW)})])
        await log.commit([PutSubscription(key, topic, a_subscription("renamed"), 1)])
        [stored] = (await log.load()).subscriptions
        assert stored.subscription == a_subscription("renamed")
        assert stored.progress == Progress(4, {6: 9}, {5: FailedAttempts(2, NOW)})

    async def test_what_is_done_to_loaded_progress_is_not_stored(self, log: MessageLog) -> None:
        key = await with_subscription(log)
        loaded = await progress_of(log, key)
        loaded.floor = 9
        loaded.acked[11] = 12
        loaded.failed[10] = FailedAttempts(1, NOW)
        assert await progress_of(log, key) == Progress(1)

    # Deleting, and keys.

    async def test_deleting_a_topic_takes_its_messages_and_no_others(self, log: MessageLog) -> None:
        before, topic, after = [await with_topic(log, 1, 2, 3) for _ in range(3)]
        await log.commit([DeleteTopic(topic)])
        assert [stored.key for stored in (await log.load()).topics] == [before, after]
        assert await log.read_from(topic, 1, END, 10) == []
        assert await log.read_one(topic, 2) is None
        assert await sequences_in(log, before) == [1, 2, 3]
        assert await sequences_in(log, after) == [1, 2, 3]

    async def test_deleting_a_subscription_takes_its_progress_and_no_other(self, log: MessageLog) -> None:
        kept, gone = await with_subscription(log), await with_subscription(log)
        for key in (kept, gone):
            await log.commit([Settle(key, 2, ranges_set={4: 5}, failed_set={3: FailedAttempts(1, NOW)})])
        await log.commit([DeleteSubscription(gone)])
        [stored] = (await log.load()).subscriptions
        assert stored.key == kept
        assert stored.progress == Progress(2, {4: 5}, {3: FailedAttempts(1, NOW)})

    async def test_the_next_key_is_above_every_key_ever_used(self, log: MessageLog) -> None:
        topic, subscription = await new_keys(log, 2)
        await log.commit([PutTopic(topic, a_topic())])
        assert (await log.load()).next_key == topic + 1
        await log.commit([PutSubscription(subscription, topic, a_subscription(), 1)])
        await log.commit([PutTopic(topic, a_topic())])
        assert (await log.load()).next_key == subscription + 1
        await log.commit([DeleteSubscription(subscription), DeleteTopic(topic)])
        assert (await log.load()).next_key == subscription + 1

    # Reading.

    async def test_messages_come_back_as_they_were_as_soon_as_commit_returns(self, log: MessageLog) -> None:
        [topic] = await new_keys(log, 1)
        bodies = [b"", b"\x00", bytes(range(256)), "größer 💥".encode(), b"x" * 100_000]
        stored = [a_message(number, body) for number, body in enumerate(bodies, 1)]
        await log.commit([PutTopic(topic, a_topic()), Append(topic, stored)])
        assert list(await log.read_from(topic, 1, END, 10)) == stored
        assert [await log.read_one(topic, message.sequence) for message in stored] == stored

    async def test_the_largest_message_comes_back_whole(self, log: MessageLog) -> None:
        [topic] = await new_keys(log, 1)
        large = a_message(1, bytes(range(256)) * 40_000)
        await log.commit([PutTopic(topic, a_topic()), Append(topic, [large])])
        assert await log.read_one(topic, 1) == large

    @pytest.mark.parametrize(
        ("first", "last", "limit", "expected"),
        [
            pytest.param(1, END, 10, [1, 2, 3, 7, 8], id="everything"),
            pytest.param(2, 7, 10, [2, 3, 7], id="both bounds included"),
            pytest.param(4, 6, 10, [], id="inside a gap"),
            pytest.param(5, 8, 10, [7, 8], id="from inside a gap"),
            pytest.param(3, 3, 10, [3], id="just one"),
            pytest.param(1, END, 3, [1, 2, 3], id="up to the limit"),
            pytest.param(2, END, 3, [2, 3, 7], id="the limit counts messages, not sequences"),
            pytest.param(1, END, 0, [], id="a limit of none"),
            pytest.param(3, 2, 10, [], id="first above last"),
            pytest.param(9, END, 10, [], id="above the end"),
            pytest.param(-5, 0, 10, [], id="below the start"),
        ],
    )
    async def test_reading_keeps_its_bounds(
        self, log: MessageLog, first: int, last: int, limit: int, expected: list[int]
    ) -> None:
        topic = await with_topic(log, 1, 2, 3, 7, 8)
        assert list(await log.read_from(topic, first, last, limit)) == messages(*expected)

    async def test_one_that_is_not_there_is_none(self, log: MessageLog) -> None:
        topic = await with_topic(log, 1, 3)
        assert await log.read_one(topic, 3) == a_message(3)
        for absent in (0, 2, 4):
            assert await log.read_one(topic, absent) is None
        assert await log.read_one(topic + 1, 1) is None
        assert list(await log.read_from(topic + 1, 1, END, 10)) == []

    async def test_two_topics_never_mix(self, log: MessageLog) -> None:
        one, other = await new_keys(log, 2)
        ones, others = [a_message(n, b"one") for n in (1, 2, 3)], [a_message(n, b"other") for n in (1, 2)]
        await log.commit([PutTopic(one, a_topic("one")), PutTopic(other, a_topic("other"))])
        await log.commit([Append(other, others[:1]), Append(one, ones), Append(other, others[1:])])
        assert list(await log.read_from(one, 0, END, 10)) == ones
        assert list(await log.read_from(other, 0, END, 10)) == others
        assert await next_sequence_of(log, one) == 4
        assert await next_sequence_of(log, other) == 3

    @pytest.mark.parametrize(
        ("time_ns", "expected"),
        [
            pytest.param(0, 2, id="before all"),
            pytest.param(10, 2, id="the first one's time"),
            pytest.param(11, 3, id="between two"),
            pytest.param(20, 3, id="the first of equal times"),
            pytest.param(21, 9, id="over a gap"),
            pytest.param(30, 9, id="the last one's time"),
            pytest.param(31, 10, id="after all"),
        ],
    )
    async def test_the_first_message_since_a_time(self, log: MessageLog, time_ns: int, expected: int) -> None:
        before, topic, after = await new_keys(log, 3)
        times = {2: 10, 3: 20, 4: 20, 9: 30}
        stored = [StoredMessage(sequence, time, b"") for sequence, time in times.items()]
        for key in (before, topic, after):
            await log.commit([PutTopic(key, a_topic()), Append(key, stored)])
        assert await log.first_since(topic, time_ns) == expected

    async def test_without_messages_the_first_since_any_time_is_the_next_one(self, log: MessageLog) -> None:
        topic = await with_topic(log)
        assert await log.first_since(topic, 0) == 1
        await log.commit([Append(topic, messages(1, 2, 3))])
        await log.trim(topic, END, 10)
        assert await log.first_since(topic, 0) == 4

    # Trimming.

    async def test_trimming_goes_in_steps_and_stays_below_its_bound(self, log: MessageLog) -> None:
        topic = await with_topic(log, 1, 2, 3, 5, 6, 7)
        assert [await log.trim(topic, 6, 3) for _ in range(3)] == [3, 1, 0]
        assert await sequences_in(log, topic) == [6, 7]

    async def test_a_step_never_deletes_more_than_its_limit(self, log: MessageLog) -> None:
        topic = await with_topic(log, *range(1, 101))
        assert await log.trim(topic, END, 0) == 0
        assert await log.trim(topic, END, 30) == 30
        assert len(await sequences_in(log, topic)) == 70

    @pytest.mark.parametrize("below", [-1, 0, 1])
    async def test_there_may_be_nothing_to_trim(self, log: MessageLog, below: int) -> None:
        topic = await with_topic(log, 1, 2)
        assert await log.trim(topic, below, 10) == 0
        assert await sequences_in(log, topic) == [1, 2]
        assert await log.trim(topic + 1, END, 10) == 0

    async def test_trimming_leaves_other_topics_alone(self, log: MessageLog) -> None:
        before, topic, after = [await with_topic(log, 1, 2) for _ in range(3)]
        assert await log.trim(topic, END, 10) == 2
        assert [await sequences_in(log, key) for key in (before, topic, after)] == [[1, 2], [], [1, 2]]

    async def test_a_trimmed_topic_does_not_give_a_sequence_twice(self, log: MessageLog) -> None:
        topic = await with_topic(log, 1, 2, 5)
        assert await next_sequence_of(log, topic) == 6
        await log.trim(topic, END, 10)
        assert await next_sequence_of(log, topic) == 6
        await log.commit([Append(topic, messages(6))])
        assert await next_sequence_of(log, topic) == 7
        await log.trim(topic, END, 10)
        assert await log.trim(topic, END, 10) == 0
        assert await next_sequence_of(log, topic) == 7

    # Progress.

    async def test_settling_adds_and_removes_ranges_and_failed_attempts(self, log: MessageLog) -> None:
        key = await with_subscription(log)
        first, second = FailedAttempts(1, NOW), FailedAttempts(2, 2**63 - 1)
        await log.commit([Settle(key, 1, ranges_set={5: 5, 8: 9}, failed_set={2: first, 3: first})])
        assert await progress_of(log, key) == Progress(1, {5: 5, 8: 9}, {2: first, 3: first})
        await log.commit([Settle(key, 2, ranges_gone=[8], ranges_set={5: 9}, failed_set={2: second})])
        assert await progress_of(log, key) == Progress(2, {5: 9}, {2: second, 3: first})
        await log.commit([Settle(key, 10, ranges_gone=[5], failed_gone=[2, 3])])
        assert await progress_of(log, key) == Progress(10)

    async def test_what_is_gone_already_may_be_removed_again(self, log: MessageLog) -> None:
        key = await with_subscription(log)
        await log.commit([Settle(key, 3, ranges_gone=[7], failed_gone=[7])])
        assert await progress_of(log, key) == Progress(3)

    async def test_settling_touches_no_other_subscription(self, log: MessageLog) -> None:
        one, other = await with_subscription(log), await with_subscription(log)
        await log.commit([Settle(other, 1, ranges_set={3: 4}, failed_set={2: FailedAttempts(1, NOW)})])
        await log.commit([Settle(one, 9, ranges_gone=[3], failed_gone=[2])])
        assert await progress_of(log, other) == Progress(1, {3: 4}, {2: FailedAttempts(1, NOW)})

    async def test_a_reset_replaces_the_whole_progress(self, log: MessageLog) -> None:
        one, other = await with_subscription(log), await with_subscription(log)
        old = Settle(one, 7, ranges_set={9: 9, 12: 14}, failed_set={8: FailedAttempts(1, NOW)})
        await log.commit([old, Settle(other, 2, ranges_set={9: 9})])
        new = Progress(3, {5: 6, 12: 12}, {4: FailedAttempts(2, NOW)})
        await log.commit([Reset(one, new)])
        new.acked[7] = 7  # the caller's own again
        assert await progress_of(log, one) == Progress(3, {5: 6, 12: 12}, {4: FailedAttempts(2, NOW)})
        assert await progress_of(log, other) == Progress(2, {9: 9})

    # Records.

    async def test_records_are_kept_by_kind_and_name(self, log: MessageLog) -> None:
        await log.commit([PutRecord("schema", "a", b"1"), PutRecord("snapshot", "a", b"\x00\xff")])
        await log.commit([PutRecord("schema", "ü", b""), PutRecord("schema", "a", b"2")])
        assert (await log.load()).records == {
            ("schema", "a"): b"2",
            ("schema", "ü"): b"",
            ("snapshot", "a"): b"\x00\xff",
        }
        await log.commit([DeleteRecord("schema", "a"), DeleteRecord("schema", "never there")])
        assert (await log.load()).records == {("schema", "ü"): b"", ("snapshot", "a"): b"\x00\xff"}

    # Commits.

    async def test_a_commit_may_be_empty(self, log: MessageLog) -> None:
        topic = await with_topic(log, 1)
        await log.commit([])
        await log.commit([Append(topic, [])])
        assert await next_sequence_of(log, topic) == 2

    async def test_changes_of_one_commit_follow_each_other(self, log: MessageLog) -> None:
        topic, subscription = await new_keys(log, 2)
        await log.commit(
            [
                PutTopic(topic, a_topic("old")),
                Append(topic, messages(1, 2)),
                PutTopic(topic, a_topic("new")),
                Append(topic, messages(3)),
                PutSubscription(subscription, topic, a_subscription(), 1),
                Settle(subscription, 2, ranges_set={3: 3}),
                Settle(subscription, 4, ranges_gone=[3]),
            ]
        )
        assert list((await log.load()).topics) == [StoredTopic(topic, a_topic("new"), 4)]
        assert await progress_of(log, subscription) == Progress(4)
        await log.commit([DeleteSubscription(subscription), DeleteTopic(topic)])
        assert await everything_in(log, [topic]) == Everything((await log.load()).next_key)

    @pytest.mark.parametrize("also", get_args(Change))
    async def test_a_commit_that_cannot_be_done_leaves_nothing(self, log: MessageLog, also: type[Change]) -> None:
        topic, idle, other = [await with_topic(log, 1, 2) for _ in range(3)]
        subscription, unused = await new_keys(log, 2)
        await log.commit([PutSubscription(subscription, topic, a_subscription(), 1), PutRecord("schema", "old", b"1")])
        possible: dict[type[Change], Change] = {
            Append: Append(topic, messages(3)),
            Settle: Settle(subscription, 2, ranges_set={3: 4}, failed_set={2: FailedAttempts(1, NOW)}),
            PutTopic: PutTopic(unused, a_topic("new")),
            DeleteTopic: DeleteTopic(idle),
            PutSubscription: PutSubscription(unused, topic, a_subscription("new"), 1),
            DeleteSubscription: DeleteSubscription(subscription),
            Reset: Reset(subscription, Progress(2, {3: 4}, {2: FailedAttempts(1, NOW)})),
            PutRecord: PutRecord("schema", "new", b"1"),
            DeleteRecord: DeleteRecord("schema", "old"),
            AddFacts: AddFacts([Fact(1, NOW, What.FAILED, subscription, 1)]),
            PutMarks: PutMarks([Mark(topic, NOW, 3)], 0),
        }
        before = await everything_in(log, [idle])
        with pytest.raises(StorageUnavailable):
            await log.commit([possible[also], Append(other, messages(3, 1))])
        assert await everything_in(log, [idle]) == before
        changes = [possible[also], Append(other, messages(3))]
        await log.commit(changes)
        assert await everything_in(log, [idle]) == before.changed_by(changes)

    @pytest.mark.parametrize("repeated", [[2], [3, 2], [3, 3], [1, 2, 3]])
    async def test_a_sequence_is_never_written_twice(self, log: MessageLog, repeated: list[int]) -> None:
        topic = await with_topic(log, 1, 2)
        with pytest.raises(StorageUnavailable):
            await log.commit([Append(topic, [a_message(sequence, b"another") for sequence in repeated])])
        assert list(await log.read_from(topic, 1, END, 10)) == messages(1, 2)
        assert await next_sequence_of(log, topic) == 3

    async def test_what_comes_after_a_deletion_is_refused(self, log: MessageLog) -> None:
        """Kept, it could never be found, nor deleted, again."""
        topic, subscription = await new_keys(log, 2)
        await log.commit([PutTopic(topic, a_topic()), PutSubscription(subscription, topic, a_subscription(), 1)])
        await log.commit([DeleteSubscription(subscription), DeleteTopic(topic)])
        resetting = Reset(subscription, Progress(2, {4: 4}, {3: FailedAttempts(1, NOW)}))
        for late in (Append(topic, messages(1)), Settle(subscription, 2, ranges_set={4: 4}), resetting):
            with pytest.raises(StorageUnavailable):
                await log.commit([late])
        assert await everything_in(log, [topic]) == Everything((await log.load()).next_key)

    async def test_concurrent_commits_take_effect_in_the_order_of_their_calls(self, log: MessageLog) -> None:
        topic, subscription = await new_keys(log, 2)
        # Each needs the one before it, and the last one wins.
        creating = [
            log.commit([PutTopic(topic, a_topic())]),
            log.commit([PutSubscription(subscription, topic, a_subscription(), 1)]),
        ]
        settling = [log.commit([Settle(subscription, floor)]) for floor in range(2, 300)]
        await asyncio.gather(*creating, *settling)
        assert await progress_of(log, subscription) == Progress(299)

    async def test_a_commit_is_handed_over_before_its_caller_waits(self, log: MessageLog) -> None:
        topic = await with_topic(log, 1)
        impatient = asyncio.ensure_future(log.commit([Append(topic, messages(2))]))
        await asyncio.sleep(0)  # it runs up to its first wait, if it has one
        impatient.cancel()
        await log.commit([Append(topic, messages(3))])
        assert await sequences_in(log, topic) == [1, 2, 3]

    async def test_of_concurrent_commits_only_the_impossible_one_fails(self, log: MessageLog) -> None:
        topic = await with_topic(log, 1)
        sequences = [*range(2, 30), 1, *range(30, 60)]
        outcomes = await asyncio.gather(
            *(log.commit([Append(topic, messages(sequence))]) for sequence in sequences), return_exceptions=True
        )
        failed = [sequence for sequence, outcome in zip(sequences, outcomes, strict=True) if outcome is not None]
        assert failed == [1]
        assert isinstance(outcomes[sequences.index(1)], StorageUnavailable)
        assert list(await log.read_from(topic, 1, END, 100)) == messages(*range(1, 60))

    # What is kept of the past.

    async def test_facts_are_found_by_every_message_that_they_name(self, log: MessageLog) -> None:
        failed = Fact(5, NOW, What.FAILED, 3, 1, "503", "TRANSIENT_ERROR", "größe 💙")
        given_up = Fact(5, NOW + 1, What.DEAD_LETTERED, 3, 2, other=9)
        another = Fact(6, NOW + 2, What.FAILED, 3, 1)
        await log.commit([AddFacts([failed]), AddFacts([given_up, another])])
        assert list(await log.facts_of([5], 10)) == [failed, given_up]
        assert list(await log.facts_of([9], 10)) == [given_up]
        assert list(await log.facts_of([9, 6, 5], 10)) == [failed, given_up, another]
        assert list(await log.facts_of([9, 6, 5], 2)) == [failed, given_up]
        assert list(await log.facts_of([0, 7, 2**62], 10)) == []
        assert isinstance((await log.facts_of([5], 1))[0].what, What)

    async def test_facts_are_forgotten_by_age_and_the_oldest_first(self, log: MessageLog) -> None:
        facts = [Fact(5, NOW + second, What.FAILED, 3, second) for second in range(4)]
        await log.commit([AddFacts(facts)])
        assert await log.forget_facts(NOW, 10) == 0
        assert await log.forget_facts(NOW + 3, 2) == 2
        assert list(await log.facts_of([5], 10)) == facts[2:]
        assert await log.forget_facts(NOW + 3, 2) == 1
        await log.commit([AddFacts(facts[:1])])
        assert list(await log.facts_of([5], 10)) == [facts[3], facts[0]]

    async def test_facts_outlive_their_topic(self, log: MessageLog) -> None:
        topic = await with_topic(log, 1)
        fact = Fact(5, NOW, What.FAILED, topic, 1)
        await log.commit([AddFacts([fact])])
        await log.commit([DeleteTopic(topic)])
        assert list(await log.facts_of([5], 10)) == [fact]

    async def test_marks_tell_between_which_times_a_sequence_was_passed(self, log: MessageLog) -> None:
        topic, idle = await with_topic(log), await with_topic(log)
        for second, below in enumerate([1, 4, 4, 9]):
            await log.commit([PutMarks([Mark(topic, NOW + second * NANOSECONDS, below)], 0)])
        assert dict(await log.marked([topic, idle], 4)) == {
            topic: Marked(NOW + 2 * NANOSECONDS, NOW + 3 * NANOSECONDS, False)
        }
        assert (await log.marked([topic], 3))[topic] == Marked(NOW, NOW + NANOSECONDS, False)
        assert (await log.marked([topic], 0))[topic] == Marked(None, NOW, False)
        assert (await log.marked([topic], 9))[topic] == Marked(NOW + 3 * NANOSECONDS, None, False)

    async def test_what_lies_below_the_first_mark_was_never_owed(self, log: MessageLog) -> None:
        subscription = await with_subscription(log, 5)
        await log.commit([PutMarks([Mark(subscription, NOW, 5, is_first=True), Mark(subscription, NOW, 5)], 0)])
        assert (await log.marked([subscription], 4))[subscription] == Marked(None, NOW, True)
        assert (await log.marked([subscription], 5))[subscription] == Marked(NOW, None, False)

    async def test_marks_are_bounded_however_long_a_topic_is_busy(self, log: MessageLog) -> None:
        """After an hour the minute is known, and after `forget_before_ns` nothing."""
        topic = await with_topic(log)
        hours = 3
        for second in range(0, hours * 3600, 20):
            at_ns = NOW + second * NANOSECONDS
            await log.commit([PutMarks([Mark(topic, at_ns, second + 1)], at_ns - 2 * 3600 * NANOSECONDS)])
        last = hours * 3600 - 20

        async def known_to(second: int) -> float:
            marked = (await log.marked([topic], second))[topic]
            assert marked.after_ns is not None
            assert marked.by_ns is not None
            assert marked.after_ns < NOW + second * NANOSECONDS <= marked.by_ns
            return (marked.by_ns - marked.after_ns) / NANOSECONDS

        assert await known_to(last - 60) == 20
        assert await known_to(last - 5000) == 60
        assert (await log.marked([topic], 10))[topic].after_ns is None

    async def test_marks_go_with_what_they_are_of(self, log: MessageLog) -> None:
        subscription = await with_subscription(log)
        await log.commit([PutMarks([Mark(subscription, NOW, 1), Mark(subscription + 99, NOW, 1)], 0)])
        assert list(await log.marked([subscription, subscription + 99], 0)) == [subscription]
        await log.commit([DeleteSubscription(subscription)])
        await log.commit([PutMarks([Mark(subscription, NOW, 1)], 0)])
        assert dict(await log.marked([subscription], 0)) == {}

    def test_a_message_that_fails_for_ever_is_kept_in_few_facts(self) -> None:
        kept = [attempt for attempt in range(1, 1_000_000) if is_kept(attempt)]
        assert kept[:ATTEMPTS_KEPT] == list(range(1, ATTEMPTS_KEPT + 1))
        assert len(kept) < ATTEMPTS_KEPT + 20

    # All of it together.

    @_over_one_log
    @given(data=st.data())
    async def test_any_changes_leave_what_a_plain_model_says(self, log: MessageLog, data: st.DataObject) -> None:
        await compare_with_model(log, data, None)


class DurableMessageLogContract(MessageLogContract):
    """Wants a second fixture, `reopen`: closes the log that is open and gives a new one on the same data."""

    async def test_everything_committed_is_there_after_a_restart(self, log: MessageLog, reopen: Reopen) -> None:
        topic, subscription = await new_keys(log, 2)
        await log.commit([PutTopic(topic, a_topic(x="ü")), Append(topic, messages(1, 2, 5))])
        await log.commit([PutSubscription(subscription, topic, a_subscription(x="ü"), 1), PutRecord("a", "ü", b"1")])
        await log.commit([Settle(subscription, 2, ranges_set={4: 4}, failed_set={2: FailedAttempts(3, NOW)})])
        before = await everything_in(log, [topic])
        assert await everything_in(await reopen(), [topic]) == before

    async def test_sequences_and_keys_never_come_again_after_a_restart(self, log: MessageLog, reopen: Reopen) -> None:
        topic, deleted = await new_keys(log, 2)
        await log.commit([PutTopic(topic, a_topic()), Append(topic, messages(1, 2, 9))])
        await log.commit([PutTopic(deleted, a_topic("deleted")), Append(deleted, messages(1))])
        await log.commit([DeleteTopic(deleted)])
        await log.trim(topic, END, 10)
        again = await reopen()
        assert await next_sequence_of(again, topic) == 10
        assert (await again.load()).next_key == deleted + 1
        assert await sequences_in(again, deleted) == []

    async def test_a_refused_commit_leaves_nothing_after_a_restart(self, log: MessageLog, reopen: Reopen) -> None:
        topic = await with_topic(log, 1)
        before = await everything_in(log, [topic])
        with pytest.raises(StorageUnavailable):
            await log.commit([PutTopic(topic + 1, a_topic("new")), Append(topic, messages(2, 1))])
        assert await everything_in(await reopen(), [topic]) == before

    async def test_a_log_that_is_closed_finishes_what_was_handed_over(self, log: MessageLog, reopen: Reopen) -> None:
        topic = await with_topic(log, 1)
        committing = [asyncio.ensure_future(log.commit([Append(topic, messages(n))])) for n in range(2, 50)]
        await asyncio.sleep(0)
        again = await reopen()
        await asyncio.gather(*committing)
        assert await sequences_in(again, topic) == list(range(1, 50))

    @_over_one_log
    @given(data=st.data())
    async def test_any_changes_and_restarts_leave_what_a_plain_model_says(
        self, log: MessageLog, reopen: Reopen, data: st.DataObject
    ) -> None:
        await compare_with_model(await reopen(), data, reopen)
