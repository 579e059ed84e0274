"""Google's own Pub/Sub emulator, started from its jar. gcloud's wrapper is left out: the Java process survives it.

A conftest.py that imports `google_emulator` has it as a fixture.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.services import require
from tests.support.waiting import eventually

START_SECONDS = 30.0
STOP_SECONDS = 10.0

# Another process may take the free port before Java does. That is rare, and three times in a row it has other reasons.
TRIES = 3

_STARTED = "Server started, listening"
_DECIDED = re.compile(f"{_STARTED}|BindException")

_JAVA_OPTIONS = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]


@pytest.fixture(scope="session")
def google_emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """HOST:PORT of an emulator that all tests of this process share: they use names of their own."""
    jar, java = find_jar(), shutil.which("java")
    require("Google's Pub/Sub emulator", jar, "no Google Cloud SDK with the pubsub-emulator component was found")
    require("Google's Pub/Sub emulator", java, "there is no java on the PATH")
    assert jar
    assert java
    with running_emulator(java_command(java, jar), tmp_path_factory.mktemp("emulator")) as address:
        yield address


def java_command(java: str, jar: Path) -> list[str]:
    return [java, *_JAVA_OPTIONS, "-jar", str(jar)]


def find_jar() -> Path | None:
    jars = (jar for sdk in _sdk_roots() for jar in (sdk / "platform/pubsub-emulator/lib").glob("*pubsub*-all.jar"))
    return next(jars, None)


def _sdk_roots() -> Iterator[Path]:
    if root := os.environ.get("CLOUDSDK_ROOT_DIR"):
        yield Path(root)
    if gcloud := shutil.which("gcloud"):
        yield Path(gcloud).resolve().parent.parent
    yield Path("/usr/lib/google-cloud-sdk")  # where Debian's package puts it


@contextmanager
def running_emulator(command: Sequence[str], logs: Path) -> Iterator[str]:
    for number in range(TRIES):
        with _started(command, _free_port(), logs / str(number)) as address:
            if address:
                yield address
                return
    raise RuntimeError(f"Google's emulator does not start; what it says is in {logs}")


@contextmanager
def _started(command: Sequence[str], port: int, log: Path) -> Iterator[str]:
    """Gives HOST:PORT once it listens there, or nothing when it could not."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "--host=127.0.0.1", f"--port={port}"], stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    try:
        # Its own words and not a connection: that could be to whoever took the port. Without one it goes on running.
        eventually(lambda: process.poll() is not None or _DECIDED.search(log.read_text()), START_SECONDS)
        yield f"127.0.0.1:{port}" if _STARTED in log.read_text() else ""
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_SECONDS)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
