"""Waiting for a time, or for somebody who says that there is something to do."""

from __future__ import annotations

import asyncio

from holdfast.clock import Clock


async def until(clock: Clock, when_ns: int, woken: asyncio.Event) -> None:
    """Whichever is first. `woken` is not set afterwards."""
    sleeping = asyncio.ensure_future(clock.sleep_until(when_ns))
    waking = asyncio.ensure_future(woken.wait())
    try:
        await asyncio.wait({sleeping, waking}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        woken.clear()
        sleeping.cancel()
        waking.cancel()
