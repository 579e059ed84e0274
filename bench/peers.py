"""The servers under test: Holdfast from this tree, Google's emulators, and plain programs that do what Holdfast's
consumer does. Each is a child process that is ended by its own handle, whatever happens."""

from __future__ import annotations

import os
import random
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import grpc

from bench import procfs
from bench.generator import build
from bench.missing import Missing

START_SECONDS = 30.0
STOP_SECONDS = 20.0

# A server counts as idle when it used less than this much of a core for this long.
IDLE_CORES = 0.1
IDLE_STEP_SECONDS = 0.2
IDLE_PATIENCE_SECONDS = 8.0

FIRESTORE_MAIN = "com.google.cloud.datastore.emulator.firestore.CloudFirestore"

# projects/bench, encoded as google.pubsub.v1.ListTopicsRequest: field 1, length, text.
_LIST_TOPICS = b"\x0a\x0eprojects/bench"


class Server:
    """Started on entry and serving when that returns; ended on exit. `helpers` run already and work for it: what they
    use counts as its own."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        port: int,
        scratch: Path,
        *,
        serves: Callable[[int], bool] | None = None,
        environment: Mapping[str, str] | None = None,
        helpers: Sequence[Server] = (),
    ) -> None:
        self.name = name
        self.port = port
        self.seconds_to_serve = 0.0
        self._serves = serves or _serves_grpc
        self._environment = environment or {}
        self._helpers = helpers
        self._command = command
        self._scratch = scratch
        self._log = scratch / f"{name.replace(' ', '-').replace(',', '').lower()}-{port}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        started = time.monotonic()
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._scratch,
                env={**_clean_environment(), **self._environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            self._wait_until_serving(started + START_SECONDS)
        except BaseException:
            self.stop()
            raise
        self.seconds_to_serve = time.monotonic() - started
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def helpers_cpu_seconds(self) -> float:
        return sum(procfs.cpu_seconds(helper.pid) for helper in self._helpers)

    def wait_until_idle(self) -> None:
        """What a server still does for the last round, such as deleting it, must not disturb the next one's."""
        give_up = time.monotonic() + IDLE_PATIENCE_SECONDS
        while time.monotonic() < give_up:
            before = procfs.cpu_seconds(self.pid) + self.helpers_cpu_seconds
            time.sleep(IDLE_STEP_SECONDS)
            if procfs.cpu_seconds(self.pid) + self.helpers_cpu_seconds - before < IDLE_CORES * IDLE_STEP_SECONDS:
                return

    def _wait_until_serving(self, give_up: float) -> None:
        while not self._serves(self.port):
            assert self._process is not None
            if self._process.poll() is not None or time.monotonic() > give_up:
                raise Missing(f"{self.name} did not start: {self._last_words()}")
            time.sleep(0.002)

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        # A Java trace ends in frames; its first line says what happened.
        telling = [line for line in lines if "Exception" in line or "rror" in line] or lines
        return telling[0] if telling else "it said nothing"


def holdfast_sqlite(scratch: Path) -> Server:
    port = free_port()
    command = [_holdfast(), "broker", "--port", str(port), "--data", str(data_of(scratch, port))]
    return Server("Holdfast, SQLite", command, port, scratch)


def holdfast_memory(scratch: Path) -> Server:
    port = free_port()
    return Server("Holdfast, memory", [_holdfast(), "broker", "--port", str(port), "--memory"], port, scratch)


def holdfast_consumer(
    name: str,
    scratch: Path,
    *options: str,
    environment: Mapping[str, str] | None = None,
    helpers: Sequence[Server] = (),
) -> Server:
    """As it is by default, with its log in a file; nobody has to show a token. Its data is in `data_of` it."""
    port = free_port()
    command = [_holdfast(), "consume", "--port", str(port), "--data", str(data_of(scratch, port)), *options]
    return Server(name, command, port, scratch, serves=_serves_http, environment=environment, helpers=helpers)


def holdfast_up(name: str, scratch: Path, data: Path, broker_port: int) -> Server:
    """Everything in one process, as it is by default."""
    port = free_port()
    ports = ("--port", str(port), "--broker-port", str(broker_port))
    return Server(name, [_holdfast(), "up", *ports, "--data", str(data)], port, scratch, serves=_serves_http)


def plain_program(
    name: str, scratch: Path, script: str, *options: str, environment: Mapping[str, str], helpers: Sequence[Server]
) -> Server:
    """A script of this directory. It takes a port, and answers GET /readyz there once it works."""
    port = free_port()
    command = [sys.executable, str(Path(__file__).parent / script), str(port), *options]
    return Server(name, command, port, scratch, serves=_serves_http, environment=environment, helpers=helpers)


