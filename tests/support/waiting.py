"""Waiting for something that happens elsewhere and that nobody tells: looks, sleeps, looks again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

LOOK_EVERY_SECONDS = 0.02


def eventually(look: Callable[[], T], within: float = 15.0) -> T:
    """Looks until the answer is true (not None, False or empty) and gives that answer.

    A failed assertion counts as "not yet". After `within` seconds the last answer, or assertion, is the failure.
    """
    end = time.monotonic() + within
    while True:
        late = time.monotonic() >= end
        try:
            answer = look()
        except AssertionError:
            if late:
                raise
        else:
            if answer:
                return answer
            assert not late, f"still {answer!r} after {within:g} seconds"
        time.sleep(LOOK_EVERY_SECONDS)


async def comes_about(look: Callable[[], Awaitable[T]], within: float = 15.0) -> T:
    """The same, for what happens in this event loop."""
    end = time.monotonic() + within
    while not (answer := await look()):
        assert time.monotonic() < end, f"still {answer!r} after {within:g} seconds"
        await asyncio.sleep(LOOK_EVERY_SECONDS)
    return answer
