"""The parts that run and the hops between them, by name; and one part as a process that can be hurt."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.torture.history import History

BROKER = "broker"
PUSHED_CONSUMER = "pushed consumer"
PULLING_CONSUMER = "pulling consumer"
DESK = "desk"
PARTS = (BROKER, PUSHED_CONSUMER, PULLING_CONSUMER, DESK)

CLIENTS_TO_BROKER = "clients → broker"
CONSUMER_TO_BROKER = "consumer → broker"
DESK_TO_BROKER = "desk → broker"
BROKER_TO_CONSUMER = "broker → consumer"
BROKER_TO_ENDPOINT = "broker → endpoint"
CONSUMER_TO_POSTGRES = "consumer → PostgreSQL"
HOPS = (
    CLIENTS_TO_BROKER,
    CONSUMER_TO_BROKER,
    DESK_TO_BROKER,
    BROKER_TO_CONSUMER,
    BROKER_TO_ENDPOINT,
    CONSUMER_TO_POSTGRES,
)

# Importing takes most of it; a busy machine needs the rest.
UP_SECONDS = 60.0
STOP_SECONDS = 30.0
AGAIN_SECONDS = 0.5

IS_UP = b" is up. "


class Part:
    """Runs until it is told to stop: whenever it ends, it is started again."""

    def __init__(
        self,
        name: str,
        args: Sequence[str],
        folder: Path,
        env: Mapping[str, str],
        history: History,
        *,
        plant: str = "",
        with_disk: bool = True,
    ) -> None:
        self.name = name
        self.data = folder / "data"
        self.synced = folder / "synced"
        self.log = folder / "log"
        self.starts = 0
        self._args = args
        self._env = env
        self._history = history
        self._plant = plant
        self._with_disk = with_disk
        self._process: asyncio.subprocess.Process | None = None
        self._is_up = asyncio.Event()
        self._may_run = asyncio.Event()
        self._expected = False  # its end is our doing
        self._keeper: asyncio.Task[None] | None = None
        for path in (self.data, self.synced):
            path.mkdir(parents=True)

    async def start(self) -> None:
        """Gives it at once; `wait_until_up` waits."""
        self._may_run.set()
        self._keeper = asyncio.create_task(self._keep_running())

    async def wait_until_up(self) -> bool:
        try:
            async with asyncio.timeout(UP_SECONDS):
                await self._is_up.wait()
        except TimeoutError:
            return False
        return True

    async def kill(self) -> None:
        """As kill -9. It stays dead until `let_run`."""
        self._may_run.clear()
        self._expected = True
        process = self._process
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()

    def let_run(self) -> None:
        self._may_run.set()

    def send_signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)

    def tell(self, **what: Any) -> None:
        """What it stands on changes. The next process knows nothing of it."""
        process = self._process
        if process is not None and process.returncode is None and process.stdin is not None:
            process.stdin.write(json.dumps(what).encode() + b"\n")

    async def stop(self) -> None:
        """As Ctrl-C; what is wrong about how it ends is trouble."""
        process, self._expected = self._process, True
        self._may_run.clear()
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        if process is None or process.returncode is not None:
            return
        process.send_signal(signal.SIGCONT)
        process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_SECONDS):
                code = await process.wait()
        except TimeoutError:
            self._history.trouble("stuck", f"{self.name} does not stop")
            process.kill()
            await process.wait()
        else:
            if code != 0:
                self._history.trouble("unexpected", f"{self.name} stopped with {code}")

    async def abandon(self) -> None:
        """However the run ended, nothing of it stays."""
        if self._keeper is not None:
            self._keeper.cancel()
        process = self._process
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    # Keeping it running.

    async def _keep_running(self) -> None:
        while True:
            await self._may_run.wait()
            self._expected = False
            code = await self._run_once()
            was_up = self._is_up.is_set()
            self._is_up.clear()
            if not self._expected:
                if was_up:
                    self._history.trouble("unexpected", f"{self.name} ended by itself with {code}; see {self.log}")
                else:
                    self._history.add("refused_to_start", part=self.name, code=code)
                await asyncio.sleep(AGAIN_SECONDS)

    async def _run_once(self) -> int:
        self.starts += 1
        disk = ["--disk", str(self.data), str(self.synced)] if self._with_disk else []
        plant = ["--plant", self._plant] if self._plant else []
        with self.log.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "holdfast.torture.child", *disk, *plant, "--", *self._args),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env=self._env,
                start_new_session=True,  # Ctrl-C is for the lab, which then ends them in order
            )
        self._process = process
        self._history.add("started", part=self.name, pid=process.pid)
        assert process.stdout
        async for line in process.stdout:
            if IS_UP in line:
                self._is_up.set()
                self._history.add("up", part=self.name)
        return await process.wait()


def environment(extra: Mapping[str, str], is_setting: Callable[[str], bool]) -> dict[str, str]:
    """This process's, without what Holdfast, or a client on its way to it, would take as a setting."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not is_setting(name) and not name.lower().endswith("_proxy") and name != "GOOGLE_APPLICATION_CREDENTIALS"
    }
    return kept | dict(extra)
