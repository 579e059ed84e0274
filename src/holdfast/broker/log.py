"""PORT: the durable log under the broker. One contract suite (holdfast.testing.contracts.log) holds for every backend.

A topic's messages carry sequences 1, 2, 3 … in publish order. What a subscription has done is stored as a floor (every
lower sequence is settled), acked ranges above it, and a row for each message that failed and waits for another attempt.
Nothing is stored per message and subscription at publish, and nothing is deleted at ack.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from holdfast.broker.facts import Fact, Mark, Marked
from holdfast.model.resources import Subscription, Topic

NO_LIMIT = 1 << 62


class StoredMessage(NamedTuple):
    """`body` is a serialized google.pubsub.v1.PubsubMessage, id and publish time included. A tuple, not a dataclass:
    one is made for every message published, and this is twice as fast."""

    sequence: int
    publish_time_ns: int
    body: bytes


@dataclass(frozen=True, slots=True)
class FailedAttempts:
    """What is kept of a message that was nacked or whose lease ran out."""

    attempts: int
    due_ns: int


@dataclass(slots=True)
class Progress:
    """What one subscription has done so far. `acked` maps the first to the last sequence of each range above the
    floor."""

    floor: int
    acked: dict[int, int] = field(default_factory=dict)
    failed: dict[int, FailedAttempts] = field(default_factory=dict)


# Changes. A commit takes any number of them, all or nothing.


@dataclass(frozen=True, slots=True)
class PutTopic:
    key: int
    topic: Topic


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    """Nothing reads the topic's messages any more; `purge` frees what a large topic leaves behind."""

    key: int


@dataclass(frozen=True, slots=True)
class PutSubscription:
    """Creates it with `floor`, or replaces its configuration; its progress is left alone then."""

    key: int
    topic_key: int
    subscription: Subscription
    floor: int


@dataclass(frozen=True, slots=True)
class DeleteSubscription:
    key: int


@dataclass(frozen=True, slots=True)
class Append:
    topic_key: int
    messages: Sequence[StoredMessage]


@dataclass(frozen=True, slots=True)
class Settle:
    """A subscription's progress since its last Settle: ranges are named by their first sequence."""

    subscription_key: int
    floor: int
    ranges_gone: Sequence[int] = ()
    ranges_set: Mapping[int, int] = field(default_factory=dict)
    failed_gone: Sequence[int] = ()
    failed_set: Mapping[int, FailedAttempts] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reset:
    """Replaces a subscription's whole progress: a seek."""

    subscription_key: int
    progress: Progress


@dataclass(frozen=True, slots=True)
class PutRecord:
    """A small named thing that the log keeps without knowing it: a snapshot, a schema, an IAM policy."""

    kind: str
    name: str
    value: bytes


@dataclass(frozen=True, slots=True)
class DeleteRecord:
    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class AddFacts:
    """They stay when their topic or subscription is deleted, until `forget_facts`."""

    facts: Sequence[Fact]


@dataclass(frozen=True, slots=True)
class PutMarks:
    """Each replaces what is in its slots (`facts.slots_of`); of its key, those by the minute from before
    `forget_before_ns` go. A mark of a topic or subscription that is not there is left out, and marks go with theirs."""

    marks: Sequence[Mark]
    forget_before_ns: int


Change = (
    PutTopic
    | DeleteTopic
    | PutSubscription
    | DeleteSubscription
    | Append
    | Settle
    | Reset
    | PutRecord
    | DeleteRecord
    | AddFacts
    | PutMarks
)


@dataclass(frozen=True, slots=True)
class StoredTopic:
    key: int
    topic: Topic
    next_sequence: int


@dataclass(frozen=True, slots=True)
class StoredSubscription:
    key: int
    topic_key: int
    subscription: Subscription
    progress: Progress


@dataclass(frozen=True, slots=True)
class Contents:
    topics: Sequence[StoredTopic]
    subscriptions: Sequence[StoredSubscription]
    records: Mapping[tuple[str, str], bytes]  # by kind and name
    next_key: int  # keys of topics and subscriptions are never used again, so old ids cannot meet new things


class MessageLog(Protocol):
    async def load(self) -> Contents:
        """Everything but the messages. `next_sequence` is above every sequence ever committed, deleted or not."""
        ...

    async def commit(self, changes: Sequence[Change]) -> None:
        """All of them or none; durable at return. Calls take effect in the order they were made.

        The change is handed over before the first await, so callers that do not wait in between keep their order.
        Raises StorageUnavailable, with nothing changed, when it could not be done; so also when it appends a sequence
        that is there already, or appends to a topic or settles a subscription that is not there (any more).
        """
        ...

    async def read_from(
        self, topic_key: int, first: int, last: int, limit: int, max_bytes: int = NO_LIMIT
    ) -> Sequence[StoredMessage]:
        """Committed messages with first <= sequence <= last, ascending, at most `limit`, and none after those that
        have max_bytes together."""
        ...

    async def read_one(self, topic_key: int, sequence: int) -> StoredMessage | None: ...

    async def first_since(self, topic_key: int, time_ns: int) -> int:
        """The lowest sequence that is there with a publish time at or after time_ns; above all when there is none.
        Publish times rise with sequences, but for jumps of the clock, which this need not see."""
        ...

    async def trim(self, topic_key: int, below: int, limit: int) -> int:
        """Deletes at most `limit` of the messages under `below`; gives how many. Small steps never stall publishers."""
        ...

    async def purge(self, limit: int) -> int:
        """Deletes at most `limit` messages of deleted topics; gives how many. 0 when there are none."""
        ...

    async def facts_of(self, numbers: Sequence[int], limit: int) -> Sequence[Fact]:
        """Those about any of these messages, or that name one as `other`; the first `limit`, in the order in which
        they were added."""
        ...

    async def marked(self, keys: Sequence[int], sequence: int) -> Mapping[int, Marked]:
        """By key, what the marks of each tell of this sequence; without those that have none."""
        ...

    async def forget_facts(self, before_ns: int, limit: int) -> int:
        """Deletes, of the `limit` that were added first, those from before that time; gives how many."""
        ...

    async def check(self) -> None:
        """Raises StorageUnavailable when a commit could not be done now. Changes nothing."""
        ...

    async def close(self) -> None: ...
