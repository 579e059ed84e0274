"""A broker over memory, a clock moved by hand, and a topic with a subscription."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from holdfast.broker.service import Broker
from holdfast.settings import BrokerSettings
from holdfast.stores.memory.log import MemoryMessageLog
from holdfast.testing import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def log() -> MemoryMessageLog:
    return MemoryMessageLog()


@pytest.fixture
async def broker(log: MemoryMessageLog, clock: ManualClock) -> AsyncIterator[Broker]:
    opened = await Broker.open(log, clock, BrokerSettings())
    yield opened
    await opened.close()
