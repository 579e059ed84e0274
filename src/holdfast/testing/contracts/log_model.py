"""A message log as plain dicts, and random changes to compare a real one with it. Part of the log's contract suite."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar, assert_never

import pytest
from hypothesis import strategies as st

from holdfast.broker.facts import FIRST_SLOT, Fact, Mark, Marked, What, oldest_minute, slots_of
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
)
from holdfast.clock import NANOSECONDS
from holdfast.errors import StorageUnavailable
from holdfast.model.resources import Subscription, Topic

NOON = 1_700_000_000 // 60 * 60 * NANOSECONDS

Reopen = Callable[[], Awaitable[MessageLog]]
Row = TypeVar("Row")

# Above every sequence: as a bound it means "to the end".
END = 2**62

# Messages that random facts are about, and sequences that marks are asked about.
NUMBERS = range(1, 20)
ASKED = (0, 7, 20, 39)


@dataclass
class Everything:
    """All that a log holds, by key. As a model it also says what each change must do."""

    next_key: int
    topics: dict[int, Topic] = field(default_factory=dict)
    next_sequences: dict[int, int] = field(default_factory=dict)
    messages: dict[int, list[StoredMessage]] = field(default_factory=dict)  # of topics that have any
    subscriptions: dict[int, tuple[int, Subscription]] = field(default_factory=dict)
    progress: dict[int, Progress] = field(default_factory=dict)
    records: dict[tuple[str, str], bytes] = field(default_factory=dict)
    facts: list[Fact] = field(default_factory=list)
    marked: dict[tuple[int, int], Marked] = field(default_factory=dict)  # by key, and by each sequence in ASKED
    marks: dict[int, dict[int, Mark]] = field(default_factory=dict, compare=False)  # what the model makes that of

    def changed_by(self, changes: Iterable[Change]) -> Everything:
        changed = copy.deepcopy(self)
        for change in changes:
            changed._apply(change)
        existing = {*changed.topics, *changed.subscriptions}
        changed.marks = {key: slots for key, slots in changed.marks.items() if key in existing and slots}
        changed.marked = {
            (key, sequence): _marked(slots, sequence) for key, slots in changed.marks.items() for sequence in ASKED
        }
        return changed

    def _apply(self, change: Change) -> None:
        match change:
            case PutTopic(key, topic):
                self.topics[key] = topic
                self.next_sequences.setdefault(key, 1)
                self.next_key = max(self.next_key, key + 1)
            case DeleteTopic(key):
                del self.topics[key], self.next_sequences[key]
                self.messages.pop(key, None)
            case PutSubscription(key, topic_key, subscription, floor):
                self.subscriptions[key] = (topic_key, subscription)
                self.progress.setdefault(key, Progress(floor))
                self.next_key = max(self.next_key, key + 1)
            case DeleteSubscription(key):
                del self.subscriptions[key], self.progress[key]
            case Append(key, messages):
                self.messages[key] = [*self.messages.get(key, []), *messages]
                self.next_sequences[key] = messages[-1].sequence + 1
            case Settle(key, floor):
                before = self.progress[key]
                acked = _laid_over(before.acked, change.ranges_gone, change.ranges_set)
                failed = _laid_over(before.failed, change.failed_gone, change.failed_set)
                self.progress[key] = Progress(floor, acked, failed)
            case Reset(key, progress):
                self.progress[key] = progress
            case PutRecord(kind, name, value):
                self.records[kind, name] = value
            case DeleteRecord(kind, name):
                self.records.pop((kind, name), None)
            case AddFacts(facts):
                self.facts = [*self.facts, *facts]
            case PutMarks(marks, forget_before_ns):
                for mark in marks:
                    if mark.key in self.topics or mark.key in self.subscriptions:
                        slots = self.marks.get(mark.key, {}) | dict.fromkeys(slots_of(mark), mark)
                        oldest = oldest_minute(forget_before_ns)
                        self.marks[mark.key] = {slot: one for slot, one in slots.items() if slot < 0 or slot >= oldest}
            case _:
                assert_never(change)


def _marked(slots: Mapping[int, Mark], sequence: int) -> Marked:
    passed = [mark.at_ns for mark in slots.values() if mark.below > sequence]
    before = [mark.at_ns for mark in slots.values() if mark.below <= sequence]
    first = slots.get(FIRST_SLOT)
    return Marked(max(before, default=None), min(passed, default=None), first is not None and first.below > sequence)


def _laid_over(rows: Mapping[int, Row], gone: Sequence[int], put: Mapping[int, Row]) -> dict[int, Row]:
    return {key: row for key, row in rows.items() if key not in gone} | dict(put)


async def everything_in(log: MessageLog, topics: Iterable[int]) -> Everything:
    """Looks for messages of `topics` too, whether or not they are there."""
    contents = await log.load()
    found = Everything(contents.next_key, records=dict(contents.records))
    for topic in contents.topics:
        found.topics[topic.key], found.next_sequences[topic.key] = topic.topic, topic.next_sequence
    for stored in contents.subscriptions:
        found.subscriptions[stored.key] = (stored.topic_key, stored.subscription)
        found.progress[stored.key] = stored.progress
    for key in {*topics, *found.topics}:
        if messages := await log.read_from(key, 0, END, END):
            found.messages[key] = list(messages)
    found.facts = list(await log.facts_of(NUMBERS, 10_000))
    keys = [*found.topics, *found.subscriptions]
    for sequence in ASKED:
        found.marked |= {(key, sequence): marked for key, marked in (await log.marked(keys, sequence)).items()}
    return found


# Random changes that make sense in a given state.

_names = st.text(max_size=20)
_labels = st.dictionaries(_names, _names, max_size=2)
_topics = st.builds(Topic, _names, _labels)
_subscriptions = st.builds(Subscription, _names, _names, st.integers(10, 600), labels=_labels)
_sequences = st.integers(1, 40)
_failed_attempts = st.builds(FailedAttempts, st.integers(0, 2**31), st.integers(0, 2**63 - 1))
_ranges = st.dictionaries(_sequences, _sequences, max_size=4)
_failures = st.dictionaries(_sequences, _failed_attempts, max_size=4)
_kinds = st.sampled_from(["", "a", "b", "ü"])
_numbers = st.sampled_from(NUMBERS)
_facts = st.builds(
    Fact,
    _numbers,
    st.integers(0, END - 1),
    st.sampled_from(What),
    st.integers(1, 9),
    st.integers(0, 2**31),
    _names,
    _names,
    _names,
    st.sampled_from([0, *NUMBERS]),
)
# Seconds and minutes that are the same, and some that are an hour apart.
_times = st.builds(
    lambda hour, second: NOON + (hour * 3600 + second) * NANOSECONDS, st.integers(0, 2), st.integers(0, 90)
)


def changes_to(model: Everything) -> st.SearchStrategy[Change]:
    choices: list[st.SearchStrategy[Change]] = [
        st.builds(PutTopic, st.just(model.next_key), _topics),
        st.builds(PutRecord, _kinds, _kinds, st.binary(max_size=20)),
        st.builds(DeleteRecord, _kinds, _kinds),
        st.builds(AddFacts, st.lists(_facts, max_size=3)),
    ]
    keys = sorted({*model.topics, *model.subscriptions, model.next_key})  # the last is not there
    marks = st.builds(Mark, st.sampled_from(keys), _times, _sequences, st.booleans())
    choices.append(st.builds(PutMarks, st.lists(marks, max_size=3), _times))
    if model.topics:
        choices += _changes_to_topics(model, st.sampled_from(sorted(model.topics)))
    if model.subscriptions:
        choices += _changes_to_subscriptions(model, st.sampled_from(sorted(model.subscriptions)))
    unused = set(model.topics) - {topic_key for topic_key, _ in model.subscriptions.values()}
    if unused:
        choices.append(st.builds(DeleteTopic, st.sampled_from(sorted(unused))))
    return st.one_of(choices)


def _changes_to_topics(model: Everything, keys: st.SearchStrategy[int]) -> list[st.SearchStrategy[Change]]:
    return [
        keys.flatmap(lambda key: st.builds(Append, st.just(key), _messages_from(model.next_sequences[key]))),
        st.builds(PutTopic, keys, _topics),
        st.builds(PutSubscription, st.just(model.next_key), keys, _subscriptions, _sequences),
    ]


def _changes_to_subscriptions(model: Everything, keys: st.SearchStrategy[int]) -> list[st.SearchStrategy[Change]]:
    def replaced(key: int) -> st.SearchStrategy[Change]:
        return st.builds(
            PutSubscription, st.just(key), st.just(model.subscriptions[key][0]), _subscriptions, _sequences
        )

    return [
        keys.flatmap(replaced),
        keys.flatmap(lambda key: _settles(key, model.progress[key])),
        st.builds(Reset, keys, st.builds(Progress, _sequences, _ranges, _failures)),
        st.builds(DeleteSubscription, keys),
    ]


@st.composite
def _messages_from(draw: st.DrawFn, first: int) -> list[StoredMessage]:
    """Ascending, with gaps: a publish that failed leaves one. Some have the same publish time."""
    messages: list[StoredMessage] = []
    for gap in draw(st.lists(st.integers(0, 2), min_size=1, max_size=5)):
        sequence = first + gap
        messages.append(StoredMessage(sequence, sequence // 2, draw(st.binary(max_size=20))))
        first = sequence + 1
    return messages


@st.composite
def _settles(draw: st.DrawFn, key: int, progress: Progress) -> Settle:
    ranges, failed = draw(_ranges), draw(_failures)
    return Settle(
        key,
        draw(_sequences),
        draw(_some_of(set(progress.acked) - set(ranges))),
        ranges,
        draw(_some_of(set(progress.failed) - set(failed))),
        failed,
    )


def _some_of(keys: set[int]) -> st.SearchStrategy[list[int]]:
    return st.lists(st.sampled_from(sorted(keys)), unique=True) if keys else st.just([])


# The comparison.


async def compare_with_model(log: MessageLog, data: st.DataObject, reopen: Reopen | None) -> None:
    first_key, model = await _emptied(log)
    steps = [_commit, _commit, _commit_together, _commit_the_impossible, _trim, _look_since, _forget]
    for step in data.draw(st.lists(st.sampled_from([*steps, None] if reopen else steps), min_size=1, max_size=8)):
        if step is not None:
            model = await step(log, model, data)
        elif reopen:
            log = await reopen()
        assert await everything_in(log, range(first_key, model.next_key)) == model


async def _emptied(log: MessageLog) -> tuple[int, Everything]:
    contents = await log.load()
    await log.commit([DeleteSubscription(stored.key) for stored in contents.subscriptions])
    await log.commit([DeleteTopic(stored.key) for stored in contents.topics])
    await log.commit([DeleteRecord(kind, name) for kind, name in contents.records])
    await log.forget_facts(END, END)
    return contents.next_key, Everything(contents.next_key)


def _draw_commit(model: Everything, data: st.DataObject) -> tuple[list[Change], Everything]:
    changes: list[Change] = []
    for _ in range(data.draw(st.integers(1, 5))):
        changes.append(data.draw(changes_to(model)))
        model = model.changed_by(changes[-1:])
    return changes, model


async def _commit(log: MessageLog, model: Everything, data: st.DataObject) -> Everything:
    changes, changed = _draw_commit(model, data)
    await log.commit(changes)
    return changed


async def _commit_together(log: MessageLog, model: Everything, data: st.DataObject) -> Everything:
    commits: list[list[Change]] = []
    for _ in range(data.draw(st.integers(2, 4))):
        changes, model = _draw_commit(model, data)
        commits.append(changes)
    await asyncio.gather(*(log.commit(changes) for changes in commits))
    return model


async def _commit_the_impossible(log: MessageLog, model: Everything, data: st.DataObject) -> Everything:
    changes, changed = _draw_commit(model, data)
    key = data.draw(st.sampled_from([*changed.messages, changed.next_key]))
    known = changed.messages.get(key, [StoredMessage(1, 0, b"to a topic that is not there")])
    with pytest.raises(StorageUnavailable):
        await log.commit([*changes, Append(key, known[-1:])])
    return model


async def _trim(log: MessageLog, model: Everything, data: st.DataObject) -> Everything:
    if not model.messages:
        return model
    key = data.draw(st.sampled_from(sorted(model.messages)))
    below, limit = data.draw(_sequences), data.draw(st.integers(0, 10))
    count = await log.trim(key, below, limit)
    before, after = model.messages[key], list(await log.read_from(key, 0, END, END))
    gone = [message for message in before if message not in after]
    assert count == len(gone) == min(limit, sum(message.sequence < below for message in before))
    assert all(message.sequence < below for message in gone)
    assert after == [message for message in before if message not in gone]
    others = {topic: messages for topic, messages in model.messages.items() if topic != key}
    model.messages = others | ({key: after} if after else {})
    return model


async def _look_since(log: MessageLog, model: Everything, data: st.DataObject) -> Everything:
    time_ns = data.draw(_sequences)
    for key, end in model.next_sequences.items():
        since = [message.sequence for message in model.messages.get(key, []) if message.publish_time_ns >= time_ns]
        assert await log.first_since(key, time_ns) == min(since, default=end)
    return model


async def _forget(log: MessageLog, model: Everything, data: st.DataObject) -> Everything:
    before_ns, limit = data.draw(st.integers(0, 2**62)), data.draw(st.integers(0, 5))
    gone = [fact for fact in model.facts[:limit] if fact.at_ns < before_ns]
    assert await log.forget_facts(before_ns, limit) == len(gone)
    model.facts = [fact for fact in model.facts[:limit] if fact.at_ns >= before_ns] + model.facts[limit:]
    return model