def data_of(scratch: Path, port: int) -> Path:
    return scratch / f"data-{port}"


def firestore_emulator(scratch: Path) -> Server:
    """The jar without gcloud around it. It keeps every version of every document in memory, so it gets much of it."""
    java = shutil.which("java")
    if java is None:
        raise Missing("Google's Firestore emulator needs Java, and there is no `java` on the PATH")
    port = free_port()
    flags = ["-Duser.language=en", "-Xmx4g", "-XX:+UseSerialGC"]
    # It opens another port, at random and not always a free one, unless it is told which.
    ports = ["--host=127.0.0.1", f"--port={port}", f"--websocket_port={free_port()}"]
    command = [java, *flags, "-cp", str(firestore_jar()), FIRESTORE_MAIN, "start", *ports]
    return Server("Google's Firestore emulator", command, port, scratch, serves=lambda port: _serves_http(port, "/"))


def firestore_jar() -> Path:
    jars = [root / "platform/cloud-firestore-emulator/cloud-firestore-emulator.jar" for root in _sdk_roots()]
    for jar in jars:
        if jar.is_file():
            return jar
    raise Missing(
        "Google's Firestore emulator was not found: install the Cloud SDK with its cloud-firestore-emulator component, "
        "or set CLOUDSDK_ROOT_DIR to where it is"
    )


def google_emulator(scratch: Path) -> Server:
    """The jar without gcloud around it, which would leave the JVM behind when ended. The flags are kind to it: on two
    cores and in rounds of seconds, Java's default collector and compiler were slower until warm and about the same
    after, and gcloud's way of starting it is slower still."""
    port = free_port()
    java = shutil.which("java")
    if java is None:
        raise Missing("Google's Pub/Sub emulator needs Java, and there is no `java` on the PATH")
    flags = ["-Xmx1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    command = [java, *flags, "-jar", str(emulator_jar()), "--host=127.0.0.1", f"--port={port}"]
    return Server("Google's emulator", command, port, scratch)


def go_pstest(scratch: Path) -> Server:
    """The fake that Go's client brings for tests."""
    port = free_port()
    return Server("Go's pstest", [str(build("pstest", "./pstest")), "-port", str(port)], port, scratch)


def emulator_jar() -> Path:
    jars = [jar for root in _sdk_roots() for jar in sorted(root.glob("platform/pubsub-emulator/lib/*-all.jar"))]
    if not jars:
        raise Missing(
            "Google's Pub/Sub emulator was not found: install the Cloud SDK with its pubsub-emulator component, "
            "or set CLOUDSDK_ROOT_DIR to where it is"
        )
    return jars[-1]


def _sdk_roots() -> list[Path]:
    roots = []
    if told := os.environ.get("CLOUDSDK_ROOT_DIR"):
        roots.append(Path(told))
    if gcloud := shutil.which("gcloud"):
        roots.append(Path(gcloud).resolve().parent.parent)
    return roots


def free_port() -> int:
    """Below the range from which the kernel takes ports for outgoing connections: Google's emulator opens one for each
    push, and for a minute after that nobody can listen on that connection's port."""
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    for port in random.sample(range(max(first - 12_000, 1024), first), 100):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise Missing("no free port was found on 127.0.0.1")


def _holdfast() -> str:
    """The one beside the Python that runs this: the tree's, installed in place."""
    program = Path(sys.executable).parent / "holdfast"
    if not program.exists():
        raise Missing("Holdfast is not installed in this Python's environment: run `make install-dev`")
    return str(program)


def _clean_environment() -> dict[str, str]:
    """Without settings of the person who runs this: the figures must not depend on them."""
    ours = ("HOLDFAST_", "PUBSUB_", "CONSUMER_", "FIRESTORE_", "DLQ_", "JAVA_TOOL_OPTIONS", "GRPC_")
    words = {"ENV", "PORT", "GCP_PROJECT", "DEFAULT_REGION", "SYSTEM_EVENTS_TOPIC", "SUBSCRIPTION_TOPIC_MAP"}
    return {name: value for name, value in os.environ.items() if not name.startswith(ours) and name not in words}


def _serves_http(port: int, path: str = "/readyz") -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=START_SECONDS) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _serves_grpc(port: int) -> bool:
    """True once a request was answered. A plain connection is tried first: gRPC waits a second after a refused one."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        list_topics = channel.unary_unary(
            "/google.pubsub.v1.Publisher/ListTopics",
            request_serializer=lambda request: request,
            response_deserializer=lambda response: response,
        )
        try:
            list_topics(_LIST_TOPICS, timeout=START_SECONDS)
        except grpc.RpcError:
            return False
    return True
