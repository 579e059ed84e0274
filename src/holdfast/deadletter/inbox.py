"""What a stream has brought and nobody has taken yet: so that whoever is slow takes more at once."""

from __future__ import annotations

import asyncio
from collections import deque

from holdfast.consumer.transport import Stream
from holdfast.model.message import Delivery


class Inbox:
    """Receives from when it is made until it is closed. The stream bounds what can wait here."""

    def __init__(self, stream: Stream) -> None:
        self._waiting: deque[Delivery] = deque()
        self._changed = asyncio.Event()
        self._receiving = asyncio.create_task(self._receive(stream))

    async def _receive(self, stream: Stream) -> None:
        try:
            while True:
                self._waiting.extend(await stream.receive())
                self._changed.set()
        finally:
            self._changed.set()

    async def take(self, most: int, most_bytes: int) -> list[Delivery]:
        """Waits for at least one. When nothing is left after the stream has ended, raises what it ended with; none at
        all once the inbox is closed."""
        while not self._waiting:
            if self._receiving.cancelled():
                return []
            if self._receiving.done():
                self._receiving.result()
            self._changed.clear()
            await self._changed.wait()
        taken, size = [self._waiting.popleft()], 0
        while self._waiting and len(taken) < most and size < most_bytes:
            taken.append(self._waiting.popleft())
            size += len(taken[-1].message.data)
        return taken

    def take_all(self) -> list[Delivery]:
        taken = list(self._waiting)
        self._waiting.clear()
        return taken

    def close(self) -> None:
        """What waits can still be taken."""
        self._receiving.cancel()

    async def closed(self) -> None:
        await asyncio.wait([self._receiving])
