"""The real `holdfast` command in processes of its own: started, watched and ended through their own handles."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from holdfast.settings import known_settings
from tests.support.waiting import eventually

HOLDFAST = Path(sys.executable).with_name("holdfast")

# Importing takes most of it, on a machine with two busy cores.
START_SECONDS = 30.0
STOP_SECONDS = 20.0

# Every broker and HTTP server takes a free port, so that tests can run beside each other and beside a real `up`.
FREE_PORTS = ("--port", "0", "--broker-port", "0")


class Running:
    """One `holdfast` process that runs until it is told to stop. Its output goes to two files."""

    def __init__(self, args: Sequence[str], cwd: Path, env: Mapping[str, str], logs: Path) -> None:
        self.args = args
        self._out, self._err = logs / "stdout", logs / "stderr"
        logs.mkdir(parents=True)
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                [HOLDFAST, *args], cwd=cwd, env=environment(env), stdin=subprocess.DEVNULL, stdout=out, stderr=err
            )

    def wait_until_up(self) -> Self:
        eventually(self._says_it_is_up, START_SECONDS)
        return self

    def _says_it_is_up(self) -> bool:
        if self.process.poll() is not None:
            raise RuntimeError(f"holdfast {' '.join(self.args)} ended with {self.process.returncode}: {self.stderr}")
        return " is up. " in self.stdout and self.stdout.endswith("\n")

    @property
    def stdout(self) -> str:
        return self._out.read_text(encoding="utf-8")

    @property
    def stderr(self) -> str:
        return self._err.read_text(encoding="utf-8")

    @property
    def broker(self) -> str:
        """HOST:PORT as the process told it to its user."""
        return self._told(r"export PUBSUB_EMULATOR_HOST=(\S+)")

    @property
    def url(self) -> str:
        return self._told(r"(http://[^/\s]+)/")

    def _told(self, pattern: str) -> str:
        found = re.search(pattern, self.stdout)
        assert found, self.stdout
        return found[1]

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Asks it to stop; gives its exit code."""
        self.process.send_signal(number)
        return self.process.wait(STOP_SECONDS)

    def kill(self) -> None:
        """As kill -9: it cannot do anything about it."""
        self.process.kill()
        self.process.wait(STOP_SECONDS)


class Launcher:
    """Runs `holdfast` in one directory, whose .holdfast is then the default data directory. Ends what it started."""

    def __init__(self, cwd: Path) -> None:
        self.cwd = cwd
        self.data = cwd / ".holdfast"
        self.started: list[Running] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for running in self.started:
            if running.process.poll() is None:
                running.kill()

    def start(self, *args: str, env: Mapping[str, str] | None = None) -> Running:
        """Gives it at once: it may not be up yet."""
        logs = self.cwd / "logs" / f"{len(self.started)}-{args[0]}"
        running = Running(args, self.cwd, env or {}, logs)
        self.started.append(running)
        return running

    def up(self, *args: str, env: Mapping[str, str] | None = None) -> Running:
        return self.start("up", *FREE_PORTS, *args, env=env).wait_until_up()

    def part(self, name: str, *args: str, env: Mapping[str, str] | None = None) -> Running:
        """`broker`, `consume` or `desk` on a free port."""
        return self.start(name, *args, "--port", "0", env=env).wait_until_up()

    def run(
        self, *args: str, env: Mapping[str, str] | None = None, before: Sequence[str] = ()
    ) -> subprocess.CompletedProcess[str]:
        """A command that ends by itself. `before` is put in front of it, such as setpriv with its options."""
        return subprocess.run(
            [*before, HOLDFAST, *args],
            cwd=self.cwd,
            env=environment(env or {}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            timeout=START_SECONDS,
            check=False,
        )


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    """This process's, without anything that Holdfast, or a client on its way to it, would take as a setting."""
    settings = {known.other_variable for known in known_settings()} | {"GOOGLE_APPLICATION_CREDENTIALS"}
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in settings and not name.startswith("HOLDFAST_") and not name.lower().endswith("_proxy")
    }
    return kept | dict(extra)
