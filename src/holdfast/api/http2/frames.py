"""HTTP/2's frames: their numbers, how they are written, and what a wrong one is answered with (RFC 9113)."""

from __future__ import annotations

from enum import IntEnum
from struct import Struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

# Kinds of frames. Plain integers: they are compared for every frame.
DATA = 0
HEADERS = 1
PRIORITY = 2
RST_STREAM = 3
SETTINGS = 4
PUSH_PROMISE = 5
PING = 6
GOAWAY = 7
WINDOW_UPDATE = 8
CONTINUATION = 9

# Flags. END_STREAM and ACK are the same bit, on different frames.
END_STREAM = 0x1
ACK = 0x1
END_HEADERS = 0x4
PADDED = 0x8
HAS_PRIORITY = 0x20

# Settings.
HEADER_TABLE_SIZE = 1
ENABLE_PUSH = 2
MAX_CONCURRENT_STREAMS = 3
INITIAL_WINDOW_SIZE = 4
MAX_FRAME_SIZE = 5
MAX_HEADER_LIST_SIZE = 6

HEAD_BYTES = 9
DEFAULT_WINDOW = 65_535
DEFAULT_FRAME_BYTES = 16_384
LARGEST_FRAME_BYTES = (1 << 24) - 1
LARGEST_WINDOW = (1 << 31) - 1
STREAM_ID_BITS = (1 << 31) - 1

# Length in 16 + 8 bits, kind, flags, stream.
head = Struct(">HBBBL")
number = Struct(">L")
setting = Struct(">HL")
_window_update = Struct(">HBBBLL")
_goaway = Struct(">HBBBLLL")


class Code(IntEnum):
    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    ENHANCE_YOUR_CALM = 11


class ConnectionFault(Exception):
    """The peer broke a rule that the whole connection depends on: it ends."""

    def __init__(self, code: Code, why: str) -> None:
        super().__init__(why)
        self.code = code


class StreamFault(Exception):
    """The peer broke a rule on one stream: only that one ends."""

    def __init__(self, stream_id: int, code: Code, why: str) -> None:
        super().__init__(why)
        self.stream_id = stream_id
        self.code = code


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    return frame_head(len(payload), kind, flags, stream_id) + payload


def frame_head(length: int, kind: int, flags: int, stream_id: int) -> bytes:
    return head.pack(length >> 8, length & 0xFF, kind, flags, stream_id)


def window_update(stream_id: int, increment: int) -> bytes:
    return _window_update.pack(0, 4, WINDOW_UPDATE, 0, stream_id, increment)


def reset(stream_id: int, code: Code) -> bytes:
    return _window_update.pack(0, 4, RST_STREAM, 0, stream_id, code)


def goaway(last_stream_id: int, code: Code, why: str = "") -> bytes:
    text = why.encode()
    return _goaway.pack(0, 8 + len(text), GOAWAY, 0, 0, last_stream_id, code) + text


def settings(values: dict[int, int]) -> bytes:
    return frame(SETTINGS, 0, 0, b"".join(setting.pack(key, value) for key, value in values.items()))


def header_frames(stream_id: int, block: bytes, flags: int, most: int) -> bytes:
    """HEADERS, and CONTINUATION where the block is longer than the peer's longest frame."""
    if len(block) <= most:
        return frame(HEADERS, flags | END_HEADERS, stream_id, block)
    parts = [frame(HEADERS, flags, stream_id, block[:most])]
    for start in range(most, len(block), most):
        last = start + most >= len(block)
        parts.append(frame(CONTINUATION, END_HEADERS if last else 0, stream_id, block[start : start + most]))
    return b"".join(parts)
