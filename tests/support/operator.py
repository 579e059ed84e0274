"""Somebody who types `holdfast` commands: each is a process of its own."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from tests.support.process import HOLDFAST, START_SECONDS, Launcher, Running, environment
from tests.support.waiting import eventually


class Operator:
    """Types `holdfast` commands at one broker."""

    def __init__(self, launcher: Launcher, broker: str) -> None:
        self.launcher = launcher
        self.broker = broker

    def __call__(self, *args: str | bytes, stdin: bytes = b"") -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [HOLDFAST, *args],
            cwd=self.launcher.cwd,
            env=self._environment(),
            input=stdin,
            capture_output=True,
            timeout=START_SECONDS,
            check=False,
        )
        return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())

    def ok(self, *args: str | bytes, stdin: bytes = b"") -> str:
        done = self(*args, stdin=stdin)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def json(self, *args: str | bytes, stdin: bytes = b"") -> Any:
        return json.loads(self.ok(*args, "--json", stdin=stdin))

    def refused(self, *args: str | bytes, code: int = 1) -> str:
        """The one line that says why."""
        done = self(*args)
        assert (done.returncode, done.stdout) == (code, ""), done
        assert done.stderr.startswith("holdfast: ")
        assert done.stderr.count("\n") == 1, done.stderr
        return done.stderr.removeprefix("holdfast: ").rstrip()

    def start(self, *args: str) -> Running:
        return self.launcher.start(*args, env=self._environment())

    def tail(self, *args: str) -> Running:
        running = self.start("tail", *args)
        eventually(lambda: "reading projects/" in running.stderr, START_SECONDS)
        return running

    def _environment(self) -> dict[str, str]:
        return environment({"PUBSUB_EMULATOR_HOST": self.broker})
