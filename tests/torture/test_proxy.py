"""The proxy between two parts: passes on as it is, or breaks in the way it is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from holdfast.torture.proxy import Proxy

SECONDS = 10.0

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[], Awaitable[Streams]]


@asynccontextmanager
async def echoing() -> AsyncIterator[tuple[Proxy, Connect]]:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while content := await reader.read(1000):
                writer.write(content)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    proxy = Proxy("a hop", server.sockets[0].getsockname()[1])
    await proxy.start()
    opened: list[asyncio.StreamWriter] = []

    async def connect() -> Streams:
        streams = await asyncio.open_connection("127.0.0.1", proxy.port)
        opened.append(streams[1])
        return streams

    try:
        yield proxy, connect
    finally:
        for writer in opened:
            writer.close()
        await proxy.stop()
        server.close()


async def ask(streams: Streams, text: bytes = b"hello") -> bytes:
    reader, writer = streams
    writer.write(text)
    return await asyncio.wait_for(reader.readexactly(len(text)), SECONDS)


async def ends(streams: Streams) -> bytes:
    """Gives what still came."""
    try:
        return await asyncio.wait_for(streams[0].read(), SECONDS)
    except ConnectionError:
        return b""


async def test_it_passes_on() -> None:
    async with echoing() as (_, connect):
        streams = await connect()
        assert await ask(streams) == b"hello"
        assert await ask(streams, b"x" * 300_000) == b"x" * 300_000


@pytest.mark.parametrize("reset", [True, False])
async def test_closed(reset: bool) -> None:
    async with echoing() as (proxy, connect):
        streams = await connect()
        await ask(streams)
        proxy.close_all(reset=reset)
        assert await ends(streams) == b""
        assert await ask(await connect()) == b"hello"


@pytest.mark.parametrize("direction", ["up", "down"])
async def test_half_open_and_then_gone(direction: str) -> None:
    async with echoing() as (proxy, connect):
        streams = await connect()
        await ask(streams)
        proxy.stall(direction)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await ask(streams)
        proxy.heal()
        assert await ends(streams) == b"", "what was held back must not come later"
        assert await ask(await connect()) == b"hello"


async def test_slow() -> None:
    async with echoing() as (proxy, connect):
        streams = await connect()
        proxy.slow_down(0.2)
        begun = asyncio.get_running_loop().time()
        await ask(streams)
        assert asyncio.get_running_loop().time() - begun >= 0.4


async def test_refused() -> None:
    async with echoing() as (proxy, connect):
        streams = await connect()
        await ask(streams)
        proxy.refuse()
        assert await ends(streams) == b""
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await ask(await connect())
        proxy.heal()
        assert await ask(await connect()) == b"hello"


async def test_torn() -> None:
    async with echoing() as (proxy, connect):
        streams = await connect()
        await ask(streams)
        proxy.cut_after(3)
        streams[1].write(b"hello")
        assert await ends(streams) == b"hel"
