"""What every store does when failed messages change. Subclass ChangeContract with a `store` fixture, whose clock is
`clock`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from holdfast.deadletter.audit import Action, AuditFilter, verify
from holdfast.deadletter.failures import Edit, Retention
from holdfast.deadletter.selection import Selection
from holdfast.deadletter.store import DeskStore
from holdfast.errors import Conflict
from holdfast.model.failed_message import Content, FailedMessage, FailureStatus, Revision
from holdfast.testing.clock import ManualClock
from holdfast.testing.contracts.failures import a_failure, all_rows, message_ids

QUEUED, PERMANENT, REPLAYED, SUCCESS = (
    FailureStatus.QUEUED_FOR_RETRY,
    FailureStatus.PERMANENT_FAILURE,
    FailureStatus.REPLAYED,
    FailureStatus.RETRY_SUCCESS,
)

DAY_SECONDS = 24 * 3600.0


def an_action(name: str = "failure.test", **details: Any) -> Action:
    return Action("somebody", name, "something", details, 5)


async def actions(store: DeskStore) -> list[tuple[str, Mapping[str, Any]]]:
    """What was done, oldest first."""
    return [(entry.action.name, entry.action.details) async for entry in store.read_entries()]


async def recorded(store: DeskStore, message_id: str = "1", **changes: Any) -> FailedMessage:
    [row] = await store.record([a_failure(message_id, **changes)])
    failure = await store.get(row.id)
    assert failure
    return failure


def an_edit(failure: FailedMessage, number: int = 1, data: bytes = b"new") -> Edit:
    revision = Revision(failure.id, number, Content(data, {"a": "b"}, "key"), "me", "because", 9)
    return Edit(failure.revise(), revision, an_action("failure.edit"))


class ChangeContract:
    # Due, and out.

    async def test_due_are_those_whose_time_has_come_the_longest_due_first(self, store: DeskStore) -> None:
        for message_id, at_ns in (("late", 9_000), ("first", 1_000), ("second", 2_000)):
            await recorded(store, message_id, status=QUEUED, retry_at_ns=at_ns)
        await recorded(store, "permanent")
        assert [row.message_id for row in await store.due_for_retry(2_000, 10)] == ["first", "second"]
        assert [row.message_id for row in await store.due_for_retry(9_000, 2)] == ["first", "second"]
        assert await store.due_for_retry(999, 10) == []

    async def test_a_retry_that_is_out_is_not_due_but_looked_after(self, store: DeskStore) -> None:
        rows = [await recorded(store, str(n), status=QUEUED, retry_at_ns=1_000) for n in range(3)]
        assert await store.save([row.mark_sent(5_000, f"sent {row.id}") for row in rows[:2]]) == [True, True]
        assert [row.message_id for row in await store.due_for_retry(9_000, 10)] == ["2"]
        out = await store.out_on_retry(10)
        assert [(row.message_id, row.sent_at_ns, row.retry_count) for row in out] == [("0", 5_000, 1), ("1", 5_000, 1)]
        assert [row.message_id for row in await store.out_on_retry(10, after_id=out[0].id)] == ["1"]
        assert [row.message_id for row in await store.out_on_retry(1)] == ["0"]

    # Compare and set.

    async def test_what_is_saved_is_what_the_noun_says(self, store: DeskStore) -> None:
        row = await recorded(store, status=QUEUED, retry_at_ns=1_000)
        sent = row.mark_sent(5_000, "m-2")
        assert await store.save([sent]) == [True]
        assert await store.get(row.id) == replace(sent, version=row.version + 1)
        again = replace(sent, version=row.version + 1).schedule_retry(8_000, "still no")
        assert await store.save([again]) == [True]
        assert await store.get(row.id) == replace(again, version=row.version + 2)

    async def test_who_has_an_old_version_changes_nothing(self, store: DeskStore) -> None:
        row = await recorded(store)
        other = await recorded(store, "2")
        assert await store.save([row.mark_replayed(5_000)]) == [True]
        assert await store.save([row.hold(True), other.hold(True)], an_action()) == [False, True]
        [second, first] = await all_rows(store)
        assert (first.status, first.legal_hold, second.legal_hold) == (REPLAYED, False, True)

    async def test_of_many_who_save_one_row_exactly_one_does(self, store: DeskStore) -> None:
        row = await recorded(store, status=QUEUED, retry_at_ns=1_000)
        kept = await asyncio.gather(*(store.save([row.claim_retry(n * 1_000)]) for n in range(20)))
        assert sorted(is_kept for (is_kept,) in kept) == [False] * 19 + [True]

    async def test_an_action_is_told_only_when_something_was_kept(self, store: DeskStore) -> None:
        row = await recorded(store)
        await store.save([row.mark_replayed(5_000)], an_action("first"))
        await store.save([row.mark_replayed(5_000)], an_action("second"))
        assert await store.save([], an_action("third")) == []
        assert await actions(store) == [("first", {})]

    async def test_a_row_that_is_gone_is_not_kept(self, store: DeskStore) -> None:
        row = await recorded(store)
        await store.erase(Selection(), an_action())
        assert await store.save([row.mark_replayed(5_000)]) == [False]

    # Edits.

    async def test_edits_are_kept_whole_and_the_original_stays(self, store: DeskStore) -> None:
        row = await recorded(store, data=b"\x00old")
        edit = an_edit(row, data=b"\xff\x00")
        assert await store.revise([edit]) == [True]
        assert await store.revisions(row.id) == [edit.revision]
        now = await store.get(row.id)
        assert now is not None
        assert (now.data, now.revision, now.version) == (b"\x00old", 1, row.version + 1)
        assert await store.revise([an_edit(now, 2)]) == [True]
        assert [revision.number for revision in await store.revisions(row.id)] == [1, 2]

    async def test_of_two_edits_of_one_version_the_second_is_refused(self, store: DeskStore) -> None:
        row, other = await recorded(store), await recorded(store, "2")
        assert await store.revise([an_edit(row)]) == [True]
        assert await store.revise([an_edit(row, data=b"late"), an_edit(other)]) == [False, True]
        assert [revision.content.data for revision in await store.revisions(row.id)] == [b"new"]
        assert len(await actions(store)) == 2

    async def test_nothing_has_no_revisions(self, store: DeskStore) -> None:
        assert await store.revisions(77) == []
        assert await store.revisions(2**70) == []

    async def test_what_was_exported_comes_back_with_its_edits(self, store: DeskStore) -> None:
        failure = a_failure("1", status=REPLAYED, retry_success_at_ns=9_000, revision=1, fingerprint="f")
        revision = Revision(12345, 1, Content(b"\x00", {}, ""), "me", "", 3)
        [first] = await store.restore([(failure, [revision])])
        [again] = await store.restore([(failure, [revision])])
        assert (first.is_new, again) == (True, replace(first, is_new=False))
        assert await store.get(first.id) == replace(failure, id=first.id)
        assert await store.revisions(first.id) == [replace(revision, failure_id=first.id)]
        assert await store.restore([]) == []

    # Legal hold, erasure, retention.

    async def test_what_is_held_is_neither_erased_nor_cleaned_up(self, store: DeskStore, clock: ManualClock) -> None:
        await recorded(store, "kept", status=REPLAYED, retry_success_at_ns=1_000, attributes={"case": "7"})
        await recorded(store, "gone", status=REPLAYED, retry_success_at_ns=1_000)
        wanted = Selection(attributes={"case": "7"})
        assert await store.hold(wanted, True, an_action("failure.hold")) == 1
        assert await store.hold(wanted, True, an_action("failure.hold")) == 0
        assert await store.erase(Selection(message_id="kept"), an_action("failure.erase")) == 0
        retention = Retention(None, clock.now_ns(), None)
        assert await store.clean_up(retention, an_action("failure.clean_up"), 100) == 1
        assert await message_ids(store) == ["kept"]
        assert await store.hold(Selection(), False, an_action("failure.release")) == 1
        assert await store.erase(Selection(), an_action("failure.erase")) == 1
        assert [name for name, _ in await actions(store)] == [
            "failure.hold",
            "failure.clean_up",
            "failure.release",
            "failure.erase",
        ]
        assert {details["count"] for _, details in await actions(store)} == {1}

    async def test_the_audit_names_each_failure_of_a_selection(self, store: DeskStore) -> None:
        await store.record([a_failure(str(number)) for number in range(1, 2105)])
        odd = Selection(ids=tuple(range(1, 2105, 2)))
        assert await store.hold(odd, True, Action("anna", "failures.hold", "failures")) == 1052
        entries = [entry async for entry in store.read_entries()]
        named = [name for entry in entries for name in entry.action.details["failures"].split(",")]
        assert named == [str(number) for number in range(1, 2105, 2)]
        assert [entry.action.details["count"] for entry in entries] == [1052, 1052]
        assert (await verify(store.read_entries())).problem == ""
        await store.hold(odd, False, Action("anna", "failures.release", "failures"))
        assert await store.erase(Selection(), Action("anna", "failures.erase", "failures")) == 2104
        erased = (await store.list_entries(AuditFilter(name="failures.erase"), 10)).entries
        assert [entry.action.details["failures"] for entry in erased] == ["1-2104"]

    async def test_holding_makes_older_versions_old(self, store: DeskStore) -> None:
        row = await recorded(store)
        await store.hold(Selection(ids=[row.id]), True, an_action())
        assert await store.save([row.mark_replayed(5_000)]) == [False]

    async def test_with_a_row_goes_all_that_belongs_to_it(self, store: DeskStore) -> None:
        row = await recorded(store, attributes={"k": "v"})
        await store.revise([an_edit(row)])
        assert await store.erase(Selection(attributes={"k": "v"}), an_action()) == 1
        assert await store.get(row.id) is None
        assert await store.revisions(row.id) == []
        assert await store.count(Selection(attributes={"k": "v"}), 10) == 0
        assert sum((await store.count_by_status()).values()) == 0

    async def test_an_erasure_of_another_number_than_expected_erases_nothing(self, store: DeskStore) -> None:
        for number in range(3):
            await recorded(store, str(number))
        with pytest.raises(Conflict, match="3"):
            await store.erase(Selection(), an_action(), expected=2)
        assert len(await all_rows(store)) == 3
        assert await actions(store) == []
        assert await store.erase(Selection(), an_action(), expected=3) == 3

    async def test_clean_up_goes_by_the_time_of_the_status(self, store: DeskStore, clock: ManualClock) -> None:
        began = clock.now_ns()
        for message_id, status in (("old", REPLAYED), ("success", SUCCESS), ("permanent", PERMANENT)):
            ended = began if status is not PERMANENT else None
            await recorded(store, message_id, status=status, created_at_ns=began, retry_success_at_ns=ended)
        late = await recorded(store, "late", created_at_ns=began)
        clock.advance(DAY_SECONDS)
        await store.save([late.mark_replayed(clock.now_ns())])
        before = clock.now_ns()
        assert await store.clean_up(Retention(None, None, None), an_action(), 100) == 0
        assert await store.clean_up(Retention(None, before, None), an_action(), 100) == 1
        assert await message_ids(store) == ["late", "permanent", "success"]
        assert await store.clean_up(Retention(before, before, None), an_action(), 100) == 1
        assert await store.clean_up(Retention(before, before, before), an_action(), 100) == 1
        assert await message_ids(store) == ["late"]
        clock.advance(1)
        assert await store.clean_up(Retention(None, clock.now_ns(), None), an_action(), 100) == 1

    async def test_clean_up_takes_no_more_than_it_may(self, store: DeskStore, clock: ManualClock) -> None:
        for number in range(5):
            status = REPLAYED if number % 2 else SUCCESS
            await recorded(store, str(number), status=status, retry_success_at_ns=1_000)
        now = clock.now_ns()
        taken = [await store.clean_up(Retention(now, now, now), an_action(), 2) for _ in range(4)]
        assert taken == [2, 2, 1, 0]
        assert [details["count"] for _, details in await actions(store)] == [2, 2, 1]

    # Lineage.

    async def test_a_lineage_is_the_first_failure_and_those_after_it(self, store: DeskStore) -> None:
        first = await recorded(store)
        ids = [first.id]
        for generation in (1, 2):
            later = await recorded(store, f"g{generation}", origin_id=first.id, generation=generation)
            ids.append(later.id)
        await recorded(store, "other")
        assert await store.lineage(first.id) == ids
        await store.erase(Selection(ids=[first.id]), an_action())
        assert await store.lineage(first.id) == ids[1:]
        assert await store.lineage(999_999) == []

    async def test_the_desk_has_one_name_and_one_secret(self, store: DeskStore) -> None:
        names = await asyncio.gather(*(store.store_id() for _ in range(5)))
        secrets = await asyncio.gather(*(store.secret() for _ in range(5)))
        assert len(set(names)) == len(set(secrets)) == 1
        assert names[0]
        assert "." not in names[0]
        assert len(secrets[0]) == 32
        assert (await store.list_entries(AuditFilter(), 1)).entries == []
