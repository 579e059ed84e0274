"""What Linux says about a process, without a dependency."""

from __future__ import annotations

import os
from pathlib import Path

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """User and kernel time of all its threads so far."""
    stat = Path(f"/proc/{pid}/stat").read_text()
    # The name in parentheses may hold anything, so the count begins behind it: utime and stime are fields 14 and 15.
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND


def machine_cpu_seconds() -> float:
    """What all processes have used so far, on all cores. Idle time and waiting for the disk are no work."""
    _, user, nice, system, _idle, _waiting, irq, softirq, *_ = Path("/proc/stat").read_text().split(maxsplit=8)
    return sum(map(int, (user, nice, system, irq, softirq))) / _TICKS_PER_SECOND


def peak_rss_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024 / 1e6
    return 0.0


def forget_peak_rss(pid: int) -> None:
    """The peak counts from now on. Where the kernel refuses, it counts from the start of the process as before."""
    try:
        Path(f"/proc/{pid}/clear_refs").write_text("5")
    except OSError:
        pass


def cores() -> int:
    return len(os.sched_getaffinity(0))
