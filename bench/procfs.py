"""What Linux says about a process, without a dependency."""

from __future__ import annotations

import os
from pathlib import Path

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """User and kernel time of all its threads so far."""
    return _cpu_seconds(Path(f"/proc/{pid}/stat"))


def _cpu_seconds(stat: Path) -> float:
    # The name in parentheses may hold anything, so the count begins behind it: utime and stime are fields 14 and 15.
    fields = stat.read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND


def thread_cpu_seconds(pid: int) -> dict[int, float]:
    """Of each thread that is alive; the first one has the number of the process."""
    return {int(task.name): _cpu_seconds(task / "stat") for task in Path(f"/proc/{pid}/task").iterdir()}


def family_cpu_seconds(pid: int) -> float:
    """Of a process and its children, as far as they are alive."""
    children = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal() and _parent(path) == pid]
    return sum(map(cpu_seconds, [pid, *children]))


def _parent(process: Path) -> int:
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:  # it has just ended
        return 0


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
