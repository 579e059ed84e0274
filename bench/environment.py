"""What the figures were measured on, in words that name no person and no place."""

from __future__ import annotations

import datetime
import os
import platform
import re
import shutil
import subprocess
import time
from pathlib import Path
from statistics import median

from bench import peers, procfs
from bench.missing import Missing
from bench.session import Session


def describe_environment(session: Session) -> dict[str, str]:
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": _commit(),
        "machine": f"{procfs.cores()} cores of {_cpu_model()}, {_memory_gb():.0f} GB",
        "system": f"{platform.system()} {platform.release()}",
        "disk": f"{_file_system(session.scratch)}, {fsync_ms(session.scratch, 50):.2f} ms for 4 KB and fsync",
        "python": platform.python_version(),
        "java": _first_line(["java", "-version"]),
        "go": _first_line(["go", "version"]).removeprefix("go version "),
        "emulator": _emulator(),
    }


def _emulator() -> str:
    """Not every part needs it, and those that do say what is missing."""
    try:
        return peers.emulator_jar().name
    except Missing:
        return ""


def _commit() -> str:
    """Marked where the tree had changes besides the results that this writes."""
    commit = _first_line(["git", "rev-parse", "--short", "HEAD"])
    changes = _output(["git", "status", "--porcelain", "--", ".", ":(exclude)bench/results"])
    return f"{commit} with changes" if commit and changes else commit


def _cpu_model() -> str:
    found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found[1] if found else platform.machine()


def _memory_gb() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9


def _file_system(path: Path) -> str:
    """The type of the mount that holds the path: the longest mount point that is one of its parents."""
    best, kind = "", "unknown"
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, point, file_system, *_ = line.split()
        if path.absolute().is_relative_to(point) and len(point) >= len(best):
            best, kind = point, file_system
    return kind


def fsync_ms(folder: Path, times: int) -> float:
    """The least that a durable commit can cost here."""
    took = []
    with (folder / "fsync").open("wb", buffering=0) as file:
        for _ in range(times):
            started = time.perf_counter()
            file.write(bytes(4096))
            os.fsync(file.fileno())
            took.append((time.perf_counter() - started) * 1000)
    return median(took)


def _first_line(command: list[str]) -> str:
    return (_output(command).splitlines() or [""])[0]


def _output(command: list[str]) -> str:
    """Of both streams: `java -version` speaks on the second. Empty where the program is missing or fails."""
    if shutil.which(command[0]) is None:
        return ""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=30)
    return done.stdout.strip() if done.returncode == 0 else ""
