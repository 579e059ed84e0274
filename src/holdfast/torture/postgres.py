"""A PostgreSQL server of the lab's own, where this machine has one installed: made in a temporary directory, reached
over TCP so that a proxy can stand in between."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from holdfast.errors import StartupError

START_SECONDS = 60.0
LOOK_EVERY_SECONDS = 0.1

ADMIN = "postgres"


def why_not() -> str:
    """Why PostgreSQL cannot take part here; empty when it can."""
    if find_binaries() is None:
        return "needs PostgreSQL: no postgres on the PATH nor in /usr/lib/postgresql"
    if importlib.util.find_spec("psycopg") is None or importlib.util.find_spec("psycopg_pool") is None:
        return "needs pip install 'holdfast[postgres]'"
    if os.geteuid() == 0 and somebody_else() is None:
        return "needs a user that PostgreSQL can run as: postgres or nobody"
    return ""


def find_binaries() -> Path | None:
    """Debian keeps them off the PATH, one directory for each version."""
    if found := shutil.which("postgres"):
        return Path(found).resolve().parent
    versions = Path("/usr/lib/postgresql").glob("*/bin/postgres")
    return max((path.parent for path in versions), key=lambda path: float(path.parent.name), default=None)


class Postgres:
    """Commits are durable, as by default."""

    def __init__(self, directory: Path, log: Path, port: int) -> None:
        """The directory must be one that another user may enter; the log need not be."""
        binaries = find_binaries()
        assert binaries
        self._binaries = binaries
        self._data = directory / "data"
        self._directory = directory
        self._log = log
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, port: int) -> str:
        return f"postgresql://{ADMIN}@127.0.0.1:{port}/{ADMIN}"

    async def make(self) -> None:
        if os.geteuid() == 0:
            somebody = somebody_else()
            assert somebody
            os.chown(self._directory, somebody.pw_uid, somebody.pw_gid)
        command: list[str | Path] = [
            self._binaries / "initdb",
            "-D",
            self._data,
            "-U",
            ADMIN,
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--no-sync",
        ]
        with self._log.open("ab") as log:
            await asyncio.to_thread(
                lambda: subprocess.run(_as_somebody(command), stdout=log, stderr=log, check=True)  # noqa: S603
            )

    async def start(self) -> None:
        """After a kill it refuses for as long as processes of its last life are about: then it is started again."""
        try:
            async with asyncio.timeout(START_SECONDS):
                while not await self._starts():  # noqa: ASYNC110 - nobody tells when they are gone
                    await asyncio.sleep(LOOK_EVERY_SECONDS)
        except TimeoutError:
            raise StartupError(f"PostgreSQL does not start; see {self._log}") from None

    async def end(self, number: signal.Signals) -> None:
        """SIGINT ends connections and saves everything; SIGQUIT saves nothing; SIGKILL goes to all its processes: one
        that is left would keep the next server from starting."""
        if self._process is None or self._process.poll() is not None:
            return
        others = self._children() if number is signal.SIGKILL else []
        self._process.send_signal(number)
        for pid in others:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        await asyncio.to_thread(self._process.wait)

    def _children(self) -> list[int]:
        assert self._process
        told = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        return [int(pid) for pid in told.read_text().split()] if told.exists() else []

    async def _starts(self) -> bool:
        options = {
            "listen_addresses": "127.0.0.1",
            "port": str(self._port),
            "unix_socket_directories": str(self._directory),
            "lc_messages": "C",
            "shared_buffers": "32MB",
        }
        words = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603, ASYNC220 - it forks, and nothing here waits for it
                _as_somebody([self._binaries / "postgres", "-D", self._data, *words]),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        while self._process.poll() is None:
            if await self._answers():
                return True
            await asyncio.sleep(LOOK_EVERY_SECONDS)
        return False

    async def _answers(self) -> bool:
        import psycopg  # noqa: PLC0415 - an extra

        try:
            await asyncio.to_thread(lambda: psycopg.connect(self.url(self._port), connect_timeout=2).close())
        except psycopg.OperationalError:
            return False
        return True


def somebody_else() -> pwd.struct_passwd | None:
    """PostgreSQL refuses to run as root. Its package makes a user for it."""
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    return None


# gRPC does not bear a fork, and giving up rights between fork and exec would need one.
_BECOME = "import os, sys; os.setgroups([]); os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[1])); os.chdir('/'); \
os.execv(sys.argv[3], sys.argv[3:])"


def _as_somebody(command: Sequence[str | Path]) -> list[str | Path]:
    somebody = somebody_else()
    if os.geteuid() != 0 or somebody is None:
        return list(command)
    return [sys.executable, "-c", _BECOME, str(somebody.pw_uid), str(somebody.pw_gid), *command]
