"""What the tests of notifications may use."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from holdfast.alerts.notify.receiver import Receiver
from holdfast.alerts.notify.silences import QuietTime
from tests.alerts.notify.telling import Start, Telling


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    async with AsyncExitStack() as stack:

        async def started(*receivers: Receiver, quiet: Sequence[QuietTime] = ()) -> Telling:
            telling = await Telling(tmp_path, *receivers, quiet=quiet).start()
            stack.push_async_callback(telling.stop)
            return telling

        yield started
