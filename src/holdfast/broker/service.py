"""Every Pub/Sub operation, once. gRPC, REST, the local transport and push all come through here.

Names are full paths. Errors are those of holdfast.errors; the API layers translate them.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from holdfast.broker import limits, wire
from holdfast.broker.addressed import AddressedMessages
from holdfast.broker.dead_letter import dead_letter_copy
from holdfast.broker.facts import Fact, FactWriter, Hide, Mark, Marked, What
from holdfast.broker.held import HeldMessage, Replacement, replacements_by_subscription
from holdfast.broker.leases import NACKED, Failure, Lease, NoHolder
from holdfast.broker.log import (
    AddFacts,
    Change,
    Contents,
    DeleteRecord,
    DeleteSubscription,
    DeleteTopic,
    MessageLog,
    Progress,
    PutMarks,
    PutRecord,
    PutSubscription,
    PutTopic,
)
from holdfast.broker.schemas.registry import DELETED_SCHEMA, SchemaRegistry, schema_attributes
from holdfast.broker.signals import Signal, Timers
from holdfast.broker.signing_keys import DEFAULT_KEY_DAYS, SigningKeys
from holdfast.broker.snapshots import LIFETIME_SECONDS, SHORTEST_LIFETIME_SECONDS, Snapshot, Snapshots
from holdfast.broker.streams import require_pull
from holdfast.broker.subscriptions import SubscriptionQueue
from holdfast.broker.tail_cache import TailCache
from holdfast.broker.topics import TopicLog, message_number, sequence_of
from holdfast.clock import NANOSECONDS, Clock
from holdfast.errors import AlreadyExists, BadInput, FailedPrecondition, NotFound, StaleAckIds
from holdfast.model.fate import Fate, Release
from holdfast.model.message import Message
from holdfast.model.names import (
    DELETED_TOPIC,
    check_project,
    check_schema,
    check_snapshot,
    check_subscription,
    check_topic,
)
from holdfast.model.resources import PushConfig, SchemaSettings, Subscription, Topic
from holdfast.outgoing.addresses import LOOPBACK, AddressGuard
from holdfast.outgoing.targets import parse_target
from holdfast.settings import BrokerSettings

log = logging.getLogger("holdfast.broker")

# Real Pub/Sub answers an empty pull after a while; clients give up after theirs. Shorter than any client's patience.
EMPTY_PULL_SECONDS = 2.0

# A pull's answer must stay under gRPC's usual 4 MB limit for what a client receives, unless one message is larger.
PULL_BYTES = 3_500_000


# Marks in one commit: some milliseconds that publishers may have to wait.
MOST_MARKS = 500


# Kind of record in the log.
POLICY = "iam policy"

PUSH_ENDPOINT = "push_config.push_endpoint"

# What may have a policy.
_NAMES = {
    "topics": check_topic,
    "subscriptions": check_subscription,
    "snapshots": check_snapshot,
    "schemas": check_schema,
}


Arguments = ParamSpec("Arguments")
T = TypeVar("T")


def _to_the_end(
    method: Callable[Concatenate[Broker, Arguments], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Broker, Arguments], Coroutine[Any, Any, T]]:
    """A change that has begun is finished even if its caller goes away: cancelled between the disk and the memory, it
    would leave the two different."""

    @functools.wraps(method)
    async def run(broker: Broker, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> T:
        change = asyncio.ensure_future(method(broker, *args, **kwargs))
        broker._changing.add(change)
        change.add_done_callback(broker._changing.discard)
        change.add_done_callback(lambda done: done.cancelled() or done.exception())  # looked at, whoever waits
        return await asyncio.shield(change)

    return run


class Broker:
    """Opened by `Broker.open`, which continues where the log says the last process was."""

    _queue_type: type[SubscriptionQueue] = SubscriptionQueue

    def __init__(
        self,
        log: MessageLog,
        clock: Clock,
        settings: BrokerSettings,
        guard: AddressGuard | None = None,
        *,
        key_days: float = DEFAULT_KEY_DAYS,
        hide: Hide | None = None,
    ) -> None:
        self.subscriptions_changed = Signal()
        self.topic_created = Signal()
        self._log = log
        self._clock = clock
        self._settings = settings
        self._facts = FactWriter(clock, settings.history_days, hide)
        # By key: when a topic or subscription got its last mark, and how far it had come.
        self._marked: dict[int, Mark] = {}
        self._guard = guard or AddressGuard(LOOPBACK)
        self._cache = TailCache(settings.cache_megabytes * 1_000_000)
        self._timers = Timers(clock)
        self._topics: dict[str, TopicLog] = {}
        self._orphans: dict[int, TopicLog] = {}  # deleted topics whose messages a subscription may still read
        self._queues: dict[str, SubscriptionQueue] = {}
        self._snapshots = Snapshots({})
        self.schemas = self._schema_registry({})
        self.signing_keys = SigningKeys(log.commit, clock, key_days)
        self._addressed = self._addressed_messages({})
        self._policies: dict[str, bytes] = {}
        self._next_key = 1
        self._changing: set[asyncio.Future[Any]] = set()
        # Creating and deleting wait for the disk in between; one at a time keeps names unique.
        self._administration = asyncio.Lock()

    @classmethod
    async def open(
        cls,
        log: MessageLog,
        clock: Clock,
        settings: BrokerSettings,
        guard: AddressGuard | None = None,
        *,
        key_days: float = DEFAULT_KEY_DAYS,
        hide: Hide | None = None,
    ) -> Self:
        """`guard` says where push endpoints may be; without one, anywhere public and on this machine. `hide` replaces
        what errors quote of messages, in what is kept of their past."""
        broker = cls(log, clock, settings, guard, key_days=key_days, hide=hide)
        broker._restore(await log.load())
        return broker

    def _restore(self, contents: Contents) -> None:
        self._next_key = contents.next_key
        self._snapshots = Snapshots(contents.records)
        self.schemas = self._schema_registry(contents.records)
        self.signing_keys.restore(contents.records)
        self._addressed = self._addressed_messages(contents.records)
        self._policies = {name: value for (kind, name), value in contents.records.items() if kind == POLICY}
        by_key: dict[int, TopicLog] = {}
        for stored in contents.topics:
            next_sequence = max(stored.next_sequence, self._first_unsettled(contents, stored.key))
            topic = TopicLog(stored.key, stored.topic, next_sequence, self._log, self._cache)
            by_key[stored.key] = topic
            if stored.topic.name == DELETED_TOPIC:
                self._orphans[stored.key] = topic
            else:
                self._topics[stored.topic.name] = topic
        self._addressed.remind(by_key)
        replacements = replacements_by_subscription(contents.records)
        for found in contents.subscriptions:
            mine = replacements.get(found.key, ())
            self._add_queue(found.key, found.subscription, by_key[found.topic_key], found.progress, mine)

    def _first_unsettled(self, contents: Contents, topic_key: int) -> int:
        """A publish that failed leaves sequences unused, and subscriptions may have settled them. They must not be
        given to new messages, which would count as settled from the start."""
        progress = [found.progress for found in contents.subscriptions if found.topic_key == topic_key]
        progress += [snapshot.progress for snapshot in self._snapshots.of_topic(topic_key)]
        return max([max(one.floor, max(one.acked.values(), default=0) + 1) for one in progress], default=1)

    def _schema_registry(self, records: Mapping[tuple[str, str], bytes]) -> SchemaRegistry:
        return SchemaRegistry(records, self._log.commit, self._clock, commit_deletion=self._commit_schema_deletion)

    def _addressed_messages(self, records: Mapping[tuple[str, str], bytes]) -> AddressedMessages:
        return AddressedMessages(self._log, self._clock, self._settings.replay_memory_hours, records, self._facts)

    async def close(self) -> None:
        """Everything decided so far is on disk at return. The log itself is its owner's to close."""
        await asyncio.gather(*self._changing, return_exceptions=True)
        await self.signing_keys.close()
        results = await asyncio.gather(*(queue.close() for queue in self._queues.values()), return_exceptions=True)
        results += await asyncio.gather(self.mark_progress(), return_exceptions=True)
        self._timers.stop()
        for error in filter(None, results):
            log.error("a subscription's progress could not be saved", extra={"fields": {"error": str(error)}})

    async def check(self) -> None:
        """Raises when nothing could be published now."""
        await self._log.check()

    @property
    def is_strict(self) -> bool:
        return self._settings.strict

    # Topics.

    @_to_the_end
    async def create_topic(self, topic: Topic) -> Topic:
        limits.check_topic_config(topic)
        async with self._administration:
            self._check_schema_settings(topic)
            if topic.name in self._topics:
                raise AlreadyExists(f"topic {topic.name} already exists")
            key = self._take_key()
            await self._log.commit([PutTopic(key, topic), PutMarks(self._facts.first_mark(key, 1), 0)])
            self._topics[topic.name] = TopicLog(key, topic, 1, self._log, self._cache)
        self.topic_created.fire()
        return topic

    def get_topic(self, name: str) -> Topic:
        return self._topic(name).topic

    @property
    def topics(self) -> Sequence[TopicLog]:
        return list(self._topics.values())

    def topic_with(self, key: int) -> TopicLog | None:
        """Also one that was deleted, as long as a subscription or snapshot needs its messages."""
        return next((topic for topic in [*self._topics.values(), *self._orphans.values()] if topic.key == key), None)

    def list_topics(self, project: str) -> list[Topic]:
        check_project("project", project)
        return [self._topics[name].topic for name in sorted(self._topics) if name.startswith(f"{project}/")]

    @_to_the_end
    async def update_topic(self, name: str, change: Callable[[Topic], Topic]) -> Topic:
        async with self._administration:
            topic = self._topic(name)
            changed = change(topic.topic)
            limits.check_topic_config(changed)
            if changed.schema != topic.topic.schema:
                self._check_schema_settings(changed)
            await self._log.commit([PutTopic(topic.key, changed)])
            topic.topic = changed
        return changed

    def list_topic_subscriptions(self, name: str) -> list[str]:
        topic = self._topic(name)
        return sorted(queue.config.name for queue in self._queues.values() if queue.topic is topic)

    @_to_the_end
    async def delete_topic(self, name: str) -> None:
        """Its subscriptions stay, keep what they had not settled, and show `_deleted-topic_` from now on."""
        async with self._administration:
            topic = self._topic(name)
            queues = [queue for queue in self._queues.values() if queue.topic is topic]
            if queues or self._snapshots.of_topic(topic.key):
                await self._orphan(topic, queues)
            else:
                topic.deleted = True
                await self._log.commit([DeleteTopic(topic.key)])
                self._cache.forget_topic(topic.key)
            del self._topics[name]
            await self._forget_policy(name)

    async def _orphan(self, topic: TopicLog, queues: Sequence[SubscriptionQueue]) -> None:
        tombstone = Topic(DELETED_TOPIC)
        configs = [replace(queue.config, topic=DELETED_TOPIC) for queue in queues]
        changes = [PutSubscription(q.key, topic.key, c, q.settled.floor) for q, c in zip(queues, configs, strict=True)]
        snapshots = [replace(snapshot, topic=DELETED_TOPIC) for snapshot in self._snapshots.of_topic(topic.key)]
        saves = [snapshot.saved() for snapshot in snapshots]
        await self._log.commit([PutTopic(topic.key, tombstone), *changes, *saves])
        for snapshot in snapshots:
            self._snapshots.put(snapshot)
        topic.topic = tombstone
        self._orphans[topic.key] = topic
        for queue, config in zip(queues, configs, strict=True):
            queue.reconfigure(config)

    async def publish(self, topic: str, messages: Sequence[bytes], request_bytes: int) -> list[bytes]:
        """`messages` are serialized PubsubMessages. The ids are given once every message is on disk."""
        found, messages = await self._checked(topic, messages, request_bytes)
        return await found.publish(messages, self._clock.now_ns())

    async def _checked(
        self, topic: str, messages: Sequence[bytes], request_bytes: int
    ) -> tuple[TopicLog, Sequence[bytes]]:
        found = self._topic(topic)
        limits.check_publish(messages, request_bytes)
        if found.topic.schema is not None:
            messages = await self._fitting(found.topic.schema, messages)
        return found, messages

    async def _fitting(self, settings: SchemaSettings, messages: Sequence[bytes]) -> list[bytes]:
        """The messages with the schema attributes that Pub/Sub adds. Raises when one does not fit the schema."""
        parsed = [wire.PubsubMessage.FromString(message) for message in messages]
        revisions = await self.schemas.check_publish(settings, parsed)
        for message, revision in zip(parsed, revisions, strict=True):
            message.attributes.update(schema_attributes(settings, revision))
        return [message.SerializeToString() for message in parsed]

    def _check_schema_settings(self, topic: Topic) -> None:
        if topic.schema is not None:
            self.schemas.check_settings(topic.schema)

    async def _commit_schema_deletion(self, name: str, changes: Sequence[Change]) -> None:
        """The topics that had it show `_deleted-schema_` from the same commit on, and refuse messages."""
        async with self._administration:
            gone = [
                topic for topic in self._topics.values() if topic.topic.schema and topic.topic.schema.schema == name
            ]
            configs = [replace(topic.topic, schema=SchemaSettings(DELETED_SCHEMA)) for topic in gone]
            puts = [PutTopic(topic.key, config) for topic, config in zip(gone, configs, strict=True)]
            await self._log.commit([*changes, *puts])
            for topic, config in zip(gone, configs, strict=True):
                topic.topic = config

    async def publish_message(self, topic: str, message: Message) -> str:
        encoded = wire.encode(message)
        return (await self.publish(topic, [encoded], len(encoded)))[0].decode()

    @_to_the_end
    async def publish_to(self, subscription: str, messages: Sequence[bytes], request_bytes: int) -> list[bytes]:
        """As `publish`, but to this subscription alone: its filter and the topic's schema are not asked. A message with
        a REPLAY_ID that was given before is not sent again; its first id comes back."""
        queue = self.queue(subscription)
        limits.check_publish(messages, request_bytes)
        return await self._addressed.publish_to(queue, messages)

    @_to_the_end
    async def publish_once(self, topic: str, messages: Sequence[bytes], request_bytes: int) -> list[bytes]:
        """As `publish`, but heeds REPLAY_IDs as `publish_to` does."""
        found, messages = await self._checked(topic, messages, request_bytes)
        return await self._addressed.publish_once(found, messages)

    def fates(self, subscription: str, message_ids: Sequence[str]) -> dict[str, Fate]:
        """What became of messages that `publish_to` gave these ids."""
        return self._addressed.fates(self.queue(subscription), message_ids)

    async def held(self, subscription: str = "") -> list[HeldMessage]:
        """The messages that ordering keys wait at, of one subscription or of all, by name and then by age."""
        queues = [self.queue(subscription)] if subscription else self.queues
        return [one for queue in sorted(queues, key=lambda queue: queue.config.name) for one in await queue.held()]

    async def release(self, subscription: str, message_id: str) -> Release:
        """The key that is held at this message goes on without it."""
        queue = self.queue(subscription)
        sequence = sequence_of(message_id, queue.topic.key)
        if sequence is None:
            return Release.NOT_HELD
        if await queue.release(sequence):
            return Release.RELEASED
        may_be_held = queue.is_open(sequence) and await queue.topic.read_one(sequence) is not None
        return Release.NOT_YET if may_be_held else Release.NOT_HELD

    # Subscriptions.

    @_to_the_end
    async def create_subscription(self, config: Subscription) -> Subscription:
        self._check_config(config)
        async with self._administration:
            if config.name in self._queues:
                raise AlreadyExists(f"subscription {config.name} already exists")
            topic = self._topic(config.topic)
            self._require_dead_letter_topic(config)
            key, floor = self._take_key(), topic.visible_end
            config = replace(config, first_sequence=floor)
            first = PutMarks(self._facts.first_mark(key, floor), 0)
            await self._log.commit([PutSubscription(key, topic.key, config, floor), first])
            self._add_queue(key, config, topic, Progress(floor))
        return config

    def get_subscription(self, name: str) -> Subscription:
        return self.queue(name).config

    def list_subscriptions(self, project: str) -> list[Subscription]:
        check_project("project", project)
        return [self._queues[name].config for name in sorted(self._queues) if name.startswith(f"{project}/")]

    @_to_the_end
    async def update_subscription(self, name: str, change: Callable[[Subscription], Subscription]) -> Subscription:
        async with self._administration:
            queue = self.queue(name)
            config = change(queue.config)
            self._check_config(config, queue.config)
            if config.dead_letter and config.dead_letter != queue.config.dead_letter:
                self._require_dead_letter_topic(config)
            await self._log.commit([PutSubscription(queue.key, queue.topic.key, config, queue.settled.floor)])
            queue.reconfigure(config)
        self.subscriptions_changed.fire()
        return config

    def _check_config(self, config: Subscription, before: Subscription | None = None) -> None:
        limits.check_subscription_config(config, strict=self._settings.strict)
        if config.push and (before is None or config.push != before.push):
            self._guard.check_target(PUSH_ENDPOINT, parse_target(PUSH_ENDPOINT, config.push.endpoint))

    def _require_dead_letter_topic(self, config: Subscription) -> None:
        """Where it is only created later, a message that fails before would have nowhere to go."""
        if config.dead_letter and config.dead_letter.topic not in self._topics:
            raise NotFound(f"dead-letter topic {config.dead_letter.topic} does not exist")

    async def modify_push_config(self, name: str, push: PushConfig | None) -> None:
        """None turns it into a pull subscription."""
        await self.update_subscription(name, lambda config: replace(config, push=push))

    @_to_the_end
    async def detach_subscription(self, name: str) -> None:
        """It stays, delivers nothing any more and keeps no messages."""
        await self.update_subscription(name, lambda config: replace(config, detached=True))
        queue = self.queue(name)
        await queue.seek(lambda _: Progress(queue.topic.visible_end))

    @_to_the_end
    async def delete_subscription(self, name: str) -> None:
        async with self._administration:
            queue = self.queue(name)
            await self._log.commit([DeleteSubscription(queue.key), *queue.forget_replacements()])
            del self._queues[name]
            queue.topic.listeners.remove(queue.changed.fire)
            await queue.delete()
            await self._drop_orphan(queue.topic)
            await self._forget_policy(name)
        self.subscriptions_changed.fire()

    async def _drop_orphan(self, topic: TopicLog) -> None:
        """A deleted topic's messages go with the last subscription or snapshot that may need them."""
        needed = any(queue.topic is topic for queue in self._queues.values()) or self._snapshots.of_topic(topic.key)
        if topic.key in self._orphans and not needed:
            await self._log.commit([DeleteTopic(topic.key)])
            self._cache.forget_topic(self._orphans.pop(topic.key).key)

    # Snapshots and seek.

    @_to_the_end
    async def create_snapshot(self, name: str, subscription: str, labels: Mapping[str, str]) -> Snapshot:
        check_snapshot("name", name)
        limits.check_labels(labels)
        async with self._administration:
            if self._snapshots.find(name):
                raise AlreadyExists(f"snapshot {name} already exists")
            queue = self.queue(subscription)
            snapshot = Snapshot(
                name,
                queue.topic.topic.name,
                queue.topic.key,
                await self._snapshot_expiry(queue),
                queue.settled.floor,
                dict(queue.settled.ranges),
                dict(labels),
            )
            await self._log.commit([snapshot.saved()])
            self._snapshots.put(snapshot)
        return snapshot

    async def _snapshot_expiry(self, queue: SubscriptionQueue) -> int:
        oldest, _ = await queue.topic.read(queue.settled.floor, 1, 1)
        now_ns = self._clock.now_ns()
        since_ns = oldest[0].publish_time_ns if oldest else now_ns
        expiry_ns = since_ns + LIFETIME_SECONDS * NANOSECONDS
        if expiry_ns - now_ns < SHORTEST_LIFETIME_SECONDS * NANOSECONDS:
            raise FailedPrecondition(
                "the subscription's backlog is so old that the snapshot would expire within an hour"
            )
        return expiry_ns

    def get_snapshot(self, name: str) -> Snapshot:
        snapshot = self._snapshots.find(name)
        if snapshot is None:
            check_snapshot("snapshot", name)
            raise NotFound(f"snapshot {name} does not exist")
        return snapshot

    def list_snapshots(self, project: str) -> list[Snapshot]:
        check_project("project", project)
        return [snapshot for snapshot in self._snapshots.sorted() if snapshot.name.startswith(f"{project}/")]

    def list_topic_snapshots(self, name: str) -> list[str]:
        return [snapshot.name for snapshot in self._snapshots.of_topic(self._topic(name).key)]

    @_to_the_end
    async def update_snapshot(self, name: str, change: Callable[[Snapshot], Snapshot]) -> Snapshot:
        async with self._administration:
            changed = change(self.get_snapshot(name))
            limits.check_labels(changed.labels)
            await self._log.commit([changed.saved()])
            self._snapshots.put(changed)
        return changed

    @_to_the_end
    async def delete_snapshot(self, name: str) -> None:
        async with self._administration:
            snapshot = self.get_snapshot(name)
            await self._log.commit([snapshot.deleted()])
            self._snapshots.remove(name)
            if orphan := self._orphans.get(snapshot.topic_key):
                await self._drop_orphan(orphan)
            await self._forget_policy(name)

    @_to_the_end
    async def seek_to_snapshot(self, subscription: str, snapshot: str) -> None:
        queue, found = self.queue(subscription), self.get_snapshot(snapshot)
        if found.topic_key != queue.topic.key:
            raise FailedPrecondition(f"snapshot {snapshot} is of another topic than subscription {subscription}")
        await queue.seek(lambda _: found.progress)

    @_to_the_end
    async def seek_to_time(self, subscription: str, time_ns: int) -> None:
        """What was published before is settled; what was published since is open again, as far as it is retained."""
        queue = self.queue(subscription)
        first = min(await self._log.first_since(queue.topic.key, time_ns), queue.topic.visible_end)
        if queue.topic.topic.message_retention_seconds is not None:
            await queue.seek(lambda _: Progress(first))
        elif queue.config.retain_acked:  # it retains what was published since it was created
            await queue.seek(lambda _: Progress(max(first, queue.config.first_sequence)))
        else:  # acked messages are gone for this subscription, even while others keep them in the log
            await queue.seek(lambda settled: settled.from_sequence(first))

    def queue(self, name: str) -> SubscriptionQueue:
        try:
            return self._queues[name]
        except KeyError:
            check_subscription("subscription", name)
            raise NotFound(f"subscription {name} does not exist") from None

    @property
    def queues(self) -> Sequence[SubscriptionQueue]:
        return list(self._queues.values())

    # Deliveries.

    async def pull(self, subscription: str, max_messages: int, wait_seconds: float = EMPTY_PULL_SECONDS) -> list[Lease]:
        """Waits a little for the first message; then gives what is there."""
        if max_messages < 1:
            raise BadInput("max_messages", f"{max_messages} is out of range; at least 1 is needed")
        queue = self.queue(subscription)
        require_pull(queue.config)
        max_messages = min(max_messages, limits.REQUEST_MESSAGES)
        if wait_seconds <= 0:  # wait_for would give up before it had looked
            return await queue.take(max_messages, PULL_BYTES, NoHolder())
        taking = queue.take_or_wait(max_messages, PULL_BYTES, NoHolder())
        try:
            return await asyncio.wait_for(taking, wait_seconds)
        except TimeoutError:
            return []

    async def acknowledge(self, subscription: str, ack_ids: Sequence[str]) -> None:
        """Raises StaleAckIds, after the good ones are on disk, when some do not count (exactly-once only)."""
        queue = self.queue(subscription)
        _require_ack_ids(ack_ids)
        stale, saved = queue.ack(ack_ids)
        await asyncio.shield(saved)  # others wait for the same save
        if stale:
            raise StaleAckIds(stale)

    def modify_ack_deadline(
        self, subscription: str, ack_ids: Sequence[str], seconds: int, failure: Failure | None = None
    ) -> None:
        """0 seconds is a nack. `failure` is what the subscriber says of it, which a strict broker does not hear."""
        queue = self.queue(subscription)
        _require_ack_ids(ack_ids)
        if not 0 <= seconds <= limits.ACK_DEADLINE_SECONDS[1]:
            raise BadInput("ack_deadline_seconds", f"{seconds} is out of range; 0 to 600 is allowed")
        if self.is_strict:
            failure = None
        stale = queue.nack(ack_ids, failure or NACKED) if seconds == 0 else queue.extend(ack_ids, seconds, failure)
        if stale and queue.config.exactly_once:
            raise StaleAckIds(stale)

    async def _dead_letter(self, subscription: Subscription, lease: Lease, failure: Failure) -> None:
        assert subscription.dead_letter is not None  # the queue asks only then
        copy = self._dead_letter_copy(subscription, lease, failure)
        queue = self.queue(subscription.name)
        number = message_number(queue.topic.key, lease.sequence)

        facts = self._facts.ended(number, queue.key, lease, failure, What.DEAD_LETTERED)

        def along(copies: range) -> Sequence[Change]:
            told = [AddFacts([fact._replace(other=copies.start) for fact in facts])] if facts else []
            return [*self._addressed.dead_letter(number), *told]

        # Not through publish(): a message at the limits must still fit with the attributes that we add.
        await self._topic(subscription.dead_letter.topic).publish(
            [wire.encode(copy)], self._clock.now_ns(), along=along
        )
        self._addressed.dead_lettered(number)

    def _dead_letter_copy(self, subscription: Subscription, lease: Lease, failure: Failure) -> Message:
        return dead_letter_copy(subscription, lease, failure, self._settings.strict)

    # Inside.

    def _topic(self, name: str) -> TopicLog:
        try:
            return self._topics[name]
        except KeyError:
            check_topic("topic", name)  # what can be nobody's name is bad input
            raise NotFound(f"topic {name} does not exist") from None

    def _add_queue(
        self,
        key: int,
        config: Subscription,
        topic: TopicLog,
        progress: Progress,
        replacements: Sequence[Replacement] = (),
    ) -> None:
        queue = self._queue_type(
            key,
            config,
            topic,
            progress,
            self._log,
            self._clock,
            self._timers,
            self._dead_letter,
            self._settings,
            self._facts,
            replacements,
        )
        topic.listeners.append(queue.changed.fire)
        self._queues[config.name] = queue
        self.subscriptions_changed.fire()

    def _take_key(self) -> int:
        key, self._next_key = self._next_key, self._next_key + 1
        return key

    # Policies are kept for whoever reads them back; nothing here is allowed or denied by them.

    def get_policy(self, resource: str) -> bytes:
        self._require_resource(resource)
        return self._policies.get(resource, b"")

    @_to_the_end
    async def set_policy(self, resource: str, policy: bytes) -> None:
        self._require_resource(resource)
        await self._log.commit([PutRecord(POLICY, resource, policy)])
        self._policies[resource] = policy

    async def _forget_policy(self, resource: str) -> None:
        if self._policies.pop(resource, None) is not None:
            await self._log.commit([DeleteRecord(POLICY, resource)])

    def _require_resource(self, resource: str) -> None:
        if resource in self._topics or resource in self._queues or self._snapshots.find(resource):
            return
        check = _NAMES.get((resource.split("/") + [""] * 3)[2])
        if check is None:
            raise BadInput("resource", f"must be a topic, subscription, snapshot or schema, not {resource[:300]!r}")
        check("resource", resource)
        if check is check_schema:
            self.schemas.get(resource)  # raises when there is none
        else:
            raise NotFound(f"{resource} does not exist")

    # The past of messages: broker/facts.py.

    async def mark_progress(self) -> None:
        """Of what has moved since its last mark; where that is too much at once, the longest ago first."""
        if not self._facts.is_on:
            return
        now = {topic.key: topic.visible_end for topic in [*self._topics.values(), *self._orphans.values()]}
        floors = [(queue.key, queue.settled.saved_floor) for queue in self._queues.values()]
        now |= {key: floor for key, floor in floors if floor is not None}
        self._marked = {key: mark for key, mark in self._marked.items() if key in now}
        moved = [key for key, below in now.items() if key not in self._marked or self._marked[key].below != below]
        moved.sort(key=lambda key: self._marked[key].at_ns if key in self._marked else 0)
        at_ns = self._clock.now_ns()
        marks = [Mark(key, at_ns, now[key]) for key in moved[:MOST_MARKS]]
        if marks:
            await self._log.commit([PutMarks(marks, self._facts.forget_before_ns)])
            self._marked |= {mark.key: mark for mark in marks}

    async def facts_of(self, numbers: Sequence[int], limit: int) -> Sequence[Fact]:
        return await self._log.facts_of(numbers, limit)

    async def marked(self, keys: Sequence[int], sequence: int) -> Mapping[int, Marked]:
        return await self._log.marked(keys, sequence)

    @property
    def keeps_facts(self) -> bool:
        return self._facts.is_on

    def target_of(self, number: int) -> int:
        """The key of the subscription or topic that this message was sent to again, as long as that is remembered;
        else 0."""
        return self._addressed.target_of(number)

    async def forget_facts(self, step: int) -> int:
        """Deletes, at most `step`, what is older than is kept; gives how many."""
        return await self._log.forget_facts(self._facts.forget_before_ns, step)

    # Cleaning.

    async def forget_settled(self, step: int) -> int:
        """Deletes, at most `step` a topic, messages that nobody needs any more; gives how many."""
        deleted = await self._log.purge(step)
        for topic in [*self._topics.values(), *self._orphans.values()]:
            async with self._administration:  # a subscription that is just being created counts too
                deleted += await self._log.trim(topic.key, await self._first_needed(topic), step)
        return deleted

    async def _first_needed(self, topic: TopicLog) -> int:
        needed = [topic.visible_end]
        queues = [queue for queue in self._queues.values() if queue.topic is topic and not queue.config.detached]
        needed += [queue.settled.floor for queue in queues]
        needed += [snapshot.floor for snapshot in self._snapshots.of_topic(topic.key)]
        retained = [queue.config.message_retention_seconds for queue in queues if queue.config.retain_acked]
        if topic.topic.message_retention_seconds is not None:
            retained.append(topic.topic.message_retention_seconds)
        if retained:
            since_ns = self._clock.now_ns() - round(max(retained) * NANOSECONDS)
            needed.append(await self._log.first_since(topic.key, since_ns))
        return min(needed)

    async def delete_expired(self) -> None:
        """Snapshots whose time is over, subscriptions that nobody has used for longer than they allow, and what was
        remembered of addressed messages for long enough."""
        await self._addressed.forget_old(self.queues)
        now_ns = self._clock.now_ns()
        for snapshot in self._snapshots.expired(now_ns):
            with suppress(NotFound):  # somebody was faster
                await self.delete_snapshot(snapshot.name)
        for queue in self.queues:
            ttl = queue.config.expiration_seconds
            unused_ns = now_ns - queue.last_used_ns
            if ttl is not None and unused_ns > ttl * NANOSECONDS and not queue.changed.is_awaited:
                log.warning("an unused subscription expired", extra={"fields": {"subscription": queue.config.name}})
                with suppress(NotFound):
                    await self.delete_subscription(queue.config.name)


def _require_ack_ids(ack_ids: Sequence[str]) -> None:
    if not ack_ids:
        raise BadInput("ack_ids", "at least one ack id is needed")
