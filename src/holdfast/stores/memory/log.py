"""The broker's log in memory. As the SQLite one, but it ends with the process."""

from __future__ import annotations

import operator
import random
from collections.abc import Sequence
from typing import assert_never

from holdfast.broker.log import (
    NO_LIMIT,
    Append,
    Change,
    Contents,
    DeleteRecord,
    DeleteSubscription,
    DeleteTopic,
    Progress,
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
                case PutRecord() | DeleteRecord():
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
                for of_topics in (self._topics, self._messages, self._next_sequence):
                    of_topics.pop(key, None)
            case PutSubscription(key, topic_key, subscription, floor):
                self._subscriptions[key] = (topic_key, subscription)
                self._progress.setdefault(key, Progress(floor))
                self._next_key = max(self._next_key, key + 1)
            case DeleteSubscription(key):
                self._subscriptions.pop(key, None)
                self._progress.pop(key, None)
            case Reset(key, progress):
                self._progress[key] = _copy(progress)
            case PutRecord(kind, name, value):
                self._records[kind, name] = value
            case DeleteRecord(kind, name):
                self._records.pop((kind, name), None)
            case _:
                assert_never(change)

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


def _copy(progress: Progress) -> Progress:
    return Progress(progress.floor, dict(progress.acked), dict(progress.failed))
