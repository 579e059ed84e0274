"""What the tests of the command line may use."""

from tests.support.google_emulator import google_emulator

__all__ = ["google_emulator"]
