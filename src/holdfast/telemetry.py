"""Logging: one line per event on standard error, as text for people or JSON for programs. Never a payload.

A record's structured part is `extra={"fields": {...}}`.
"""

from __future__ import annotations

import json
import logging
import sys

from holdfast.model.timestamps import format_rfc3339

# What an error text may add to a line.
LONGEST_VALUE = 500

# Google's level above critical: somebody must act at once.
ALERT = logging.CRITICAL + 10
logging.addLevelName(ALERT, "ALERT")

_ENCODER = json.JSONEncoder(default=str)  # json.dumps would make one each time

# The same on every line of a process: for programs that collect many, not for people who look at one.
IDENTITY = frozenset({"service", "env", "version", "sha"})


def configure_logging(log_format: str, level: str) -> None:
    """`log_format` is text, json or auto: text on a terminal, else JSON."""
    handler = logging.StreamHandler(sys.stderr)
    as_text = log_format == "text" or (log_format == "auto" and sys.stderr.isatty())
    handler.setFormatter(TextFormatter() if as_text else JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)  # libraries
    logging.getLogger("holdfast").setLevel(level.upper())


def spare_what_no_line_shows() -> None:
    """For a process of our own: caller, thread and process of a record cost as much to find as the line itself."""
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None  # the way that the documentation of logging tells


class JsonFormatter(logging.Formatter):
    """`severity` and `time` are the names that Google's log collectors read."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": format_rfc3339(round(record.created * 1000) * 1_000_000),
            "severity": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return _ENCODER.encode(line)


class TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        time = self.formatTime(record, "%H:%M:%S")
        # JSON quotes values, so that no message can forge a line or send control characters to a terminal.
        parts = [f"{name}={_ENCODER.encode(value)}" for name, value in _fields(record).items() if name not in IDENTITY]
        text = " ".join([time, f"{record.levelname.lower():7}", record.getMessage(), *parts])
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


def _fields(record: logging.LogRecord) -> dict[str, object]:
    fields: dict[str, object] = getattr(record, "fields", {})
    return {name: _bounded(value) for name, value in fields.items() if value not in (None, "")}


def _bounded(value: object) -> object:
    return value[:LONGEST_VALUE] if isinstance(value, str) else value
