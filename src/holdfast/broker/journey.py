"""What the broker knows of a message's journey: from the message, from facts and marks, and from how it stands now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from holdfast.broker.facts import Fact, Marked, What
from holdfast.broker.held import NEVER_NS
from holdfast.broker.log import StoredMessage
from holdfast.broker.service import Broker
from holdfast.broker.standing import Standing, State
from holdfast.broker.subscriptions import SubscriptionQueue
from holdfast.broker.topics import SEQUENCE_BITS, TopicLog, number_of
from holdfast.clock import NANOSECONDS
from holdfast.model.journey import Did, Event, Part, Precision, Told
from holdfast.model.timestamps import format_rfc3339

# Facts that are read for one question: some 200 for each failed delivery's message, at the very most.
MOST_FACTS = 2000

NOT_KEPT = "broker.history_days is 0: failed attempts and the times of acks are not kept"

ACKED = "acked"

_ENDS = {What.DEAD_LETTERED: Did.DEAD_LETTERED, What.DROPPED: Did.DROPPED}


@dataclass(frozen=True, slots=True)
class _Known:
    """Of one message. `stored` is None once it was trimmed."""

    number: int
    sequence: int
    topic: TopicLog
    stored: StoredMessage | None
    facts: Sequence[Fact]  # about it
    origin: Fact | None  # which message it is the dead letter of, or was sent again for
    marks: Mapping[int, Marked]
    target_key: int

    @property
    def message_id(self) -> str:
        return str(self.number)


class BrokerJourney:
    part = Part.BROKER

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def tell(self, message_ids: Sequence[str]) -> Told:
        numbers = [number for one in message_ids if (number := number_of(one))]
        if not numbers:
            return Told()
        facts = await self._broker.facts_of(numbers, MOST_FACTS)
        events: list[Event] = []
        for number in numbers:
            about = [fact for fact in facts if fact.message == number]
            events += self._events_of_facts(about)
            known = await self._known(number, about, facts)
            if known is not None:
                events += self._published(known)
                events += [event for queue in self._queues_of(known) for event in self._ended(known, queue)]
        ids = {str(number) for fact in facts for number in (fact.message, fact.other) if number}
        notes = [NOT_KEPT] if events and not self._broker.keeps_facts else []
        return Told(events, sorted(ids), notes)

    async def _known(self, number: int, about: Sequence[Fact], facts: Sequence[Fact]) -> _Known | None:
        """None where there is no such message, as far as anybody can tell."""
        key, sequence = divmod(number, 1 << SEQUENCE_BITS)
        topic = self._broker.topic_with(key)
        if topic is None or not 1 <= sequence < topic.visible_end:
            return None
        stored = await topic.read_one(sequence)
        queues = [queue for queue in self._broker.queues if queue.topic is topic]
        if stored is None and any(queue.standing(sequence).state is not State.SETTLED for queue in queues):
            return None  # its publish failed: what was trimmed, everybody has settled
        origin = next((fact for fact in facts if fact.other == number), None)
        marks = await self._broker.marked([topic.key, *(queue.key for queue in queues)], sequence)
        target_key = self._broker.target_of(number)
        if origin is not None and origin.what is What.SENT_AGAIN:
            target_key = origin.subscription_key
        return _Known(number, sequence, topic, stored, about, origin, marks, target_key)

    # What is kept of deliveries.

    def _events_of_facts(self, facts: Sequence[Fact]) -> Iterator[Event]:
        names = {queue.key: queue.config.name for queue in self._broker.queues}
        names |= {topic.key: topic.topic.name for topic in self._broker.topics}
        for fact in facts:
            message_id, where = str(fact.message), names.get(fact.subscription_key, "a deleted subscription")
            related = str(fact.other) if fact.other else ""
            if fact.what is What.SENT_AGAIN:
                yield Event(Part.BROKER, Did.SENT_AGAIN, message_id, where, fact.at_ns, related=related)
                continue
            told = _told(fact)
            yield Event(
                Part.BROKER, Did.ATTEMPT_FAILED, message_id, where, fact.at_ns, attempt=fact.attempt, detail=told
            )
            if did := _ENDS.get(fact.what):
                yield Event(Part.BROKER, did, message_id, where, fact.at_ns, detail=fact.reason, related=related)

    # What the message and the marks tell.

    def _published(self, known: _Known) -> Iterator[Event]:
        """Once it was trimmed: with the fact that names it, as both were one commit, or between two marks."""
        where, at_ns, since_ns, precision = known.topic.topic.name, None, None, Precision.EXACT
        if known.stored is not None:
            at_ns = known.stored.publish_time_ns
        elif known.origin is not None:
            at_ns = known.origin.at_ns
        else:
            precision = Precision.BY
            marked = known.marks.get(known.topic.key)
            if marked is not None:
                since_ns = marked.after_ns
            passed = [marked.by_ns] if marked is not None and marked.by_ns is not None else []
            at_ns = min([*passed, *(fact.at_ns for fact in known.facts)], default=None)
        yield Event(Part.BROKER, Did.PUBLISHED, known.message_id, where, at_ns, precision, since_ns)

    def _queues_of(self, known: _Known) -> list[SubscriptionQueue]:
        """Those that the message was owed to."""
        queues = [queue for queue in self._broker.queues if queue.topic is known.topic]
        if known.target_key not in (0, known.topic.key):
            queues = [queue for queue in queues if queue.key == known.target_key]
        return [queue for queue in queues if not self._came_later(known, queue)]

    def _came_later(self, known: _Known, queue: SubscriptionQueue) -> bool:
        marked = known.marks.get(queue.key)
        is_settled = queue.standing(known.sequence).state is State.SETTLED
        return marked is not None and marked.before_first and is_settled

    def _ended(self, known: _Known, queue: SubscriptionQueue) -> Iterator[Event]:
        name = queue.config.name
        if known.stored is not None and queue.leaves_out(known.stored):
            if not known.target_key:
                at_ns, told = known.stored.publish_time_ns, "its filter leaves the message out"
                yield Event(Part.BROKER, Did.FILTERED_OUT, known.message_id, name, at_ns, detail=told)
            return
        standing = queue.standing(known.sequence)
        facts = [fact for fact in known.facts if fact.subscription_key == queue.key]
        if standing.state is not State.SETTLED:
            told = _stands(standing)
        elif any(fact.what in _ENDS for fact in facts):
            return
        else:
            acked = self._acked(known, queue, facts)
            if acked is not None:
                yield acked
                return
            told = f"{_how(queue, known)}, at a time that is not known"
        yield Event(Part.BROKER, Did.IS, known.message_id, name, None, Precision.NOW, detail=told)

    def _acked(self, known: _Known, queue: SubscriptionQueue, facts: Sequence[Fact]) -> Event | None:
        marked = known.marks.get(queue.key)
        if marked is None or marked.by_ns is None:
            return None
        by_ns, since = marked.by_ns, [fact.at_ns for fact in facts if fact.what is What.FAILED]
        if known.stored is not None:
            since.append(known.stored.publish_time_ns)
        elif (published := known.marks.get(known.topic.key)) and published.after_ns:
            since.append(published.after_ns)
        since_ns = max(since, default=None)
        return Event(
            Part.BROKER,
            Did.ACKED,
            known.message_id,
            queue.config.name,
            by_ns,
            Precision.BY,
            since_ns if since_ns is not None and since_ns <= by_ns else None,
            detail="" if (how := _how(queue, known, by_ns, since_ns)) == ACKED else how,
        )


def _how(queue: SubscriptionQueue, known: _Known, by_ns: int = 0, since_ns: int | None = 0) -> str:
    """What may have settled it."""
    others = []
    if known.stored is None and queue.config.filter:
        others.append("left out by its filter")
    if since_ns is None or by_ns - since_ns > queue.config.message_retention_seconds * NANOSECONDS:
        others.append("past its retention")
    return ", or ".join([ACKED, *others])


def _told(fact: Fact) -> str:
    told = ": ".join(filter(None, (fact.status, fact.error)))
    return f"{told} ({fact.reason})" if fact.reason else told


def _stands(standing: Standing) -> str:
    until = "" if standing.until_ns in (None, NEVER_NS) else format_rfc3339(standing.until_ns or 0)
    match standing.state:
        case State.LEASED:
            return f"under way: attempt {standing.attempts}, until {until}"
        case State.WAITING:
            return f"waits for attempt {standing.attempts + 1}, due at {until}"
        case State.HELD:
            return "held: its ordering key waits for a replay or a release"
        case State.LEAVING:
            return "its dead letter is being written"
        case _:
            return "not delivered yet"
