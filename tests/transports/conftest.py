"""What the tests of transports may use."""

from __future__ import annotations

from tests.support.google_emulator import google_emulator

__all__ = ["google_emulator"]
