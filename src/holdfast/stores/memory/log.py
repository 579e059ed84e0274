"""The broker's log in memory. As the SQLite one, but it ends with the process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from holdfast.broker.log import (
    Append,
    Change,
    Contents,
    DeleteSubscription,
    DeleteTopic,
    Progress,
    PutSubscription,
    PutTopic,
    Settle,
    StoredMessage,
    StoredSubscription,
    StoredTopic,
)
from holdfast.model.resources import Subscription, Topic


class MemoryMessageLog:
    def __init__(self) -> None:
        self._topics: dict[int, Topic] = {}
        self._messages: dict[int, dict[int, StoredMessage]] = {}  # by topic, then by sequence, ascending
        self._next_sequence: dict[int, int] = {}
        self._subscriptions: dict[int, tuple[int, Subscription]] = {}
        self._progress: dict[int, Progress] = {}
        self._next_key = 1

    async def load(self) -> Contents:
        return Contents(
            [StoredTopic(key, topic, self._next_sequence[key]) for key, topic in self._topics.items()],
            [
                StoredSubscription(key, topic_key, subscription, _copy(self._progress[key]))
                for key, (topic_key, subscription) in self._subscriptions.items()
            ],
            self._next_key,
        )

    async def commit(self, changes: Sequence[Change]) -> None:
        for change in changes:
            self._apply(change)

    def _apply(self, change: Change) -> None:
        match change:
            case Append(topic_key, messages):
                self._messages[topic_key].update((message.sequence, message) for message in messages)
                self._next_sequence[topic_key] = messages[-1].sequence + 1
            case Settle():
                _settle(self._progress[change.subscription_key], change)
            case PutTopic(key, topic):
                self._topics[key] = topic
                self._messages.setdefault(key, {})
                self._next_sequence.setdefault(key, 1)
                self._next_key = max(self._next_key, key + 1)
            case DeleteTopic(key):
                del self._topics[key], self._messages[key], self._next_sequence[key]
            case PutSubscription(key, topic_key, subscription, floor):
                self._subscriptions[key] = (topic_key, subscription)
                self._progress.setdefault(key, Progress(floor))
                self._next_key = max(self._next_key, key + 1)
            case DeleteSubscription(key):
                del self._subscriptions[key], self._progress[key]
            case _:
                assert_never(change)

    async def read_from(self, topic_key: int, first: int, last: int, limit: int) -> Sequence[StoredMessage]:
        messages = self._messages.get(topic_key, {})
        if not messages:
            return []
        found: list[StoredMessage] = []
        # Dicts keep insertion order and sequences only grow, so the first key is the oldest there is.
        for sequence in range(
            max(first, next(iter(messages))), min(last + 1, self._next_sequence[topic_key])
        ):
            message = messages.get(sequence)
            if message is not None:
                found.append(message)
                if len(found) == limit:
                    break
        return found

    async def read_one(self, topic_key: int, sequence: int) -> StoredMessage | None:
        return self._messages.get(topic_key, {}).get(sequence)

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

    async def close(self) -> None:
        pass


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
