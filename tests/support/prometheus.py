"""The real Prometheus and its promtool, from Debian's package or from the PATH (scripts/system-packages gets them)."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from tests.support import http
from tests.support.services import require
from tests.support.waiting import eventually

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


@dataclass(frozen=True, slots=True)
class Prometheus:
    """One that runs."""

    url: str

    def ask(self, query: str, at: float | None = None) -> list[dict[str, Any]]:
        """An instant query: one row for each series."""
        found: list[dict[str, Any]] = self._get("query", query=query, **({} if at is None else {"time": at}))["result"]
        return found

    def label_values(self, label: str, match: str) -> list[str]:
        found: list[str] = self._get(f"label/{label}/values", **{"match[]": match})
        return found

    def _get(self, path: str, **params: object) -> Any:
        answer = http.get(f"{self.url}/api/v1/{path}?{urlencode(params)}")
        assert answer.status == 200, answer.body
        return answer.body["data"]


@contextmanager
def scraping(folder: Path, *targets: str) -> Iterator[Prometheus]:
    """A Prometheus of its own that asks these HOST:PORT every second."""
    config = {
        "global": {"scrape_interval": "1s"},
        "scrape_configs": [{"job_name": "holdfast", "static_configs": [{"targets": targets}]}],
    }
    folder.mkdir()
    (folder / "prometheus.yml").write_text(json.dumps(config), encoding="utf-8")  # JSON is YAML
    log = folder / "log"
    options = ["--config.file=prometheus.yml", "--storage.tsdb.path=data", "--web.listen-address=127.0.0.1:0"]
    with log.open("wb") as out:
        process = subprocess.Popen([required("prometheus"), *options], cwd=folder, stdout=out, stderr=out)
    try:
        yield Prometheus(f"http://{eventually(lambda: _address(process, log), SECONDS)}")
    finally:
        process.terminate()
        process.wait(SECONDS)


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    text = log.read_text(encoding="utf-8")
    if process.poll() is not None:
        raise RuntimeError(f"Prometheus ended: {text}")
    found = re.search(r'msg="Listening on" address=(\S+)', text)
    return found[1] if found and "Server is ready" in text else ""
