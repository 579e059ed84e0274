"""A broker over memory, a clock moved by hand, and a topic with a subscription."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial

import pytest

from holdfast.backoff import backoff_seconds
from holdfast.broker import subscriptions
from holdfast.broker.push import pace
from holdfast.broker.service import Broker
from holdfast.settings import BrokerSettings
from holdfast.stores.memory.log import MemoryMessageLog
from holdfast.testing import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(autouse=True)
def no_jitter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits are what the policy says, to the nanosecond: tests move the clock by exactly that."""
    for module in (subscriptions, pace):
        monkeypatch.setattr(module, "backoff_seconds", partial(backoff_seconds, spread=lambda: 0.0))


@pytest.fixture
def log() -> MemoryMessageLog:
    return MemoryMessageLog()


@pytest.fixture
async def broker(log: MemoryMessageLog, clock: ManualClock) -> AsyncIterator[Broker]:
    opened = await Broker.open(log, clock, BrokerSettings())
    yield opened
    await opened.close()
