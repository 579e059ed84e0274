"""The writing side of a connection: never more data than the peer's windows and the transport allow.

Streams take turns, a frame each. What cannot leave yet stays with its stream, and a stream that is waited for is
told when all of it has left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from holdfast.api.http2 import frames
from holdfast.api.http2.frames import Code, ConnectionFault
from holdfast.api.http2.hpack import TABLE_BYTES

if TYPE_CHECKING:
    from holdfast.api.http2.streams import Stream

# What is written in one turn of the event loop leaves together, up to so much: a system call costs more than a small
# answer, and one commit to disk is answered to many callers.
TOGETHER_BYTES = 1 << 16

# How much may wait in the transport before streams are told to wait; less makes large batches stop and go.
BUFFER_BYTES = 1 << 20

# Answers to pings and settings are written even then. A peer that makes us write so much without reading any of it
# is cut off.
MOST_BUFFERED_BYTES = 8 << 20

# What may wait for windows on one connection, for a peer that asks for much and never takes it.
MOST_UNSENT_BYTES = 256 << 20

# Larger frames save nothing any more, and would let one stream hold up the others.
LARGEST_OWN_FRAME_BYTES = 1 << 16

_WRITE_BYTES = 1 << 18

_EMPTY_TABLE = b"\x20"


class Sender:
    def __init__(self, transport: asyncio.Transport, too_much: Callable[[ConnectionFault], None]) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._too_much = too_much
        transport.set_write_buffer_limits(BUFFER_BYTES)
        # What the peer allows: on the whole connection, on a new stream, in a frame, in a list of headers.
        self.window = frames.DEFAULT_WINDOW
        self.stream_window = frames.DEFAULT_WINDOW
        self.frame_bytes = frames.DEFAULT_FRAME_BYTES
        self.header_list_bytes = frames.LARGEST_WINDOW
        self.paused = False
        self.closed = False
        # Written, and not with the transport yet.
        self._written: list[bytes] = []
        self._written_bytes = 0
        self._block_prefix = b""
        self._unsent = 0
        # Streams with something to send and a window to send it in; the first of them is next.
        self._blocked: dict[Stream, None] = {}
        self._waiting: set[Stream] = set()

    @property
    def is_clear(self) -> bool:
        """Whether a response may be written as it is."""
        return not (self.paused or self._block_prefix or self._blocked)

    # Frames that know no windows.

    def write(self, data: bytes) -> None:
        if self.closed:
            return
        if not self._written:
            self._loop.call_soon(self.hand_over)
        self._written.append(data)
        self._written_bytes += len(data)
        if self._written_bytes >= TOGETHER_BYTES or self.paused:
            self.hand_over()

    def hand_over(self) -> None:
        """To the transport, which sends at once what the peer can take."""
        if not self._written or self._transport.is_closing():
            return
        data = b"".join(self._written)
        self._written.clear()
        self._written_bytes = 0
        self._transport.write(data)
        if self.paused and self._transport.get_write_buffer_size() > MOST_BUFFERED_BYTES:
            self.closed = True
            self._transport.abort()

    def write_headers(self, stream_id: int, block: bytes, *, last: bool = False) -> None:
        block, self._block_prefix = self._block_prefix + block, b""
        self.write(self._header_frames(stream_id, block, last=last))

    def _header_frames(self, stream_id: int, block: bytes, *, last: bool) -> bytes:
        return frames.header_frames(stream_id, block, frames.END_STREAM if last else 0, self.frame_bytes)

    def ending(self, stream_id: int, block: bytes) -> bytes:
        """The frames that end a stream: trailers, or an empty DATA frame when there are none."""
        if not block:
            return frames.frame(frames.DATA, frames.END_STREAM, stream_id)
        return self._header_frames(stream_id, block, last=True)

    # Data.

    def block(self, stream: Stream, added: int = 0) -> None:
        """The stream has something to send; `added` bytes of it are new."""
        self._unsent += added
        if self._unsent > MOST_UNSENT_BYTES:
            self._too_much(ConnectionFault(Code.ENHANCE_YOUR_CALM, "too much was asked for and not taken"))
        elif stream.window > 0:
            self._blocked[stream] = None

    def forget(self, stream: Stream) -> None:
        self._unsent -= stream.unsent
        self._blocked.pop(stream, None)
        self._waiting.discard(stream)

    def flush(self) -> None:
        while self._blocked and not self.paused and not self.closed and self._send_some():
            pass
        if self._waiting and not self.paused:
            self._wake()

    def _send_some(self) -> bool:
        """False when the connection's window is used up."""
        parts: list[bytes | memoryview] = []
        ended: list[Stream] = []
        size = 0
        for stream in self._turns():
            sent = stream.take(min(self.window, self.frame_bytes), parts)
            self.window -= sent
            size += sent
            if stream.local_ended:
                ended.append(stream)
            elif stream.unsent and stream.window > 0:
                self._blocked[stream] = None
            if size >= _WRITE_BYTES:
                break
        self._unsent -= size
        if parts:
            self.write(b"".join(parts))
        for stream in ended:
            stream.has_ended()
        return bool(parts)

    def _turns(self) -> Iterator[Stream]:
        while self._blocked and self.window > 0:
            stream = next(iter(self._blocked))
            del self._blocked[stream]
            yield stream

    # Waiting.

    async def drained(self, stream: Stream) -> None:
        """Returns when all of the stream's data has left and the transport takes more."""
        while (stream.unsent or self.paused) and not self.closed:
            stream.waiter = asyncio.get_running_loop().create_future()
            self._waiting.add(stream)
            try:
                await stream.waiter
            finally:
                stream.waiter = None
                self._waiting.discard(stream)

    def _wake(self) -> None:
        for stream in self._waiting:
            if not stream.unsent and stream.waiter is not None and not stream.waiter.done():
                stream.waiter.set_result(None)

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        self.flush()

    # The peer's settings.

    def set_table_bytes(self, value: int) -> None:
        """We use no table; but a peer that wants a smaller one must be told so in the next header block."""
        if value < TABLE_BYTES:
            self._block_prefix = _EMPTY_TABLE

    def set_frame_bytes(self, value: int) -> None:
        self.frame_bytes = min(value, LARGEST_OWN_FRAME_BYTES)
