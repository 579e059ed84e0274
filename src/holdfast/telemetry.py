"""Logging: one line per event on standard error, as text for people or JSON for programs. Never a payload.

A record's structured part is `extra={"fields": {...}}`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, TextIO

from holdfast.model.timestamps import format_rfc3339

# What an error text may add to a line.
LONGEST_VALUE = 500

# Google's level above critical: somebody must act at once.
ALERT = logging.CRITICAL + 10
logging.addLevelName(ALERT, "ALERT")

# Of a record that alerts should not wait for, although nobody must act yet: the rules are judged at once.
JUDGE_SOON = "judge_soon"

_ENCODER = json.JSONEncoder(default=str)  # json.dumps would make one each time

# The same on every line of a process: for programs that collect many, not for people who look at one.
IDENTITY = frozenset({"service", "env", "version", "sha"})


if TYPE_CHECKING:
    _StreamHandler = logging.StreamHandler[TextIO]
else:
    _StreamHandler = logging.StreamHandler


_shortcut: GatheringHandler | None = None


def configure_logging(log_format: str, level: str) -> None:
    """`log_format` is text, json or auto: text on a terminal, else JSON."""
    handler = GatheringHandler(sys.stderr)
    as_text = log_format == "text" or (log_format == "auto" and sys.stderr.isatty())
    handler.setFormatter(TextFormatter() if as_text else JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)  # libraries
    logging.getLogger("holdfast").setLevel(level.upper())


def spare_what_no_line_shows() -> None:
    """For a process of our own, where nobody else reads the records: caller, thread and process of one cost as much to
    find as the line itself, and so does its way through the logging module."""
    global _shortcut  # noqa: PLW0603 - as everything about logging, it is the process's
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None  # the way that the documentation of logging tells
    handler = logging.getLogger().handlers[0]
    if isinstance(handler, GatheringHandler) and isinstance(handler.formatter, JsonFormatter):
        _shortcut = handler


def log_fields(logger: logging.Logger, level: int, message: str, fields: Mapping[str, object]) -> None:
    """For what is logged once for each message."""
    if _shortcut is not None and level == logging.INFO:
        if logger.isEnabledFor(level):
            _shortcut.add(json_line(time.time(), "INFO", logger.name, message, fields))
    else:
        logger.log(level, message, extra={"fields": fields})


class GatheringHandler(_StreamHandler):
    """Writes the lines of one turn of the event loop together: a write for each costs as much as the rest of the line.
    Whatever is worse than information goes out at once, and so does what is logged outside of a loop."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self.add(self.format(record), at_once=record.levelno > logging.INFO)
        except Exception:  # noqa: BLE001 - a line that cannot be made or written must harm nothing else
            self.handleError(record)

    def add(self, line: str, *, at_once: bool = False) -> None:
        self._lines.append(line + self.terminator)
        if at_once or not self._will_be_flushed():
            self.flush()

    def _will_be_flushed(self) -> bool:
        if len(self._lines) > 1:
            return True  # the first one has seen to it
        try:
            asyncio.get_running_loop().call_soon(self.flush)
        except RuntimeError:
            return False
        return True

    def flush(self) -> None:
        self.acquire()
        try:
            lines, self._lines = self._lines, []
            if lines:
                self.stream.write("".join(lines))
            self.stream.flush()
        finally:
            self.release()


class JsonFormatter(logging.Formatter):
    """`severity` and `time` are the names that Google's log collectors read."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, object] = getattr(record, "fields", {})
        text = json_line(record.created, record.levelname, record.name, record.getMessage(), fields)
        if record.exc_info:
            text = f'{text[:-1]}, "exception": {_ENCODER.encode(self.formatException(record.exc_info))}}}'
        return text


def json_line(created: float, level: str, name: str, message: str, fields: Mapping[str, object]) -> str:
    line: dict[str, object] = {
        "time": format_rfc3339(round(created * 1000) * 1_000_000),
        "severity": level,
        "logger": name,
        "message": message,
        **_shown(fields),
    }
    return _ENCODER.encode(line)


class TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        clock = self.formatTime(record, "%H:%M:%S")
        # JSON quotes values, so that no message can forge a line or send control characters to a terminal.
        shown = _shown(getattr(record, "fields", {}))
        parts = [f"{name}={_ENCODER.encode(value)}" for name, value in shown.items() if name not in IDENTITY]
        text = " ".join([clock, f"{record.levelname.lower():7}", record.getMessage(), *parts])
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


def _shown(fields: Mapping[str, object]) -> dict[str, object]:
    return {
        name: value[:LONGEST_VALUE] if isinstance(value, str) else value
        for name, value in fields.items()
        if value is not None and value != ""
    }
