"""Runs a command whose output is a terminal: programs, and click among them, write other bytes there than to a pipe."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from tests.support.process import HOLDFAST, START_SECONDS, STOP_SECONDS, environment


def holdfast_on_a_terminal(*args: str, cwd: Path) -> str:
    """What the terminal is sent, both stdout and stderr, with its line ends as a program writes them."""
    ours, theirs = pty.openpty()
    try:
        with subprocess.Popen(
            [HOLDFAST, *args], cwd=cwd, env=environment({"TERM": "xterm"}), stdin=theirs, stdout=theirs, stderr=theirs
        ) as process:
            os.close(theirs)
            try:
                sent = _read_all(ours)
                process.wait(START_SECONDS)
            finally:
                process.kill()
    finally:
        os.close(ours)
    return sent.decode().replace("\r\n", "\n")


def _read_all(terminal: int) -> bytes:
    pieces: list[bytes] = []
    while True:
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # how Linux says that the other side is closed
            break
        if not piece:
            break
        pieces.append(piece)
    return b"".join(pieces)


def visible_only(text: str) -> bool:
    """Whether nothing in it could steer a terminal."""
    return all(char.isprintable() or char == "\n" for char in text)


def steering(text: str) -> Sequence[str]:
    return [char for char in text if not visible_only(char)]


class Terminal:
    """A command that runs on a terminal of its own, with keys to press and a size to change."""

    def __init__(self, *args: str, cwd: Path, columns: int = 100, lines: int = 30) -> None:
        self._ours, self._theirs = pty.openpty()
        self.resize(columns, lines)
        self.before = termios.tcgetattr(self._theirs)
        self.process = subprocess.Popen(
            # So that Ctrl-C on it is a signal to the command, as behind a shell.
            ["setsid", "--ctty", HOLDFAST, *args],
            cwd=cwd,
            env=environment({"TERM": "xterm"}),
            stdin=self._theirs,
            stdout=self._theirs,
            stderr=self._theirs,
        )
        os.set_blocking(self._ours, False)
        self._sent = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *about: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(STOP_SECONDS)
        os.close(self._theirs)
        os.close(self._ours)

    def press(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    @property
    def sent(self) -> str:
        """All that was written to it."""
        with contextlib.suppress(BlockingIOError, OSError):
            while piece := os.read(self._ours, 65536):
                self._sent += piece
        return self._sent.decode(errors="replace")

    def screen(self) -> list[str]:
        """The last whole picture, without colors. One is whole when the next one has begun."""
        pictures = self.sent.split("\x1b[H")
        if len(pictures) < 3:
            return []
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", pictures[-2]).replace("\r", "").split("\n")

    def settings(self) -> list[object]:
        """As the shell would find it."""
        return list(termios.tcgetattr(self._theirs))
