"""Which places in ordering keys every store notes as given up. Subclass PlaceContract with a `store` fixture."""

from __future__ import annotations

import pytest

from holdfast.deadletter.failures import Retention
from holdfast.deadletter.selection import Selection
from holdfast.deadletter.store import DeskStore
from holdfast.model.failed_message import FailureStatus
from holdfast.testing.contracts.changes import an_action, an_edit, recorded
from holdfast.testing.contracts.failures import BILLING, ORDERS, a_failure

QUEUED, REPLAYED, SUCCESS = FailureStatus.QUEUED_FOR_RETRY, FailureStatus.REPLAYED, FailureStatus.RETRY_SUCCESS


async def places(store: DeskStore) -> list[tuple[str, bool]]:
    """As (message id, is taken), in the order they were noted."""
    return [(place.message_id, place.is_taken) for place in await store.freed_places(100)]


class PlaceContract:
    async def test_a_failure_that_waits_keeps_its_place(self, store: DeskStore) -> None:
        failure = await recorded(store, ordering_key="k")
        await store.save([failure.schedule_retry(5)])
        await recorded(store, "2", ordering_key="k", status=QUEUED, retry_at_ns=5)
        edited = await recorded(store, "3", ordering_key="k")
        assert list(await store.revise([an_edit(edited)])) == [True]
        await store.hold(Selection(), True, an_action())
        assert await places(store) == []

    async def test_what_ends_gives_up_its_place(self, store: DeskStore) -> None:
        await recorded(store, "duplicate", ordering_key="k", status=SUCCESS)
        replayed = await recorded(store, "replayed", ordering_key="k")
        await store.save([replayed.mark_replayed(5, message_id="new")])
        await recorded(store, "erased", ordering_key="k")
        await store.erase(Selection(message_id="erased"), an_action())
        await recorded(store, "old", ordering_key="k", created_at_ns=1_000)
        assert await store.clean_up(Retention(None, None, 2**62), an_action(), 100) == 1
        assert await places(store) == [(name, False) for name in ("duplicate", "replayed", "erased", "old")]
        assert {place.subscription for place in await store.freed_places(100)} == {ORDERS}

    async def test_it_gives_it_up_once(self, store: DeskStore) -> None:
        await recorded(store, ordering_key="k", status=SUCCESS)
        await store.erase(Selection(), an_action())
        assert await places(store) == [("1", False)]

    async def test_what_has_no_key_has_no_place(self, store: DeskStore) -> None:
        await recorded(store, status=SUCCESS)
        await recorded(store, "2")
        await store.erase(Selection(), an_action())
        assert await places(store) == []

    async def test_the_place_is_that_of_the_last_retry(self, store: DeskStore) -> None:
        failure = await recorded(store, ordering_key="k", status=QUEUED, retry_count=1, sent_message_id="retry")
        await store.save([failure.mark_replayed(5, message_id="replay")])
        assert await places(store) == [("retry", False)]

    @pytest.mark.parametrize("how", ["succeeded", "erased"])
    async def test_what_is_out_on_a_retry_has_none_to_give_up(self, store: DeskStore, how: str) -> None:
        failure = await recorded(
            store, ordering_key="k", status=QUEUED, retry_count=1, sent_at_ns=5_000, sent_message_id="retry"
        )
        if how == "succeeded":
            await store.save([failure.mark_retry_success(9_000)])
        else:
            await store.erase(Selection(), an_action())
        assert await places(store) == []

    async def test_what_a_replay_has_claimed_has_one(self, store: DeskStore) -> None:
        failure = await recorded(store, ordering_key="k")
        await store.save([failure.claim_replay(5_000, 7)])
        claimed = await store.get(failure.id)
        assert claimed
        await store.save([claimed.mark_replayed(6_000, 7, "new")])
        assert await places(store) == [("1", False)]

    async def test_a_place_is_taken_while_another_failure_waits_for_it(self, store: DeskStore) -> None:
        """As a forged dead letter makes one: it must not free the place of the real one."""
        await recorded(store, "1", ordering_key="k")
        await recorded(store, "1", ordering_key="k", data=b"forged", status=SUCCESS)
        await recorded(store, "2", ordering_key="k", sent_message_id="retry", retry_count=1)
        await recorded(store, "retry", ordering_key="k", data=b"forged", status=SUCCESS)
        await recorded(store, "elsewhere", ordering_key="k", subscription=BILLING)
        await recorded(store, "elsewhere", ordering_key="k", status=SUCCESS)
        assert await places(store) == [("1", True), ("retry", True), ("elsewhere", False)]

    async def test_an_earlier_place_of_a_failure_that_was_retried_is_not_taken(self, store: DeskStore) -> None:
        await recorded(store, "1", ordering_key="k", sent_message_id="retry", retry_count=1)
        await recorded(store, "1", ordering_key="k", data=b"other", status=SUCCESS)
        assert await places(store) == [("1", False)]

    async def test_a_dead_letter_of_what_has_ended_gives_it_up_again(self, store: DeskStore) -> None:
        failure = await recorded(store, ordering_key="k", status=SUCCESS)
        await store.forget_places([place.id for place in await store.freed_places(100)])
        await store.record([a_failure("1", ordering_key="k"), a_failure("2", ordering_key="k")])
        await store.record([a_failure("2", ordering_key="k")])
        assert (await places(store), failure.id) == ([("1", False)], 1)

    async def test_pages_and_what_is_forgotten(self, store: DeskStore) -> None:
        for number in range(5):
            await recorded(store, str(number), ordering_key="k", status=SUCCESS)
        first = await store.freed_places(2)
        assert [place.message_id for place in await store.freed_places(2, first[-1].id)] == ["2", "3"]
        await store.forget_places([place.id for place in first])
        await store.forget_places([])
        assert [name for name, _ in await places(store)] == ["2", "3", "4"]
