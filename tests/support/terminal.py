"""Runs a command whose output is a terminal: programs, and click among them, write other bytes there than to a pipe."""

from __future__ import annotations

import os
import pty
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.support.process import HOLDFAST, START_SECONDS, environment


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
