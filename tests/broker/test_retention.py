"""What runs in the background for as long as the broker does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

import pytest

from holdfast.broker.retention import EVERY_SECONDS, keep_marking, keep_removing
from holdfast.broker.service import Broker
from holdfast.broker.snapshots import LIFETIME_SECONDS
from holdfast.testing import ManualClock
from tests.broker.helpers import SUBSCRIPTION, make_subscription, settle_down

SNAPSHOTS = [f"projects/local/snapshots/{number}" for number in ("first", "second")]


async def test_what_somebody_deletes_at_the_same_time_is_no_trouble(broker: Broker, clock: ManualClock) -> None:
    await make_subscription(broker, expiration_seconds=86_400)
    for name in SNAPSHOTS:
        await broker.create_snapshot(name, SUBSCRIPTION, {})
    clock.advance(LIFETIME_SECONDS + 1)
    await asyncio.gather(broker.delete_expired(), broker.delete_expired())
    assert broker.list_snapshots("projects/local") == []
    assert broker.list_subscriptions("projects/local") == []


@pytest.mark.parametrize(("work", "method"), [(keep_removing, "delete_expired"), (keep_marking, "mark_progress")])
async def test_a_fault_does_not_end_it(
    broker: Broker,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    work: Callable[[Broker, ManualClock], Coroutine[None, None, None]],
    method: str,
) -> None:
    called = 0

    async def faulty() -> None:
        nonlocal called
        called += 1
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(broker, method, faulty)
    running = asyncio.create_task(work(broker, clock))
    for _ in range(3):
        await settle_down()
        clock.advance(EVERY_SECONDS)
    await settle_down()
    assert called >= 3
    assert "a fault of ours" in caplog.text
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
