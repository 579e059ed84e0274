"""Topics and subscriptions between google.pubsub.v1's messages and the model."""

from __future__ import annotations

from typing import Any

from google.protobuf.duration_pb2 import Duration
from google.pubsub_v1.types import pubsub

from holdfast.errors import Unsupported
from holdfast.model.resources import (
    DEFAULT_ACK_DEADLINE_SECONDS,
    DEFAULT_DELIVERY_ATTEMPTS,
    DEFAULT_EXPIRATION_SECONDS,
    DEFAULT_MAXIMUM_BACKOFF_SECONDS,
    DEFAULT_MINIMUM_BACKOFF_SECONDS,
    DEFAULT_RETENTION_SECONDS,
    DeadLetterPolicy,
    PushConfig,
    RetryPolicy,
    Subscription,
    Topic,
)

PbTopic: Any = pubsub.Topic.pb()
PbSubscription: Any = pubsub.Subscription.pb()

_TOPIC_FIELDS = {"name", "labels"}
_SUBSCRIPTION_FIELDS = {
    "name",
    "topic",
    "push_config",
    "ack_deadline_seconds",
    "message_retention_duration",
    "labels",
    "dead_letter_policy",
    "retry_policy",
}
_PUSH_FIELDS = {"push_endpoint", "attributes"}
# Set by the service; what a client writes there is ignored, as Pub/Sub does.
_OUTPUT_ONLY = {"state", "detached", "topic_message_retention_duration", "satisfies_pzs"}


def topic_from_pb(message: Any) -> Topic:
    _refuse_others("topic", message, _TOPIC_FIELDS)
    return Topic(message.name, dict(message.labels))


def topic_to_pb(topic: Topic) -> Any:
    return PbTopic(name=topic.name, labels=topic.labels, state=pubsub.Topic.State.ACTIVE)


def subscription_from_pb(message: Any) -> Subscription:
    _refuse_others("subscription", message, _SUBSCRIPTION_FIELDS)
    return Subscription(
        name=message.name,
        topic=message.topic,
        ack_deadline_seconds=message.ack_deadline_seconds or DEFAULT_ACK_DEADLINE_SECONDS,
        push=push_from_pb(message.push_config),
        dead_letter=_dead_letter_from_pb(message),
        retry=_retry_from_pb(message),
        labels=dict(message.labels),
        message_retention_seconds=_seconds(message, "message_retention_duration", DEFAULT_RETENTION_SECONDS),
    )


def subscription_to_pb(subscription: Subscription) -> Any:
    message = PbSubscription(
        name=subscription.name,
        topic=subscription.topic,
        ack_deadline_seconds=subscription.ack_deadline_seconds,
        labels=subscription.labels,
        message_retention_duration=_duration(subscription.message_retention_seconds),
        state=pubsub.Subscription.State.ACTIVE,
    )
    message.expiration_policy.ttl.CopyFrom(_duration(DEFAULT_EXPIRATION_SECONDS))
    message.push_config.SetInParent()  # an empty push config means pull, and clients look for it
    if subscription.push:
        message.push_config.push_endpoint = subscription.push.endpoint
        message.push_config.attributes.update(subscription.push.attributes)
    if subscription.dead_letter:
        message.dead_letter_policy.dead_letter_topic = subscription.dead_letter.topic
        message.dead_letter_policy.max_delivery_attempts = subscription.dead_letter.max_delivery_attempts
    if subscription.retry:
        message.retry_policy.minimum_backoff.CopyFrom(_duration(subscription.retry.minimum_backoff_seconds))
        message.retry_policy.maximum_backoff.CopyFrom(_duration(subscription.retry.maximum_backoff_seconds))
    return message


def push_from_pb(message: Any) -> PushConfig | None:
    """None where the endpoint is empty, which means pull."""
    _refuse_others("push_config", message, _PUSH_FIELDS)
    return PushConfig(message.push_endpoint, dict(message.attributes)) if message.push_endpoint else None


def _dead_letter_from_pb(message: Any) -> DeadLetterPolicy | None:
    if not message.HasField("dead_letter_policy"):
        return None
    policy = message.dead_letter_policy
    return DeadLetterPolicy(policy.dead_letter_topic, policy.max_delivery_attempts or DEFAULT_DELIVERY_ATTEMPTS)


def _retry_from_pb(message: Any) -> RetryPolicy | None:
    if not message.HasField("retry_policy"):
        return None
    return RetryPolicy(
        _seconds(message.retry_policy, "minimum_backoff", DEFAULT_MINIMUM_BACKOFF_SECONDS),
        _seconds(message.retry_policy, "maximum_backoff", DEFAULT_MAXIMUM_BACKOFF_SECONDS),
    )


def _refuse_others(what: str, message: Any, known: set[str]) -> None:
    """A field that would be silently ignored is worse than an error."""
    for descriptor, _ in message.ListFields():
        if descriptor.name not in known and descriptor.name not in _OUTPUT_ONLY:
            raise Unsupported(f"{what}.{descriptor.name}", "this version of Holdfast does not offer it")


def _seconds(message: Any, field: str, default: float) -> float:
    if not message.HasField(field):
        return default
    value: Duration = getattr(message, field)
    return value.seconds + value.nanos / 1e9


def _duration(seconds: float) -> Duration:
    duration = Duration()
    duration.FromNanoseconds(round(seconds * 1e9))
    return duration
