"""The broker's log in memory. As the SQLite one, but it ends with the process."""

from __future__ import annotations

import operator
import random
from collections.abc import Mapping, Sequence
from typing import assert_never

from holdfast.broker.facts import FIRST_SLOT, Fact, Mark, Marked, oldest_minute, slots_of
from holdfast.broker.log import (
    NO_LIMIT,
    AddFacts,
    Append,
    Change,
    Contents,
    DeleteRecord,
    DeleteSubscription,
    DeleteTopic,
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
from holdfast.errors import StorageUnavailable
from holdfast.model.resources import Subscription, Topic

FIRST_KEYS = 1 << 22


class MemoryMessageLog:
    def __init__(self) -> None:
        self._topics: dict[int, Topic] = {}
        self._messages: dict[int, dict[int, StoredMessage]] = {}  # by topic, then by sequence, ascending
        self._next_sequence: dict[int, int] = {}
        self._subscriptions: dict[int, tuple[int, Subscription]] = {}
        self._progress: dict[int, Progress] = {}
        self._records: dict[tuple[str, str], bytes] = {}
        self._facts: list[Fact] = []
        self._places: dict[int, list[int]] = {}  # in them, by the messages that they name
        self._marks: dict[int, _Marks] = {}  # by topic or subscription
        self._next_key = 1 + random.randrange(FIRST_KEYS)  # the SQLite log says why

    async def load(self) -> Contents:
        return Contents(
            [StoredTopic(key, topic, self._next_sequence[key]) for key, topic in self._topics.items()],
            [
                StoredSubscription(key, topic_key, subscription, _copy(self._progress[key]))
                for key, (topic_key, subscription) in self._subscriptions.items()
            ],
            dict(self._records),
            self._next_key,
        )

    async def commit(self, changes: Sequence[Change]) -> None:
        self._refuse_impossible(changes)
        for change in changes:
            self._apply(change)

    def _refuse_impossible(self, changes: Sequence[Change]) -> None:
        """Looks at all of them before the first is applied, so that a refused commit leaves nothing."""
        next_sequences: dict[int, int] = {}  # of the topics that these changes touch; 0 where the topic is gone
        subscriptions: dict[int, bool] = {}  # likewise, whether it is there
        for change in changes:
            match change:
                case Append(key, messages):
                    following = next_sequences.get(key, self._next_sequence.get(key, 0))
                    next_sequences[key] = _next_after(key, following, messages)
                case Settle(key) | Reset(key):
                    if not subscriptions.get(key, key in self._subscriptions):
                        raise StorageUnavailable(f"there is no subscription {key}")
                case PutTopic(key):
                    next_sequences[key] = next_sequences.get(key) or self._next_sequence.get(key, 1)
                case DeleteTopic(key):
                    next_sequences[key] = 0
                case PutSubscription(key) | DeleteSubscription(key):
                    subscriptions[key] = isinstance(change, PutSubscription)
                case PutRecord() | DeleteRecord() | AddFacts() | PutMarks():
                    pass
                case _:
                    assert_never(change)

    def _apply(self, change: Change) -> None:
        match change:
            case Append(topic_key, messages):
                self._messages[topic_key].update(zip([message.sequence for message in messages], messages, strict=True))
                self._next_sequence[topic_key] = _next_after(topic_key, self._next_sequence[topic_key], messages)
            case Settle():
                _settle(self._progress[change.subscription_key], change)
            case PutTopic(key, topic):
                self._topics[key] = topic
                self._messages.setdefault(key, {})
                self._next_sequence.setdefault(key, 1)
                self._next_key = max(self._next_key, key + 1)
            case DeleteTopic(key):
                for of_topics in (self._topics, self._messages, self._next_sequence, self._marks):
                    of_topics.pop(key, None)
            case PutSubscription(key, topic_key, subscription, floor):
                self._subscriptions[key] = (topic_key, subscription)
                self._progress.setdefault(key, Progress(floor))
                self._next_key = max(self._next_key, key + 1)
            case DeleteSubscription(key):
                self._subscriptions.pop(key, None)
                self._progress.pop(key, None)
                self._marks.pop(key, None)
            case Reset(key, progress):
                self._progress[key] = _copy(progress)
            case PutRecord(kind, name, value):
                self._records[kind, name] = value
            case DeleteRecord(kind, name):
                self._records.pop((kind, name), None)
            case AddFacts(facts):
                self._add_facts(facts)
            case PutMarks(marks, forget_before_ns):
                for mark in marks:
                    if mark.key in self._topics or mark.key in self._subscriptions:
                        self._marks.setdefault(mark.key, _Marks()).put(mark, oldest_minute(forget_before_ns))
            case _:
                assert_never(change)

    def _add_facts(self, facts: Sequence[Fact]) -> None:
        for place, fact in enumerate(facts, len(self._facts)):
            for number in {fact.message, fact.other} - {0}:
                self._places.setdefault(number, []).append(place)
        self._facts += facts

    async def read_from(
        self, topic_key: int, first: int, last: int, limit: int, max_bytes: int = NO_LIMIT
    ) -> Sequence[StoredMessage]:
        messages = self._messages.get(topic_key, {})
        if not messages or limit < 1:
            return []
        found: list[StoredMessage] = []
        # Dicts keep insertion order and sequences only grow, so the first key is the oldest there is.
        for sequence in range(max(first, next(iter(messages))), min(last + 1, self._next_sequence[topic_key])):
            message = messages.get(sequence)
            if message is not None:
                found.append(message)
                max_bytes -= len(message.body)
                if len(found) == limit or max_bytes <= 0:
                    break
        return found

    async def read_one(self, topic_key: int, sequence: int) -> StoredMessage | None:
        return self._messages.get(topic_key, {}).get(sequence)

    async def first_since(self, topic_key: int, time_ns: int) -> int:
        messages = self._messages.get(topic_key, {})
        found = (sequence for sequence, message in messages.items() if message.publish_time_ns >= time_ns)
        return next(found, self._next_sequence.get(topic_key, 1))

    async def trim(self, topic_key: int, below: int, limit: int) -> int:
        messages = self._messages.get(topic_key, {})
        gone: list[int] = []
        for sequence in messages:
            if sequence >= below or len(gone) == limit:
                break
            gone.append(sequence)
        for sequence in gone:
            del messages[sequence]
        return len(gone)

    async def purge(self, limit: int) -> int:
        return 0  # they went with their topics

    async def facts_of(self, numbers: Sequence[int], limit: int) -> Sequence[Fact]:
        places = sorted({place for number in numbers for place in self._places.get(number, ())})
        return [self._facts[place] for place in places[:limit]]

    async def marked(self, keys: Sequence[int], sequence: int) -> Mapping[int, Marked]:
        return {key: self._marks[key].around(sequence) for key in keys if key in self._marks and self._marks[key].slots}

    async def forget_facts(self, before_ns: int, limit: int) -> int:
        kept = [fact for fact in self._facts[:limit] if fact.at_ns >= before_ns]
        gone = len(self._facts[:limit]) - len(kept)
        if gone:
            facts, self._facts, self._places = [*kept, *self._facts[limit:]], [], {}
            self._add_facts(facts)
        return gone

    async def check(self) -> None:
        pass

    async def close(self) -> None:
        pass


def _next_after(topic_key: int, following: int, messages: Sequence[StoredMessage]) -> int:
    """The sequence that follows `messages`; `following` is the one that follows what is there, 0 without a topic."""
    if not following:
        raise StorageUnavailable(f"there is no topic {topic_key}")
    if not messages:
        return following
    sequences = [message.sequence for message in messages]
    if sequences[0] < following or any(map(operator.ge, sequences, sequences[1:])):
        raise StorageUnavailable(f"topic {topic_key}: sequences must rise, from {following} on")
    return sequences[-1] + 1


def _settle(progress: Progress, change: Settle) -> None:
    progress.floor = change.floor
    for first in change.ranges_gone:
        progress.acked.pop(first, None)
    progress.acked.update(change.ranges_set)
    for sequence in change.failed_gone:
        progress.failed.pop(sequence, None)
    progress.failed.update(change.failed_set)


class _Marks:
    """Of one topic or subscription, by slot."""

    def __init__(self) -> None:
        self.slots: dict[int, Mark] = {}
        self._oldest = 0  # minute that is kept

    def put(self, mark: Mark, oldest: int) -> None:
        wanted = slots_of(mark)
        if oldest == self._oldest and wanted[-1] in self.slots:  # nothing to forget, as nearly always
            self.slots |= dict.fromkeys(wanted, mark)
            return
        self._oldest = oldest
        self.slots |= dict.fromkeys(wanted, mark)
        self.slots = {slot: one for slot, one in self.slots.items() if slot < 0 or slot >= oldest}

    def around(self, sequence: int) -> Marked:
        after_ns = max([one.at_ns for one in self.slots.values() if one.below <= sequence], default=None)
        by_ns = min([one.at_ns for one in self.slots.values() if one.below > sequence], default=None)
        first = self.slots.get(FIRST_SLOT)
        return Marked(after_ns, by_ns, first is not None and sequence < first.below)


def _copy(progress: Progress) -> Progress:
    return Progress(progress.floor, dict(progress.acked), dict(progress.failed))
