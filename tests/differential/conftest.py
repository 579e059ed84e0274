"""Both brokers, once for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.differential.side import Side
from tests.differential.side_by_side import SideBySide
from tests.support.google_emulator import google_emulator
from tests.support.served_broker import Server

__all__ = ["google_emulator"]


@pytest.fixture(scope="session")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    server = Server(tmp_path_factory.mktemp("broker") / "broker.db")
    side = Side(server.address)
    yield side
    side.close()
    server.stop()


@pytest.fixture(scope="session")
def theirs(google_emulator: str) -> Iterator[Side]:
    side = Side(google_emulator)
    yield side
    side.close()


@pytest.fixture(scope="session")
def sides(ours: Side, theirs: Side) -> SideBySide:
    return SideBySide(ours, theirs)
