"""One HTTP/2 connection as a server sees it: reads frames, checks them, and hands requests on (RFC 9113).

What a request means is not known here. Priorities are read and ignored; nothing is ever pushed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import cast

from holdfast.api.http2 import frames
from holdfast.api.http2.budget import Budget
from holdfast.api.http2.frames import Code, ConnectionFault, StreamFault
from holdfast.api.http2.hpack import LARGEST_LIST_BYTES, BadBlock, Header, HeaderDecoder, ListTooLarge
from holdfast.api.http2.request_head import Malformed, RequestHead, check_trailers, request_head
from holdfast.api.http2.sending import Sender
from holdfast.api.http2.streams import NOBODY, WINDOW_BYTES, Receiver, Stream

log = logging.getLogger("holdfast.broker")

# On one connection. Every streaming pull is one for as long as it lasts.
MOST_STREAMS = 1000

CONNECTION_WINDOW_BYTES = 16 << 20
_GIVE_BACK_BYTES = CONNECTION_WINDOW_BYTES // 4

# A header block before it is decoded, and the frames that it may come in: empty ones cost nothing to send.
LARGEST_BLOCK_BYTES = LARGEST_LIST_BYTES
MOST_BLOCK_FRAMES = 32

# Streams ended before their time, by either side. Real clients give up calls by the hundred, not by the ten thousand.
RESETS = (2_000, 500)
# Frames that carry nothing: pings, settings, priorities, empty data. Go's clients ping once for every round trip.
EMPTY_FRAMES = (20_000, 20_000)

# Streams that we ended first, on which the client may still be sending.
_REMEMBERED_STREAMS = 1000

# A connection that has ended on our side is read on for a moment: closing a socket with bytes unread would take from
# the client what was said last. If that has not even left, it gets longer.
READ_ON_SECONDS = 1.0
LINGER_SECONDS = 5.0

_REMEMBERED_HEADS = 256
_REMEMBERED_HEAD_BYTES = 512

_GREETING = frames.settings(
    {
        frames.MAX_CONCURRENT_STREAMS: MOST_STREAMS,
        frames.INITIAL_WINDOW_SIZE: WINDOW_BYTES,
        frames.MAX_HEADER_LIST_SIZE: LARGEST_LIST_BYTES,
    }
) + frames.window_update(0, CONNECTION_WINDOW_BYTES - frames.DEFAULT_WINDOW)

_SETTINGS_ACK = frames.frame(frames.SETTINGS, frames.ACK, 0)

Accept = Callable[[Stream, RequestHead], Receiver]


class Connection(asyncio.Protocol):
    def __init__(self, accept: Accept, closed: Callable[[Connection], None]) -> None:
        """`accept` says who takes a request in; `closed` is told when the connection is gone."""
        self._accept = accept
        self._closed = closed
        self._rest = b""
        self._greeted = False
        self._streams: dict[int, Stream] = {}
        self._last_id = 0
        self._cut_short: dict[int, None] = {}
        self._window = CONNECTION_WINDOW_BYTES
        self._leaving = False
        self._decoder = HeaderDecoder()
        # What equal header blocks meant, for as long as the decoder's table stays the same.
        self._heads: dict[bytes, RequestHead] = {}
        # A header block that is not complete: its stream, flags, bytes and number of frames.
        self._block: tuple[int, int, bytes, int] | None = None
        self._resets = Budget(*RESETS)
        self._empty_frames = Budget(*EMPTY_FRAMES)
        self._linger: asyncio.TimerHandle | None = None
        self._by_kind = (
            self._on_data,
            self._on_headers,
            self._on_priority,
            self._on_reset,
            self._on_settings,
            self._on_push_promise,
            self._on_ping,
            self._on_goaway,
            self._on_window_update,
            self._on_continuation,
        )

    # The transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._sender = Sender(self._transport, self._fail)
        self._sender.write(_GREETING)

    def data_received(self, data: bytes) -> None:
        """Starts with the client's preface."""
        if self._sender.closed:
            return
        if self._rest:
            data = self._rest + data
        position = 0 if self._greeted else self._check_preface(data)
        try:
            self._rest = data[self._read_frames(data, position) :] if self._greeted else data
        except ConnectionFault as fault:
            self._fail(fault)

    def _check_preface(self, data: bytes) -> int:
        """Settings belong to it, so that both sides know each other's from the start."""
        start = len(frames.PREFACE)
        if not frames.PREFACE.startswith(data[:start]):
            self._fail(ConnectionFault(Code.PROTOCOL_ERROR, "this is not HTTP/2"))
        elif len(data) >= start + frames.HEAD_BYTES:
            _, _, kind, flags, _ = frames.head.unpack_from(data, start)
            if kind != frames.SETTINGS or flags & frames.ACK:
                self._fail(ConnectionFault(Code.PROTOCOL_ERROR, "the first frame is not SETTINGS"))
            self._greeted = True
        return start

    def pause_writing(self) -> None:
        self._sender.pause()

    def resume_writing(self) -> None:
        self._sender.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._linger is not None:
            self._linger.cancel()
        self._sender.closed = True
        self._drop_streams()
        self._closed(self)

    # The end.

    def leave(self) -> None:
        """No new requests; those under way go on, and the last of them ends the connection."""
        if not self._leaving and not self._sender.closed:
            self._leaving = True
            self._sender.write(frames.goaway(self._last_id, Code.NO_ERROR))
            if not self._streams:
                self._sender.closed = True
                self._sender.hand_over()
                self._transport.close()

    def cut(self) -> None:
        """Requests under way get a last word now."""
        for stream in list(self._streams.values()):
            stream.receiver.stopped()
        self._close()

    def abort(self) -> None:
        self._transport.abort()

    def _fail(self, fault: ConnectionFault) -> None:
        if self._sender.closed:
            return
        log.info("ended a connection: %s", fault, extra={"fields": {"code": fault.code.name}})
        self._sender.write(frames.goaway(self._last_id, fault.code, str(fault)))
        self._close()

    def _close(self) -> None:
        if self._sender.closed:
            return
        self._sender.closed = True
        self._drop_streams()
        self._rest = b""
        self._sender.hand_over()
        self._transport.write_eof()
        self._linger = asyncio.get_running_loop().call_later(READ_ON_SECONDS, self._linger_on)

    def _linger_on(self) -> None:
        if self._transport.get_write_buffer_size():
            more = LINGER_SECONDS - READ_ON_SECONDS
            self._linger = asyncio.get_running_loop().call_later(more, self._transport.abort)
        else:
            self._transport.abort()

    def _close_if_done(self) -> None:
        if self._leaving and not self._streams:
            self._close()

    def _drop_streams(self) -> None:
        streams, self._streams = list(self._streams.values()), {}
        for stream in streams:
            self._sender.forget(stream)
            stream.receiver.dropped()

    # Frames.

    def _read_frames(self, data: bytes, position: int) -> int:
        """Gives the position of the first byte that belongs to an incomplete frame."""
        end = len(data)
        sender = self._sender
        while end - position >= frames.HEAD_BYTES and not sender.closed:
            high, low, kind, flags, stream_id = frames.head.unpack_from(data, position)
            length = high << 8 | low
            if length > frames.DEFAULT_FRAME_BYTES:
                raise ConnectionFault(Code.FRAME_SIZE_ERROR, "a frame is larger than we allow")
            start = position + frames.HEAD_BYTES
            if start + length > end:
                break
            position = start + length
            self._on_frame(kind, flags, stream_id & frames.STREAM_ID_BITS, data[start:position])
        return position

    def _on_frame(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        if self._block is not None and (kind != frames.CONTINUATION or stream_id != self._block[0]):
            raise ConnectionFault(Code.PROTOCOL_ERROR, "another frame inside of a header block")
        if kind >= len(self._by_kind):
            self._count_empty()  # unknown ones are to be ignored
            return
        try:
            self._by_kind[kind](flags, stream_id, payload)
        except StreamFault as fault:
            self._reset(fault.stream_id, fault.code)

    def _on_data(self, flags: int, stream_id: int, payload: bytes) -> None:
        length = len(payload)
        self._take_window(length)
        chunk = _without_padding(payload) if flags & frames.PADDED else payload
        stream = self._streams.get(stream_id)
        if stream is None or stream.remote_ended:
            self._refuse_data(stream_id)
            return
        if not chunk and not flags & frames.END_STREAM:
            self._count_empty()
        stream.take_in(chunk, length)
        # Taking it in may have ended the stream, with an error for the client.
        if flags & frames.END_STREAM and stream_id in self._streams:
            stream.end_request()

    def _take_window(self, length: int) -> None:
        """What one request waits for must not hold up others, so the connection's window is given back at once. How
        much may be held in memory is limited elsewhere."""
        self._window -= length
        if self._window < 0:
            raise ConnectionFault(Code.FLOW_CONTROL_ERROR, "more data than the connection's window allows")
        used = CONNECTION_WINDOW_BYTES - self._window
        if used >= _GIVE_BACK_BYTES:
            self._sender.write(frames.window_update(0, used))
            self._window = CONNECTION_WINDOW_BYTES

    def _refuse_data(self, stream_id: int) -> None:
        self._check_known(stream_id, "data")
        if stream_id <= self._last_id and stream_id not in self._cut_short:
            raise StreamFault(stream_id, Code.STREAM_CLOSED, "data after the end")
        self._count_empty()

    def _on_headers(self, flags: int, stream_id: int, payload: bytes) -> None:
        if not stream_id & 1:  # 0 is the connection, and even ones are ours
            raise ConnectionFault(Code.PROTOCOL_ERROR, "headers on a stream that a client cannot open")
        if flags & frames.PADDED:
            payload = _without_padding(payload)
        depends_on_itself = False
        if flags & frames.HAS_PRIORITY:
            if len(payload) < 5:
                raise ConnectionFault(Code.FRAME_SIZE_ERROR, "a priority is cut short")
            depends_on_itself = _dependency(payload) == stream_id
            payload = payload[5:]
        if flags & frames.END_HEADERS:
            self._on_block(flags, stream_id, payload)
        else:
            self._block = (stream_id, flags, payload, 1)
        if depends_on_itself:
            raise StreamFault(stream_id, Code.PROTOCOL_ERROR, "a stream depends on itself")

    def _on_continuation(self, flags: int, stream_id: int, payload: bytes) -> None:
        if self._block is None:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "nothing is to be continued")
        _, first_flags, block, count = self._block
        block += payload
        if len(block) > LARGEST_BLOCK_BYTES or count >= MOST_BLOCK_FRAMES:
            raise ConnectionFault(Code.ENHANCE_YOUR_CALM, "a header block is too long")
        if flags & frames.END_HEADERS:
            self._block = None
            self._on_block(first_flags, stream_id, block)
        else:
            self._block = (stream_id, first_flags, block, count + 1)

    def _on_block(self, flags: int, stream_id: int, block: bytes) -> None:
        """A block is decoded even where nobody wants it: the next one depends on it."""
        ends = bool(flags & frames.END_STREAM)
        if stream_id > self._last_id:
            self._open(stream_id, block, ends=ends)
        elif (stream := self._streams.get(stream_id)) is not None:
            self._on_trailers(stream, block, ends=ends)
        elif stream_id in self._cut_short:
            self._decode(block)
        else:
            raise ConnectionFault(Code.STREAM_CLOSED, "headers on a closed stream")

    def _open(self, stream_id: int, block: bytes, *, ends: bool) -> None:
        self._last_id = stream_id if not self._leaving else self._last_id
        try:
            head = self._head(block)
        except Malformed as error:
            raise StreamFault(stream_id, Code.PROTOCOL_ERROR, str(error)) from error
        if self._leaving:
            return  # the client knows from our GOAWAY that nobody looks at it
        if len(self._streams) >= MOST_STREAMS:
            raise StreamFault(stream_id, Code.REFUSED_STREAM, "too many streams at once")
        stream = Stream(stream_id, self._sender, head.content_length, self._has_ended)
        self._streams[stream_id] = stream
        stream.receiver = self._accept(stream, head)
        if ends and stream_id in self._streams:
            stream.end_request()

    def _head(self, block: bytes) -> RequestHead:
        head = self._heads.get(block)
        if head is None:
            changes = self._decoder.changes
            head = request_head(self._decode(block))
            if self._decoder.changes == changes and len(block) <= _REMEMBERED_HEAD_BYTES:
                self._heads[block] = head
        return head

    def _decode(self, block: bytes) -> list[Header]:
        changes = self._decoder.changes
        try:
            return self._decoder.decode(block)
        except BadBlock as error:
            raise ConnectionFault(Code.COMPRESSION_ERROR, f"a header block: {error}") from error
        except ListTooLarge:
            raise ConnectionFault(Code.ENHANCE_YOUR_CALM, "a list of headers is too large") from None
        finally:
            if self._decoder.changes != changes or len(self._heads) >= _REMEMBERED_HEADS:
                self._heads.clear()

    def _on_trailers(self, stream: Stream, block: bytes, *, ends: bool) -> None:
        headers = self._decode(block)
        if stream.remote_ended:
            raise StreamFault(stream.id, Code.STREAM_CLOSED, "headers after the end")
        if not ends:
            raise StreamFault(stream.id, Code.PROTOCOL_ERROR, "headers in the middle of a request")
        try:
            check_trailers(headers)
        except Malformed as error:
            raise StreamFault(stream.id, Code.PROTOCOL_ERROR, str(error)) from error
        stream.end_request()

    def _on_priority(self, flags: int, stream_id: int, payload: bytes) -> None:
        if not stream_id:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "a priority without a stream")
        if len(payload) != 5:
            raise StreamFault(stream_id, Code.FRAME_SIZE_ERROR, "a priority has 5 bytes")
        if _dependency(payload) == stream_id:
            raise StreamFault(stream_id, Code.PROTOCOL_ERROR, "a stream depends on itself")
        self._count_empty()

    def _on_reset(self, flags: int, stream_id: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ConnectionFault(Code.FRAME_SIZE_ERROR, "RST_STREAM has 4 bytes")
        self._check_known(stream_id, "RST_STREAM")
        self._count_reset()
        self._forget(stream_id)

    def _on_settings(self, flags: int, stream_id: int, payload: bytes) -> None:
        if stream_id:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "settings on a stream")
        if len(payload) % 6 or (flags & frames.ACK and payload):
            raise ConnectionFault(Code.FRAME_SIZE_ERROR, "settings have 6 bytes each, an ack has none")
        self._count_empty()
        if flags & frames.ACK:
            return
        for key, value in frames.setting.iter_unpack(payload):
            self._set(key, value)
        self._sender.write(_SETTINGS_ACK)
        self._sender.flush()

    def _set(self, key: int, value: int) -> None:
        match key:
            case frames.HEADER_TABLE_SIZE:
                self._sender.set_table_bytes(value)
            case frames.ENABLE_PUSH:
                if value > 1:
                    raise ConnectionFault(Code.PROTOCOL_ERROR, "ENABLE_PUSH is 0 or 1")
            case frames.INITIAL_WINDOW_SIZE:
                self._set_stream_window(value)
            case frames.MAX_FRAME_SIZE:
                if not frames.DEFAULT_FRAME_BYTES <= value <= frames.LARGEST_FRAME_BYTES:
                    raise ConnectionFault(Code.PROTOCOL_ERROR, "MAX_FRAME_SIZE is out of range")
                self._sender.set_frame_bytes(value)
            case frames.MAX_HEADER_LIST_SIZE:
                self._sender.header_list_bytes = value

    def _set_stream_window(self, value: int) -> None:
        """Streams that are open already change by the difference, also to less than nothing."""
        if value > frames.LARGEST_WINDOW:
            raise ConnectionFault(Code.FLOW_CONTROL_ERROR, "INITIAL_WINDOW_SIZE is out of range")
        change = value - self._sender.stream_window
        self._sender.stream_window = value
        for stream in self._streams.values():
            if not stream.grow(change):
                raise ConnectionFault(Code.FLOW_CONTROL_ERROR, "a window became too large")

    def _on_push_promise(self, flags: int, stream_id: int, payload: bytes) -> None:
        raise ConnectionFault(Code.PROTOCOL_ERROR, "clients push nothing")

    def _on_ping(self, flags: int, stream_id: int, payload: bytes) -> None:
        if stream_id:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "a ping on a stream")
        if len(payload) != 8:
            raise ConnectionFault(Code.FRAME_SIZE_ERROR, "a ping has 8 bytes")
        self._count_empty()
        if not flags & frames.ACK:
            self._sender.write(frames.frame(frames.PING, frames.ACK, 0, payload))

    def _on_goaway(self, flags: int, stream_id: int, payload: bytes) -> None:
        """It speaks of streams that we would open, and there are none."""
        if stream_id:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "GOAWAY on a stream")
        if len(payload) < 8:
            raise ConnectionFault(Code.FRAME_SIZE_ERROR, "GOAWAY has 8 bytes or more")
        self._count_empty()

    def _on_window_update(self, flags: int, stream_id: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ConnectionFault(Code.FRAME_SIZE_ERROR, "WINDOW_UPDATE has 4 bytes")
        increment = frames.number.unpack(payload)[0] & frames.STREAM_ID_BITS
        if stream_id:
            self._grow_stream(stream_id, increment)
        else:
            self._grow_connection(increment)
        self._sender.flush()

    def _grow_stream(self, stream_id: int, increment: int) -> None:
        self._check_known(stream_id, "WINDOW_UPDATE")
        if not increment:
            raise StreamFault(stream_id, Code.PROTOCOL_ERROR, "a window grows by nothing")
        stream = self._streams.get(stream_id)  # one that has ended is of no interest
        if stream is not None and not stream.grow(increment):
            raise StreamFault(stream_id, Code.FLOW_CONTROL_ERROR, "a window became too large")

    def _grow_connection(self, increment: int) -> None:
        if not increment:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "the window grows by nothing")
        self._sender.window += increment
        if self._sender.window > frames.LARGEST_WINDOW:
            raise ConnectionFault(Code.FLOW_CONTROL_ERROR, "the window became too large")

    def _check_known(self, stream_id: int, what: str) -> None:
        if not stream_id or not stream_id & 1 or (stream_id > self._last_id and not self._leaving):
            raise ConnectionFault(Code.PROTOCOL_ERROR, f"{what} on a stream that was never opened")

    # Streams that end.

    def _has_ended(self, stream: Stream) -> None:
        """The response is out. A client that is still sending is told that nobody listens."""
        if not stream.remote_ended:
            self._remember_cut(stream.id)
            self._sender.write(frames.reset(stream.id, Code.NO_ERROR))
        if self._streams.pop(stream.id, None) is not None:
            self._sender.forget(stream)
            stream.receiver = NOBODY  # or the two would wait for the garbage collector, for every call
            self._close_if_done()

    def _reset(self, stream_id: int, code: Code) -> None:
        """Ours count like the client's own: it can make us do it as often as it likes."""
        self._remember_cut(stream_id)
        self._sender.write(frames.reset(stream_id, code))
        self._forget(stream_id)
        self._count_reset()

    def _forget(self, stream_id: int) -> None:
        stream = self._streams.pop(stream_id, None)
        if stream is not None:
            self._sender.forget(stream)
            stream.receiver.dropped()
            stream.receiver = NOBODY
            self._close_if_done()

    def _remember_cut(self, stream_id: int) -> None:
        self._cut_short[stream_id] = None
        if len(self._cut_short) > _REMEMBERED_STREAMS:
            del self._cut_short[next(iter(self._cut_short))]

    def _count_reset(self) -> None:
        if not self._resets.spend():
            raise ConnectionFault(Code.ENHANCE_YOUR_CALM, "too many streams were given up")

    def _count_empty(self) -> None:
        if not self._empty_frames.spend():
            raise ConnectionFault(Code.ENHANCE_YOUR_CALM, "too many frames without content")


def _without_padding(payload: bytes) -> bytes:
    if not payload or payload[0] >= len(payload):
        raise ConnectionFault(Code.PROTOCOL_ERROR, "more padding than the frame is long")
    return payload[1 : len(payload) - payload[0]]


def _dependency(payload: bytes) -> int:
    stream_id: int = frames.number.unpack_from(payload)[0]
    return stream_id & frames.STREAM_ID_BITS
