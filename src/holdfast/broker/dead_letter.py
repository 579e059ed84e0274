"""The copy of a message that goes to a dead-letter topic. Builds it; publishing it is the caller's."""

from __future__ import annotations

from holdfast.broker.leases import Failure, Lease
from holdfast.broker.wire import decode
from holdfast.model import dead_letter_attributes as names
from holdfast.model.failed_message import FailureClass
from holdfast.model.message import Message
from holdfast.model.names import project_of, short_id
from holdfast.model.resources import Subscription
from holdfast.model.timestamps import format_rfc3339


def dead_letter_copy(subscription: Subscription, lease: Lease, failure: Failure, strict: bool) -> Message:
    """Data, attributes and ordering key stay; what is known of the failure is added. Strict adds no more than Cloud
    Pub/Sub does."""
    original = decode(lease.body)
    # A publisher may have written our names itself; only what the broker knows may stand there.
    theirs = {name: value for name, value in original.attributes.items() if name not in names.ALL}
    attributes = {
        **theirs,
        names.SOURCE_SUBSCRIPTION: short_id(subscription.name),
        names.SOURCE_SUBSCRIPTION_PROJECT: project_of(subscription.name),
        names.SOURCE_DELIVERY_COUNT: str(lease.attempt),
        names.SOURCE_PUBLISH_TIME: format_rfc3339(original.publish_time_ns),
    }
    if not strict:
        attributes |= _ours(subscription, original, failure)
    return Message(original.data, attributes, original.ordering_key)


def _ours(subscription: Subscription, original: Message, failure: Failure) -> dict[str, str]:
    known = {
        names.SOURCE_MESSAGE_ID: original.message_id,
        names.SOURCE_TOPIC: subscription.topic,
        names.FAILURE_REASON: failure.reason,
        # Whoever says so knows that it will not succeed later.
        names.FAILURE_CLASS: FailureClass.POISON if failure.dead_letter_now else "",
        names.ERROR: failure.error,
        names.LAST_STATUS: failure.status,
    }
    return {name: names.bounded_value(value) for name, value in known.items() if value}
