"""The terminal: a second screen that is left as it was found, and keys as they are pressed."""

from __future__ import annotations

import os
import sys
import termios
import tty
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

_ENTER = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"  # the second screen, no cursor, no line breaks at the edge
_LEAVE = "\x1b[?7h\x1b[?25h\x1b[?1049l"
_HOME, _EMPTY_LINE = "\x1b[H", "\x1b[2K"

UP, DOWN, PAGE_UP, PAGE_DOWN, ENTER, ESCAPE, ERASE = "up", "down", "page up", "page down", "enter", "escape", "erase"
_SEQUENCES = {"\x1b[A": UP, "\x1b[B": DOWN, "\x1bOA": UP, "\x1bOB": DOWN, "\x1b[5~": PAGE_UP, "\x1b[6~": PAGE_DOWN}
_CONTROLS = {"\r": ENTER, "\n": ENTER, "\x1b": ESCAPE, "\x7f": ERASE, "\x08": ERASE}


class Screen:
    """Ctrl-C and Ctrl-Z stay what they are."""

    def __init__(self) -> None:
        self._keyboard = sys.stdin.fileno()
        self._before: list[Any] | None = None

    def __enter__(self) -> Self:
        self.enter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()

    def enter(self) -> None:
        if self._before is None:
            self._before = termios.tcgetattr(self._keyboard)
            tty.setcbreak(self._keyboard)
            _send(_ENTER)

    def leave(self) -> None:
        if self._before is not None:
            before, self._before = self._before, None
            termios.tcsetattr(self._keyboard, termios.TCSADRAIN, before)
            _send(_LEAVE)

    def show(self, lines: Sequence[str]) -> None:
        """As many as the terminal has. In one piece, over what was there: no flicker."""
        _send(_HOME + "\r\n".join(_EMPTY_LINE + line for line in lines))

    def pressed(self) -> list[str]:
        """Those that were pressed: letters, or one of the names above. The end of input is ctrl-D's."""
        typed = os.read(self._keyboard, 1024).decode(errors="replace")
        return _keys(typed) if typed else ["q"]


def size() -> tuple[int, int]:
    """Columns and lines."""
    found = os.get_terminal_size(sys.stdout.fileno())
    return max(found.columns, 1), max(found.lines, 1)


def _keys(pressed: str) -> list[str]:
    keys: list[str] = []
    while pressed:
        sequence = next((one for one in _SEQUENCES if pressed.startswith(one)), "")
        if sequence:
            keys.append(_SEQUENCES[sequence])
            pressed = pressed[len(sequence) :]
        else:
            keys.append(_CONTROLS.get(pressed[0], pressed[0]))
            pressed = pressed[1:]
    return keys


def _send(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
