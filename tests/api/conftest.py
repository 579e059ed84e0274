"""A served broker and its clients."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.served_broker import Clients, Server, connect


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    started = Server(tmp_path / "broker.db")
    yield started
    started.stop()


@pytest.fixture
def clients(server: Server) -> Iterator[Clients]:
    connected = connect(server.address)
    yield connected
    connected.publisher.transport.close()  # type: ignore[no-untyped-call]
