"""Delivers as Pub/Sub does: many requests at once, and whatever is not answered 200 is sent again until it is.

A delivery that was answered 200 is never sent again by itself; redeliveries are part of the traffic. Nor is one that
was refused for good: Holdfast's broker dead-letters it at once.
"""

from __future__ import annotations

import asyncio
import heapq
import json
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from tests.proof.traffic import Traffic
from tests.proof.workers import Worker, Workers

HEAD = b"POST /pubsub/push HTTP/1.1\r\nHost: proof\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
CONNECTIONS = 100
LONGEST_ANSWER_SECONDS = 30.0

# Short, so that a run takes its time sending, and random, so that what failed together does not come again together.
RETRY_SECONDS = (0.005, 0.2)

LOST = 0  # the status of a request that was not answered
FINAL = (200, 400, 422)


@dataclass(frozen=True, slots=True)
class Sent:
    """One request: which message, when (seconds since the start), and what came of it."""

    message: int
    begun: float
    ended: float
    port: int
    status: int
    outcome: str

    def __str__(self) -> str:
        what = self.outcome or ("no answer" if self.status == LOST else "")
        return f"{self.begun:8.3f} to {self.ended:8.3f}  port {self.port}  {self.status or '---'} {what}"


class Sender:
    """`on_answer` is called after every delivery that was answered for good, with their number."""

    def __init__(self, traffic: Traffic, workers: Workers, seed: int, on_answer: Callable[[int], None]) -> None:
        self.history: list[Sent] = []
        self.statuses: Counter[int] = Counter()
        self.answered = 0
        self._traffic = traffic
        self._workers = workers
        self._random = random.Random(seed)
        self._on_answer = on_answer
        self._next = 0
        self._again: list[tuple[float, int]] = []
        self._start = time.monotonic()

    async def run(self) -> None:
        self._start = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for _ in range(CONNECTIONS):
                group.create_task(self._sending())

    async def _sending(self) -> None:
        connection = Connection()
        try:
            while self.answered < len(self._traffic.deliveries):
                message = self._take()
                if message is None:
                    await asyncio.sleep(RETRY_SECONDS[0])
                    continue
                await self._send(connection, message)
        finally:
            connection.close()

    def _take(self) -> int | None:
        """The next message to send, or None when all that is left is under way or has to wait."""
        if self._again and self._again[0][0] <= time.monotonic():
            return heapq.heappop(self._again)[1]
        if self._next < len(self._traffic.deliveries):
            self._next += 1
            return self._traffic.deliveries[self._next - 1]
        return None

    async def _send(self, connection: Connection, message: int) -> None:
        worker = await self._workers.any_up(self._random)
        begun = time.monotonic() - self._start
        status, outcome = await connection.post(worker, self._traffic.messages[message].body)
        ended = time.monotonic() - self._start
        self.history.append(Sent(message, begun, ended, worker.address[1], status, outcome))
        self.statuses[status] += 1
        if status in FINAL:
            self.answered += 1
            self._on_answer(self.answered)
        else:
            heapq.heappush(self._again, (time.monotonic() + self._random.uniform(*RETRY_SECONDS), message))


class Connection:
    """Kept open from one request to the next, while these go to the same worker."""

    def __init__(self) -> None:
        self._to: tuple[str, int] | None = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def post(self, worker: Worker, body: bytes) -> tuple[int, str]:
        """Status and outcome; LOST when no answer came."""
        try:
            async with asyncio.timeout(LONGEST_ANSWER_SECONDS):
                return await self._post(worker.address, body)
        except (OSError, EOFError, TimeoutError):
            self.close()
            return LOST, ""

    async def _post(self, address: tuple[str, int], body: bytes) -> tuple[int, str]:
        reader, writer = await self._connected(address)
        writer.write(HEAD % len(body) + body)
        answer = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        length = int(answer.partition("content-length: ")[2].partition("\r\n")[0])
        told = json.loads(await reader.readexactly(length))
        return int(answer.split(maxsplit=2)[1]), str(told.get("outcome", ""))

    async def _connected(self, address: tuple[str, int]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._to != address or self._reader is None or self._writer is None:
            self.close()
            self._reader, self._writer = await asyncio.open_connection(*address)
            self._to = address
        return self._reader, self._writer

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._to = self._reader = self._writer = None
