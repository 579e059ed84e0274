"""The disk that the lab slips under SQLite: what is synced survives a power cut, what is not may be lost or torn."""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.torture.power import cut_power

# In a process of its own: it changes SQLite for good.
PROGRAM = """
import json, sqlite3, sys
from pathlib import Path
from holdfast.torture.disk import Disk

data, synced = Path(sys.argv[1]), Path(sys.argv[2])
disk = Disk(data, synced)
disk.slip_under_sqlite()
connection = sqlite3.connect(data / "x.db", isolation_level=None)
for statement in ("journal_mode = WAL", "synchronous = FULL", "wal_autocheckpoint = 20"):
    connection.execute(f"PRAGMA {statement}").fetchall()
connection.execute("CREATE TABLE IF NOT EXISTS notes (number INTEGER PRIMARY KEY, text TEXT)")
for line in sys.stdin:
    name, value = json.loads(line)
    try:
        if name == "execute":
            answer = connection.execute(value).fetchall()
        else:
            answer = getattr(disk, name)(value)
    except sqlite3.Error as error:
        answer = str(error)
    print(json.dumps(answer), flush=True)
"""

INSERT = "INSERT INTO notes (text) VALUES (hex(randomblob(300)))"


# Without syncs these would lose even what was synced before.
NO_CHECKPOINTS = "PRAGMA wal_autocheckpoint = 0"


class Program:
    def __init__(self, folder: Path) -> None:
        self.data, self.synced = folder / "data", folder / "synced"
        for path in (self.data, self.synced):
            path.mkdir(exist_ok=True)
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(self.data), str(self.synced)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
        )

    def ask(self, name: str, value: object) -> Any:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps([name, value]) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def insert(self, count: int) -> list[Any]:
        return [self.ask("execute", INSERT) for _ in range(count)]

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream
            stream.close()


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    program = Program(tmp_path)
    yield program
    program.kill()


def after_power_cut(program: Program, folder: Path, seed: int) -> int:
    """How many notes there are then, in a database that is whole."""
    data, synced = folder / f"data-{seed}", folder / f"synced-{seed}"
    shutil.copytree(program.data, data)
    shutil.copytree(program.synced, synced)
    cut_power(data, synced, random.Random(seed))
    connection = sqlite3.connect(data / "x.db")
    try:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        count: int = connection.execute("SELECT count(*) FROM notes").fetchone()[0]
    finally:
        connection.close()
    return count


def test_what_was_committed_outlives_every_power_cut(program: Program, tmp_path: Path) -> None:
    assert program.insert(100) == [[]] * 100
    assert {after_power_cut(program, tmp_path, seed) for seed in range(15)} == {100}


def test_what_was_not_synced_may_be_lost(program: Program, tmp_path: Path) -> None:
    program.ask("execute", NO_CHECKPOINTS)
    program.insert(10)
    program.ask("execute", "PRAGMA synchronous = OFF")
    program.insert(10)
    counts = {after_power_cut(program, tmp_path, seed) for seed in range(30)}
    assert min(counts) == 10
    assert max(counts) == 20
    assert len(counts) > 2, "nothing was torn"


def test_the_death_of_a_process_makes_nothing_safer(tmp_path: Path) -> None:
    first = Program(tmp_path)
    first.ask("execute", NO_CHECKPOINTS)
    first.insert(10)
    first.ask("execute", "PRAGMA synchronous = OFF")
    first.insert(5)
    first.kill()
    second = Program(tmp_path)
    assert second.ask("execute", "SELECT count(*) FROM notes") == [[15]]
    counts = {after_power_cut(second, tmp_path, seed) for seed in range(20)}
    second.kill()
    assert min(counts) < 15


def test_a_full_disk(program: Program) -> None:
    program.ask("set_full", True)
    assert program.insert(2) == ["database or disk is full"] * 2
    program.ask("set_full", False)
    assert program.insert(2) == [[]] * 2
    assert program.ask("execute", "SELECT count(*) FROM notes") == [[2]]


def test_a_sync_that_fails(program: Program, tmp_path: Path) -> None:
    program.insert(3)
    program.ask("set_sync_fails", True)
    assert program.insert(1) == ["disk I/O error"]
    program.ask("set_sync_fails", False)
    assert program.insert(2) == [[]] * 2
    assert {after_power_cut(program, tmp_path, seed) for seed in range(15)} == {5}
