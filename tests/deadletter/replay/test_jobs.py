"""The life of a job: canary, rate, stop by itself, pause, resume, cancel, and other desks that take it over."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

import pytest

from holdfast.clock import NANOSECONDS
from holdfast.deadletter.audit import AuditFilter
from holdfast.deadletter.replay import run, runner
from holdfast.deadletter.replay.jobs import ItemState, JobPage, JobState, Options, Target
from holdfast.deadletter.replay.run import LEASE_SECONDS, JobRun
from holdfast.deadletter.replay.service import Progress, Replays
from holdfast.deadletter.replay.upcoming import differing
from holdfast.deadletter.selection import Selection
from holdfast.errors import FailedPrecondition, NotFound, StorageUnavailable
from holdfast.model.failed_message import FailedMessage, FailureStatus
from holdfast.model.fate import Fate
from holdfast.model.message import Message
from holdfast.transports.local import LocalTransport
from tests.deadletter.replay.conftest import (
    FAST,
    OTHERS,
    WORKER,
    World,
    counted,
    failure,
    must,
    reached,
)
from tests.support.waiting import comes_about

CANARY = replace(FAST, canary=3)


# The canary.


async def test_the_rest_waits_for_the_canary(world: World) -> None:
    causes = ("cause-a", "cause-a", "cause-a", "cause-b", "cause-c", "cause-c")
    await world.record(*(failure(number, fingerprint=cause) for number, cause in enumerate(causes)))
    async with world.desk() as desk:
        job = await world.started(desk, CANARY)
        canary = await world.pull(WORKER, 3)
        assert {delivery.message.data for delivery in canary} == {b'{"number": %d}' % n for n in (0, 3, 4)}
        assert await world.has_nothing(WORKER)
        assert (await desk.get(job)).job.state is JobState.CANARY
        await world.outlet.ack(canary)
        await world.ack(WORKER, 3)
        await reached(desk, job, JobState.DONE)


async def test_a_canary_that_fails_stops_the_job_and_the_next_one_begins_anew(world: World) -> None:
    await world.record(*(failure(number) for number in range(5)))
    async with world.desk() as desk:
        job = await world.started(desk, replace(FAST, canary=1))
        await dead_letter(world)
        paused = await reached(desk, job, JobState.PAUSED)
        assert paused.job.why == "the canary failed: 1 of 1"
        assert await world.has_nothing(WORKER)
        await desk.resume(job, "anna")
        await world.ack(WORKER, 1)
        await world.ack(WORKER, 3)
        done = await reached(desk, job, JobState.DONE)
    assert (done.counts[ItemState.FAILED], done.counts[ItemState.SUCCEEDED]) == (1, 4)


async def dead_letter(world: World) -> None:
    """The next message, by failing as often as it may."""
    for _ in range(5):
        await world.outlet.nack(await world.pull(WORKER, 1))


async def test_of_a_key_only_the_first_is_a_canary(world: World) -> None:
    await world.record(
        failure(1, ordering_key="a"), failure(2, ordering_key="a", fingerprint="cause-b"), failure(3, ordering_key="b")
    )
    async with world.desk() as desk:
        job = (await desk.create(Selection(), FAST, "anna")).job.id
    chosen = differing(await world.store.pending(job, 10), 3)
    assert [item.position for item, _ in chosen] == [1, 3]


# Stopping by itself.


async def test_it_stops_when_too_many_fail_and_a_person_may_go_on(world: World) -> None:
    await world.record(*(failure(number) for number in range(12)))
    options = Options(per_second=0, concurrency=1, canary=0, stop_above=0.5, stop_after=4)
    async with world.desk() as desk:
        job = await world.started(desk, options)
        for _ in range(2):
            await world.ack(WORKER, 1)
        for _ in range(3):
            await dead_letter(world)
        paused = await reached(desk, job, JobState.PAUSED)
        assert paused.job.why == "3 of 5 that ended have failed, which is more than 50%"
        await desk.resume(job, "anna")
        for _ in range(7):
            await world.ack(WORKER, 1)
        done = await reached(desk, job, JobState.DONE)
    assert (done.counts[ItemState.FAILED], done.counts[ItemState.SUCCEEDED]) == (3, 9)
    names = [entry.action.name for entry in (await world.store.list_entries(AuditFilter(), 100)).entries]
    assert names == ["replay.finish", "replay.resume", "replay.pause", "replay.start", "replay.create"]


# Rate and concurrency.


async def test_no_more_are_out_than_it_may_have(world: World) -> None:
    await world.record(*(failure(number) for number in range(9)))
    async with world.desk() as desk:
        job = await world.started(desk, replace(FAST, concurrency=3))
        for _ in range(3):
            some = await world.pull(WORKER, 3)
            assert await world.has_nothing(WORKER)
            await world.outlet.ack(some)
        await reached(desk, job, JobState.DONE)


async def test_it_keeps_its_rate_also_after_a_pause(world: World) -> None:
    await world.record(*(failure(number) for number in range(150)))
    async with world.desk() as desk:
        job = await world.started(desk, replace(FAST, per_second=100))
        arrived = await world.ack(WORKER, 40)
        await desk.pause(job, "anna")
        await desk.resume(job, "anna")
        arrived += await world.ack(WORKER, 110)
    times = sorted(delivery.message.publish_time_ns for delivery in arrived)
    assert max(sum(1 for when in times if 0 <= when - first < NANOSECONDS) for first in times) <= 110


# Pause, resume, cancel.


async def test_a_paused_job_sends_nothing_and_goes_on_where_it_was(world: World) -> None:
    await world.record(*(failure(number) for number in range(4)))
    async with world.desk() as desk:
        job = await world.started(desk, replace(FAST, concurrency=2))
        first = await world.pull(WORKER, 2)
        paused = await desk.pause(job, "anna")
        assert (paused.job.state, paused.job.why) == (JobState.PAUSED, "paused by anna")
        await world.outlet.ack(first)
        await counted(desk, job, succeeded=2, pending=2)
        assert await world.has_nothing(WORKER)
        await desk.resume(job, "anna")
        await world.ack(WORKER, 2)
        await reached(desk, job, JobState.DONE)


async def test_a_cancelled_job_leaves_what_is_out_and_the_rest_as_it_was(world: World) -> None:
    ids = await world.record(*(failure(number) for number in range(4)))
    async with world.desk() as desk:
        job = await world.started(desk, replace(FAST, concurrency=2))
        out = await world.pull(WORKER, 2)
        await desk.cancel(job, "anna")
        await world.outlet.ack(out)
        await counted(desk, job, succeeded=2, pending=2)
        with pytest.raises(FailedPrecondition, match="cancelled"):
            await desk.resume(job, "anna")
    assert [(await world.row(one)).status for one in ids] == [FailureStatus.REPLAYED] * 2 + [
        FailureStatus.PERMANENT_FAILURE
    ] * 2
    assert not any([(await world.row(one)).is_out for one in ids])


async def test_only_what_makes_sense_can_be_done(world: World) -> None:
    await world.record(failure(1))
    async with world.desk() as desk:
        job = (await desk.create(Selection(), FAST, "anna")).job.id
        for change in (desk.pause, desk.resume):
            with pytest.raises(FailedPrecondition, match="planned"):
                await change(job, "anna")
        await desk.cancel(job, "anna")
        with pytest.raises(FailedPrecondition, match="cancelled"):
            await desk.start(job, "anna")
        with pytest.raises(NotFound, match="no replay 99"):
            await desk.get(99)


# Crashes, and more than one desk.


async def test_what_a_dead_desk_was_sending_is_sent_once(world: World) -> None:
    """It dies between the publish and the note of it."""

    class DiesAfter(LocalTransport):
        async def publish_to(self, subscription: str, messages: Sequence[Message]) -> Sequence[str]:
            await super().publish_to(subscription, messages)
            died.set()
            return await asyncio.Future()

    died = asyncio.Event()
    await world.record(*(failure(number) for number in range(10)))
    parts = await world.parts(DiesAfter(world.broker), "desk-1")
    async with world.desk(name="desk-2") as desk:
        job = await desk.create(Selection(), FAST, "anna")
        leased = job.job.start(1).lease("desk-1", world.clock.now_ns() + round(LEASE_SECONDS * NANOSECONDS))
        assert await world.store.save_job(leased)
        first = asyncio.create_task(JobRun(replace(leased, version=2), parts).run())
        await died.wait()
        first.cancel()
        await world.ack(WORKER, 10)
        done = await reached(desk, job.job.id, JobState.DONE)
    assert done.counts[ItemState.SUCCEEDED] == 10
    assert await world.has_nothing(WORKER)


@pytest.mark.parametrize("change", [Replays.pause, Replays.cancel])
async def test_what_a_dead_desk_had_claimed_is_free_again_once_its_job_rests(
    world: World, change: Callable[[Replays, int, str], Awaitable[Progress]]
) -> None:
    [one] = await world.record(failure(0))
    async with world.desk() as desk:
        job = (await desk.create(Selection(), FAST, "anna")).job
        now = world.clock.now_ns()
        await world.store.save([(await world.row(one)).claim_replay(now, job.id)])
        assert await world.store.save_job(job.start(now).lease("dead", now + NANOSECONDS))
        await change(desk, job.id, "anna")

        async def is_free() -> bool:
            return not (await world.row(one)).is_out

        await comes_about(is_free)


async def test_a_desk_that_takes_long_to_recall_keeps_its_job(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another desk would take it over, take as long, and lose it again."""
    await world.record(*(failure(number) for number in range(10)))
    async with world.desk() as desk:
        job = await world.started(desk)
        out = await world.pull(WORKER, 10)
        await counted(desk, job, sent=10)
    get = world.store.get

    async def slow(failure_id: int) -> FailedMessage | None:
        await asyncio.sleep(0.3)
        return await get(failure_id)

    monkeypatch.setattr(world.store, "get", slow)
    for module in (run, runner):
        monkeypatch.setattr(module, "LEASE_SECONDS", 2)
    monkeypatch.setattr(runner, "SCAN_SECONDS", 0.1)
    async with world.desk(name="desk-2") as desk, world.desk(name="desk-3"):
        await world.outlet.ack(out)
        await reached(desk, job, JobState.DONE)


