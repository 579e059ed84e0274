"""`holdfast consume` processes on one store, killed as by kill -9 and started again."""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import Mapping
from pathlib import Path

from tests.proof.traffic import SUBSCRIPTION_TOPICS
from tests.support.process import Launcher, Running

ROOT = Path(__file__).resolve().parents[2]
APP = "tests.proof.app:app"

# Of all workers together: less than what is sent at once, so that some requests are turned away.
QUEUE_SIZE = 64


class Worker:
    """`is_up` may be true for a moment after it was killed, as for any sender."""

    def __init__(self, launcher: Launcher, app: str, store: str, env: Mapping[str, str]) -> None:
        self.address: tuple[str, int] = ("", 0)
        self.is_up = False
        self._launcher = launcher
        self._args = ("consume", app, "--port", "0", *(("--store", store) if store else ()))
        self._env = env
        self._lives: list[Running] = []

    async def start(self) -> None:
        running = self._launcher.start(*self._args, env=self._env)
        self._lives.append(running)
        await asyncio.to_thread(running.wait_until_up)
        host, _, port = running.url.removeprefix("http://").rpartition(":")
        self.address = (host, int(port))
        self.is_up = True

    async def kill(self) -> None:
        await asyncio.to_thread(self._lives[-1].kill)
        self.is_up = False

    def complaints(self) -> list[str]:
        """What it logged of errors that nobody had thought of."""
        lines = [line for running in self._lives for line in running.stderr.splitlines()]
        return [line for line in lines if "unclassified" in line or "Traceback" in line]

    @property
    def url(self) -> str:
        return "http://{}:{}".format(*self.address)


class Workers:
    def __init__(
        self, launcher: Launcher, store: str, number: int, app: str = APP, env: Mapping[str, str] | None = None
    ) -> None:
        settings = {
            "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")])),
            "SUBSCRIPTION_TOPIC_MAP": json.dumps(SUBSCRIPTION_TOPICS),
            "HOLDFAST_LOG_LEVEL": "error",
            "CONSUMER_QUEUE_SIZE": str(QUEUE_SIZE // number),
        }
        self.all = [Worker(launcher, app, store, settings | dict(env or {})) for _ in range(number)]
        self.kills = 0
        self._any_up = asyncio.Event()

    async def start(self) -> None:
        await asyncio.gather(*(worker.start() for worker in self.all))
        self._any_up.set()

    async def kill_one(self, chance: random.Random) -> None:
        """And starts it again; meanwhile the others go on."""
        worker = chance.choice(self.all)
        await worker.kill()
        self.kills += 1
        if not any(other.is_up for other in self.all):
            self._any_up.clear()
        await worker.start()
        self._any_up.set()

    def complaints(self) -> list[str]:
        return [line for worker in self.all for line in worker.complaints()]

    async def any_up(self, chance: random.Random) -> Worker:
        await self._any_up.wait()
        return chance.choice([worker for worker in self.all if worker.is_up] or self.all)
