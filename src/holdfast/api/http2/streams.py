"""One request and its response: windows, halves that end, and bytes on their way out."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

from holdfast.api.http2 import frames
from holdfast.api.http2.frames import Code, StreamFault
from holdfast.api.http2.sending import Sender

# What a client may send on one stream before it is taken in. Large enough that a batch never waits.
WINDOW_BYTES = 1 << 20
_GIVE_BACK_BYTES = WINDOW_BYTES // 2

_DATA_FLAGS = bytes([frames.DATA, 0])
_TRAILER_FLAGS = bytes([frames.HEADERS, frames.END_STREAM | frames.END_HEADERS])
_HEADER_FLAGS = bytes([frames.HEADERS, frames.END_HEADERS])


class Receiver(Protocol):
    """Who takes a request in. Whatever it takes it gives back with `Stream.give_back`, or the client must stop."""

    def data(self, chunk: bytes) -> None: ...

    def ended(self) -> None:
        """The client has said all."""

    def dropped(self) -> None:
        """Nobody waits for a response any more."""

    def stopped(self) -> None:
        """The server will not wait any longer: this is the moment for a last word."""


class _Nobody:
    """Takes what comes for a stream that has ended."""

    def data(self, chunk: bytes) -> None:
        pass

    def ended(self) -> None:
        pass

    def dropped(self) -> None:
        pass

    def stopped(self) -> None:
        pass


NOBODY = _Nobody()


class Stream:
    # Compared and hashed by identity: two streams are never equal.
    __slots__ = (
        "_content_length",
        "_ending",
        "_has_ended",
        "_id",
        "_sender",
        "_to_give_back",
        "_unsent",
        "id",
        "local_ended",
        "receive_window",
        "receiver",
        "remote_ended",
        "unsent",
        "waiter",
        "window",
    )

    receiver: Receiver

    def __init__(
        self, stream_id: int, sender: Sender, content_length: int, has_ended: Callable[[Stream], None]
    ) -> None:
        """`content_length` is -1 where the client did not say. `has_ended` is told when the response is out."""
        self.id = stream_id
        self._id = stream_id.to_bytes(4, "big")
        self._sender = sender
        self._content_length = content_length
        self._has_ended = has_ended
        self.remote_ended = False
        self.local_ended = False
        self.receive_window = WINDOW_BYTES
        self._to_give_back = 0
        self.window = sender.stream_window
        # Bytes of all parts that wait for a window.
        self.unsent = 0
        self._unsent: deque[memoryview] | None = None
        self._ending = b""
        self.waiter: asyncio.Future[None] | None = None

    # The request.

    def take_in(self, chunk: bytes, frame_bytes: int) -> None:
        """`frame_bytes` counts padding too, which windows count as well."""
        self.receive_window -= frame_bytes
        if self.receive_window < 0:
            raise StreamFault(self.id, Code.FLOW_CONTROL_ERROR, "more than the window allows")
        if self._content_length >= 0:
            self._content_length -= len(chunk)
            if self._content_length < 0:
                raise StreamFault(self.id, Code.PROTOCOL_ERROR, "more data than content-length says")
        if frame_bytes > len(chunk):
            self.give_back(frame_bytes - len(chunk))
        if chunk:
            self.receiver.data(chunk)

    def end_request(self) -> None:
        if self._content_length > 0:
            raise StreamFault(self.id, Code.PROTOCOL_ERROR, "less data than content-length says")
        self.remote_ended = True
        self.receiver.ended()

    def give_back(self, count: int) -> None:
        """The client may send so much more; told in large steps."""
        self._to_give_back += count
        if self._to_give_back >= _GIVE_BACK_BYTES and not self.remote_ended:
            self.receive_window += self._to_give_back
            self._sender.write(frames.window_update(self.id, self._to_give_back))
            self._to_give_back = 0

    # The response.

    def answer(self, head: bytes, prefix: bytes, body: bytes, tail: bytes) -> None:
        """All of it, in one write if windows allow: header block, data in two parts, block of trailers."""
        sender, size = self._sender, len(prefix) + len(body)
        if not (sender.is_clear and size <= sender.frame_bytes and size <= self.window and size <= sender.window):
            self.start(head)
            self.send(prefix, body)
            self.finish(tail)
            return
        self.window -= size
        sender.window -= size
        stream_id = self._id
        sender.write(
            b"".join(
                (
                    *(len(head).to_bytes(3, "big"), _HEADER_FLAGS, stream_id, head),
                    *(size.to_bytes(3, "big"), _DATA_FLAGS, stream_id, prefix, body),
                    *(len(tail).to_bytes(3, "big"), _TRAILER_FLAGS, stream_id, tail),
                )
            )
        )
        self.has_ended()

    def refuse(self, block: bytes) -> None:
        """Headers that are the whole response."""
        self._sender.write_headers(self.id, block, last=True)
        self.has_ended()

    def start(self, head: bytes) -> None:
        self._sender.write_headers(self.id, head)

    def send(self, prefix: bytes, body: bytes) -> None:
        sender, size = self._sender, len(prefix) + len(body)
        if sender.is_clear and not self.unsent and size <= min(sender.frame_bytes, sender.window, self.window):
            self.window -= size
            sender.window -= size
            sender.write(b"".join((size.to_bytes(3, "big"), _DATA_FLAGS, self._id, prefix, body)))
        elif size:
            self._unsent = self._unsent or deque()
            self._unsent.append(memoryview(prefix + body))
            self.unsent += size
            sender.block(self, size)
            sender.flush()

    def finish(self, tail: bytes) -> None:
        """Trailers follow when all data has left; without any, an empty frame ends the stream."""
        ending = self._sender.ending(self.id, tail)
        if self.unsent:
            self._ending = ending
        else:
            self._sender.write(ending)
            self.has_ended()

    async def drained(self) -> None:
        if self.unsent or self._sender.paused:
            await self._sender.drained(self)

    def take(self, most: int, parts: list[bytes | memoryview]) -> int:
        """Moves one frame, of `most` data, to `parts`; and the end of the stream when that was all."""
        size = 0
        if self._unsent:
            first = self._unsent[0]
            size = min(most, self.window, len(first))
            parts.append(frames.frame_head(size, frames.DATA, 0, self.id))
            parts.append(first[:size])
            self.window -= size
            self.unsent -= size
            if size == len(first):
                self._unsent.popleft()
            else:
                self._unsent[0] = first[size:]
        if not self.unsent and self._ending:
            parts.append(self._ending)
            self.local_ended = True
        return size

    def grow(self, increment: int) -> bool:
        """The peer takes more, or less. False when the window would be larger than any may be."""
        self.window += increment
        if self.window > frames.LARGEST_WINDOW:
            return False
        if self.unsent:
            self._sender.block(self)
        return True

    @property
    def header_list_bytes(self) -> int:
        return self._sender.header_list_bytes

    def has_ended(self) -> None:
        self.local_ended = True
        self._has_ended(self)
