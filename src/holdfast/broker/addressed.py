"""Messages that are sent once for each REPLAY_ID: to a topic, or to one subscription alone, and asked after there.

Those for one subscription are appended to the topic's log as all messages are, with an address behind the stored body
(wire.py); the other subscriptions of the topic settle them unseen (backlog.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.broker.facts import FactWriter
from holdfast.broker.held import Replacement
from holdfast.broker.log import AddFacts, Change, MessageLog
from holdfast.broker.sent import NO_REPLAY_ID, Sent, SentMessages, digest_of
from holdfast.broker.subscriptions import SubscriptionQueue
from holdfast.broker.topics import SEQUENCE_BITS, TopicLog, number_of, sequence_of
from holdfast.broker.wire import PubsubMessage
from holdfast.clock import NANOSECONDS, Clock
from holdfast.errors import FailedPrecondition
from holdfast.model.fate import Fate
from holdfast.model.replay_attributes import IN_PLACE_OF, ORIGINAL_MESSAGE_ID, REPLAY_ID

# Forgotten with one commit, so that publishers do not wait for the end of a large replay.
STEP = 1000

_SEQUENCE_MASK = (1 << SEQUENCE_BITS) - 1


class AddressedMessages:
    def __init__(
        self,
        log: MessageLog,
        clock: Clock,
        memory_hours: float,
        records: Mapping[tuple[str, str], bytes],
        facts: FactWriter,
    ) -> None:
        self._log = log
        self._clock = clock
        self._memory_ns = round(memory_hours * 3600 * NANOSECONDS)
        self._sent = SentMessages(records)
        self._facts = facts
        self._under_way: dict[bytes, asyncio.Future[None]] = {}  # by digest

    def remind(self, topics: Mapping[int, TopicLog]) -> None:
        """The topics, by key, of what an earlier process sent to single subscriptions."""
        for sent in self._sent.by_number():
            topic_key, first = divmod(sent.first, 1 << SEQUENCE_BITS)
            topic = topics.get(topic_key)
            if topic is not None and sent.target_key != topic_key:
                topic.odd.add(first, first + len(sent.digests) - 1, sent.target_key)

    async def publish_to(self, queue: SubscriptionQueue, messages: Sequence[bytes]) -> list[bytes]:
        """`messages` are serialized PubsubMessages. Gives their ids once they are on disk; for one whose REPLAY_ID was
        there before, the first id."""
        if queue.config.detached:
            raise FailedPrecondition(f"subscription {queue.config.name} is detached from its topic")
        return await self._publish(_Target(queue.topic, queue.key, queue), messages)

    async def publish_once(self, topic: TopicLog, messages: Sequence[bytes]) -> list[bytes]:
        """As `publish_to`, but for every subscription of the topic."""
        return await self._publish(_Target(topic, topic.key), messages)

    async def _publish(self, target: _Target, messages: Sequence[bytes]) -> list[bytes]:
        parsed = [PubsubMessage.FromString(message) for message in messages]
        digests = [digest_of(target.key, message.attributes.get(REPLAY_ID, "")) for message in parsed]
        places = await _places(target.queue, parsed) if target.queue else {}
        while others := [self._under_way[digest] for digest in digests if digest in self._under_way]:
            await asyncio.wait(others)  # how that ends decides what is new here
        fresh = self._fresh(digests)
        ids: list[bytes] = []
        if fresh:
            ids = await self._append(
                target, [_Sending(messages[at], digests[at], places.get(at), _original(parsed[at])) for at in fresh]
            )
        given = dict(zip(fresh, ids, strict=True))
        return [given[at] if at in given else self._first_id(digest) for at, digest in enumerate(digests)]

    def _first_id(self, digest: bytes) -> bytes:
        number = self._sent.under(digest)
        assert number is not None  # else it would have been fresh
        return b"%d" % number

    def _fresh(self, digests: Sequence[bytes]) -> list[int]:
        """The places of those to be sent: of several with one REPLAY_ID the first, if there was none before."""
        seen: set[bytes] = set()
        fresh: list[int] = []
        for at, digest in enumerate(digests):
            if digest == NO_REPLAY_ID or (digest not in seen and self._sent.under(digest) is None):
                fresh.append(at)
                seen.add(digest)
        return fresh

    async def _append(self, target: _Target, sending: Sequence[_Sending]) -> list[bytes]:
        done = asyncio.get_running_loop().create_future()
        digests = [one.digest for one in sending]
        named = [digest for digest in digests if digest != NO_REPLAY_ID]
        self._under_way |= dict.fromkeys(named, done)
        now_ns = self._clock.now_ns()

        def remembered(numbers: range) -> list[Change]:
            replacements = _replacements(target.key, numbers, sending)
            sent = Sent(now_ns, target.key, numbers.start, digests).saved()
            return [sent, *(one.saved() for one in replacements), *self._lineage(target.key, numbers, sending)]

        try:
            messages = [one.message for one in sending]
            ids = await target.topic.publish(messages, now_ns, only_for=target.only_for, along=remembered)
            sent = Sent(now_ns, target.key, int(ids[0]), digests)
            self._sent.put(sent)
            if target.queue:
                for replacement in _replacements(target.key, sent.numbers, sending):
                    target.queue.replace(replacement)
        finally:
            for digest in named:
                del self._under_way[digest]
            done.set_result(None)
        return ids

    def _lineage(self, key: int, numbers: range, sending: Sequence[_Sending]) -> list[Change]:
        told = zip(numbers, sending, strict=True)
        facts = [
            fact for number, one in told if one.original for fact in self._facts.sent_again(one.original, key, number)
        ]
        return [AddFacts(facts)] if facts else []

    # What became of them.

    def fates(self, queue: SubscriptionQueue, message_ids: Sequence[str]) -> dict[str, Fate]:
        return {message_id: self._fate(queue, message_id) for message_id in message_ids}

    def _fate(self, queue: SubscriptionQueue, message_id: str) -> Fate:
        sequence = sequence_of(message_id, queue.topic.key)
        sent = self._sent.of(int(message_id)) if sequence is not None else None
        if sequence is None or sent is None or sent.target_key != queue.key:
            return Fate.UNKNOWN
        if self._sent.is_dead_lettered(int(message_id)):
            return Fate.DEAD_LETTERED
        if sequence not in queue.settled:
            return Fate.PENDING
        retention_ns = round(queue.config.message_retention_seconds * NANOSECONDS)
        return Fate.ACKED if self._clock.now_ns() - sent.at_ns <= retention_ns else Fate.EXPIRED

    def target_of(self, number: int) -> int:
        """The key of the subscription, or of the topic, that the message was sent to; 0 where that is not known."""
        sent = self._sent.of(number)
        return sent.target_key if sent else 0

    def dead_letter(self, number: int) -> list[Change]:
        """To be committed with the dead letter of this message; `dead_lettered` is said afterwards."""
        return self._sent.dead_letter(number)

    def dead_lettered(self, number: int) -> None:
        self._sent.dead_lettered(number)

    # Forgetting.

    async def forget_old(self, queues: Sequence[SubscriptionQueue]) -> None:
        """What is older than it is remembered, unless it still waits for its end."""
        by_key = {queue.key: queue for queue in queues}
        old = [sent for sent in self._sent.before(self._clock.now_ns() - self._memory_ns) if _is_over(sent, by_key)]
        for start in range(0, len(old), STEP):
            await self._log.commit(self._sent.forget(old[start : start + STEP]))


@dataclass(frozen=True, slots=True)
class _Target:
    """A topic, or with `queue` one subscription of it. `key` is that of either."""

    topic: TopicLog
    key: int
    queue: SubscriptionQueue | None = None

    @property
    def only_for(self) -> int:
        return self.key if self.queue else 0


@dataclass(frozen=True, slots=True)
class _Sending:
    message: bytes
    digest: bytes
    place: _Place | None
    original: int = 0  # the number of the message that failed first, if it says so


@dataclass(frozen=True, slots=True)
class _Place:
    """At the head of an ordering key, where a message is held."""

    held: int
    key: str


def _original(message: Any) -> int:
    """0 where it names none. Another broker's ids may look otherwise."""
    named = message.attributes.get(ORIGINAL_MESSAGE_ID, "")
    return number_of(named) or 0 if message.attributes.get(REPLAY_ID) else 0


async def _places(queue: SubscriptionQueue, messages: Sequence[Any]) -> dict[int, _Place]:
    """Of those that come in the place of a held message, by their position. A message whose own key is another one, as
    an edit may have it, is like all others."""
    places: dict[int, _Place] = {}
    for at, message in enumerate(messages):
        held = sequence_of(message.attributes.get(IN_PLACE_OF, ""), queue.topic.key)
        if not message.ordering_key or held is None or not queue.is_open(held):
            continue
        original = await queue.topic.read_one(held)
        if original is not None and PubsubMessage.FromString(original.body).ordering_key == message.ordering_key:
            places[at] = _Place(held, message.ordering_key)
    return places


def _replacements(subscription_key: int, numbers: range, sending: Sequence[_Sending]) -> list[Replacement]:
    return [
        Replacement(subscription_key, one.place.held, number & _SEQUENCE_MASK, one.place.key)
        for number, one in zip(numbers, sending, strict=True)
        if one.place is not None
    ]


def _is_over(sent: Sent, queues: Mapping[int, SubscriptionQueue]) -> bool:
    queue = queues.get(sent.target_key)
    return queue is None or all(number & _SEQUENCE_MASK in queue.settled for number in sent.numbers)
