"""Answers of one turn of the event loop are written together, at its end.

Each would otherwise be two writes, head and body, with the work for the next answer in between. Whoever waits for it
would be woken and fall asleep again each time, and waking somebody costs more than writing does.
"""

from __future__ import annotations

import asyncio
from typing import Any

# More than this is not kept back: it is no small answer, and flow control must see it.
MOST_GATHERED_BYTES = 65_536


class GatheringTransport:
    """A transport whose writes wait for the end of the turn. All else is the real one's."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._pieces: list[bytes] = []
        self._size = 0

    def write(self, data: bytes) -> None:
        if not self._pieces:
            self._loop.call_soon(self._flush)
        self._pieces.append(data)
        self._size += len(data)
        if self._size > MOST_GATHERED_BYTES:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        pieces, self._pieces, self._size = self._pieces, [], 0
        if pieces and not self._transport.is_closing():
            self._transport.write(b"".join(pieces))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
