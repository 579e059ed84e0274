"""A broker with push delivery, an endpoint, and short words for what push tests do."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from holdfast.broker.service import Broker
from holdfast.settings import PushSettings
from tests.broker.push.pushing import pushing
from tests.support.push_endpoint import Endpoint, push_endpoint


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    async with push_endpoint() as found:
        yield found


@pytest.fixture(params=[False, True], ids=["ours", "strict"])
def strict(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
async def broker(strict: bool) -> AsyncIterator[Broker]:
    async with pushing(PushSettings(timeout_seconds=0.5), strict=strict) as running:
        yield running.broker
