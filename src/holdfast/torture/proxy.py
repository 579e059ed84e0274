"""A TCP proxy for one hop that can close, stall, slow down, refuse and cut what goes through it. Connections that a
fault has touched never come back to life: what was held back is lost, so that nothing arrives out of its time."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from dataclasses import dataclass, field

CHUNK = 64 * 1024
CONNECT_SECONDS = 5.0


@dataclass(eq=False)
class _Link:
    """One connection through the proxy: both its halves."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter | None = None
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    touched: bool = False
    left: int | None = None  # bytes that still may pass

    def close(self, *, reset: bool = False) -> None:
        for writer in (self.client, self.server):
            if writer is None or writer.transport.is_closing():
                continue
            if not reset:
                writer.close()
                continue
            with contextlib.suppress(OSError, ValueError):  # it is gone already
                raw = writer.get_extra_info("socket")
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()


class Proxy:
    def __init__(self, name: str, target_port: int) -> None:
        self.name = name
        self.port = 0
        self._target_port = target_port
        self._links: set[_Link] = set()
        self._server: asyncio.Server | None = None
        self._stalled: set[str] = set()  # directions in which nothing passes: "up" to the server, "down" from it
        self._delay = 0.0
        self._refusing = False
        self._cut_after: int | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for link in list(self._links):
            link.close(reset=True)
            for task in link.tasks:
                task.cancel()

    # Faults.

    def close_all(self, *, reset: bool) -> None:
        for link in list(self._links):
            link.close(reset=reset)

    def stall(self, *directions: str) -> None:
        """Half open: each side believes in the other, and nothing passes."""
        self._stalled = set(directions)

    def slow_down(self, seconds: float) -> None:
        """All that passes does so this much later."""
        self._delay = seconds

    def refuse(self) -> None:
        """Connections are accepted and ended at once; those that are open end too."""
        self._refusing = True
        self.close_all(reset=True)

    def cut_after(self, count: int) -> None:
        """Each connection ends in the middle, after so many bytes more from the server."""
        self._cut_after = count
        for link in self._links:
            link.left = count

    def heal(self) -> None:
        self._stalled, self._delay, self._refusing, self._cut_after = set(), 0.0, False, None
        for link in list(self._links):
            link.left = None
            if link.touched:
                link.close(reset=True)

    # Passing on.

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = _Link(writer, left=self._cut_after)
        if self._refusing:
            link.close(reset=True)
            return
        self._links.add(link)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                from_server, link.server = await asyncio.open_connection("127.0.0.1", self._target_port)
            link.tasks = [
                asyncio.create_task(self._pass_on(link, "up", reader, link.server)),
                asyncio.create_task(self._pass_on(link, "down", from_server, writer)),
            ]
            await asyncio.gather(*link.tasks, return_exceptions=True)
        except (OSError, TimeoutError):  # the server is down: as it would be without us
            link.close(reset=True)
        except asyncio.CancelledError:  # by stop(), and by nobody else
            pass
        finally:
            link.close()
            self._links.discard(link)

    async def _pass_on(
        self, link: _Link, direction: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        loop = asyncio.get_running_loop()
        held: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(maxsize=64)

        async def receive() -> None:
            with contextlib.suppress(OSError):
                while content := await reader.read(CHUNK):
                    await held.put((loop.time() + self._delay, content))
            await held.put((loop.time() + self._delay, b""))

        receiving = asyncio.create_task(receive())
        try:
            while True:
                due, content = await held.get()
                if due > loop.time():
                    link.touched = True
                    await asyncio.sleep(due - loop.time())
                if direction in self._stalled:
                    link.touched = True
                    continue  # gone for good: heal() ends this connection
                if not content:
                    return
                if direction == "down" and link.left is not None:
                    content, link.left = content[: link.left], link.left - len(content)
                writer.write(content)
                await writer.drain()
                if link.left is not None and link.left <= 0:
                    return
        except (OSError, RuntimeError):
            return
        finally:
            receiving.cancel()
            link.close()
