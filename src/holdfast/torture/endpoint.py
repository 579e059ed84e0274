"""The lab's own push endpoint: it writes down what comes, and lies when it is told to. Plain sockets, because an HTTP
library would not let it."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import Callable

from holdfast.torture.history import History
from holdfast.torture.traffic import whim

# What it may answer while it lies.
LIES = ("error", "busy", "garbage", "hang", "slow", "close", "half", "redirect", "endless", "early")

SLOW_SECONDS = 3.0
HANG_SECONDS = 60.0
ENDLESS_BYTES = 4_000_000

# Of the requests that come while it lies.
LYING_SHARE = 0.6

_OK = b"HTTP/1.1 204 No Content\r\n\r\n"
_REFUSED = (
    b"HTTP/1.1 422 Unprocessable Content\r\nHoldfast-Dead-Letter: now\r\nHoldfast-Failure-Reason: NOT_MENDED\r\n"
    b"Content-Length: 0\r\n\r\n"
)
_ANSWERS = {
    "error": b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n",
    "busy": b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n",
    "garbage": b"\x16\x03\x01\x00\xffthis is no HTTP\r\n\r\n",
    "redirect": b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
}


class Endpoint:
    def __init__(self, sub: str, seed: int, history: History, is_mended: Callable[[], bool]) -> None:
        self.port = 0
        self._sub = sub
        self._seed = seed
        self._history = history
        self._is_mended = is_mended
        self._lie = ""
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()

    def lie(self, lie: str) -> None:
        """Until it is told to tell the truth again, with ""."""
        self._lie = lie

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        try:
            while await self._one_request(reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.CancelledError):
            pass  # the other side is gone, or we are
        finally:
            self._tasks.discard(task)
            with contextlib.suppress(Exception):
                writer.close()

    async def _one_request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Whether another may follow on this connection."""
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(
            int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")
        )
        envelope = json.loads(await reader.readexactly(length))
        message = envelope["message"]
        message_id, attempt = str(message["messageId"]), int(envelope.get("deliveryAttempt", 0))
        key, attributes = str(message.get("orderingKey", "")), message["attributes"]
        name = self._history.delivery(self._sub, message_id, attempt, key, attributes)
        lie = self._lie if whim(self._seed, name, attempt, self._lie) < LYING_SHARE else ""
        if not lie and json.loads(base64.b64decode(message["data"]))["poison"] and not self._is_mended():
            self._history.refused(self._sub, message_id, name)
            writer.write(_REFUSED)
        elif not lie:
            self._history.acking(self._sub, message_id, name)
            writer.write(_OK)
        else:
            return await self._answer_with_a_lie(lie, message_id, name, writer)
        await writer.drain()
        return True

    async def _answer_with_a_lie(self, lie: str, message_id: str, name: str, writer: asyncio.StreamWriter) -> bool:
        match lie:
            case "hang":
                await asyncio.sleep(HANG_SECONDS)
                return False
            case "close":
                return False
            case "slow":
                await asyncio.sleep(SLOW_SECONDS)
                self._history.acking(self._sub, message_id, name)
                writer.write(_OK)
            case "half":  # a good status, and then the connection ends: it may count or not
                self._history.acking(self._sub, message_id, name)
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf of")
                await writer.drain()
                return False
            case "early":  # the end comes with the answer
                self._history.acking(self._sub, message_id, name)
                writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
                await writer.drain()
                return False
            case "endless":
                writer.write(b"HTTP/1.1 500 Sorry\r\nX-Long: ")
                for _ in range(ENDLESS_BYTES // 100_000):
                    writer.write(b"x" * 100_000)
                    await writer.drain()
                return False
            case _:
                writer.write(_ANSWERS[lie])
        await writer.drain()
        return lie != "garbage"
