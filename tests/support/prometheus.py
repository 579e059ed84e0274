"""The real Prometheus and its promtool, from Debian's package or from the PATH (scripts/system-packages gets them)."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.support.services import require

_UNPACKED = Path(__file__).resolve().parents[2] / ".venv" / ".tools" / "prometheus" / "usr" / "bin"

SECONDS = 60.0


def find(program: str) -> Path | None:
    """prometheus or promtool."""
    unpacked = _UNPACKED / program
    if unpacked.exists():
        return unpacked
    found = shutil.which(program)
    return Path(found) if found else None


def required(program: str) -> Path:
    found = find(program)
    require(program, found, "scripts/system-packages prometheus gets it")
    assert found
    return found


def promtool(*args: str | Path, cwd: Path) -> str:
    """What it prints, once it has succeeded."""
    command: Sequence[str | Path] = [required("promtool"), *args]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr
