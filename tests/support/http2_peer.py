"""An HTTP/2 client that does exactly what it is told, right or wrong: frames out, frames in."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import hpack

from holdfast.api.http2 import frames

SECONDS = 10.0  # longest wait for any one frame


@dataclass(frozen=True)
class Frame:
    kind: int
    flags: int
    stream_id: int
    payload: bytes

    @property
    def number(self) -> int:
        """The code of a reset, or of a GOAWAY, or what a window grows by."""
        return int.from_bytes(self.payload[4:8] if self.kind == frames.GOAWAY else self.payload[:4], "big")


@dataclass(frozen=True)
class Response:
    """Of one call. `reset` is the code that the stream was cut with after its end, if it was."""

    headers: dict[str, str]
    messages: list[bytes]
    trailers: dict[str, str]

    @property
    def status(self) -> int:
        return int(self.trailers["grpc-status"])


class Peer:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.encoder = hpack.Encoder()
        self._decoder = hpack.Decoder()

    @classmethod
    async def connect(cls, port: int, settings: dict[int, int] | None = None) -> Self:
        """Greets, and has been greeted when it returns."""
        peer = cls(*await asyncio.open_connection("127.0.0.1", port))
        await peer.send(frames.PREFACE, frames.settings(settings or {}))
        assert (await peer.frame()).kind == frames.SETTINGS
        assert (await peer.frame()).kind == frames.WINDOW_UPDATE
        acked = await peer.frame()
        assert (acked.kind, acked.flags) == (frames.SETTINGS, frames.ACK)
        return peer

    async def close(self) -> None:
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except ConnectionError:
            pass  # the server was faster

    # Out.

    async def send(self, *parts: bytes) -> None:
        self._writer.write(b"".join(parts))
        await self._writer.drain()

    def head(self, method: str, **more: str) -> bytes:
        """A header block; an underscore in a name stands for a dash."""
        fields = {
            ":method": "POST",
            ":scheme": "http",
            ":path": f"/test.Service/{method}",
            ":authority": "here",
            "content-type": "application/grpc",
            "te": "trailers",
            **{name.replace("_", "-"): value for name, value in more.items()},
        }
        return self.encoder.encode(list(fields.items()))

    def opening(self, stream_id: int, method: str, flags: int = 0, /, **more: str) -> bytes:
        return frames.frame(frames.HEADERS, flags | frames.END_HEADERS, stream_id, self.head(method, **more))

    async def call(self, stream_id: int, method: str, body: bytes = b"", **more: str) -> None:
        """A whole unary request."""
        await self.send(self.opening(stream_id, method, **more), *data(stream_id, message(body), last=True))

    # In.

    async def frame(self) -> Frame:
        async with asyncio.timeout(SECONDS):
            head = await self._reader.readexactly(frames.HEAD_BYTES)
            high, low, kind, flags, stream_id = frames.head.unpack(head)
            payload = await self._reader.readexactly(high << 8 | low)
        return Frame(kind, flags, stream_id, payload)

    async def next(self, kind: int) -> Frame:
        """The next frame of this kind, whatever comes before it."""
        while (found := await self.frame()).kind != kind:
            pass
        return found

    async def response(self, stream_id: int, *, open_windows: bool = True) -> Response:
        """Reads to the stream's end, and gives windows back as it goes."""
        headers: list[dict[str, str]] = []
        body = bytearray()
        while True:
            frame = await self.frame()
            if frame.stream_id != stream_id:
                continue
            assert frame.kind in (frames.HEADERS, frames.DATA, frames.WINDOW_UPDATE), frame
            if frame.kind == frames.HEADERS:
                headers.append(self.decode(frame.payload))
            elif frame.kind == frames.DATA:
                body += frame.payload
                if open_windows and frame.payload:
                    await self.send(*grow(len(frame.payload), 0, stream_id))
            if frame.kind != frames.WINDOW_UPDATE and frame.flags & frames.END_STREAM:
                return Response(headers[0], messages(bytes(body)), headers[-1])

    def decode(self, block: bytes) -> dict[str, str]:
        return {str(name): str(value) for name, value in self._decoder.decode(block)}

    async def quiet(self) -> Sequence[Frame]:
        """Everything that the server had to say. Answers to pings overtake handlers, but not three times."""
        found: list[Frame] = []
        for number in range(3):
            ping = Frame(frames.PING, frames.ACK, 0, f"ping-{number:03}".encode())
            await self.send(frames.frame(frames.PING, 0, 0, ping.payload))
            while (frame := await self.frame()) != ping:
                found.append(frame)
        return found

    async def ends_with(self, code: frames.Code) -> None:
        """The connection is closed, with this code in a GOAWAY first."""
        goaway = await self.next(frames.GOAWAY)
        assert frames.Code(goaway.number) is code
        await self.ends()

    async def ends(self) -> None:
        async with asyncio.timeout(SECONDS):
            try:
                while await self._reader.read(65_536):
                    pass
            except ConnectionError:
                pass  # closed while we were still sending


def message(body: bytes, *, compressed: bool = False) -> bytes:
    return bytes([compressed]) + len(body).to_bytes(4, "big") + body


def messages(body: bytes) -> list[bytes]:
    found = []
    while body:
        end = 5 + int.from_bytes(body[1:5], "big")
        found.append(body[5:end])
        body = body[end:]
    return found


def data(stream_id: int, body: bytes, *, last: bool = False) -> list[bytes]:
    starts = range(0, max(len(body), 1), frames.DEFAULT_FRAME_BYTES)
    return [
        frames.frame(
            frames.DATA,
            frames.END_STREAM if last and start == starts[-1] else 0,
            stream_id,
            body[start : start + frames.DEFAULT_FRAME_BYTES],
        )
        for start in starts
    ]


def grow(increment: int, *stream_ids: int) -> list[bytes]:
    return [frames.window_update(stream_id, increment) for stream_id in stream_ids]
