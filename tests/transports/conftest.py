"""What the tests of transports may use."""

from __future__ import annotations

import socket

import pytest

from tests.support.google_emulator import google_emulator

__all__ = ["google_emulator", "refused_port"]


@pytest.fixture
def refused_port() -> int:
    """Nobody listens there, or did just now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
