"""Public helpers for tests: a clock moved by hand and the contract suites of the ports."""

from holdfast.testing.clock import ManualClock

__all__ = ["ManualClock"]
