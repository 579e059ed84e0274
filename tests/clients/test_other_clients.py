"""Google's Go and Node clients, unchanged, against a real broker: ordering keys, nacks, and exactly-once acks in Go."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.process import Launcher
from tests.support.services import require

HERE = Path(__file__).parent

# The first build on a new machine fetches and compiles the client and gRPC.
BUILD_SECONDS = 600
RUN_SECONDS = 90

pytestmark = pytest.mark.timeout(BUILD_SECONDS + RUN_SECONDS)


@pytest.fixture(params=[[], ["--memory"]], ids=["sqlite", "memory"])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with Launcher(tmp_path) as launcher:
        yield launcher.part("broker", *request.param).broker


@pytest.fixture(scope="session")
def go_client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    require("Go", shutil.which("go"), "`go` is not installed")
    program = tmp_path_factory.mktemp("go") / "client"
    subprocess.run(["go", "build", "-o", program, "."], cwd=HERE / "go", check=True, timeout=BUILD_SECONDS)
    return program


@pytest.fixture(scope="session")
def node_client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    require("Node", shutil.which("node") and shutil.which("npm"), "`node` or `npm` is not installed")
    folder = tmp_path_factory.mktemp("node")
    for name in ("package.json", "package-lock.json", "main.js"):
        shutil.copy(HERE / "node" / name, folder)
    command = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
    subprocess.run(command, cwd=folder, check=True, timeout=BUILD_SECONDS, capture_output=True)
    return folder / "main.js"


def run(command: list[str | Path], broker: str) -> dict[str, Any]:
    env = {**os.environ, "PUBSUB_EMULATOR_HOST": broker}
    finished = subprocess.run(command, env=env, capture_output=True, text=True, timeout=RUN_SECONDS, check=False)
    assert finished.returncode == 0, finished.stderr
    seen: dict[str, Any] = json.loads(finished.stdout)
    return seen


def check_report(seen: dict[str, Any]) -> None:
    assert seen["nackedAgain"], "the refused message did not come again"
    assert set(seen["byKey"]) == {f"key-{number}" for number in range(5)}
    for numbers in seen["byKey"].values():
        assert numbers == list(range(20)), "lost, doubled or out of order"


def test_the_go_client(go_client: Path, broker: str) -> None:
    seen = run([go_client], broker)
    check_report(seen)
    assert (seen["received"], seen["duplicates"], seen["ackFailures"]) == (100, 0, 0)


def test_the_node_client(node_client: Path, broker: str) -> None:
    check_report(run(["node", node_client], broker))