async def test_trouble_with_the_list_of_jobs_does_not_end_the_work_on_them(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    list_jobs, troubles = world.store.list_jobs, [KeyError("options"), StorageUnavailable("the disk is full")]

    async def troubled(states: Sequence[JobState], page_size: int, page_token: str = "") -> JobPage:
        if troubles:
            raise troubles.pop(0)
        return await list_jobs(states, page_size, page_token)

    monkeypatch.setattr(world.store, "list_jobs", troubled)
    monkeypatch.setattr(runner, "SCAN_SECONDS", 0.02)
    await world.record(failure(0))
    async with world.desk() as desk:
        job = await world.started(desk)
        await world.ack(WORKER, 1)
        await reached(desk, job, JobState.DONE)


async def test_two_desks_at_once_send_each_message_once(world: World) -> None:
    """As when one stood still for longer than its lease, and does not know it yet."""
    await world.record(*(failure(number) for number in range(300)))
    async with world.desk() as desk:
        made = await desk.create(Selection(), replace(FAST, per_second=1000), "anna")
        running = must(await world.store.get_job(made.job.id)).start(1).lease("both", 2**62)
        assert await world.store.save_job(running)
        runs = [JobRun(replace(running, version=2), await world.parts(name="both")) for _ in range(2)]
        tasks = [asyncio.create_task(run.run()) for run in runs]
        await world.ack(WORKER, 300)
        await reached(desk, made.job.id, JobState.DONE)
        await asyncio.wait(tasks)
    assert await world.has_nothing(WORKER)


async def test_two_desks_on_one_postgresql_share_the_jobs_and_send_each_message_once(shared_world: World) -> None:
    world = shared_world
    await world.record(*(failure(n, failure_reason=f"R{n % 4}") for n in range(200)))
    async with world.desk(name="desk-1") as one, world.desk(name="desk-2") as other:
        jobs = [await world.started(desk, FAST, Selection(reason=f"R{n}")) for n, desk in enumerate([one, other] * 2)]
        everything = [await world.started(desk) for desk in (one, other)]
        await world.ack(WORKER, 200)
        ended = [await reached(one, job, JobState.DONE) for job in (*jobs, *everything)]
    assert await world.has_nothing(WORKER)
    assert sum(progress.counts[ItemState.SUCCEEDED] for progress in ended) == 200
    assert sum(progress.counts[ItemState.SKIPPED] for progress in ended) == sum(p.job.total for p in ended) - 200


async def test_a_stopped_desk_lets_its_jobs_go_and_the_next_one_goes_on(world: World) -> None:
    await world.record(*(failure(number) for number in range(40)))
    async with world.desk() as desk:
        job = await world.started(desk, replace(FAST, per_second=50))
        await world.ack(WORKER, 5)
    assert must(await world.store.get_job(job)).runner == ""
    async with world.desk(name="desk-2") as desk:
        await world.ack(WORKER, 35)
        done = await reached(desk, job, JobState.DONE)
    assert done.counts[ItemState.SUCCEEDED] == 40
    assert await world.has_nothing(WORKER)


async def test_several_jobs_run_at_once(world: World) -> None:
    await world.record(*(failure(n, ordering_key="", failure_reason=f"R{n % 3}") for n in range(90)))
    async with world.desk() as desk:
        slow = replace(FAST, per_second=100)
        jobs = [await world.started(desk, slow, Selection(reason=f"R{n}")) for n in range(3)]
        await comes_about(lambda: all_run(desk, jobs))
        await world.ack(WORKER, 90)
        for job in jobs:
            assert (await reached(desk, job, JobState.DONE)).counts[ItemState.SUCCEEDED] == 30


async def all_run(desk: Replays, jobs: Sequence[int]) -> bool:
    found = [(await desk.get(job)).rate for job in jobs]
    return all(found)


# A broker that does not tell what became of a message, as Cloud Pub/Sub.


class TellsNothing(LocalTransport):
    async def fates(self, subscription: str, message_ids: Sequence[str]) -> Mapping[str, Fate]:
        return dict.fromkeys(message_ids, Fate.UNKNOWN)


async def test_what_did_not_come_back_in_time_has_succeeded(world: World) -> None:
    """And what is recorded as a failure of the same message again has failed."""
    world.settle_seconds = 1.0
    good, bad = await world.record(failure(1), failure(2))
    async with world.desk(TellsNothing(world.broker)) as desk:
        job = await world.started(desk, replace(FAST, concurrency=1))
        await world.ack(WORKER, 2)  # concurrency cannot count what nobody tells of
        again = failure(3, generation=1, origin_id=bad, created_at_ns=world.clock.now_ns())
        await world.record(again)
        done = await reached(desk, job, JobState.DONE)
    assert (done.counts[ItemState.SUCCEEDED], done.counts[ItemState.FAILED]) == (1, 1)
    notes = {item.failure_id: item.note for item in await world.items(job)}
    assert notes == {good: "it was not dead-lettered within 1 s", bad: "it was dead-lettered again"}


# The plan.


async def test_a_plan_says_what_would_be_done_and_writes_nothing(world: World) -> None:
    ids = await world.record(
        failure(1),
        failure(2, fingerprint="cause-b"),
        failure(3, fingerprint="cause-b"),
        failure(4, generation=5),
        failure(5, subscription=f"{WORKER}-gone"),
        failure(6, status=FailureStatus.QUEUED_FOR_RETRY, sent_at_ns=1),
    )
    async with world.desk() as desk:
        plan = await desk.plan(Selection(), Options(per_second=2))
    assert (plan.selected, plan.to_send, plan.seconds) == (6, 3, 1.5)
    assert {cause.fingerprint: count for cause, count in plan.groups.items()} == {"cause-a": 1, "cause-b": 2}
    assert plan.destinations == {WORKER: 3}
    assert sorted(plan.skipped) == [
        "it is out on a retry",
        "it was sent again 5 times and failed each time (desk.max_generation)",
        "the subscription or topic is gone",
    ]
    assert [(await world.row(one)).version for one in ids] == [1] * 6
    assert not (await world.store.list_jobs([], 10)).jobs
    assert not (await world.store.list_entries(AuditFilter(), 10)).entries
    assert await world.has_nothing(WORKER)


async def test_a_plan_to_the_source_topic_names_it(world: World) -> None:
    await world.record(failure(1), failure(2, source_topic="unknown"))
    async with world.desk() as desk:
        plan = await desk.plan(Selection(), Options(target=Target.SOURCE_TOPIC))
    assert plan.destinations == {"projects/local/topics/orders": 1}
    assert plan.skipped == {"nobody knows which topic it came from": 1}
    assert await world.has_nothing(OTHERS[0])
