"""The default topology: what `holdfast up` needs to exist.

For each topic one push subscription to the consumer, with retry and dead-letter policy; for each of those a dead-letter
topic and the desk's pull subscription on it. Also for the consumer's own DLQ_TOPIC, where there is one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from holdfast.consumer.declared import declared_topics
from holdfast.consumer.transport import Transport
from holdfast.model.names import (
    dead_letter_topic,
    desk_subscription,
    project_of,
    short_id,
    subscription_path,
    topic_path,
)
from holdfast.model.resources import DeadLetterPolicy, PushConfig, RetryPolicy, Subscription
from holdfast.settings import Settings, TopologySettings

OTHER_TOPICS = ("market-ticks", "market-bars-1m", "trade-signals", "ingest-heartbeat")

# Dead letters wait for people, so they are kept for as long as Pub/Sub allows.
DESK_RETENTION_SECONDS = 31 * 24 * 3600
DESK_ACK_DEADLINE_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Topology:
    """Topics first: a subscription needs its topic, and its dead-letter topic, to exist."""

    topics: Sequence[str]
    subscriptions: Sequence[Subscription]
    desk_subscriptions: Sequence[str]

    def dead_letters_only(self) -> Topology:
        """What the desk needs, and no more."""
        subscriptions = [item for item in self.subscriptions if item.name in self.desk_subscriptions]
        return Topology([item.topic for item in subscriptions], subscriptions, self.desk_subscriptions)


def consumer_topics(settings: Settings) -> Sequence[str]:
    consumer = settings.consumer
    return (consumer.system_events_topic, *OTHER_TOPICS, *declared_topics(consumer.routes))


def materializer_subscription(topic: str) -> str:
    return f"{topic}.materializer"


def topics_by_subscription(settings: Settings) -> Mapping[str, str]:
    """Which topic a push came from: the envelope names only its subscription."""
    return {materializer_subscription(topic): topic for topic in consumer_topics(settings)}


def default_topology(settings: Settings, push: PushConfig) -> Topology:
    """`push` is how the consumer is reached."""
    project = settings.general.project
    topics: list[str] = []
    subscriptions: list[Subscription] = []
    desk: list[str] = []
    for topic in consumer_topics(settings):
        name = subscription_path(project, materializer_subscription(topic))
        dead_letters, desk_name = dead_letter_topic(name), desk_subscription(name)
        topics += [topic_path(project, topic), dead_letters]
        subscriptions += [
            _push_subscription(
                settings.topology,
                name,
                topic_path(project, topic),
                dead_letters,
                push,
            ),
            desk_subscription_of(desk_name, dead_letters),
        ]
        desk.append(desk_name)
    if settings.consumer.dlq_topic:
        own = topic_path(project, settings.consumer.dlq_topic)
        desk_name = subscription_path(project_of(own), f"{short_id(own)}.desk")
        topics.append(own)
        subscriptions.append(desk_subscription_of(desk_name, own))
        desk.append(desk_name)
    return Topology(topics, subscriptions, desk)


def desk_subscription_of(name: str, dead_letters: str) -> Subscription:
    """As the desk reads a dead-letter topic, both by full path."""
    return Subscription(
        name,
        dead_letters,
        ack_deadline_seconds=DESK_ACK_DEADLINE_SECONDS,
        message_retention_seconds=DESK_RETENTION_SECONDS,
    )


def _push_subscription(
    settings: TopologySettings, name: str, topic: str, dead_letters: str, push: PushConfig
) -> Subscription:
    return Subscription(
        name,
        topic,
        ack_deadline_seconds=settings.ack_deadline_seconds,
        push=push,
        dead_letter=DeadLetterPolicy(dead_letters, settings.max_delivery_attempts),
        retry=RetryPolicy(settings.minimum_backoff_seconds, settings.maximum_backoff_seconds),
    )


async def create_absent(topology: Topology, transport: Transport) -> int:
    """Gives how many were created. What exists is left as it is, whatever its configuration."""
    created = 0
    for topic in topology.topics:
        created += await transport.ensure_topic(topic)
    for subscription in topology.subscriptions:
        created += await transport.ensure_subscription(subscription)
    return created
