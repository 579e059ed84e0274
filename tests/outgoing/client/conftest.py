"""What the tests of outgoing requests share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import uvloop

from holdfast.outgoing.addresses import LOOPBACK, AddressGuard
from holdfast.outgoing.client import OutgoingClient


@pytest.fixture(params=[asyncio.DefaultEventLoopPolicy, uvloop.EventLoopPolicy], ids=["asyncio", "uvloop"])
def event_loop_policy(request: pytest.FixtureRequest) -> Any:
    """Their transports differ in what they forgive. We run on uvloop; tests and others may run on asyncio."""
    return request.param()


@pytest.fixture
async def client() -> AsyncIterator[OutgoingClient]:
    """One that may go to loopback."""
    client = OutgoingClient(AddressGuard(LOOPBACK))
    yield client
    await client.close()
