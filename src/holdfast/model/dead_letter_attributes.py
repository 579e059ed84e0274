"""The attributes that a message on a dead-letter topic carries about the delivery that failed."""

from __future__ import annotations

# Cloud Pub/Sub's own: it sets these four on every message it forwards to a dead-letter topic.
SOURCE_SUBSCRIPTION = "CloudPubSubDeadLetterSourceSubscription"  # the short id
SOURCE_SUBSCRIPTION_PROJECT = "CloudPubSubDeadLetterSourceSubscriptionProject"
SOURCE_DELIVERY_COUNT = "CloudPubSubDeadLetterSourceDeliveryCount"
SOURCE_PUBLISH_TIME = "CloudPubSubDeadLetterSourceTopicPublishTime"  # RFC 3339

# Ours: what Cloud Pub/Sub does not tell. The broker leaves them out in strict mode.
SOURCE_MESSAGE_ID = "holdfast-source-message-id"
SOURCE_TOPIC = "holdfast-source-topic"  # the full path
FAILURE_REASON = "holdfast-failure-reason"
FAILURE_CLASS = "holdfast-failure-class"  # FailureClass: what the consumer says can be done about it
ERROR = "holdfast-error"
LAST_STATUS = "holdfast-last-status"

# Every name above. None of them belongs to the message as its publisher sent it.
ALL = frozenset(
    {
        SOURCE_SUBSCRIPTION,
        SOURCE_SUBSCRIPTION_PROJECT,
        SOURCE_DELIVERY_COUNT,
        SOURCE_PUBLISH_TIME,
        SOURCE_MESSAGE_ID,
        SOURCE_TOPIC,
        FAILURE_REASON,
        FAILURE_CLASS,
        ERROR,
        LAST_STATUS,
    }
)

# Pub/Sub's limit for one attribute's value, in bytes.
LONGEST_VALUE = 1024


def bounded_value(text: str) -> str:
    return text.encode(errors="replace")[:LONGEST_VALUE].decode(errors="ignore")
