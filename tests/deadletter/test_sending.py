"""What is sent again is what its publisher sent, and its lineage."""

from __future__ import annotations

import pytest

from holdfast.deadletter.sending import message_for
from holdfast.errors import BadInput
from holdfast.model import dead_letter_attributes, replay_attributes
from holdfast.model.failed_message import Content, FailedMessage
from holdfast.model.message import Message
from holdfast.testing.contracts.failures import a_failure

LINEAGE = "desk.7.1.0.signature"


def sent(failure: FailedMessage, content: Content | None = None) -> Message:
    return message_for(failure, content or failure.content, LINEAGE)


def test_the_content_and_where_it_comes_from() -> None:
    assert sent(a_failure("11", attributes={"tenant": "a"}, publish_time_ns=1_700_000_000_123_456_789)) == Message(
        b'{"amount": "many"}',
        {
            "tenant": "a",
            "holdfast-replay-id": LINEAGE,
            "holdfast-original-message-id": "11",
            "holdfast-original-publish-time": "2023-11-14T22:13:20.123456789Z",
        },
    )


def test_an_edit_is_sent_whole() -> None:
    edited = Content(b"{}", {"tenant": "b"}, "key")
    message = sent(a_failure("11", attributes={"tenant": "a"}), edited)
    assert (message.data, message.ordering_key, message.attributes["tenant"]) == (b"{}", "key", "b")


def test_with_a_key_it_comes_in_the_place_of_what_failed_last() -> None:
    failure = a_failure("11", ordering_key="key")
    assert sent(failure).attributes[replay_attributes.IN_PLACE_OF] == "11"
    retried = a_failure("11", ordering_key="key", sent_message_id="12")
    assert sent(retried).attributes[replay_attributes.IN_PLACE_OF] == "12"
    assert replay_attributes.IN_PLACE_OF not in sent(a_failure("11")).attributes


@pytest.mark.parametrize("name", sorted(dead_letter_attributes.ALL | replay_attributes.ALL))
def test_what_desks_and_brokers_added_before_is_not_sent_again(name: str) -> None:
    assert sent(a_failure("11", attributes={name: "forged"})).attributes.get(name) != "forged"


def attributes(count: int) -> dict[str, str]:
    return {f"name-{number}": "x" for number in range(count)}


def test_lineage_has_the_last_free_place() -> None:
    message = sent(a_failure("11", attributes=attributes(99), ordering_key="key"))
    assert len(message.attributes) == 100
    assert message.attributes[replay_attributes.REPLAY_ID] == LINEAGE


def test_without_a_place_for_its_lineage_it_is_not_sent() -> None:
    with pytest.raises(BadInput, match="attributes: 100 leave no room"):
        sent(a_failure("11", attributes=attributes(100)))


def test_an_id_that_is_no_attribute_value_is_left_out() -> None:
    """Anybody may have written it into an attribute of a dead letter."""
    message = sent(a_failure("é" * 600))
    assert replay_attributes.ORIGINAL_MESSAGE_ID not in message.attributes
