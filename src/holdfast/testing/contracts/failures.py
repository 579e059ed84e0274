"""How every store records and lists failures. Subclass FailureStoreContract with a `store` fixture and pytest runs it;
DurableFailureStoreContract has what must hold over a close, for stores that outlive the process."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.deadletter.selection import Selection
from holdfast.deadletter.store import DeskStore
from holdfast.errors import BadInput
from holdfast.model.failed_message import LONGEST_ERROR_DETAILS_BYTES, FailedMessage, FailureClass, FailureStatus

ORDERS = "projects/local/subscriptions/orders"
BILLING = "projects/local/subscriptions/billing"

_numbers = itertools.count(1)

_times = st.integers(min_value=0, max_value=2**63 - 1)
_microseconds = _times.map(lambda time_ns: time_ns // 1000 * 1000)
_small = st.integers(min_value=0, max_value=10**6)
_short_texts = st.text(max_size=40)

failed_messages = st.builds(
    FailedMessage,
    # Unique, because one store serves all examples of a test.
    message_id=_short_texts.map(lambda text: f"{text}{next(_numbers)}"),
    subscription=_short_texts,
    source_topic=_short_texts,
    failure_reason=_short_texts,
    error_details=st.text(max_size=500),
    data=st.binary(max_size=300) | st.sampled_from([b"", b"\x00", b"\xff\xfe", b'{"a": 1}', b"null", b"NaN"]),
    attributes=st.dictionaries(_short_texts, _short_texts, max_size=4),
    ordering_key=_short_texts,
    publish_time_ns=_times,
    delivery_attempt=st.integers(min_value=0, max_value=10**9),
    retry_count=st.integers(min_value=0, max_value=10**6),
    status=st.sampled_from(FailureStatus),
    created_at_ns=_microseconds,
    retry_at_ns=st.none() | _microseconds,
    retry_success_at_ns=st.none() | _microseconds,
    failed_at_ns=_microseconds,
    failure_class=st.sampled_from(FailureClass),
    fingerprint=st.sampled_from(["", "a", "b"]),
    generation=_small,
    origin_id=_small,
    revision=_small,
    legal_hold=st.booleans(),
    sent_at_ns=st.none() | _microseconds,
    sent_message_id=_short_texts,
    replay_id=_small,
)

# One store serves all examples (ids are unique), and the test is inherited by one class per backend.
_over_one_store = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors],
)


def a_failure(message_id: str, **changes: Any) -> FailedMessage:
    failure = FailedMessage(
        message_id=message_id,
        subscription=ORDERS,
        source_topic="projects/local/topics/orders",
        failure_reason="SCHEMA_VALIDATION_ERROR",
        error_details="amount: must be a number",
        data=b'{"amount": "many"}',
    )
    return replace(failure, **changes)


async def record(store: DeskStore, failure: FailedMessage) -> bool:
    """Whether it was new."""
    [recorded] = await store.record([failure])
    return recorded.is_new


async def all_rows(store: DeskStore, wanted: Selection | None = None) -> list[FailedMessage]:
    return list((await store.list(wanted or Selection(), 1000)).failures)


async def message_ids(store: DeskStore, wanted: Selection | None = None) -> list[str]:
    return [failure.message_id for failure in await all_rows(store, wanted)]


class FailureStoreContract:
    async def test_an_empty_store_has_nothing_and_counts_every_status_as_0(self, store: DeskStore) -> None:
        assert await all_rows(store) == []
        assert await store.count_by_status() == dict.fromkeys(FailureStatus, 0)

    async def test_recording_twice_changes_nothing(self, store: DeskStore) -> None:
        assert await record(store, a_failure("1")) is True
        before = await all_rows(store)
        assert await record(store, a_failure("1", error_details="another", retry_count=9)) is False
        assert await all_rows(store) == before

    async def test_another_message_under_the_same_id_is_not_swallowed(self, store: DeskStore) -> None:
        assert await record(store, a_failure("1")) is True
        for change in ({"data": b"other"}, {"attributes": {"a": "b"}}, {"ordering_key": "k"}, {"publish_time_ns": 7}):
            assert await record(store, a_failure("1", **change)) is True
        assert len(await all_rows(store)) == 5

    async def test_one_message_that_fails_in_two_subscriptions_is_two_rows(self, store: DeskStore) -> None:
        assert await record(store, a_failure("1", subscription=ORDERS)) is True
        assert await record(store, a_failure("1", subscription=BILLING)) is True
        assert {row.subscription for row in await all_rows(store)} == {ORDERS, BILLING}

    async def test_of_concurrent_records_of_one_key_exactly_one_is_new(self, store: DeskStore) -> None:
        outcomes = await asyncio.gather(*(record(store, a_failure("1")) for _ in range(50)))
        assert sorted(outcomes) == [False] * 49 + [True]
        assert await message_ids(store) == ["1"]

    async def test_concurrent_records_of_many_keys_all_arrive(self, store: DeskStore) -> None:
        outcomes = await asyncio.gather(*(record(store, a_failure(str(number))) for number in range(200)))
        assert all(outcomes)
        assert sorted(map(int, await message_ids(store))) == list(range(200))

    @_over_one_store
    @given(failure=failed_messages)
    async def test_every_field_comes_back_as_it_was(self, store: DeskStore, failure: FailedMessage) -> None:
        assert await record(store, failure) is True
        listed = (await store.list(Selection(), 1)).failures[0]
        assert listed.id > 0
        assert listed == replace(failure, id=listed.id)
        assert await store.get(listed.id) == listed

    async def test_a_large_binary_payload_comes_back_as_it_was(self, store: DeskStore) -> None:
        data = bytes(range(256)) * 8192
        await record(store, a_failure("1", data=data))
        assert (await all_rows(store))[0].data == data

    async def test_attributes_changed_after_recording_do_not_change_the_row(self, store: DeskStore) -> None:
        attributes = {"tenant": "a"}
        await record(store, a_failure("1", attributes=attributes))
        attributes["tenant"] = "b"
        assert (await all_rows(store))[0].attributes == {"tenant": "a"}

    @pytest.mark.parametrize("failure_id", [-1, 0, 2, 2**63 - 1, 2**63, 2**80])
    async def test_an_id_that_was_not_given_names_nothing(self, store: DeskStore, failure_id: int) -> None:
        await record(store, a_failure("1"))
        [row] = await all_rows(store)
        assert await store.get(failure_id if failure_id != row.id else 3) is None

    @pytest.mark.parametrize("letter", ["x", "é", "💥"])
    async def test_a_long_error_is_cut_and_says_so(self, store: DeskStore, letter: str) -> None:
        await record(store, a_failure("long", error_details=letter * LONGEST_ERROR_DETAILS_BYTES * 2))
        kept = (await all_rows(store))[0].error_details
        assert LONGEST_ERROR_DETAILS_BYTES - 8 <= len(kept.encode()) <= LONGEST_ERROR_DETAILS_BYTES
        assert kept.startswith(letter * 100)
        assert kept.endswith("(cut)")

    async def test_an_error_of_just_the_largest_size_is_whole(self, store: DeskStore) -> None:
        text = "x" * LONGEST_ERROR_DETAILS_BYTES
        await record(store, a_failure("1", error_details=text))
        assert (await all_rows(store))[0].error_details == text

    async def test_filters_alone_and_together(self, store: DeskStore) -> None:
        queued, replayed = FailureStatus.QUEUED_FOR_RETRY, FailureStatus.REPLAYED
        await record(store, a_failure("1", status=queued, failure_reason="A", subscription=ORDERS))
        await record(store, a_failure("2", status=queued, failure_reason="B", subscription=BILLING))
        await record(store, a_failure("3", status=replayed, failure_reason="A", subscription=BILLING))
        await record(store, a_failure("4", status=queued, failure_reason="A", subscription=BILLING))

        assert await message_ids(store) == ["4", "3", "2", "1"]
        assert await message_ids(store, Selection(statuses=[queued])) == ["4", "2", "1"]
        assert await message_ids(store, Selection(reason="A")) == ["4", "3", "1"]
        assert await message_ids(store, Selection(subscription=BILLING)) == ["4", "3", "2"]
        assert await message_ids(store, Selection(statuses=[queued], reason="A", subscription=BILLING)) == ["4"]
        assert await message_ids(store, Selection(statuses=[FailureStatus.RETRY_SUCCESS])) == []
        assert await message_ids(store, Selection(reason="a' OR '1'='1")) == []

    async def test_pages_go_on_where_they_ended_while_new_rows_arrive(self, store: DeskStore) -> None:
        for number in range(1, 8):
            await record(store, a_failure(str(number)))
        seen: list[list[str]] = []
        token = ""
        while True:
            page = await store.list(Selection(), 3, token)
            seen.append([failure.message_id for failure in page.failures])
            await record(store, a_failure(f"new {len(seen)}"))
            token = page.next_page_token
            if not token:
                break
        assert seen == [["7", "6", "5"], ["4", "3", "2"], ["1"]]

    async def test_pages_of_a_filter_hold_only_what_it_wants(self, store: DeskStore) -> None:
        for number in range(1, 9):
            await record(store, a_failure(str(number), subscription=ORDERS if number % 2 else BILLING))
        first = await store.list(Selection(subscription=ORDERS), 3)
        second = await store.list(Selection(subscription=ORDERS), 3, first.next_page_token)
        assert [failure.message_id for failure in first.failures] == ["7", "5", "3"]
        assert [failure.message_id for failure in second.failures] == ["1"]
        assert second.next_page_token == ""

    async def test_a_page_that_just_holds_the_rest_has_no_token(self, store: DeskStore) -> None:
        for number in range(3):
            await record(store, a_failure(str(number)))
        assert (await store.list(Selection(), 3)).next_page_token == ""

    @pytest.mark.parametrize("token", ["nonsense", "-1", "1.5", "٣", " 1", "9" * 400, "1; DROP TABLE x"])
    async def test_a_token_that_was_not_given_is_bad_input(self, store: DeskStore, token: str) -> None:
        await record(store, a_failure("1"))
        with pytest.raises(BadInput, match="pageToken"):
            await store.list(Selection(), 10, token)

    async def test_counts_follow_the_statuses(self, store: DeskStore) -> None:
        for number, status in enumerate([FailureStatus.PERMANENT_FAILURE] * 3 + [FailureStatus.REPLAYED]):
            await record(store, a_failure(str(number), status=status))
        await record(store, a_failure("0"))  # known already
        assert await store.count_by_status() == {
            FailureStatus.QUEUED_FOR_RETRY: 0,
            FailureStatus.PERMANENT_FAILURE: 3,
            FailureStatus.RETRY_SUCCESS: 0,
            FailureStatus.REPLAYED: 1,
        }


class DurableFailureStoreContract:
    """Wants a second fixture, `reopen`: closes the store and gives a new one on the same data."""

    async def test_rows_survive_a_close(self, store: DeskStore, reopen: Callable[[], Awaitable[DeskStore]]) -> None:
        await record(store, a_failure("1", data=b"\x00\xff", attributes={"k": "ü"}))
        await record(store, a_failure("2"))
        before = await all_rows(store)
        again = await reopen()
        assert await all_rows(again) == before
        assert await record(again, a_failure("2")) is False
        assert await record(again, a_failure("3")) is True
        assert await message_ids(again) == ["3", "2", "1"]

    async def test_a_page_token_survives_a_close(
        self, store: DeskStore, reopen: Callable[[], Awaitable[DeskStore]]
    ) -> None:
        for number in range(1, 5):
            await record(store, a_failure(str(number)))
        token = (await store.list(Selection(), 2)).next_page_token
        again = await reopen()
        page = await again.list(Selection(), 2, token)
        assert [failure.message_id for failure in page.failures] == ["2", "1"]
