"""How a replay is doing: one line that is redrawn on a terminal, a line now and then elsewhere, and its end."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import click

from holdfast.cli.output import printable

_REDRAW_SECONDS = 0.5
_LINE_SECONDS = 5.0
_ERASE_LINE = "\r\x1b[K"

_GOES_ON = ("canary", "running")

Replay = Mapping[str, Any]


def follow(look: Callable[[], Replay]) -> Replay:
    """Until it is over or paused. On standard error, so that what is printed at the end can be redirected."""
    redraws = sys.stderr.isatty()
    while (replay := look())["state"] in _GOES_ON:
        _show(replay, redraws)
        time.sleep(_REDRAW_SECONDS if redraws else _LINE_SECONDS)
    if redraws:
        click.echo(_ERASE_LINE, err=True, nl=False)
    return replay


def _show(replay: Replay, redraws: bool) -> None:
    line = progress_line(replay)
    if redraws:
        columns = shutil.get_terminal_size().columns
        click.echo(f"{_ERASE_LINE}{line[: columns - 1]}", err=True, nl=False)
    else:
        click.echo(line, err=True)


def progress_line(replay: Replay) -> str:
    counts = replay["counts"]
    done = replay["total"] - counts["pending"]
    parts = [
        f"replay {replay['id']} {replay['state']}",
        f"{done:,}/{replay['total']:,}",
        *(f"{name} {counts[name]:,}" for name in ("sent", "succeeded", "failed", "skipped") if counts[name]),
        f"{replay['ratePerSecond']:,.0f}/s" if replay["state"] in _GOES_ON else "",
        f"{replay['secondsLeft']:,.0f} s left" if replay["secondsLeft"] else "",
        f"waits: {replay['trouble']}" if replay["trouble"] else "",
    ]
    return printable("  ".join(part for part in parts if part))


def print_replay(replay: Replay) -> None:
    click.echo(progress_line(replay))
    if replay["why"]:
        click.echo(printable(f"why: {replay['why']}"))
    if replay["state"] in _GOES_ON:
        click.echo(f"`holdfast replay watch {replay['id']}` follows it.")
    if replay["counts"]["failed"] or replay["counts"]["skipped"]:
        click.echo(f"`holdfast replay show {replay['id']} --items` says which failed or were skipped, and why.")
