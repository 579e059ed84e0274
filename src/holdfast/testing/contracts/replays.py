"""What every store does with replay jobs. Subclass ReplayContract with a `store` fixture."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from holdfast.deadletter.replay.jobs import Item, ItemState, Job, JobState, Options, Target
from holdfast.deadletter.selection import Selection
from holdfast.deadletter.store import DeskStore
from holdfast.model.failed_message import FailureStatus
from holdfast.testing.contracts.changes import actions, an_action, recorded
from holdfast.testing.contracts.failures import a_failure


def a_job(**changes: Any) -> Job:
    return replace(Job(Selection(), Options(), "ada", created_at_ns=3), **changes)


async def planned(store: DeskStore, **changes: Any) -> Job:
    return await store.create_job(a_job(**changes), an_action("replay.plan"))


async def items(store: DeskStore, job: Job, *states: ItemState) -> list[Item]:
    return list((await store.list_items(job.id, states, 1000)).items)


class ReplayContract:
    async def test_a_job_has_what_can_be_sent_oldest_first(self, store: DeskStore) -> None:
        await store.record(
            [
                a_failure("third", publish_time_ns=3),
                a_failure("first", publish_time_ns=1),
                a_failure("second", publish_time_ns=1, status=FailureStatus.QUEUED_FOR_RETRY, retry_at_ns=1_000),
                a_failure("out", status=FailureStatus.QUEUED_FOR_RETRY, sent_at_ns=1_000),
                a_failure("taken", sent_at_ns=1_000),
                a_failure("done", status=FailureStatus.REPLAYED),
                a_failure("other", failure_reason="B"),
            ]
        )
        job = await planned(store, selection=Selection(reason="SCHEMA_VALIDATION_ERROR"))
        assert (job.total, job.state, job.version) == (3, JobState.PLANNED, 1)
        found = await store.pending(job.id, 10)
        assert [failure.message_id for _, failure in found if failure] == ["first", "second", "third"]
        assert [item.position for item, _ in found] == [1, 2, 3]
        [(name, details)] = await actions(store)
        assert (name, details["job"], details["count"]) == ("replay.plan", job.id, 3)

    async def test_messages_lead_to_their_failures_and_these_to_what_was_sent(self, store: DeskStore) -> None:
        await store.record(
            [
                a_failure("m-1"),
                a_failure("m-1", subscription="projects/local/subscriptions/another"),
                a_failure("m-2", sent_message_id="r-2"),
                a_failure("m-3"),
            ]
        )
        first, second, third, fourth = [(await store.of_messages([f"m-{n}"], 9)) for n in (1, 2, 3, 4)]
        assert (len(first), len(second), len(third), list(fourth)) == (2, 1, 1, [])
        assert list(await store.of_messages(["r-2"], 9)) == list(second)
        assert list(await store.of_messages(["m-3", "r-2", "m-1", ""], 9)) == [*first, *second, *third]
        assert list(await store.of_messages(["m-3", "m-1"], 2)) == list(first)
        assert list(await store.of_messages(["\0", "ü", "x" * 5000], 9)) == []
        assert list(await store.of_messages([], 9)) == []

        jobs = [await planned(store, selection=Selection(ids=tuple(third))) for _ in range(2)]
        assert [item.job_id for item in await store.items_of(third, 9)] == [job.id for job in jobs]
        [item] = await items(store, jobs[0])
        sent = replace(item, state=ItemState.SENT, message_id="r-3", sent_at_ns=5)
        await store.save_items([sent])
        assert (await store.items_of(third, 9))[0] == sent
        assert len(await store.items_of([*first, *third], 1)) == 1
        assert list(await store.items_of(first, 9)) == []
        assert list(await store.of_messages(["r-3"], 9)) == list(third)

    async def test_a_job_comes_back_as_it_was(self, store: DeskStore) -> None:
        selection = Selection(
            ids=(1, 2),
            statuses=(FailureStatus.PERMANENT_FAILURE,),
            attributes={"a": "\x00"},
            payload={"x.y": "1"},
            since_ns=5,
            text="é",
        )
        options = Options(Target.TOPIC, "projects/p/topics/t", per_second=0.5, canary=7)
        job = await planned(store, selection=selection, options=options)
        assert await store.get_job(job.id) == job
        assert await store.get_job(job.id + 1) is None
        assert await store.get_job(2**70) is None

    async def test_of_two_who_save_a_job_one_does(self, store: DeskStore) -> None:
        job = await planned(store)
        begun = job.start(9).lease("desk-1", 77)
        kept = await asyncio.gather(*(store.save_job(begun, an_action("replay.start")) for _ in range(5)))
        assert sorted(kept) == [False] * 4 + [True]
        assert await store.get_job(job.id) == replace(begun, version=2)
        paused = replace(begun, version=2).pause("too many failed")
        assert await store.save_job(paused) is True
        resumed = replace(paused, version=3).resume(ended=5, failed=4)
        assert await store.save_job(resumed) is True
        assert await store.get_job(job.id) == replace(resumed, version=4)
        assert [name for name, _ in await actions(store)] == ["replay.plan", "replay.start"]

    async def test_jobs_newest_first(self, store: DeskStore) -> None:
        jobs = [await planned(store) for _ in range(5)]
        await store.save_job(jobs[1].start(1))
        page = await store.list_jobs([], 3)
        assert [job.id for job in page.jobs] == [job.id for job in jobs[:1:-1]]
        rest = await store.list_jobs([], 3, page.next_page_token)
        assert [job.id for job in rest.jobs] == [jobs[1].id, jobs[0].id]
        active = await store.list_jobs([JobState.CANARY, JobState.RUNNING], 10)
        assert [job.id for job in active.jobs] == [jobs[1].id]

    async def test_items_and_failures_are_saved_together(self, store: DeskStore) -> None:
        rows = [await recorded(store, str(number), publish_time_ns=number) for number in range(3)]
        job = await planned(store)
        [(first, failure), *_] = await store.pending(job.id, 1)
        assert failure == rows[0]
        assert failure is not None
        sent = replace(first, state=ItemState.SENT, message_id="m\x00", sent_at_ns=7)
        assert await store.save_items([sent], [failure.claim_replay(7_000, job.id), rows[1]]) == [True, True]
        assert await store.save_items([], [failure]) == [False]
        assert await items(store, job, ItemState.SENT) == [sent]
        now = await store.get(failure.id)
        assert now is not None
        assert (now.sent_at_ns, now.replay_id) == (7_000, job.id)
        assert [item.position for item, _ in await store.pending(job.id, 10)] == [2, 3]
        assert await store.count_items(job.id) == dict.fromkeys(ItemState, 0) | {
            ItemState.SENT: 1,
            ItemState.PENDING: 2,
        }

    async def test_what_was_sent_is_looked_after_in_its_order(self, store: DeskStore) -> None:
        for number in range(5):
            await recorded(store, str(number))
        job = await planned(store)
        found = [item for item, _ in await store.pending(job.id, 10)]
        await store.save_items([replace(item, state=ItemState.SENT) for item in found[1:]])
        assert [item.position for item in await store.sent(job.id, 2)] == [2, 3]
        assert [item.position for item in await store.sent(job.id, 10, after_position=3)] == [4, 5]

    async def test_an_erased_failure_leaves_its_item(self, store: DeskStore) -> None:
        row = await recorded(store)
        job = await planned(store)
        await store.erase(Selection(ids=[row.id]), an_action())
        [(item, failure)] = await store.pending(job.id, 10)
        assert (item.failure_id, failure) == (row.id, None)

    async def test_items_in_pages(self, store: DeskStore) -> None:
        for number in range(5):
            await recorded(store, str(number))
        job = await planned(store)
        page = await store.list_items(job.id, [], 3)
        rest = await store.list_items(job.id, [ItemState.PENDING], 3, page.next_page_token)
        assert [item.position for item in (*page.items, *rest.items)] == [1, 2, 3, 4, 5]
        assert rest.next_page_token == ""
        assert (await store.list_items(job.id, [ItemState.FAILED], 3)).items == []

    async def test_a_job_of_nothing(self, store: DeskStore) -> None:
        job = await planned(store)
        assert job.total == 0
        assert await store.pending(job.id, 10) == []
        assert sum((await store.count_items(job.id)).values()) == 0
