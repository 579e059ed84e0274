"""One save for many who wait for it: while one is under way the next ones gather, so that thousands of acks become one
row. Knows nothing of what is saved."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

# Gives why it could not be done, or None.
Commit = Callable[[], Awaitable[Exception | None]]


class SharedSave:
    """`commit` saves whatever has changed by then; `spawn` keeps what runs."""

    def __init__(self, commit: Commit, spawn: Callable[[Awaitable[None]], None]) -> None:
        self._commit = commit
        self._spawn = spawn
        self._next: asyncio.Future[None] | None = None
        self._is_running = False

    @property
    def is_asked_for(self) -> bool:
        return self._next is not None

    def save(self) -> asyncio.Future[None]:
        """Done when every change up to now is durable."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
            self._next.add_done_callback(_retrieved)
            if not self._is_running:
                self._is_running = True
                self._spawn(self._run())
        return self._next

    async def _run(self) -> None:
        try:
            while (saved := self._next) is not None:
                self._next = None
                await self._once(saved)
        finally:
            self._is_running = False

    async def _once(self, saved: asyncio.Future[None]) -> None:
        error = await self._commit()
        if saved.done():  # cancelled, though nobody should
            return
        if error is None:
            saved.set_result(None)
        else:
            saved.set_exception(error)


def _retrieved(future: asyncio.Future[None]) -> None:
    """Nobody has to wait for a save; without this, asyncio would complain about the error that was not looked at."""
    if not future.cancelled():
        future.exception()
