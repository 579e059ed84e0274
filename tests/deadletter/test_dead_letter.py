"""A dead letter becomes the right row, and any garbage still becomes some row."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.deadletter.dead_letter import arrival_of
from holdfast.deadletter.presentation import failure_to_json
from holdfast.deadletter.redaction import NOTHING_HIDDEN
from holdfast.model import dead_letter_attributes as names
from holdfast.model.failed_message import LONGEST_ERROR_DETAILS_BYTES, FailedMessage, FailureStatus
from holdfast.model.message import Delivery, Message
from holdfast.model.names import dead_letter_topic, desk_subscription
from holdfast.model.replay_attributes import IN_PLACE_OF, ORIGINAL_MESSAGE_ID, ORIGINAL_PUBLISH_TIME, REPLAY_ID

DESK = "projects/local/subscriptions/orders.dlq.desk"
NOW = 1_700_000_100_000_000_000
DEAD_LETTERED_AT = 1_700_000_050_000_000_000

FULL = {
    "tenant": "a",
    names.SOURCE_SUBSCRIPTION: "orders",
    names.SOURCE_SUBSCRIPTION_PROJECT: "local",
    names.SOURCE_DELIVERY_COUNT: "5",
    names.SOURCE_PUBLISH_TIME: "2023-11-14T22:13:20.123456789Z",
    names.SOURCE_MESSAGE_ID: "original-1",
    names.SOURCE_TOPIC: "projects/local/topics/shop",
    names.FAILURE_REASON: "SCHEMA_VALIDATION_ERROR",
    names.ERROR: "amount: must be a number",
    names.LAST_STATUS: "422",
}


def row(attributes: Mapping[str, str], desk: str = DESK) -> FailedMessage:
    message = Message(b"\x00\xff", attributes, "key", "dead-1", DEAD_LETTERED_AT)
    return arrival_of(Delivery(desk, message, 1, "ack"), NOW).failure


def without(*left_out: str, **changes: str) -> dict[str, str]:
    return {name: value for name, value in (FULL | changes).items() if name not in left_out}


def test_the_names_are_those_that_cloud_pubsub_uses() -> None:
    assert names.SOURCE_SUBSCRIPTION == "CloudPubSubDeadLetterSourceSubscription"
    assert names.SOURCE_SUBSCRIPTION_PROJECT == "CloudPubSubDeadLetterSourceSubscriptionProject"
    assert names.SOURCE_DELIVERY_COUNT == "CloudPubSubDeadLetterSourceDeliveryCount"
    assert names.SOURCE_PUBLISH_TIME == "CloudPubSubDeadLetterSourceTopicPublishTime"
    constants = {value for name, value in vars(names).items() if name.isupper() and isinstance(value, str)}
    assert constants == names.ALL


def test_names_of_the_desk() -> None:
    assert dead_letter_topic("projects/p/subscriptions/orders") == "projects/p/topics/orders.dlq"
    assert desk_subscription("projects/p/subscriptions/orders") == "projects/p/subscriptions/orders.dlq.desk"


def test_a_dead_letter_that_tells_everything() -> None:
    assert row(FULL) == FailedMessage(
        message_id="original-1",
        subscription="projects/local/subscriptions/orders",
        source_topic="projects/local/topics/shop",
        failure_reason="SCHEMA_VALIDATION_ERROR",
        error_details="last status 422: amount: must be a number",
        data=b"\x00\xff",
        attributes={"tenant": "a"},
        ordering_key="key",
        publish_time_ns=1_700_000_000_123_456_789,
        delivery_attempt=5,
        retry_count=0,
        status=FailureStatus.PERMANENT_FAILURE,
        created_at_ns=NOW,
        failed_at_ns=DEAD_LETTERED_AT,
    )


def test_a_dead_letter_that_tells_nothing() -> None:
    assert row({}) == FailedMessage(
        message_id="dead-1",
        subscription="projects/local/subscriptions/orders",
        source_topic="projects/local/topics/orders",
        failure_reason="DELIVERY_ATTEMPTS_EXHAUSTED",
        error_details="",
        data=b"\x00\xff",
        ordering_key="key",
        publish_time_ns=DEAD_LETTERED_AT,
        created_at_ns=NOW,
        failed_at_ns=DEAD_LETTERED_AT,
    )


def test_a_dead_letter_of_cloud_pubsub() -> None:
    """It knows only its own four attributes; the rest falls back."""
    ours = [name for name in names.ALL if name.startswith("holdfast-")]
    failure = row(without(*ours), desk="projects/desk/subscriptions/whatever")
    assert failure.subscription == "projects/local/subscriptions/orders"
    assert failure.source_topic == "unknown"
    assert failure.message_id == "dead-1"
    assert failure.delivery_attempt == 5
    assert failure.publish_time_ns == 1_700_000_000_123_456_789
    assert failure.attributes == {"tenant": "a"}


@pytest.mark.parametrize(
    ("told", "expected"), [("poison", "poison"), ("", "unknown"), ("Poison", "unknown"), ("x", "unknown")]
)
def test_the_class_that_its_consumer_gave_it(told: str, expected: str) -> None:
    assert row(FULL | {names.FAILURE_CLASS: told}).failure_class == expected


def test_what_it_says_of_its_lineage_is_beside_the_row_and_not_in_it() -> None:
    lineage = {REPLAY_ID: "id", ORIGINAL_MESSAGE_ID: "1", IN_PLACE_OF: "2"}
    message = Message(b"", FULL | lineage, message_id="dead-1", publish_time_ns=DEAD_LETTERED_AT)
    arrival = arrival_of(Delivery(DESK, message), NOW)
    assert (arrival.replay_id, arrival.told_id) == ("id", "original-1")
    assert arrival.failure.attributes == {"tenant": "a"}


def test_a_dead_letter_without_the_id_of_what_failed_says_so() -> None:
    assert arrival_of(Delivery(DESK, Message(b"", message_id="dead-1")), NOW).told_id == ""


def test_what_failed_on_its_way_through_the_replay_topic_has_failed_in_the_subscription_itself() -> None:
    assert row(FULL | {names.SOURCE_SUBSCRIPTION: "orders.replay"}).subscription.endswith("/subscriptions/orders")
    assert (
        row({}, desk="projects/p/subscriptions/orders.replay.dlq.desk").subscription
        == "projects/p/subscriptions/orders"
    )


def test_attributes_that_only_look_like_ours_stay() -> None:
    attributes = {"holdfast-other": "1", "CloudPubSubDeadLetterSource": "2", "Holdfast-Error": "3"}
    assert row(attributes).attributes == attributes


@pytest.mark.parametrize(
    ("error", "status", "expected"),
    [
        ("boom", "", "boom"),
        ("", "503", "last status 503"),
        ("boom", "503", "last status 503: boom"),
        ("", "", ""),
    ],
)
def test_error_details(error: str, status: str, expected: str) -> None:
    assert row({names.ERROR: error, names.LAST_STATUS: status}).error_details == expected


def test_a_huge_error_is_cut() -> None:
    details = row({names.ERROR: "é" * 100_000}).error_details
    assert len(details.encode()) <= LONGEST_ERROR_DETAILS_BYTES


@pytest.mark.parametrize("told", ["", "a/b", "x" * 300, "goog-x", "1st", "orders\n", "projects/x/subscriptions/y"])
def test_a_forged_subscription_is_not_believed(told: str) -> None:
    assert row(FULL | {names.SOURCE_SUBSCRIPTION: told}).subscription == "projects/local/subscriptions/orders"


def test_a_subscription_without_its_project_is_of_the_desks_project() -> None:
    attributes = without(names.SOURCE_SUBSCRIPTION_PROJECT) | {names.SOURCE_SUBSCRIPTION: "billing"}
    assert row(attributes).subscription == "projects/local/subscriptions/billing"


def test_a_subscription_that_nothing_tells_is_the_desks_own() -> None:
    assert row({}, desk="projects/p/subscriptions/odd").subscription == "projects/p/subscriptions/odd"


@pytest.mark.parametrize("told", ["", "shop", "projects//topics/shop", "projects/p/topics/" + "x" * 300])
def test_a_forged_topic_is_not_believed(told: str) -> None:
    assert row(FULL | {names.SOURCE_TOPIC: told}).source_topic == "projects/local/topics/orders"


@pytest.mark.parametrize("desk", ["", "odd", "projects/p", ".dlq.desk", "projects/p/subscriptions/.dlq.desk"])
def test_a_topic_that_cannot_be_derived_is_unknown(desk: str) -> None:
    assert row({}, desk=desk).source_topic == "unknown"


@pytest.mark.parametrize("count", ["", "-1", "five", "5.0", "\u0665", "1_000", "9" * 5000, " 5", "9999999999"])
def test_a_forged_count_is_0(count: str) -> None:
    assert row({names.SOURCE_DELIVERY_COUNT: count}).delivery_attempt == 0


@pytest.mark.parametrize(
    "time",
    [
        "",
        "yesterday",
        "2023-11-14",
        "2023-13-14T00:00:00Z",
        "0001-01-01T00:00:00+23:59",
        "9999-12-31T23:59:59Z",
    ],
)
def test_a_forged_publish_time_is_the_dead_letters(time: str) -> None:
    assert row({names.SOURCE_PUBLISH_TIME: time}).publish_time_ns == DEAD_LETTERED_AT


@pytest.mark.parametrize(("told", "expected"), [("  ", "DELIVERY_ATTEMPTS_EXHAUSTED"), ("x" * 500, "x" * 100)])
def test_a_reason_is_short_and_never_empty(told: str, expected: str) -> None:
    assert row({names.FAILURE_REASON: told}).failure_reason == expected


any_text = st.text(st.characters(exclude_categories=[]))  # lone surrogates and all


@given(
    attributes=st.dictionaries(st.sampled_from(sorted(names.ALL)) | any_text, any_text),
    desk=any_text | st.just(DESK),
    ordering_key=any_text,
    message_id=any_text,
    data=st.binary(),
)
def test_any_garbage_is_a_row_that_can_be_stored_and_shown(
    attributes: dict[str, str], desk: str, ordering_key: str, message_id: str, data: bytes
) -> None:
    message = Message(data, attributes, ordering_key, message_id, DEAD_LETTERED_AT)
    failure = arrival_of(Delivery(desk, message), NOW).failure
    assert failure.data == data
    assert not names.ALL & set(failure.attributes)
    assert failure.failure_reason
    assert failure.source_topic
    assert 0 < failure.publish_time_ns < 2**63
    shown = failure_to_json(failure, payload=True, redaction=NOTHING_HIDDEN)
    for text in (*failure.attributes, *failure.attributes.values(), *filter(is_text, shown.values())):
        text.encode()


def is_text(value: object) -> bool:
    return isinstance(value, str)


def test_what_failed_again_on_its_way_around_failed_in_its_own_subscription() -> None:
    told = {"CloudPubSubDeadLetterSourceSubscription": "orders.replay"}
    assert row(told).subscription == "projects/local/subscriptions/orders"


def test_what_was_sent_again_keeps_the_time_when_it_was_published_first() -> None:
    told = {
        REPLAY_ID: "id",
        ORIGINAL_PUBLISH_TIME: "2023-01-01T00:00:00Z",
        names.SOURCE_PUBLISH_TIME: "2023-11-14T22:13:20Z",
    }
    assert row(told).publish_time_ns == 1_672_531_200 * 10**9
    assert row({**told, ORIGINAL_PUBLISH_TIME: "noon"}).publish_time_ns == 1_700_000_000 * 10**9
    assert row(told).attributes == {}
