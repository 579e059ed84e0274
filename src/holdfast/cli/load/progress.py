"""How a run is doing, while it runs: one line that is redrawn on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import click

from holdfast.cli.load.result import milliseconds
from holdfast.cli.load.run import Load
from holdfast.clock import NANOSECONDS

_REDRAW_SECONDS = 0.2
_LINE_SECONDS = 5.0

_ERASE_LINE = "\r\x1b[K"


class Progress:
    """On standard error, so that what is printed at the end can be redirected."""

    def __init__(self, *, silent: bool) -> None:
        self._silent = silent
        self._redraws = sys.stderr.isatty()

    @asynccontextmanager
    async def of(self, load: Load, title: str = "") -> AsyncIterator[None]:
        if self._silent:
            yield
            return
        telling = asyncio.ensure_future(self._tell(load, title))
        try:
            yield
        finally:
            telling.cancel()
            await asyncio.wait({telling})
            if self._redraws:
                click.echo(_ERASE_LINE, err=True, nl=False)

    async def _tell(self, load: Load, title: str) -> None:
        while True:
            await asyncio.sleep(_REDRAW_SECONDS if self._redraws else _LINE_SECONDS)
            line = title + progress_line(load, (time.perf_counter_ns() - load.started_ns) / NANOSECONDS)
            if self._redraws:
                columns = shutil.get_terminal_size().columns
                click.echo(f"{_ERASE_LINE}{line[: columns - 1]}", err=True, nl=False)
            else:
                click.echo(line, err=True)


def progress_line(load: Load, seconds: float) -> str:
    tally, plan = load.tally, load.plan
    done = f"{tally.ended:,}" + (f"/{plan.requests:,}" if plan.requests is not None else "")
    elapsed = f"{seconds:.0f}" + (f"/{plan.seconds:g}" if plan.seconds is not None else "") + " s"
    rate = f"{tally.ended / seconds:,.0f}/s" if seconds else ""
    counts = [
        *(f"{status}: {count:,}" for status, count in sorted(tally.statuses.items())),
        *(f"{kind}: {count:,}" for kind, count in sorted(tally.no_answers.items())),
    ]
    p99 = f"p99 {milliseconds(tally.all_latencies().percentile_ms(0.99))} ms" if tally.answered else ""
    return "  ".join(part for part in (done, elapsed, rate, *counts, p99) if part)
