"""Failures that the consumer records itself, also into a file that a desk holds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.consumer.failure_sink import FailedDelivery
from holdfast.deadletter.capture import DirectCapture
from holdfast.deadletter.intake import Intake
from holdfast.errors import DataDirectoryError, StorageUnavailable
from holdfast.model.message import Delivery, Message
from holdfast.model.replay_attributes import REPLAY_ID
from holdfast.stores.sqlite.desk import SqliteDeskStore
from holdfast.testing import ManualClock
from tests.support.desk_parts import Parts, memory_desk, rows_of
from tests.support.failures import Captured

MESSAGE = Message(b"\x00data", {"k": "\ud800"}, "key", "m\ud800", 5)


def failed(message: Message = MESSAGE, subscription: str = "projects/q/subscriptions/s") -> FailedDelivery:
    return FailedDelivery(Delivery(subscription, message, 0), "orders", "R" * 200, "why\ud800")


async def test_a_failure_has_all_that_is_known() -> None:
    clock = ManualClock(7)
    captured = Captured(clock)
    await captured.record(failed())
    [row] = await captured.all()
    assert (row.message_id, row.subscription, row.source_topic) == (
        "m?",
        "projects/q/subscriptions/s",
        "projects/q/topics/orders",
    )
    assert (row.failure_reason, row.error_details) == ("R" * 100, "why?")
    assert (row.data, row.attributes, row.ordering_key) == (b"\x00data", {"k": "?"}, "key")
    assert (row.publish_time_ns, row.created_at_ns, row.status) == (5, 7, "permanent_failure")


async def test_without_a_path_the_topic_is_in_our_project() -> None:
    captured = Captured()
    await captured.record(failed(subscription="s"))
    assert (await captured.all())[0].source_topic == "projects/local/topics/orders"


@asynccontextmanager
async def shared_capture(path: Path) -> AsyncIterator[DirectCapture]:
    """As of a consumer that runs beside a desk, or without one."""
    async with AsyncExitStack() as stack:

        async def opened() -> Intake:
            store = await SqliteDeskStore.open_shared(path)
            stack.push_async_callback(store.close)
            return (await Parts.over(store, ManualClock())).intake()

        yield DirectCapture(opened, ManualClock(), "local")


async def test_a_desk_and_two_consumers_write_one_file(tmp_path: Path) -> None:
    path = tmp_path / "failures.db"
    desk = await SqliteDeskStore.open(path)
    async with shared_capture(path) as one, shared_capture(path) as other:
        with pytest.raises(DataDirectoryError):
            await SqliteDeskStore.open(path)
        await asyncio.gather(
            *(capture.record(failed(Message(b"", message_id=f"m{n}"))) for n in range(50) for capture in (one, other))
        )
        assert len(await rows_of(desk)) == 50
    await desk.close()


async def test_a_consumer_without_a_desk_makes_the_file_and_leaves_it_to_one(tmp_path: Path) -> None:
    path = tmp_path / "failures.db"
    async with shared_capture(path) as capture:
        assert not path.exists()
        await capture.record(failed())
        desk = await SqliteDeskStore.open(path)
        assert len(await rows_of(desk)) == 1
        await capture.record(failed(Message(b"", message_id="second")))
        assert len(await rows_of(desk)) == 2
        await desk.close()


async def test_a_store_that_cannot_be_opened_is_tried_again() -> None:
    attempts: list[int] = []
    async with memory_desk() as desk:

        async def opened() -> Intake:
            attempts.append(1)
            if len(attempts) == 1:
                raise StorageUnavailable("not yet")
            return desk.intake()

        capture = DirectCapture(opened, desk.clock, "local")
        with pytest.raises(StorageUnavailable):
            await capture.record(failed())
        await capture.record(failed())
        await capture.record(failed())
        assert len(attempts) == 2


async def test_a_retry_that_fails_again_moves_its_row_on() -> None:
    """Its consumer acks it once it is recorded, so no dead letter tells of it."""
    subscription = "projects/q/subscriptions/s"
    async with memory_desk() as desk:

        async def opened() -> Intake:
            return desk.intake()

        capture = DirectCapture(opened, desk.clock, "local")
        await capture.record(failed())
        [row] = await rows_of(desk.store)
        message = await desk.sending.message_for(row)
        await desk.store.save([row.mark_sent(desk.clock.now_ns(), "m1")])
        assert message.attributes[REPLAY_ID]
        await capture.record(FailedDelivery(Delivery(subscription, replace(message, message_id="m1")), "o", "R", "no"))
        [row] = await rows_of(desk.store)
        assert (row.retry_count, row.error_details, row.attributes) == (1, "no", {"k": "?"})
