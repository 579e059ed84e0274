"""Topics and subscriptions between google.pubsub.v1's messages and the model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from google.protobuf.duration_pb2 import Duration
from google.pubsub_v1.types import pubsub

from holdfast.broker.snapshots import Snapshot
from holdfast.broker.wire_schemas import settings_from_pb, settings_to_pb
from holdfast.errors import BadInput, Unsupported
from holdfast.model.resources import (
    DEFAULT_ACK_DEADLINE_SECONDS,
    DEFAULT_DELIVERY_ATTEMPTS,
    DEFAULT_EXPIRATION_SECONDS,
    DEFAULT_MAXIMUM_BACKOFF_SECONDS,
    DEFAULT_MINIMUM_BACKOFF_SECONDS,
    DEFAULT_RETENTION_SECONDS,
    DeadLetterPolicy,
    OidcToken,
    PushConfig,
    RetryPolicy,
    Subscription,
    Topic,
)

PbTopic: Any = pubsub.Topic.pb()
PbSubscription: Any = pubsub.Subscription.pb()
PbSnapshot: Any = pubsub.Snapshot.pb()

_TOPIC_FIELDS = {"name", "labels", "message_retention_duration", "schema_settings"}
_TOPIC_CHANGES = {"labels", "message_retention_duration", "schema_settings"}
_SUBSCRIPTION_FIELDS = {
    "name",
    "topic",
    "push_config",
    "ack_deadline_seconds",
    "message_retention_duration",
    "labels",
    "dead_letter_policy",
    "retry_policy",
    "retain_acked_messages",
    "enable_message_ordering",
    "enable_exactly_once_delivery",
    "filter",
    "expiration_policy",
}
_SUBSCRIPTION_CHANGES = _SUBSCRIPTION_FIELDS - {"name", "topic", "enable_message_ordering", "filter"}
# What a request cannot say of a subscription stays as it is.
_NOT_ON_THE_WIRE = ("detached", "consent", "first_sequence")
_PUSH_FIELDS = {"push_endpoint", "attributes", "oidc_token", "pubsub_wrapper", "no_wrapper"}
# Set by the service; what a client writes there is ignored, as Pub/Sub does.
_OUTPUT_ONLY = {"state", "detached", "topic_message_retention_duration", "satisfies_pzs"}


def topic_from_pb(message: Any) -> Topic:
    _refuse_others("topic", message, _TOPIC_FIELDS)
    return Topic(
        message.name,
        dict(message.labels),
        message_retention_seconds=_seconds(message, "message_retention_duration", None),
        schema=settings_from_pb(message.schema_settings) if message.HasField("schema_settings") else None,
    )


def topic_to_pb(topic: Topic) -> Any:
    message = PbTopic(name=topic.name, labels=topic.labels, state=pubsub.Topic.State.ACTIVE)
    if topic.message_retention_seconds is not None:
        message.message_retention_duration.CopyFrom(_duration(topic.message_retention_seconds))
    if topic.schema is not None:
        message.schema_settings.CopyFrom(settings_to_pb(topic.schema))
    return message


def changed_topic(topic: Topic, request: Any, mask: Any) -> Topic:
    """The topic with the fields that the mask names taken from the request."""
    return topic_from_pb(_merged(topic_to_pb(topic), request, mask, _TOPIC_CHANGES))


def changed_subscription(subscription: Subscription, request: Any, mask: Any) -> Subscription:
    changed = subscription_from_pb(_merged(subscription_to_pb(subscription), request, mask, _SUBSCRIPTION_CHANGES))
    kept = {name: getattr(subscription, name) for name in _NOT_ON_THE_WIRE}
    return replace(changed, **kept)


def snapshot_to_pb(snapshot: Snapshot) -> Any:
    message = PbSnapshot(name=snapshot.name, topic=snapshot.topic, labels=snapshot.labels)
    message.expire_time.FromNanoseconds(snapshot.expire_time_ns)
    return message


def changed_snapshot(snapshot: Snapshot, request: Any, mask: Any) -> Snapshot:
    merged = _merged(snapshot_to_pb(snapshot), request, mask, {"labels", "expire_time"})
    return replace(snapshot, labels=dict(merged.labels), expire_time_ns=nanoseconds("expire_time", merged.expire_time))


def nanoseconds(field: str, timestamp: Any) -> int:
    try:
        found: int = timestamp.ToNanoseconds()
    except ValueError as error:
        raise BadInput(field, "is not a valid timestamp") from error
    return found


def _merged(message: Any, request: Any, mask: Any, changeable: set[str]) -> Any:
    if not mask.paths:
        raise BadInput("update_mask", "must name at least one field")
    for path in mask.paths:
        if path.partition(".")[0] not in changeable:
            raise BadInput("update_mask", f"{path!r} is not a field that can be changed")
    try:
        mask.MergeMessage(request, message, replace_message_field=True, replace_repeated_field=True)
    except ValueError as error:
        raise BadInput("update_mask", str(error)) from error
    return message


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
        retain_acked=message.retain_acked_messages,
        ordered=message.enable_message_ordering,
        exactly_once=message.enable_exactly_once_delivery,
        filter=message.filter,
        expiration_seconds=_expiration_from_pb(message),
    )


def subscription_to_pb(subscription: Subscription) -> Any:
    message = PbSubscription(
        name=subscription.name,
        topic=subscription.topic,
        ack_deadline_seconds=subscription.ack_deadline_seconds,
        labels=subscription.labels,
        message_retention_duration=_duration(subscription.message_retention_seconds),
        state=pubsub.Subscription.State.ACTIVE,
        retain_acked_messages=subscription.retain_acked,
        enable_message_ordering=subscription.ordered,
        enable_exactly_once_delivery=subscription.exactly_once,
        filter=subscription.filter,
        detached=subscription.detached,
    )
    message.expiration_policy.SetInParent()  # without a ttl it means never
    if subscription.expiration_seconds is not None:
        message.expiration_policy.ttl.CopyFrom(_duration(subscription.expiration_seconds))
    message.push_config.SetInParent()  # an empty push config means pull, and clients look for it
    if subscription.push:
        _push_to_pb(subscription.push, message.push_config)
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
    if not message.push_endpoint:
        return None
    return PushConfig(
        message.push_endpoint,
        dict(message.attributes),
        oidc=_oidc_from_pb(message),
        wrapped=not message.HasField("no_wrapper"),
        write_metadata=message.no_wrapper.write_metadata,
    )


def _oidc_from_pb(message: Any) -> OidcToken | None:
    if not message.HasField("oidc_token"):
        return None
    return OidcToken(message.oidc_token.service_account_email, message.oidc_token.audience)


def _push_to_pb(push: PushConfig, message: Any) -> None:
    message.push_endpoint = push.endpoint
    message.attributes.update(push.attributes)
    if push.oidc is not None:
        message.oidc_token.service_account_email = push.oidc.service_account
        message.oidc_token.audience = push.oidc.audience
    if not push.wrapped:
        message.no_wrapper.write_metadata = push.write_metadata


def _dead_letter_from_pb(message: Any) -> DeadLetterPolicy | None:
    if not message.HasField("dead_letter_policy"):
        return None
    policy = message.dead_letter_policy
    return DeadLetterPolicy(policy.dead_letter_topic, policy.max_delivery_attempts or DEFAULT_DELIVERY_ATTEMPTS)


def _expiration_from_pb(message: Any) -> float | None:
    if not message.HasField("expiration_policy"):
        return DEFAULT_EXPIRATION_SECONDS
    return _seconds(message.expiration_policy, "ttl", None)


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


Default = TypeVar("Default", float, None)


def _seconds(message: Any, field: str, default: Default) -> float | Default:
    if not message.HasField(field):
        return default
    value: Duration = getattr(message, field)
    return value.seconds + value.nanos / 1e9


def _duration(seconds: float) -> Duration:
    duration = Duration()
    duration.FromNanoseconds(round(seconds * 1e9))
    return duration
