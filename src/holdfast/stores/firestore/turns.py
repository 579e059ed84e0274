"""Who waits for whom within one process, so that Firestore sees only the conflicts between processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager


class Turns:
    """Those that name the same thing go one after the other, as they came; all others go at once.

    It saves work and decides nothing: two that should not meet and do are told apart by Firestore.
    """

    def __init__(self) -> None:
        self._last: dict[str, asyncio.Event] = {}  # by name, the end of the last one that came

    @asynccontextmanager
    async def of(self, names: Iterable[str]) -> AsyncIterator[None]:
        names = tuple(names)
        end = asyncio.Event()
        earlier = {self._last[name] for name in names if name in self._last}
        self._last.update(dict.fromkeys(names, end))
        try:
            # Everyone waits only for those that came before, so they cannot wait in a circle.
            for other in earlier:
                await other.wait()
            yield
        finally:
            end.set()
            for name in names:
                if self._last.get(name) is end:
                    del self._last[name]
