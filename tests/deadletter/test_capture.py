"""Failures that the consumer records itself, also into a file that a desk holds."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast.consumer.failure_sink import FailedDelivery
from holdfast.deadletter.capture import DirectCapture
from holdfast.deadletter.selection import Selection
from holdfast.deadletter.store import DeskStore
from holdfast.errors import DataDirectoryError, StorageUnavailable
from holdfast.model.message import Delivery, Message
from holdfast.stores.sqlite.desk import SqliteDeskStore
from holdfast.testing import ManualClock
from tests.support.failures import Captured

MESSAGE = Message(b"\x00data", {"k": "\ud800"}, "key", "m\ud800", 5)


def failed(message: Message = MESSAGE, subscription: str = "projects/q/subscriptions/s") -> FailedDelivery:
    return FailedDelivery(Delivery(subscription, message, 0), "orders", "R" * 200, "why\ud800")


async def test_a_failure_has_all_that_is_known() -> None:
    clock = ManualClock(7_000)
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
    assert (row.publish_time_ns, row.created_at_ns, row.status) == (5, 7_000, "permanent_failure")
    await captured.close()


async def test_without_a_path_the_topic_is_in_our_project() -> None:
    captured = Captured()
    await captured.record(failed(subscription="s"))
    assert (await captured.all())[0].source_topic == "projects/local/topics/orders"
    await captured.close()


async def test_a_desk_and_two_consumers_write_one_file(tmp_path: Path) -> None:
    path = tmp_path / "failures.db"
    desk = await SqliteDeskStore.open(path)
    captures = [shared_capture(path) for _ in range(2)]
    try:
        with pytest.raises(DataDirectoryError):
            await SqliteDeskStore.open(path)
        await asyncio.gather(
            *(capture.record(failed(Message(b"", message_id=f"m{n}"))) for n in range(50) for capture in captures)
        )
        assert len((await desk.list(Selection(), 1000)).failures) == 50
    finally:
        for capture in captures:
            await capture.close()
        await desk.close()


async def test_a_consumer_without_a_desk_makes_the_file_and_leaves_it_to_one(tmp_path: Path) -> None:
    path = tmp_path / "failures.db"
    capture = shared_capture(path)
    assert not path.exists()
    await capture.record(failed())
    desk = await SqliteDeskStore.open(path)
    assert len((await desk.list(Selection(), 10)).failures) == 1
    await capture.record(failed(Message(b"", message_id="second")))
    assert len((await desk.list(Selection(), 10)).failures) == 2
    await capture.close()
    await desk.close()


async def test_a_store_that_cannot_be_opened_is_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "failures.db"
    attempts: list[int] = []

    async def opened() -> DeskStore:
        attempts.append(1)
        if len(attempts) == 1:
            raise StorageUnavailable("not yet")
        return await SqliteDeskStore.open_shared(path)

    capture = DirectCapture(opened, ManualClock(), "local")
    with pytest.raises(StorageUnavailable):
        await capture.record(failed())
    await capture.record(failed())
    await capture.record(failed())
    assert len(attempts) == 2
    await capture.close()


def shared_capture(path: Path) -> DirectCapture:
    return DirectCapture(lambda: SqliteDeskStore.open_shared(path), ManualClock(), "local")
