"""What every store does with groups of failures. Subclass GroupContract with a `store` fixture."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.deadletter.groups import Comment, Group, GroupFilter, GroupState
from holdfast.deadletter.selection import Selection
from holdfast.deadletter.store import DeskStore
from holdfast.errors import BadInput
from holdfast.model.failed_message import FailureClass, FailureStatus
from holdfast.testing.contracts.changes import actions, an_action
from holdfast.testing.contracts.failures import BILLING, ORDERS, a_failure

HOUR = 3600 * 1_000_000_000


async def seen(store: DeskStore, fingerprint: str, at_ns: int, message_id: str = "", **changes: Any) -> None:
    failure = a_failure(message_id or f"{fingerprint} {at_ns}", fingerprint=fingerprint, created_at_ns=at_ns, **changes)
    await store.record([failure])


async def group_of(store: DeskStore, fingerprint: str) -> Group:
    group = await store.get_group(fingerprint)
    assert group is not None
    return group


async def fingerprints(store: DeskStore, wanted: GroupFilter | None = None) -> list[str]:
    return [group.fingerprint for group in (await store.list_groups(wanted or GroupFilter(), 100)).groups]


class GroupContract:
    async def test_failures_with_one_fingerprint_are_one_group(self, store: DeskStore) -> None:
        rows = [
            a_failure(
                str(number),
                fingerprint="f",
                created_at_ns=number * 1_000,
                failure_class=FailureClass.POISON,
                error_details=f"order {number} is wrong",
                status=FailureStatus.QUEUED_FOR_RETRY if number == 2 else FailureStatus.PERMANENT_FAILURE,
            )
            for number in (2, 1, 3)
        ]
        await store.record(rows)
        assert await group_of(store, "f") == Group(
            fingerprint="f",
            subscription=ORDERS,
            failure_reason="SCHEMA_VALIDATION_ERROR",
            failure_class=FailureClass.POISON,
            example="order # is wrong",
            first_seen_ns=1_000,
            last_seen_ns=3_000,
            count=3,
            waiting=2,
        )

    async def test_what_was_there_already_is_not_counted(self, store: DeskStore) -> None:
        for _ in range(3):
            await seen(store, "f", 1_000, "1")
        assert (await group_of(store, "f")).count == 1
        assert await store.counts_by_hour("f", 0) == {0: 1}

    async def test_without_a_fingerprint_there_is_no_group(self, store: DeskStore) -> None:
        await seen(store, "", 1_000)
        assert await fingerprints(store) == []
        assert await store.get_group("") is None

    async def test_waiting_follows_what_becomes_of_the_members(self, store: DeskStore) -> None:
        for number in range(3):
            await seen(store, "f", number * 1_000)
        rows = (await store.list(Selection(), 10)).failures
        await store.save([rows[0].mark_replayed(5_000)])
        assert (await group_of(store, "f")).waiting == 2
        await store.erase(Selection(ids=[rows[1].id]), an_action())
        group = await group_of(store, "f")
        assert (group.waiting, group.count) == (1, 3)  # all that were ever recorded

    async def test_a_resolved_group_that_returns_is_reopened(self, store: DeskStore) -> None:
        await seen(store, "f", 1_000)
        assert await store.save_group((await group_of(store, "f")).resolve(), an_action("group.resolve"))
        resolved = await group_of(store, "f")
        await seen(store, "f", 2_000)
        reopened = await group_of(store, "f")
        assert (reopened.state, reopened.version) == (GroupState.REOPENED, resolved.version + 1)
        await seen(store, "f", 3_000)
        assert (await group_of(store, "f")).version == reopened.version

    async def test_an_acknowledged_group_stays_so(self, store: DeskStore) -> None:
        await seen(store, "f", 1_000)
        await store.save_group((await group_of(store, "f")).acknowledge().assign("ada"), an_action())
        acknowledged = await group_of(store, "f")
        await seen(store, "f", 2_000)
        later = await group_of(store, "f")
        assert (later.state, later.assignee, later.version) == (
            GroupState.ACKNOWLEDGED,
            "ada",
            acknowledged.version,
        )

    async def test_who_has_an_old_version_changes_nothing(self, store: DeskStore) -> None:
        await seen(store, "f", 1_000)
        group = await group_of(store, "f")
        assert await store.save_group(group.assign("ada"), an_action("one")) is True
        assert await store.save_group(group.assign("bob"), an_action("two")) is False
        assert (await group_of(store, "f")).assignee == "ada"
        assert await actions(store) == [("one", {})]

    async def test_the_last_seen_comes_first_and_pages_go_on(self, store: DeskStore) -> None:
        for number in range(7):
            await seen(store, f"f{number}", (number // 2) * 1_000)
        pages: list[list[str]] = []
        token = ""
        while not pages or token:
            page = await store.list_groups(GroupFilter(), 3, token)
            pages.append([group.fingerprint for group in page.groups])
            token = page.next_page_token
        assert pages == [["f6", "f5", "f4"], ["f3", "f2", "f1"], ["f0"]]

    async def test_filters_alone_and_together(self, store: DeskStore) -> None:
        await seen(store, "a", 1_000, failure_reason="A")
        await seen(store, "b", 2_000, failure_reason="B", subscription=BILLING)
        await seen(store, "c", 3_000, failure_reason="B")
        await store.save_group((await group_of(store, "c")).resolve().assign("ada"), an_action())
        assert await fingerprints(store) == ["c", "b", "a"]
        assert await fingerprints(store, GroupFilter(reason="B")) == ["c", "b"]
        assert await fingerprints(store, GroupFilter(subscription=ORDERS)) == ["c", "a"]
        assert await fingerprints(store, GroupFilter(states=[GroupState.OPEN])) == ["b", "a"]
        assert await fingerprints(store, GroupFilter(states=[GroupState.OPEN, GroupState.RESOLVED])) == ["c", "b", "a"]
        assert await fingerprints(store, GroupFilter(assignee="ada")) == ["c"]
        assert await fingerprints(store, GroupFilter(reason="B", subscription=ORDERS, assignee="ada")) == ["c"]
        assert await fingerprints(store, GroupFilter(reason="' OR '1'='1")) == []

    @pytest.mark.parametrize("token", ["nonsense", "-1.f", "1", "٣.f", "9" * 400])
    async def test_a_token_that_was_not_given_is_bad_input(self, store: DeskStore, token: str) -> None:
        with pytest.raises(BadInput, match="pageToken"):
            await store.list_groups(GroupFilter(), 10, token)

    async def test_counts_by_hour(self, store: DeskStore) -> None:
        for number, at_ns in enumerate((HOUR - 1_000, HOUR, HOUR + 1_000, 3 * HOUR)):
            await seen(store, "f", at_ns, str(number))
        assert await store.counts_by_hour("f", 0) == {0: 1, HOUR: 2, 3 * HOUR: 1}
        assert await store.counts_by_hour("f", HOUR + HOUR // 2) == {HOUR: 2, 3 * HOUR: 1}
        assert await store.counts_by_hour("other", 0) == {}

    async def test_comments_are_kept_in_their_order(self, store: DeskStore) -> None:
        await seen(store, "f", 1_000)
        said = [Comment("ada", "it's \x00 the 💥", 1), Comment("bob", "yes", 2)]
        for comment in said:
            await store.comment("f", comment, an_action("group.comment"))
        assert await store.comments("f") == said
        assert await store.comments("other") == []
        assert len(await actions(store)) == 2
