"""A program that does to a database what it is told, line by line, and the handle that a test holds it by.

Started as `python database_process.py PATH`. It answers each line with one line:

    open | open-to-read      "ok", or the error
    insert FIRST LAST        all at once, each alone; the numbers that were acknowledged
    numbers                  what is there
    limit BYTES              no file may become larger than that; 0 lifts it
    die                      at once, as by kill -9; without an answer
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from holdfast.errors import HoldfastError
from holdfast.stores.sqlite.database import Database, ReadOnlyDatabase, Schema, Work

SCHEMA = Schema(0x48465454, ["CREATE TABLE notes (number INTEGER PRIMARY KEY, text TEXT NOT NULL DEFAULT '')"])

STOP_SECONDS = 20.0

# Large enough that a file size limit and a full disk are met soon.
TEXT = "x" * 2000


def insert(number: int, text: str = "") -> Work[int]:
    def work(connection: sqlite3.Connection) -> int:
        connection.execute("INSERT INTO notes (number, text) VALUES (?, ?)", (number, text))
        return number

    return work


def numbers_in(connection: sqlite3.Connection) -> list[int]:
    return [number for (number,) in connection.execute("SELECT number FROM notes ORDER BY number")]


class DatabaseProcess:
    """Ends with its context, if it has not by then."""

    def __init__(self, path: Path, before: Sequence[str] = ()) -> None:
        """`before` is put in front of the command, such as strace with its options."""
        self.process = subprocess.Popen(
            [*before, sys.executable, __file__, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
            start_new_session=True,  # so that strace and what it runs can be ended together
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.kill()
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.close()
        self.process.stdout.close()

    def tell(self, command: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()

    def answer(self) -> str:
        assert self.process.stdout
        line = self.process.stdout.readline()
        assert line, f"the process ended with {self.process.wait(STOP_SECONDS)}"
        return line.removesuffix("\n")

    def ask(self, command: str) -> str:
        self.tell(command)
        return self.answer()

    def ask_numbers(self, command: str) -> list[int]:
        return [int(number) for number in self.ask(command).split()]

    def kill(self) -> None:
        """As kill -9, and whatever was put in front with it."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(STOP_SECONDS)

    def die(self) -> None:
        """As kill -9 too, but not of what was put in front: strace ends only after what it runs."""
        self.tell("die")
        self.process.wait(STOP_SECONDS)

    def end(self) -> None:
        """It closes its database and leaves."""
        assert self.process.stdin
        self.process.stdin.close()
        assert self.process.wait(STOP_SECONDS) == 0


# The program itself.


class _Program:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._database: Database | ReadOnlyDatabase | None = None

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            try:
                answer = await self._do(*line.split())
            except HoldfastError as error:
                answer = f"{type(error).__name__}: {error}"
            print(answer, flush=True)
        if self._database:
            await self._database.close()

    async def _do(self, command: str, *values: str) -> str:
        match command, values:
            case "open", ():
                self._database = await Database.open(self._path, SCHEMA)
            case "open-to-read", ():
                self._database = ReadOnlyDatabase(self._path, SCHEMA)
            case "insert", (first, last):
                return await self._insert(range(int(first), int(last) + 1))
            case "numbers", ():
                assert self._database
                return " ".join(map(str, await self._database.read(numbers_in)))
            case "limit", (size,):
                soft = int(size) or resource.RLIM_INFINITY
                resource.setrlimit(resource.RLIMIT_FSIZE, (soft, resource.RLIM_INFINITY))
            case "die", ():
                os.kill(os.getpid(), signal.SIGKILL)
            case _:
                raise ValueError(command)
        return "ok"

    async def _insert(self, numbers: Sequence[int]) -> str:
        assert isinstance(self._database, Database)
        inserting = (self._database.submit(insert(number, TEXT)) for number in numbers)
        outcomes = await asyncio.gather(*inserting, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException) and not isinstance(outcome, HoldfastError):
                raise outcome
        return " ".join(str(outcome) for outcome in outcomes if isinstance(outcome, int))


if __name__ == "__main__":
    asyncio.run(_Program(Path(sys.argv[1])).run())
