"""The process itself as metrics: what it is, and what it takes of the machine."""

from __future__ import annotations

import asyncio
import os
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import holdfast
from holdfast.metrics import process
from holdfast.metrics.metric import Family, Metric, Sample
from holdfast.metrics.registry import MetricsRegistry

T = TypeVar("T", int, float)

PROC = Path("/proc")


def process_registry(part: str) -> MetricsRegistry:
    """`part` is the command that the process was started with. The other parts add their own sources."""
    started = _start_time()

    def about() -> list[Family]:
        known = ((process.STARTED, started), (process.PROCESS_START, started), *_resources())
        build = Family(process.BUILD, [Sample((holdfast.__version__, part), 1)])
        return [build, *(Family(metric, [Sample((), value)]) for metric, value in known if value is not None)]

    async def source() -> list[Family]:
        return await asyncio.to_thread(about)  # with thousands of connections, counting them takes milliseconds

    registry = MetricsRegistry()
    registry.register(source)
    return registry


def _resources() -> list[tuple[Metric, float | None]]:
    """None where the system does not tell."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return [
        (process.CPU, time.process_time()),
        (process.RESIDENT_MEMORY, _read(_resident_bytes)),
        (process.OPEN_FDS, _read(lambda: len(os.listdir(PROC / "self/fd")))),  # noqa: PTH208 - names are enough
        (process.MAX_FDS, None if most == resource.RLIM_INFINITY else most),
    ]


def _read(value: Callable[[], T]) -> T | None:
    try:
        return value()
    except (OSError, ValueError, IndexError):
        return None


def _resident_bytes() -> int:
    return int((PROC / "self/statm").read_text().split()[1]) * resource.getpagesize()


def _start_time() -> float:
    """Without /proc the time of the first look, which is close to it."""
    return _read(_started) or time.time()


def _started() -> float:
    # The second field is the program's name in brackets, which may hold spaces and brackets.
    ticks = int((PROC / "self/stat").read_text().rpartition(")")[2].split()[19])
    booted = next(line for line in (PROC / "stat").read_text().splitlines() if line.startswith("btime "))
    return float(int(booted.split()[1]) + ticks / os.sysconf("SC_CLK_TCK"))
