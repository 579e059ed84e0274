"""A real PostgreSQL server of the tests' own: its data in a temporary directory, reached through a Unix socket there,
so that no port can be taken.

A test module that imports `postgres` and `database_url` has them as fixtures.
"""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import psycopg
import pytest
from psycopg import sql

from holdfast.torture.postgres import find_binaries, somebody_else
from tests.support.services import require
from tests.support.waiting import eventually

START_SECONDS = 30.0
STOP_SECONDS = 20.0

ADMIN = "postgres"

# fsync is for power cuts, which no test makes. Commits do not wait for the log either, as on a server where somebody
# has turned that off: what a store reports as done must outlive a killed server all the same.
SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",
    "synchronous_commit": "off",
    "wal_writer_delay": "10s",
    "max_connections": "60",
    "shared_buffers": "32MB",
    "lc_messages": "C",
}

# Who has a password must give it; everybody else is who they say.
_WHO_MAY_CONNECT = "local all with_password scram-sha-256\nlocal all all trust\n"

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A server that all tests of this process share: each has a database of its own."""
    with running_postgres() as server:
        yield server


@pytest.fixture
def database_url(postgres: PostgresServer) -> Iterator[str]:
    """An empty database, gone after the test."""
    with postgres.database() as url:
        yield url


@contextmanager
def running_postgres(settings: Mapping[str, str] = {}) -> Iterator[PostgresServer]:
    binaries = find_binaries()
    require("PostgreSQL", binaries, "there is neither a postgres on the PATH nor one in /usr/lib/postgresql")
    assert binaries
    # Not below pytest's own directory: that is for its owner alone, and the server runs as somebody else.
    directory = Path(tempfile.mkdtemp(prefix="holdfast-postgres-", dir="/tmp"))
    server = PostgresServer(binaries, directory, {**SETTINGS, **settings})
    try:
        server.initialise()
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(directory, ignore_errors=True)


class PostgresServer:
    def __init__(self, binaries: Path, directory: Path, settings: Mapping[str, str]) -> None:
        self._binaries = binaries
        self._directory = directory
        self._data = directory / "data"
        self._log = directory / "log"
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, database: str = "postgres", user: str = ADMIN, password: str = "", **options: str) -> str:
        who = f"{quote(user)}:{quote(password)}" if password else quote(user)
        return f"postgresql://{who}@/{quote(database)}?{urlencode({'host': str(self._directory), **options})}"

    @property
    def pid(self) -> int:
        """Of its first process, the parent of the others."""
        assert self._process
        return self._process.pid

    @contextmanager
    def database(self) -> Iterator[str]:
        name = f"test_{next(_numbers)}"
        self.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        try:
            yield self.url(name)
        finally:
            self.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))

    def execute(self, statement: sql.Composable | str, url: str = "") -> list[tuple[Any, ...]]:
        """As the administrator. `url` says where, if not in the database that is always there."""
        with psycopg.connect(url or self.url(), autocommit=True) as connection:
            cursor = connection.execute(statement)  # type: ignore[arg-type]  # a test's own text
            return cursor.fetchall() if cursor.description else []

    # Its life.

    def initialise(self) -> None:
        if os.geteuid() == 0:
            user = _somebody()
            os.chown(self._directory, user.pw_uid, user.pw_gid)
        command: list[str | Path] = [self._binaries / "initdb", "-D", self._data, "-U", ADMIN]
        command += ["-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync"]
        with self._log.open("ab") as log:
            done = subprocess.run(command, stdout=log, stderr=log, timeout=START_SECONDS, check=False, **_as_somebody())
        assert done.returncode == 0, self._log.read_text()
        (self._data / "pg_hba.conf").write_text(_WHO_MAY_CONNECT)

    def start(self) -> None:
        """After a kill it refuses for as long as processes of its last life are about: then it is started again."""
        eventually(self._starts, START_SECONDS)

    def kill(self) -> None:
        """As kill -9. Its other processes see that it is gone and end by themselves."""
        assert self._process
        self._process.kill()
        self._process.wait(STOP_SECONDS)

    def stop(self) -> None:
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGINT)  # at once, connections or not, and with everything saved
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()

    def _starts(self) -> bool:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [self._binaries / "postgres", "-D", self._data, *self._options()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                **_as_somebody(),
            )
        return eventually(self._is_decided, START_SECONDS) == "up"

    def _is_decided(self) -> str:
        assert self._process
        if self._process.poll() is not None:
            return "ended"
        try:
            psycopg.connect(self.url()).close()
        except psycopg.OperationalError:
            return ""
        return "up"

    def _options(self) -> Sequence[str]:
        settings = {**self._settings, "unix_socket_directories": str(self._directory)}
        return [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]


def _somebody() -> pwd.struct_passwd:
    if found := somebody_else():
        return found
    raise RuntimeError("there is neither a user postgres nor nobody to run PostgreSQL as")


def _as_somebody() -> dict[str, Any]:
    elsewhere: dict[str, Any] = {"cwd": "/"}  # the current directory may be closed to them
    if os.geteuid() != 0:
        return elsewhere
    user = _somebody()
    return {**elsewhere, "user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
