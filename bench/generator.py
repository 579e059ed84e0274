"""The load generator in bench/load: built when its sources changed, run as a child process, its JSON read."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from bench.missing import Missing

SOURCES = Path(__file__).parent / "load"

# Beyond the measurement's own limit: topics are created and deleted, and a deletion may take a slow server a while.
PATIENCE_SECONDS = 60


class LoadFailed(Exception):
    """Its text is one line: what the generator said, or what it should have and did not."""


@dataclass(frozen=True, slots=True)
class Load:
    """One run of the generator. Latencies and fairness are there when the command measures them."""

    messages: int
    seconds: float
    per_second: float
    complete: bool
    duplicates: int
    generator_cpu_seconds: float
    server_cpu_seconds: float
    server_peak_rss_mb: float
    machine_cpu_seconds: float
    p50_ms: float | None = None
    p99_ms: float | None = None
    slowest_over_median: float | None = None
    fairness_at_half: float | None = None

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> Self:
        return cls(generator_cpu_seconds=raw.pop("cpu_seconds"), **raw)


def build(name: str, package: str) -> Path:
    """A program of bench/load. Go itself knows whether anything changed, and takes no time when nothing did."""
    go = shutil.which("go")
    if go is None:
        raise Missing("the load generator needs Go 1.26 or newer to be built, and there is no `go` on the PATH")
    program = SOURCES / ".build" / name
    command = [go, "build", "-trimpath", "-o", str(program), package]
    built = subprocess.run(command, cwd=SOURCES, capture_output=True, text=True, check=False)
    if built.returncode != 0:
        raise Missing(f"{name} could not be built: {_last_line(built.stderr)}")
    return program


class Generator:
    def __init__(self, program: Path) -> None:
        self._program = program

    @classmethod
    def build(cls) -> Self:
        return cls(build("load", "."))

    def run(self, command: str, port: int, server_pid: int, *, limit_seconds: int, **flags: int) -> Load:
        words = [str(self._program), command, "-target", f"127.0.0.1:{port}", "-server-pid", str(server_pid)]
        words += ["-limit", f"{limit_seconds}s"]
        for name, value in flags.items():
            words += [f"-{name}", str(value)]
        try:
            done = subprocess.run(
                words, capture_output=True, text=True, check=False, timeout=limit_seconds + PATIENCE_SECONDS
            )
        except subprocess.TimeoutExpired:
            raise LoadFailed(f"{command}: the load generator did not end in time") from None
        if done.returncode != 0:
            raise LoadFailed(_last_line(done.stderr))
        return Load.from_json(json.loads(done.stdout))


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "no reason was given"
