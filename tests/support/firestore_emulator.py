"""Google's own Firestore emulator, started from its jar. It keeps everything in memory.

A conftest.py, or a test module, that imports `firestore_emulator` has it as a fixture.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.google_emulator import START_SECONDS, STOP_SECONDS, TRIES, _free_port, _sdk_roots
from tests.support.services import require
from tests.support.waiting import eventually

_STARTED = "Dev App Server is now running"
_DECIDED = re.compile(f"{_STARTED}|BindException")

_JAVA_OPTIONS = ["-Duser.language=en", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
_MAIN = "com.google.cloud.datastore.emulator.firestore.CloudFirestore"


class FirestoreEmulator:
    """Can be stopped and started again at the same address, with nothing in it then."""

    def __init__(self, command: list[str], logs: Path) -> None:
        self.address = ""
        self._command = command
        self._logs = logs
        self._starts = 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        for _ in range(TRIES):
            port = self.address.rpartition(":")[2] or str(_free_port())
            if self._started(port):
                self.address = f"127.0.0.1:{port}"
                return
        raise RuntimeError(f"Google's Firestore emulator does not start; what it says is in {self._logs}")

    def _started(self, port: str) -> bool:
        self._starts += 1
        log = self._logs / str(self._starts)
        # It opens another port, at random and not always a free one, unless it is told which.
        ports = [f"--port={port}", f"--websocket_port={_free_port()}"]
        with log.open("wb") as output:
            process = self._process = subprocess.Popen(
                [*self._command, "--host=127.0.0.1", *ports], stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        eventually(lambda: process.poll() is not None or _DECIDED.search(log.read_text()), START_SECONDS)
        if _STARTED in log.read_text():
            return True
        self.stop()
        return False

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """It takes connections meanwhile, and answers nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """At once: it has nothing to save, and a server that dies gives no notice either."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(STOP_SECONDS)
            self._process = None


@pytest.fixture(scope="session")
def firestore_emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FirestoreEmulator]:
    """One that all tests of this process share: they use projects of their own."""
    emulator = new_emulator(tmp_path_factory.mktemp("firestore"))
    try:
        emulator.start()
        yield emulator
    finally:
        emulator.stop()


def new_emulator(logs: Path) -> FirestoreEmulator:
    """Skips when it cannot be had."""
    jar, java = find_jar(), shutil.which("java")
    require("Google's Firestore emulator", jar, "no Google Cloud SDK with the cloud-firestore-emulator was found")
    require("Google's Firestore emulator", java, "there is no java on the PATH")
    assert jar
    assert java
    return FirestoreEmulator([java, *_JAVA_OPTIONS, "-cp", str(jar), _MAIN, "start"], logs)


def find_jar() -> Path | None:
    places = (sdk / "platform/cloud-firestore-emulator/cloud-firestore-emulator.jar" for sdk in _sdk_roots())
    return next((jar for jar in places if jar.is_file()), None)
