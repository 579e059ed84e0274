"""From a message on a dead-letter topic to the row that people see. Pure: no I/O, and no input makes it fail.

Whoever may publish to the dead-letter topic may write any attribute: each counts only if well formed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from holdfast.errors import BadInput
from holdfast.model import dead_letter_attributes, replay_attributes
from holdfast.model.failed_message import FailedMessage, FailureClass, FailureStatus, bounded_error_details
from holdfast.model.message import Delivery, Message
from holdfast.model.names import (
    DESK_SUFFIX,
    check_subscription,
    check_topic,
    original_subscription,
    project_of,
    short_id,
    topic_path,
)
from holdfast.model.replay_attributes import first_published_ns
from holdfast.model.timestamps import parse_rfc3339

# What Cloud Pub/Sub's dead-lettering means, where nobody tells more.
DEFAULT_REASON = "DELIVERY_ATTEMPTS_EXHAUSTED"
UNKNOWN_TOPIC = "unknown"

# A reason is a category that rows are grouped by, not a sentence. Source 002's column holds 100 characters.
LONGEST_REASON = 100

# Stores keep times as 64-bit nanoseconds, which end in the year 2262; a forged time may lie beyond.
LATEST_TIME_NS = 2**63 - 1

# More digits are not a count of attempts but a forgery, and would not fit into a store's number.
MOST_ATTEMPT_DIGITS = 9


@dataclass(frozen=True, slots=True)
class Arrival:
    """A failed delivery as it comes in. `replay_id` is what it says of its lineage, which is not believed yet, and
    `told_id` the id of the message that failed, "" where nobody tells it: a dead letter has an id of its own."""

    failure: FailedMessage
    replay_id: str = ""
    told_id: str = ""


def arrival_of(delivery: Delivery, now_ns: int) -> Arrival:
    """One dead letter."""
    told = storable_attributes(delivery.message)
    told_id = told.get(dead_letter_attributes.SOURCE_MESSAGE_ID, "")
    return Arrival(_failed_message(delivery, told, now_ns), told.get(replay_attributes.REPLAY_ID, ""), told_id)


def _failed_message(delivery: Delivery, told: Mapping[str, str], now_ns: int) -> FailedMessage:
    message = delivery.message
    return FailedMessage(
        message_id=told.get(dead_letter_attributes.SOURCE_MESSAGE_ID) or storable(message.message_id),
        subscription=_subscription(delivery.subscription, told),
        source_topic=_source_topic(delivery.subscription, told),
        failure_reason=_reason(told),
        error_details=_error_details(told),
        data=message.data,
        attributes=without_our_attributes(told),
        ordering_key=storable(message.ordering_key),
        publish_time_ns=first_published_ns(told, _publish_time_ns(message, told)),
        delivery_attempt=_delivery_attempt(told),
        status=FailureStatus.PERMANENT_FAILURE,
        failure_class=_failure_class(told),
        created_at_ns=now_ns,
        failed_at_ns=min(message.publish_time_ns, LATEST_TIME_NS),
    )


def without_our_attributes(attributes: Mapping[str, str]) -> dict[str, str]:
    """As the publisher sent them: without what brokers and desks add on the way."""
    added = dead_letter_attributes.ALL | replay_attributes.ALL
    return {name: value for name, value in attributes.items() if name not in added}


def storable_attributes(message: Message) -> dict[str, str]:
    return {storable(name): storable(value) for name, value in message.attributes.items()}


def storable(text: str) -> str:
    """As UTF-8 can hold it. No Pub/Sub wire carries lone surrogates, but one must not stop a row either."""
    return text.encode(errors="replace").decode()


def _subscription(desk: str, told: Mapping[str, str]) -> str:
    """The subscription that failed. What is told comes before our naming, because one dead-letter topic may
    serve several subscriptions. "<id>.replay" feeds the consumer of "<id>", so that is the one that failed."""
    project = told.get(dead_letter_attributes.SOURCE_SUBSCRIPTION_PROJECT) or _project_of(desk)
    told_id = told.get(dead_letter_attributes.SOURCE_SUBSCRIPTION, "")
    path = f"projects/{project}/subscriptions/{told_id}"
    failed = path if _passes(check_subscription, path) else storable(desk).removesuffix(DESK_SUFFIX)
    # What fails again after it was sent through "<id>.replay" failed in "<id>".
    return original_subscription(failed)


def _source_topic(desk: str, told: Mapping[str, str]) -> str:
    topic = told.get(dead_letter_attributes.SOURCE_TOPIC, "")
    if _passes(check_topic, topic):
        return topic
    # Only a hint for people: a subscription is often named like its topic, but need not be.
    topic = topic_path(_project_of(desk), short_id(desk).removesuffix(DESK_SUFFIX))
    return topic if desk.endswith(DESK_SUFFIX) and _passes(check_topic, topic) else UNKNOWN_TOPIC


def _reason(told: Mapping[str, str]) -> str:
    reason = told.get(dead_letter_attributes.FAILURE_REASON, "").strip()
    return reason[:LONGEST_REASON] or DEFAULT_REASON


def _failure_class(told: Mapping[str, str]) -> FailureClass:
    try:
        return FailureClass(told.get(dead_letter_attributes.FAILURE_CLASS, ""))
    except ValueError:
        return FailureClass.UNKNOWN


def _error_details(told: Mapping[str, str]) -> str:
    error = told.get(dead_letter_attributes.ERROR, "")
    status = told.get(dead_letter_attributes.LAST_STATUS, "")
    if not status:
        return bounded_error_details(error)
    return bounded_error_details(f"last status {status}: {error}" if error else f"last status {status}")


def _publish_time_ns(message: Message, told: Mapping[str, str]) -> int:
    try:
        when = parse_rfc3339(told.get(dead_letter_attributes.SOURCE_PUBLISH_TIME, ""))
    except (ValueError, OverflowError):
        when = 0
    return when if 0 < when <= LATEST_TIME_NS else message.publish_time_ns


def _delivery_attempt(told: Mapping[str, str]) -> int:
    count = told.get(dead_letter_attributes.SOURCE_DELIVERY_COUNT, "")
    # isdecimal alone also accepts other scripts' digits.
    return int(count) if count.isascii() and count.isdecimal() and len(count) <= MOST_ATTEMPT_DIGITS else 0


def _project_of(path: str) -> str:
    return project_of(path) if _passes(check_subscription, path) else ""


@lru_cache(maxsize=1024)  # one desk sees few subscriptions and topics, again and again
def _passes(check: Callable[[str, str], None], path: str) -> bool:
    try:
        check("path", path)
    except BadInput:
        return False
    return True
