"""What every test may use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.process import Launcher


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[Launcher]:
    """Runs `holdfast` in an empty directory, and ends what is still running after the test."""
    with Launcher(tmp_path) as launcher:
        yield launcher


@pytest.fixture(scope="module")
def shared_launcher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launcher]:
    """One for a whole module, for tests that do not disturb each other."""
    with Launcher(tmp_path_factory.mktemp("shared")) as launcher:
        yield launcher
